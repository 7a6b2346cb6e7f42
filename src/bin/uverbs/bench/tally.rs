//! Collected times: a histogram together with exact sums. Every time is included.

use hdrhistogram::Histogram;

use crate::Outcome;
use crate::failure::Failure;

/// The longest time that the histogram distinguishes, in ns: an hour. Longer times count as this in the histogram; minimum, maximum, mean
/// and deviation are exact.
const LONGEST: u64 = 3_600_000_000_000;
/// Percentiles are exact to one part in a thousand.
const DIGITS: u8 = 3;

/// Times in ns.
#[derive(Clone, Debug)]
pub(super) struct Tally {
    histogram: Histogram<u64>,
    min: u64,
    max: u64,
    sum: u128,
    /// Mean and sum of the squared distances from it, updated with each time (Welford), so that nothing is lost by cancellation.
    mean: f64,
    distances: f64,
}

impl Tally {
    pub(super) fn new() -> Outcome<Self> {
        let histogram = Histogram::new_with_bounds(1, LONGEST, DIGITS)
            .map_err(|error| Failure::Other(format!("no histogram: {error}")))?;
        Ok(Self { histogram, min: u64::MAX, max: 0, sum: 0, mean: 0.0, distances: 0.0 })
    }

    #[inline]
    pub(super) fn record(&mut self, time: u64) {
        self.histogram.saturating_record(time);
        self.min = self.min.min(time);
        self.max = self.max.max(time);
        self.sum += u128::from(time);
        let distance = time as f64 - self.mean;
        self.mean += distance / self.count() as f64;
        self.distances += distance * (time as f64 - self.mean);
    }

    pub(super) fn add(&mut self, other: &Self) -> Outcome {
        if other.count() == 0 {
            return Ok(());
        }
        let (ours, theirs) = (self.count() as f64, other.count() as f64);
        let apart = other.mean - self.mean;
        self.mean += apart * theirs / (ours + theirs);
        self.distances += other.distances + apart * apart * ours * theirs / (ours + theirs);
        let added = self.histogram.add(&other.histogram);
        added.map_err(|error| Failure::Other(format!("histograms that differ: {error}")))?;
        self.min = self.min.min(other.min);
        self.max = self.max.max(other.max);
        self.sum += other.sum;
        Ok(())
    }

    pub(super) fn count(&self) -> u64 {
        self.histogram.len()
    }

    /// The minimum; 0 if there is none.
    pub(super) fn min(&self) -> u64 {
        if self.count() == 0 { 0 } else { self.min }
    }

    pub(super) fn max(&self) -> u64 {
        self.max
    }

    pub(super) fn mean(&self) -> f64 {
        if self.count() == 0 { 0.0 } else { self.sum as f64 / self.count() as f64 }
    }

    /// Standard deviation of all times, not of a sample of more.
    pub(super) fn stdev(&self) -> f64 {
        if self.count() == 0 { 0.0 } else { (self.distances / self.count() as f64).sqrt() }
    }

    /// The time that this share of them does not exceed, within the histogram's precision.
    pub(super) fn quantile(&self, share: f64) -> u64 {
        // The histogram returns the end of a range of times that it treats as one.
        self.histogram.value_at_quantile(share).clamp(self.min(), self.max)
    }

    /// Shares from none to all: `steps` of them for each halving of the rest, as long as they distinguish times.
    pub(super) fn shares(&self, steps: u32) -> impl Iterator<Item = f64> {
        self.histogram.iter_quantiles(steps).map(|point| point.quantile_iterated_to())
    }

    pub(super) fn histogram(&self) -> &Histogram<u64> {
        &self.histogram
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tally(times: impl IntoIterator<Item = u64>) -> Tally {
        let mut tally = Tally::new().unwrap();
        times.into_iter().for_each(|time| tally.record(time));
        tally
    }

    #[test]
    fn what_is_told_is_exact_where_it_can_be() {
        let tally = tally([1, 123_456_789, 3, 3]);
        assert_eq!((tally.count(), tally.min(), tally.max()), (4, 1, 123_456_789));
        assert_eq!(tally.mean(), 30_864_199.0);
        assert_eq!(tally.stdev().round(), 53_458_357.0);
        assert_eq!(tally.quantile(0.5), 3);
        assert_eq!(tally.quantile(1.0), 123_456_789);
    }

    #[test]
    fn equal_times_have_no_deviation() {
        let tally = tally([1_000_003; 1000]);
        assert_eq!((tally.stdev(), tally.mean()), (0.0, 1_000_003.0));
    }

    #[test]
    fn nothing_is_left_out() {
        let tally = tally([0, u64::MAX / 2, 5]);
        assert_eq!((tally.count(), tally.min(), tally.max()), (3, 0, u64::MAX / 2));
    }

    #[test]
    fn tallies_add_up() {
        let mut sum = tally(1..=500);
        sum.add(&tally(501..=1000)).unwrap();
        let whole = tally(1..=1000);
        assert_eq!((sum.min(), sum.max(), sum.mean()), (1, 1000, whole.mean()));
        assert!((sum.stdev() - whole.stdev()).abs() < 1e-9 * whole.stdev());
        assert_eq!(sum.quantile(0.99), whole.quantile(0.99));
    }

    #[test]
    fn no_time_at_all_is_zero() {
        let tally = tally([]);
        assert_eq!((tally.min(), tally.max(), tally.quantile(0.5)), (0, 0, 0));
        assert_eq!((tally.mean(), tally.stdev()), (0.0, 0.0));
    }
}
