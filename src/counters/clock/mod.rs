//! The time for the age of cached values: `CLOCK_MONOTONIC`, or the CPU's counter if the kernel itself uses that counter as its clock
//! source.
//!
//! Reading the counter takes one or two instructions (`counter.rs`). `clock_gettime` takes some fifty, and is a system call if the
//! kernel's clock source cannot be read from user space. The counter is used if it is the kernel's clock source: the kernel has then
//! found that it ticks at a constant rate, in every state of the CPU and equally on all CPUs. Its rate is measured once in the life of a
//! process, which takes two milliseconds. When a device is read, the counter is compared with the clock, at most once per millisecond
//! (`watch.rs`). If the counter cannot be used, or not any more, every age comes from `clock_gettime`.
//!
//! The true age is never higher than the reported one, provided that the clock is right: the rate of the counter is the lowest that
//! the measurement allows, and one step of the clock is added to each age. The step of `clock_gettime` is some milliseconds if the
//! kernel's clock source is coarse; a counter that is slower than the CPU has a step too. Between two reads of a device the counter
//! is not compared: if it goes wrong in that time, values can seem younger than they are until the next read.
//!
//! # Safety
//! `COUNTER` is null or points to a box that is never freed.

#![allow(unsafe_code)]

mod counter;
mod watch;

use std::fs::File;
use std::io::Read;
use std::sync::atomic::{AtomicPtr, AtomicU64, Ordering};
use std::time::Duration;

use nix::time::{ClockId, clock_gettime};

use self::counter::{PLACES, SOURCE, STEP, ticks};
use self::watch::{Counter, Look};

/// A moment, measured by both clocks.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Moment {
    /// Nanoseconds of `CLOCK_MONOTONIC`.
    pub(crate) ns: u64,
    /// Ticks of the counter, or [`NEVER`].
    pub(crate) ticks: u64,
}

/// A moment that is always too long ago: no counter reaches it, or even half of it.
pub(crate) const NEVER: u64 = 1 << 63;

/// The longest age that can be requested, 9 years; anything longer means the same. It has to be shorter than the distance to [`NEVER`],
/// for a counter of up to 16 GHz.
const LONGEST: u64 = 1 << 58;

/// How long the counter's rate is measured.
const MEASURED: Duration = Duration::from_millis(2);

/// The length of a tick of the counter, in nanoseconds with [`PLACES`] binary places.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Rate(u64);

impl Rate {
    /// The rate of the counter, which the first caller measures. If the counter cannot be used, the ticks of every moment are [`NEVER`],
    /// which is too long ago at any rate.
    pub(crate) fn of_counter() -> Self {
        counter().map_or(Self(u64::MAX), |counter| counter.rate)
    }

    /// The nanoseconds that so many ticks take.
    #[inline]
    fn elapsed(self, ticks: u64) -> u64 {
        let ns = (u128::from(ticks) * u128::from(self.0)) >> PLACES;
        // With 64 places, no bit is lost.
        u64::try_from(ns).unwrap_or(u64::MAX)
    }

    /// Nanoseconds since the counter was at `then`, if they are fewer than `limit`, which [`nanoseconds`] has returned.
    #[inline]
    pub(crate) fn younger_than(self, limit: u64, then: u64) -> Option<u64> {
        let age = self.elapsed(ticks().wrapping_sub(then).wrapping_add(STEP));
        (age < limit).then_some(age)
    }
}

/// The source of the time.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Clock {
    /// The system's clock.
    Monotonic,
    /// A time that the caller gives, in nanoseconds.
    At(u64),
}

impl Clock {
    /// The time in nanoseconds.
    pub(crate) fn ns(self) -> u64 {
        match self {
            Self::Monotonic => monotonic(),
            Self::At(ns) => ns,
        }
    }

    /// The age of values that were read at `taken_ns`. It is never less than the true age.
    pub(crate) fn age(self, taken_ns: u64) -> u64 {
        let step = match self {
            Self::Monotonic => step(),
            // The caller's time is taken as exact.
            Self::At(_) => 0,
        };
        self.ns().saturating_sub(taken_ns).saturating_add(step)
    }

