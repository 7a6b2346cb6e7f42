//! When reads are sent, and how their time is measured.
//!
//! In a *closed loop* the next read is sent when the previous one has returned. A device that pauses then gets fewer reads just when it
//! is slow, so that the pause shows in one sample only (coordinated omission). In an *open loop* reads have intended times, at a given
//! rate whatever the device does, and the time of a read counts from its intended time: a pause shows in all reads that should have been
//! sent meanwhile. wrk2 and HdrHistogram are the models.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use super::clock::Clock;
use super::tally::Tally;
use crate::Outcome;

/// Number of samples after which a thread reports its progress.
const TELL: u64 = 64;

/// When the next read is sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Pace {
    /// When the previous one has returned.
    Closed,
    /// Every `interval` ns, the first one after `first` ns.
    Open { interval: u64, first: u64 },
}

/// When the measurement ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Limit {
    Samples(u64),
    /// In ns.
    Time(u64),
}

impl Limit {
    /// The maximum number of samples, and the end time, of a measurement that began at `begun`.
    pub(super) fn bounds(self, begun: u64) -> (u64, u64) {
        match self {
            Self::Samples(samples) => (samples, u64::MAX),
            Self::Time(time) => (u64::MAX, begun.saturating_add(time)),
        }
    }

    /// The warm-up before it: a tenth, but at most a thousand samples or a second.
    pub(super) fn warm_up(self) -> Self {
        match self {
            Self::Samples(samples) => Self::Samples((samples / 10).clamp(1, 1000)),
            Self::Time(time) => Self::Time((time / 10).min(1_000_000_000)),
        }
    }
}

/// How one thread measures.
#[derive(Clone, Copy, Debug)]
pub(super) struct Plan {
    pub(super) pace: Pace,
    pub(super) limit: Limit,
    /// Reads between two readings of the clock; their mean is the sample.
    pub(super) batch: u32,
}

/// What one thread has measured.
#[derive(Clone, Debug)]
pub(super) struct Measured {
    pub(super) latency: Tally,
    /// The ages of values that came from a cache.
    pub(super) age: Tally,
    /// Reads of an open loop that were sent after their intended time, because the previous one had not returned.
    pub(super) late: u64,
    /// Reads of an open loop that were not sent because the time was over.
    pub(super) unsent: u64,
    /// Total time in ns.
    pub(super) elapsed: u64,
}

impl Measured {
    pub(super) fn new() -> Outcome<Self> {
        Ok(Self { latency: Tally::new()?, age: Tally::new()?, late: 0, unsent: 0, elapsed: 0 })
    }

    pub(super) fn add(&mut self, other: &Self) -> Outcome {
        self.latency.add(&other.latency)?;
        self.age.add(&other.age)?;
        self.late += other.late;
        self.unsent += other.unsent;
        self.elapsed = self.elapsed.max(other.elapsed);
        Ok(())
    }
}

/// Shows the progress of a measurement to other threads, and lets them end it.
#[derive(Debug, Default)]
pub(super) struct Watched<'a> {
    pub(super) stop: Option<&'a AtomicBool>,
    pub(super) samples: Option<&'a AtomicU64>,
}

impl Watched<'_> {
    fn is_over(&self) -> bool {
        self.stop.is_some_and(|stop| stop.load(Ordering::Relaxed))
    }

    fn count(&self, samples: u64) {
        if let Some(seen) = self.samples {
            seen.store(samples, Ordering::Relaxed);
        }
    }
}

/// Measures `read`, which returns the age of the values if they are from a cache.
pub(super) fn measure(
    clock: &impl Clock,
    plan: &Plan,
    watched: &Watched<'_>,
    mut read: impl FnMut() -> Outcome<Option<u64>>,
) -> Outcome<Measured> {
    let mut measured = Measured::new()?;
    let begun = clock.now();
    let (most, end) = plan.limit.bounds(begun);
    let mut now = begun;
    let mut sent = 0;
    while sent < most && now < end && !watched.is_over() {
        let start = match plan.pace {
            Pace::Closed => clock.now(),
            Pace::Open { interval, first } => {
                let intended = begun.saturating_add(first).saturating_add(interval.saturating_mul(sent));
                if intended >= end {
                    break;
                }
                if intended > now {
                    now = wait(clock, intended, watched);
                    if now < intended {
                        break;
                    }
                } else {
                    measured.late += u64::from(intended < now);
                }
                intended
            }
        };
        let mut age = None;
        for _ in 0..plan.batch {
            age = read()?;
        }
        now = clock.now();
        measured.latency.record(now.saturating_sub(start) / u64::from(plan.batch));
        if let Some(age) = age {
            measured.age.record(age);
        }
        sent += 1;
        if sent % TELL == 0 {
            watched.count(sent);
        }
    }
    watched.count(sent);
    if let Pace::Open { interval, first } = plan.pace {
        let intended = now.min(end).saturating_sub(begun).saturating_sub(first).div_ceil(interval);
        measured.unsent = intended.min(most).saturating_sub(sent);
    }
    measured.elapsed = now - begun;
    Ok(measured)
}

