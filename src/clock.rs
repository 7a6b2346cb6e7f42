//! The time, for the age of cached values: `CLOCK_MONOTONIC`, and the CPU's time stamp counter in its place where the
//! kernel itself reads that one.
//!
//! A look at the counter is one instruction; `clock_gettime` is some fifty, and a system call where the kernel's
//! clock source cannot be read from user space. The counter is taken when the kernel's clock source is `tsc`: then the
//! kernel has found that it ticks evenly, in every state of the CPU and alike on all CPUs. How fast it ticks is measured
//! once in the life of a process, which takes two milliseconds. Where the counter cannot be used, every age is told by
//! `clock_gettime`.
//!
//! # Safety
//! `_rdtsc` is unsafe only as every intrinsic is that a CPU may lack: each x86-64 CPU has the instruction, and it reads
//! and writes no memory. A process that has forbidden itself to use it (`PR_SET_TSC`, prctl(2)) gets a signal, as it
//! does from `clock_gettime`.

#![allow(unsafe_code)]

use std::sync::OnceLock;
use std::time::Duration;

use nix::time::{ClockId, clock_gettime};

/// A moment by both clocks.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Moment {
    /// Nanoseconds of `CLOCK_MONOTONIC`.
    pub(crate) ns: u64,
    /// Of the counter, or [`NEVER`].
    pub(crate) ticks: u64,
}

/// A moment that is always too long ago: no counter gets there, nor half of the way.
pub(crate) const NEVER: u64 = 1 << 63;

/// The longest age that can be asked for, 9 years: anything longer is as long as this. It has to be shorter than
/// [`NEVER`] is ago, by a counter of up to 16 GHz.
const LONGEST: u64 = 1 << 58;

/// How long the counter's speed is measured.
const MEASURED: Duration = Duration::from_millis(2);

/// What a tick of the counter is worth, in nanoseconds with 64 binary places: so the counter is faster than 1 GHz.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Rate(u64);

impl Rate {
    /// The counter's, as measured by the first who asks. Where the counter cannot be used no moment has ticks but
    /// [`NEVER`], which is too long ago by any rate.
    pub(crate) fn of_counter() -> Self {
        Self(measured().unwrap_or(u64::MAX))
    }

    /// Nanoseconds since the counter was at `then`, if they are fewer than `limit`, which is of [`nanoseconds`].
    #[inline]
    pub(crate) fn younger_than(self, limit: u64, then: u64) -> Option<u64> {
        let elapsed = u128::from(ticks().wrapping_sub(then));
        let age = ((elapsed * u128::from(self.0)) >> 64) as u64;
        (age < limit).then_some(age)
    }
}

/// Whose time it is.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Clock {
    /// The system's, which goes on.
    Monotonic,
    /// The caller's, in nanoseconds.
    At(u64),
}

impl Clock {
    /// Its nanoseconds.
    pub(crate) fn ns(self) -> u64 {
        match self {
            Self::Monotonic => monotonic(),
            Self::At(ns) => ns,
        }
    }

    /// The moment to stamp values with that are about to be read.
    pub(crate) fn now(self) -> Moment {
        let now = now();
        match self {
            Self::Monotonic => now,
            Self::At(ns) => Moment { ns, ..now },
        }
    }
}

/// Nanoseconds of `CLOCK_MONOTONIC`.
pub(crate) fn monotonic() -> u64 {
    // It cannot fail: the clock exists on every Linux.
    let time = clock_gettime(ClockId::CLOCK_MONOTONIC).map(Duration::from).unwrap_or_default();
    time.as_nanos() as u64
}

/// Both clocks.
fn now() -> Moment {
    let ticks = if measured().is_some() { ticks() } else { NEVER };
    Moment { ns: monotonic(), ticks }
}

