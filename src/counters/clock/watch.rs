//! Checks whether the counter still agrees with the clock.
//!
//! When the counter was measured, its rate was constant. This can end: after a suspend a machine may restart the counter, a virtual
//! machine that was migrated gets the counter of another host, and the kernel may find that the counter is unstable and use another
//! clock source. All of this shows when both are read again, which is done when a device is read, at most once per millisecond. If
//! they differ, the counter is never used again.

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use super::Rate;

/// How far the counter and the clock may differ: one part in this number of the time that has passed. The clock may be slewed by a tenth,
/// which is the maximum that chrony applies.
const DIFFERENCE: u64 = 8;

/// The difference that is always allowed, in nanoseconds.
const SLACK: u64 = 20_000;

/// A reading is compared with one that is about this many nanoseconds older: a device may be read so often that the difference between
/// two reads is always below the slack.
pub(super) const APART: u64 = 1_000_000;

/// A reading of both that took longer was interrupted, and cannot be used.
const WIDEST: u64 = 20_000;

/// How often the kernel's clock source is read, in nanoseconds.
const ASKED: u64 = 1_000_000_000;

/// One reading of both: the counter before and after, and the clock in between.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Look {
    pub(super) before: u64,
    pub(super) ns: u64,
    pub(super) after: u64,
}

/// The counter of this machine, as it was measured.
#[derive(Debug)]
pub(super) struct Counter {
    pub(super) rate: Rate,
    lost: AtomicBool,
    /// When it was compared with the clock.
    compared: AtomicU64,
    last: Mutex<Last>,
}

#[derive(Clone, Copy, Debug)]
struct Last {
    /// The reading with which others are compared.
    look: Look,
    /// When the kernel's clock source was read.
    asked: u64,
}

impl Counter {
    pub(super) fn new(rate: Rate, look: Look) -> Self {
        let last = Mutex::new(Last { look, asked: look.ns });
        Self { rate, lost: AtomicBool::new(false), compared: AtomicU64::new(look.ns), last }
    }

    /// Whether the counter must not be used any more.
    pub(super) fn is_lost(&self) -> bool {
        self.lost.load(Ordering::Relaxed)
    }

    /// Whether the two were compared in the millisecond before `ns`.
    #[inline]
    pub(super) fn is_compared(&self, ns: u64) -> bool {
        ns.wrapping_sub(self.compared.load(Ordering::Relaxed)) < APART
    }

    /// Compares a reading with an earlier one, and sometimes calls `is_trusted`, which reads the kernel's clock source. Returns whether
    /// the counter can be used.
    pub(super) fn goes_on(&self, look: Look, is_trusted: impl FnOnce() -> bool) -> bool {
        if self.is_lost() {
            return false;
        }
        // A comparison by another thread at the same time is sufficient, and a reading that was interrupted cannot be used.
        let width = self.nanoseconds(look.after.wrapping_sub(look.before));
        let Some(mut last) = self.last.try_lock().ok() else { return true };
        // Two threads may arrive here in another order than that of their readings.
        if look.ns < last.look.ns {
            return true;
        }
        self.compared.store(look.ns, Ordering::Relaxed);
        let is_due = look.ns - last.asked >= ASKED;
        let goes = if width <= WIDEST {
            let goes = self.agree(&last.look, &look);
            if look.ns - last.look.ns >= APART {
                last.look = look;
            }
            goes
        } else {
            // However long the reading took, the counter has not gone back.
            look.before.wrapping_sub(last.look.before) < super::NEVER && width < super::NEVER
        };
        let goes = goes && (!is_due || is_trusted());
        if is_due {
            last.asked = look.ns;
        }
        if !goes {
            self.lost.store(true, Ordering::Relaxed);
        }
        goes
    }

    /// Whether the same time has passed between two readings by the counter and by the clock.
    fn agree(&self, first: &Look, second: &Look) -> bool {
        let clock = second.ns - first.ns;
        let counter = self.nanoseconds(second.before.wrapping_sub(first.before));
        counter.abs_diff(clock) <= clock / DIFFERENCE + SLACK + WIDEST
    }

    fn nanoseconds(&self, ticks: u64) -> u64 {
        self.rate.elapsed(ticks)
    }
}

#[cfg(test)]
mod tests {
    use super::super::PLACES;
    use super::*;

    /// A machine of the test, whose counter ticks twice per nanosecond.
    struct Machine {
        counter: Counter,
        ns: u64,
        ticks: u64,
        trusted: bool,
    }

    const MS: u64 = 1_000_000;

    impl Machine {
        fn new() -> Self {
            let (ns, ticks) = (500 * MS, 77);
            let look = Look { before: ticks, ns, after: ticks };
            Self { counter: Counter::new(Rate(1 << (PLACES - 1)), look), ns, ticks, trusted: true }
        }