/// Waits until `time`, or until the measurement is ended. Returns the current time.
fn wait(clock: &impl Clock, time: u64, watched: &Watched<'_>) -> u64 {
    loop {
        let now = clock.now();
        if now >= time || watched.is_over() {
            return now;
        }
        clock.wait(time);
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    /// A clock that advances only by the reads.
    #[derive(Debug, Default)]
    struct Fake(Cell<u64>);

    impl Fake {
        fn spend(&self, time: u64) {
            self.0.set(self.0.get() + time);
        }
    }

    impl Clock for Fake {
        fn now(&self) -> u64 {
            self.0.get()
        }

        fn wait(&self, time: u64) {
            self.0.set(self.0.get().max(time));
        }
    }

    /// Reads of 10 ns; the hundredth takes 1000.
    fn with_a_pause(pace: Pace, limit: Limit) -> Measured {
        let clock = Fake::default();
        let mut reads = 0;
        let plan = Plan { pace, limit, batch: 1 };
        let read = || {
            reads += 1;
            clock.spend(if reads == 100 { 1000 } else { 10 });
            Ok(None)
        };
        measure(&clock, &plan, &Watched::default(), read).unwrap()
    }

    const OPEN: Pace = Pace::Open { interval: 20, first: 0 };

    #[test]
    fn a_closed_loop_hides_a_pause() {
        let measured = with_a_pause(Pace::Closed, Limit::Samples(1000));
        assert_eq!(measured.latency.count(), 1000);
        assert_eq!(measured.latency.quantile(0.999), 10);
        assert_eq!(measured.latency.max(), 1000);
        assert_eq!((measured.late, measured.unsent, measured.elapsed), (0, 0, 999 * 10 + 1000));
    }

    #[test]
    fn an_open_loop_shows_the_reads_that_a_pause_held_up() {
        let measured = with_a_pause(OPEN, Limit::Samples(1000));
        assert_eq!(measured.latency.count(), 1000);
        // The pause of 1000 delays the next read by 980, and each later read is 10 less late.
        let held_up = (1..).map(|n| 1000 - 10 * n).take_while(|late| *late > 10);
        let late: Vec<u64> = held_up.collect();
        assert_eq!(measured.late, late.len() as u64);
        let expected = 1000 + late.iter().sum::<u64>() + 10 * (999 - late.len() as u64);
        assert_eq!((measured.latency.mean() * 1000.0).round(), expected as f64);
        assert_eq!(measured.latency.quantile(0.9), 10);
        assert!(measured.latency.quantile(0.95) > 400);
    }

    #[test]
    fn an_open_loop_keeps_its_rate_and_says_what_it_did_not_send() {
        // A thousand reads in 20,000 ns; the reads catch up after the pause.
        let measured = with_a_pause(OPEN, Limit::Time(20_000));
        assert_eq!((measured.latency.count(), measured.unsent), (1000, 0));
        // Twice as many reads as can be answered, from 105 ns on.
        let pace = Pace::Open { interval: 5, first: 105 };
        let measured = with_a_pause(pace, Limit::Time(20_000));
        let sent = measured.latency.count();
        assert_eq!(sent, 1 + (20_000 - 105 - 1000_u64).div_ceil(10));
        assert_eq!(measured.unsent, (20_000 - 105) / 5 - sent);
        // The last read was late by half of the time.
        assert!(measured.latency.max() > 9_000);
    }

    #[test]
    fn a_batch_is_one_sample() {
        let clock = Fake::default();
        let plan = Plan { pace: Pace::Closed, limit: Limit::Samples(3), batch: 4 };
        let read = || {
            clock.spend(5);
            Ok(Some(7))
        };
        let measured = measure(&clock, &plan, &Watched::default(), read).unwrap();
        assert_eq!((measured.latency.count(), measured.latency.min(), measured.latency.max()), (3, 5, 5));
        assert_eq!((measured.age.count(), measured.age.max(), measured.elapsed), (3, 7, 60));
    }

    #[test]
    fn it_can_be_ended_early() {
        for pace in [Pace::Closed, OPEN, Pace::Open { interval: u64::MAX, first: u64::MAX / 2 }] {
            let (clock, stop, samples) = (Fake::default(), AtomicBool::new(false), AtomicU64::new(0));
            let watched = Watched { stop: Some(&stop), samples: Some(&samples) };
            let plan = Plan { pace, limit: Limit::Samples(u64::MAX), batch: 1 };
            let mut reads = 0;
            let read = || {
                reads += 1;
                stop.store(reads == 5 || pace != Pace::Closed && pace != OPEN, Ordering::Relaxed);
                clock.spend(10);
                Ok(None)
            };
            let measured = measure(&clock, &plan, &watched, read).unwrap();
            assert_eq!(measured.latency.count(), samples.load(Ordering::Relaxed));
            assert_eq!(measured.latency.count(), if pace == Pace::Closed || pace == OPEN { 5 } else { 1 });
        }
    }

    #[test]
    fn the_first_error_ends_it() {
        let plan = Plan { pace: Pace::Closed, limit: Limit::Samples(3), batch: 1 };
        let error = || Err(crate::failure::Failure::Other("no".to_owned()));
        assert!(measure(&Fake::default(), &plan, &Watched::default(), error).is_err());
    }

    #[test]
    fn warming_up_is_short() {
        assert_eq!(Limit::Samples(100_000).warm_up(), Limit::Samples(1000));
        assert_eq!(Limit::Samples(20).warm_up(), Limit::Samples(2));
        assert_eq!(Limit::Samples(1).warm_up(), Limit::Samples(1));
        assert_eq!(Limit::Time(1000).warm_up(), Limit::Time(100));
        assert_eq!(Limit::Time(u64::MAX).warm_up(), Limit::Time(1_000_000_000));
    }
}