/// Nanoseconds of a duration, as far as they matter.
#[inline]
pub(crate) fn nanoseconds(duration: Duration) -> u64 {
    let seconds = duration.as_secs();
    if seconds >= LONGEST / 1_000_000_000 {
        return LONGEST;
    }
    seconds * 1_000_000_000 + u64::from(duration.subsec_nanos())
}

/// The value of a [`Rate`], if the counter can be used.
fn measured() -> Option<u64> {
    static RATE: OnceLock<Option<u64>> = OnceLock::new();
    *RATE.get_or_init(|| {
        // A look that was interrupted is repeated; a machine on which that does not help has the other clock.
        is_trusted().then(|| (0..10).find_map(|_| measure())).flatten()
    })
}

fn measure() -> Option<u64> {
    // Of some looks at both clocks the one that took the fewest ticks: the middle of them is the moment.
    let look = || {
        let looks = (0..5).map(|_| {
            let (before, ns, after) = (ticks(), monotonic(), ticks());
            (after.wrapping_sub(before), before, ns)
        });
        looks.min().map(|(took, before, ns)| (took, before.wrapping_add(took / 2), ns))
    };
    let (first_took, first, first_ns) = look()?;
    std::thread::sleep(MEASURED);
    let (last_took, last, last_ns) = look()?;
    let (ticked, elapsed) = (last.wrapping_sub(first), last_ns.saturating_sub(first_ns));
    // Wrong by half of the looks at most, so by one in 512; mostly it is one in 100,000.
    let is_exact = first_took.saturating_add(last_took) < ticked / 256;
    (is_exact && elapsed < ticked).then(|| ((u128::from(elapsed) << 64) / u128::from(ticked)) as u64)
}

/// Whether the kernel takes the time from the counter itself.
fn is_trusted() -> bool {
    let source = "/sys/devices/system/clocksource/clocksource0/current_clocksource";
    let has_counter = cfg!(all(target_arch = "x86_64", not(miri)));
    has_counter && std::fs::read_to_string(source).is_ok_and(|name| name.trim() == "tsc")
}

#[cfg(all(target_arch = "x86_64", not(miri)))]
#[inline]
fn ticks() -> u64 {
    // SAFETY: every x86-64 CPU has the instruction.
    unsafe { core::arch::x86_64::_rdtsc() }
}

#[cfg(not(all(target_arch = "x86_64", not(miri))))]
#[inline]
fn ticks() -> u64 {
    0
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    #[test]
    fn what_never_was_is_older_than_any_limit() {
        for limit in [Duration::ZERO, Duration::from_secs(1), Duration::MAX] {
            for rate in [Rate::of_counter(), Rate(u64::MAX), Rate(u64::MAX / 16)] {
                assert_eq!(rate.younger_than(nanoseconds(limit), NEVER), None);
            }
        }
    }

    #[test]
    fn limits_are_nanoseconds_up_to_nine_years() {
        assert_eq!(nanoseconds(Duration::new(3, 7)), 3_000_000_007);
        assert_eq!(nanoseconds(Duration::from_nanos(LONGEST)), LONGEST);
        assert_eq!(nanoseconds(Duration::MAX), LONGEST);
    }

    #[test]
    fn the_counter_agrees_with_the_clock() {
        let (rate, first) = (Rate::of_counter(), now());
        if first.ticks == NEVER {
            // Past the harness, which shows the output of failed tests only.
            let text = "skipped: the time stamp counter: the kernel does not take the time from it";
            return writeln!(std::io::stderr(), "{text}").expect("standard error");
        }
        std::thread::sleep(10 * MEASURED);
        let before = monotonic() - first.ns;
        let age = rate.younger_than(LONGEST, first.ticks).expect("it has been a moment");
        let after = monotonic() - first.ns;
        // The clock may be slewed by a tenth, as chrony does it at most.
        assert!(age >= before - before / 8 && age <= after + after / 8, "{before} {age} {after}");
        assert_eq!(rate.younger_than(0, first.ticks), None);
    }
}