    /// The moment with which to stamp values that are about to be read.
    pub(crate) fn now(self) -> Moment {
        let now = now();
        match self {
            Self::Monotonic => now,
            Self::At(ns) => Moment { ns, ..now },
        }
    }
}

/// The time during a round of reads. The clock is read once per millisecond, and once for every [`MOMENTS`] moments. In between, the time
/// is calculated from the counter, and is never later than the clock's.
#[derive(Debug)]
pub(crate) struct Pace {
    clock: Clock,
    /// The last reading of the clock.
    look: Moment,
    /// Number of moments until the next reading, however little time has passed by the counter.
    left: u32,
    rate: Rate,
    /// All ones if the clock advances by itself.
    goes_on: u64,
}

/// Maximum number of moments that are calculated from the counter alone.
const MOMENTS: u32 = 64;

impl Pace {
    /// Begins with a reading of the clock.
    #[inline]
    pub(crate) fn new(clock: Clock) -> Self {
        let Rate(rate) = Rate::of_counter();
        Self {
            clock,
            look: clock.now(),
            left: MOMENTS,
            // The counter's rate may be wrong by one part in 256, so that the calculated time would be too late. Without a counter, the
            // ticks stay beyond all limits.
            rate: Rate(rate - rate / 128),
            goes_on: if matches!(clock, Clock::Monotonic) { u64::MAX } else { 0 },
        }
    }

    /// The last reading of the clock.
    #[inline]
    pub(crate) fn looked(&self) -> Moment {
        self.look
    }

    /// The moment with which to stamp values that are about to be read.
    #[inline]
    pub(crate) fn now(&mut self) -> Moment {
        let ticks = ticks();
        let elapsed = self.rate.elapsed(ticks.wrapping_sub(self.look.ticks));
        if elapsed >= watch::APART || self.left == 0 {
            return self.look();
        }
        self.left -= 1;
        Moment { ns: self.look.ns.wrapping_add(elapsed & self.goes_on), ticks }
    }

    #[cold]
    fn look(&mut self) -> Moment {
        *self = Self::new(self.clock);
        self.look
    }
}

/// Nanoseconds of `CLOCK_MONOTONIC`.
pub(crate) fn monotonic() -> u64 {
    // It cannot fail: the clock exists on every Linux.
    let (seconds, rest) =
        clock_gettime(ClockId::CLOCK_MONOTONIC).map_or((0, 0), |time| (time.tv_sec(), time.tv_nsec()));
    (seconds as u64).wrapping_mul(1_000_000_000).wrapping_add(rest as u64)
}

/// The step of `CLOCK_MONOTONIC`: a moment that it reports may be later by as much.
fn step() -> u64 {
    // The step plus one; zero before it is known. Not a lock, for the reason given at `counter`.
    static STEP: AtomicU64 = AtomicU64::new(0);
    match STEP.load(Ordering::Relaxed) {
        0 => {
            // The smallest of three whole steps. If the clock is finer than the time of a reading, this is the time of a reading.
            let step = least_step(monotonic, 3);
            STEP.store(step.saturating_add(1), Ordering::Relaxed);
            step
        }
        known => known - 1,
    }
}

fn least_step(clock: impl Fn() -> u64, steps: usize) -> u64 {
    // The number of readings after which a clock is taken not to advance, as under a debugger that stops it.
    const LOOKS: usize = if cfg!(miri) { 50_000 } else { 10_000_000 };
    let (mut last, mut least, mut seen) = (clock(), u64::MAX, 0);
    for _ in 0..LOOKS {
        let now = clock();
        if now == last {
            continue;
        }
        // The first step was already in progress.
        if seen > 0 {
            least = least.min(now.saturating_sub(last));
        }
        (last, seen) = (now, seen + 1);
        if seen > steps {
            break;
        }
    }
    if least == u64::MAX { 0 } else { least }
}

