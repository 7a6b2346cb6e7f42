//! How fast counters count.

use std::collections::VecDeque;
use std::time::Duration;

use super::Stamp;
use crate::counters::clock;

/// Calculates counts per second over a time window.
///
/// A rate is calculated from the oldest and the newest values in the window. Values with the same time as the last ones are
/// ignored, so it does no harm to update more often than the device is read. If a value is lower than the last one, the counter was
/// set back: there is no rate, and the window starts again. A counter of 64 bits does not wrap.
///
/// ```
/// use std::time::Duration;
/// use uverbs::Rates;
///
/// let mut rates = Rates::<2>::new(Duration::from_secs(10));
/// rates.update_at(1_000_000_000, [100, 6_000]);
/// assert_eq!(rates.per_second(), None); // one sample has no rate
/// rates.update_at(1_500_000_000, [600, 36_000]);
/// assert_eq!(rates.per_second(), Some([1_000.0, 60_000.0]));
/// ```
#[derive(Clone, Debug)]
pub struct Rates<const N: usize> {
    window_ns: u64,
    /// Oldest first; at most [`SAMPLES`], and, except for the newest, at least a [`SAMPLES`]th of the window apart.
    samples: VecDeque<(u64, [u64; N])>,
}

/// Number of parts of the window: a rate is for a window that is at most one part shorter or longer.
const SAMPLES: usize = 32;

impl<const N: usize> Rates<N> {
    /// Creates rates over `window`.
    pub fn new(window: Duration) -> Self {
        Self { window_ns: clock::nanoseconds(window), samples: VecDeque::with_capacity(SAMPLES + 2) }
    }

    /// Adds values with their stamp, as [`Snapshot::read_cached`](crate::Snapshot::read_cached) and
    /// [`Snapshot::latest`](crate::Snapshot::latest) return them.
    pub fn update(&mut self, stamp: Stamp, values: [u64; N]) {
        self.update_at(stamp.taken_ns(), values);
    }

    /// Adds values that were read at `taken_ns`, in nanoseconds of any clock.
    pub fn update_at(&mut self, taken_ns: u64, values: [u64; N]) {
        if let Some((last_ns, last)) = self.samples.back() {
            if taken_ns <= *last_ns {
                return;
            }
            if values.iter().zip(last).any(|(new, old)| new < old) {
                self.samples.clear();
            }
        }
        // The second newest is removed if the one before it is too near.
        let mut newest = self.samples.iter().rev();
        if let (Some((last, _)), Some((before, _))) = (newest.next(), newest.next())
            && *last - *before < self.window_ns / SAMPLES as u64
        {
            self.samples.pop_back();
        }
        self.samples.push_back((taken_ns, values));
        // One sample that is as old as the window, or older, is sufficient.
        while let Some((second, _)) = self.samples.get(1)
            && taken_ns - *second >= self.window_ns
            && self.samples.len() > 2
        {
            self.samples.pop_front();
        }
    }

    /// Counts per second of each value; none before there are values of two times.
    pub fn per_second(&self) -> Option<[f64; N]> {
        let ((first_ns, first), (last_ns, last)) = (self.samples.front()?, self.samples.back()?);
        let elapsed = last_ns.checked_sub(*first_ns).filter(|elapsed| *elapsed > 0)?;
        let seconds = elapsed as f64 / 1e9;
        Some(std::array::from_fn(|i| last[i].saturating_sub(first[i]) as f64 / seconds))
    }

    /// The time between the oldest and the newest values in the window.
    pub fn span(&self) -> Duration {
        let ends = self.samples.front().zip(self.samples.back());
        Duration::from_nanos(ends.map_or(0, |((first, _), (last, _))| last.saturating_sub(*first)))
    }
}