        /// Lets `ns` nanoseconds pass, in which the counter advances by `ticks`.
        fn go(&mut self, ns: u64, ticks: u64) -> bool {
            self.ns += ns;
            self.ticks = self.ticks.wrapping_add(ticks);
            self.look(100)
        }

        /// A reading that takes so many ticks, and reads the clock at its end.
        fn look(&mut self, took: u64) -> bool {
            let look = Look { before: self.ticks, ns: self.ns + took / 2, after: self.ticks + took };
            let trusted = self.trusted;
            self.counter.goes_on(look, || trusted)
        }
    }

    #[test]
    fn a_counter_that_goes_as_the_clock_does_is_used() {
        let mut machine = Machine::new();
        for ns in [1, 1000, MS, 1000 * MS, 3_600_000 * MS, 0] {
            assert!(machine.go(ns, 2 * ns), "{ns}");
            // The clock is slewed by a tenth, in both directions.
            assert!(machine.go(11 * ns, 20 * ns) && machine.go(9 * ns, 20 * ns), "{ns}");
        }
    }

    #[test]
    fn one_that_jumps_stops_or_slows_is_never_used_again() {
        let wrongs: [(&str, u64, u64); 8] = [
            ("it stops", 10 * MS, 0),
            ("it goes back", 10 * MS, 0_u64.wrapping_sub(5 * MS)),
            ("it begins anew", 10 * MS, 0_u64.wrapping_sub(1 << 50)),
            ("it goes back by a little more than the time", MS, 0_u64.wrapping_sub(2 * MS)),
            ("it jumps", 10 * MS, 1 << 50),
            ("it is slower", 1000 * MS, 1500 * MS),
            ("it is faster", 1000 * MS, 3000 * MS),
            ("it stops for a moment", MS, MS),
        ];
        for (what, ns, ticks) in wrongs {
            let mut machine = Machine::new();
            assert!(machine.go(20 * MS, 40 * MS));
            assert!(!machine.go(ns, ticks), "{what}");
            assert!(machine.counter.is_lost(), "{what}");
            for _ in 0..3 {
                assert!(!machine.go(10 * MS, 20 * MS), "{what}: it was trusted again");
            }
        }
    }

    #[test]
    fn one_that_is_slower_is_noticed_however_often_it_is_looked_at() {
        for ns in [1000, 10_000, 30_000, 100_000, 3 * MS] {
            let mut machine = Machine::new();
            let looks = 10 * MS / ns + 2;
            assert!((0..looks).all(|_| machine.go(ns, 2 * ns)), "{ns}");
            assert!(!(0..looks).all(|_| machine.go(ns, ns)), "{ns}: half as fast");
        }
    }

    /// The thread was suspended between the two.
    #[test]
    fn a_look_that_was_interrupted_is_not_compared_but_the_next_is() {
        let mut machine = Machine::new();
        assert!(machine.look(200 * MS) && !machine.counter.is_lost());
        (machine.ns, machine.ticks) = (machine.ns + 100 * MS, machine.ticks + 200 * MS);
        assert!(machine.go(10 * MS, 20 * MS));
        // The counter is seen to have gone back even so.
        machine.ticks -= 100 * MS;
        assert!(!machine.look(200 * MS));
    }

    #[test]
    fn the_kernel_is_asked_once_a_second_whether_it_trusts_the_counter() {
        let mut machine = Machine::new();
        machine.trusted = false;
        assert!(machine.go(999 * MS, 1998 * MS));
        assert!(!machine.go(2 * MS, 4 * MS));
        machine.trusted = true;
        assert!(!machine.go(2000 * MS, 4000 * MS));
    }

    #[test]
    fn looks_of_two_threads_may_come_in_another_order() {
        let mut machine = Machine::new();
        assert!(machine.go(20 * MS, 40 * MS));
        let (ns, ticks) = (machine.ns, machine.ticks);
        (machine.ns, machine.ticks) = (ns - 3 * MS, ticks - 6 * MS);
        assert!(machine.look(100));
        (machine.ns, machine.ticks) = (ns + MS, ticks + 2 * MS);
        assert!(machine.look(100));
    }

    #[test]
    fn the_two_are_compared_again_after_a_millisecond() {
        let mut machine = Machine::new();
        assert!(machine.counter.is_compared(machine.ns) && !machine.counter.is_compared(machine.ns + MS));
        assert!(machine.go(3 * MS, 6 * MS));
        // This reading is slightly later.
        assert!(
            machine.counter.is_compared(machine.ns + 99) && !machine.counter.is_compared(machine.ns + 2 * MS)
        );
        // The clock does not go back; but a thread with an earlier reading may call later.
        assert!(!machine.counter.is_compared(machine.ns - MS));
    }
}