/// Reads both clocks, the counter first, so that its moment is not later.
fn now() -> Moment {
    let Some(counter) = counter() else { return Moment { ns: monotonic(), ticks: NEVER } };
    let (before, ns) = (ticks(), monotonic());
    let goes_on = if counter.is_compared(ns) { !counter.is_lost() } else { compare(counter) };
    Moment { ns, ticks: if goes_on { before } else { NEVER } }
}

/// Compares the counter with the clock. Returns whether the counter can be used.
#[cold]
fn compare(counter: &Counter) -> bool {
    counter.goes_on(look(), is_trusted)
}

fn look() -> Look {
    Look { before: ticks(), ns: monotonic(), after: ticks() }
}

/// The nanoseconds of a duration, up to the longest age.
#[inline]
pub(crate) fn nanoseconds(duration: Duration) -> u64 {
    let seconds = duration.as_secs();
    if seconds >= LONGEST / 1_000_000_000 {
        return LONGEST;
    }
    seconds * 1_000_000_000 + u64::from(duration.subsec_nanos())
}

/// The counter, if it could be used when it was first requested.
#[inline]
fn counter() -> Option<&'static Counter> {
    // SAFETY: null, or a box that is never freed.
    match unsafe { COUNTER.load(Ordering::Acquire).as_ref() } {
        Some(known) => known.as_ref(),
        None => first_counter(),
    }
}

/// Null, or a pointer to a box that is never freed. Not a lock, which a child of `fork` could find held by a thread that does not exist
/// in it. Threads that arrive here together each measure the rate, and all use the first result.
static COUNTER: AtomicPtr<Option<Counter>> = AtomicPtr::new(std::ptr::null_mut());

#[cold]
fn first_counter() -> Option<&'static Counter> {
    // A reading that was interrupted is repeated. If that does not help, the other clock is used.
    let new: &'static mut Option<Counter> =
        Box::leak(Box::new(is_trusted().then(|| (0..10).find_map(|_| measure())).flatten()));
    let none = std::ptr::null_mut();
    let _ = COUNTER.compare_exchange(none, new, Ordering::AcqRel, Ordering::Acquire);
    // SAFETY: as above.
    unsafe { COUNTER.load(Ordering::Acquire).as_ref() }.and_then(Option::as_ref)
}

fn measure() -> Option<Counter> {
    // Of several readings of both clocks, the one that took the fewest ticks.
    let took = |look: &Look| look.after.wrapping_sub(look.before);
    let shortest = || (0..5).map(|_| look()).min_by_key(took);
    let first = shortest()?;
    std::thread::sleep(MEASURED);
    let last = shortest()?;
    let (ticked, elapsed) = (last.before.wrapping_sub(first.before), last.ns.saturating_sub(first.ns));
    // The clock was read at some point in each reading, and a tick before the counter showed the next one.
    let least = ticked.checked_sub(took(&first) + STEP)?;
    // The error is at most one reading, so one part in 256; usually it is one in 50,000.
    let is_exact = took(&first).saturating_add(took(&last)) + 2 * STEP < ticked / 256;
    let rate = (u128::from(elapsed) << PLACES).checked_div(u128::from(least))?;
    // A counter that is too slow for this number of places is not used.
    let rate = u64::try_from(rate).ok()?;
    is_exact.then(|| Counter::new(Rate(rate), last))
}

/// Whether the kernel uses the counter as its own clock source.
fn is_trusted() -> bool {
    let file = "/sys/devices/system/clocksource/clocksource0/current_clocksource";
    // No read of a device allocates. The buffer has one byte more than the longest name and the end of the line.
    let mut name = [0; 24];
    let Some(source) = SOURCE else { return false };
    let len = File::open(file).and_then(|mut file| file.read(&mut name));
    len.is_ok_and(|len| name[..len].trim_ascii() == source.as_bytes())
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
    fn a_tick_is_worth_what_its_rate_says() {
        let tick = Rate(1 << (PLACES - 1));
        assert_eq!((tick.elapsed(0), tick.elapsed(1), tick.elapsed(7)), (0, 0, 3));
        assert_eq!(tick.elapsed(u64::MAX), u64::MAX / 2);
        // A counter of 25 MHz, if the places have room for it, and more than the clock has room for.
        if PLACES < 64 {
            let slow = Rate(40 << PLACES);
            assert_eq!((slow.elapsed(25_000_000), slow.elapsed(1 << 60)), (1_000_000_000, u64::MAX));
        }
    }

    #[test]
    fn limits_are_nanoseconds_up_to_nine_years() {
        assert_eq!(nanoseconds(Duration::new(3, 7)), 3_000_000_007);
        assert_eq!(nanoseconds(Duration::from_nanos(LONGEST)), LONGEST);
        assert_eq!(nanoseconds(Duration::MAX), LONGEST);
    }

    #[test]
    fn the_step_of_a_clock_is_measured_from_change_to_change() {
        for (coarse, expected) in [(4_000_000, 4_000_000), (1, 1000)] {
            let time = std::cell::Cell::new(1_234_567);
            let clock = || {
                time.set(time.get() + 1000);
                time.get() / coarse * coarse
            };
            assert_eq!(least_step(clock, 3), expected);
        }
        assert_eq!(least_step(|| 7, 3), 0);
    }

    /// A value that was read late in one step of the clock and is used early in another is older than the difference.
    #[test]
    fn an_age_by_the_clock_is_never_too_young() {
        let step = step();
        assert!(cfg!(miri) || step > 0);
        let taken = monotonic();
        let age = Clock::Monotonic.age(taken);
        assert!(age >= step && age <= monotonic() - taken + step);
        // The caller's own clock is taken as exact.
        assert_eq!((Clock::At(12).age(10), Clock::At(8).age(10)), (2, 0));
    }

    #[test]
    fn a_pace_goes_as_the_clock_does_and_not_ahead_of_it() {
        let mut pace = Pace::new(Clock::Monotonic);
        // The clock may be slewed by a tenth, and is read once per millisecond.
        let slewed = watch::APART / 8;
        for _ in 0..20 * MOMENTS {
            let before = monotonic();
            let Moment { ns, .. } = pace.now();
            assert!(ns + slewed >= before && ns <= monotonic() + slewed, "{before} {ns}");
        }
        assert_eq!(Pace::new(Clock::At(7)).now().ns, 7);
    }

    #[test]
    fn a_pace_does_not_stand_still_with_its_counter() {
        let long_ago = Moment { ns: 5, ticks: NEVER };
        for (left, ticks) in [(0, ticks()), (MOMENTS, NEVER), (MOMENTS, ticks().wrapping_add(1 << 40))] {
            let look = Moment { ticks, ..long_ago };
            let mut pace = Pace { look, left, ..Pace::new(Clock::Monotonic) };
            assert!(pace.now().ns > 1000 && pace.looked().ns > 1000, "the clock was looked at");
        }
        let mut pace = Pace::new(Clock::Monotonic);
        let first = pace.looked().ns;
        for _ in 0..=MOMENTS {
            // As if the counter stood still.
            pace.look.ticks = ticks();
            pace.now();
        }
        assert!(cfg!(miri) || pace.looked().ns > first);
    }

    #[test]
    fn the_counter_agrees_with_the_clock() {
        let (rate, first) = (Rate::of_counter(), now());
        if first.ticks == NEVER {
            // Written past the test harness, which shows only the output of failed tests.
            let text = "skipped: the counter of the CPU: the kernel does not take the time from it";
            return writeln!(std::io::stderr(), "{text}").expect("standard error");
        }
        std::thread::sleep(10 * MEASURED);
        let before = monotonic() - first.ns;
        let age = rate.younger_than(LONGEST, first.ticks).expect("it has been a moment");
        let after = monotonic() - first.ns;
        // The clock may be slewed by a tenth, which is the maximum that chrony applies.
        assert!(age >= before - before / 8 && age <= after + after / 8, "{before} {age} {after}");
        assert_eq!(rate.younger_than(0, first.ticks), None);
    }
}
