//! Measured times.

use std::time::Instant;

use hdrhistogram::Histogram;

use crate::Outcome;
use crate::failure::Failure;

/// Longest time that is distinguished, in ns.
const LONGEST: u64 = 60_000_000_000;

/// An empty histogram of times in ns, to three significant digits.
pub(crate) fn histogram() -> Outcome<Histogram<u64>> {
    Histogram::new_with_bounds(1, LONGEST, 3).map_err(|error| Failure::Other(error.to_string()))
}

/// Adds the time since `start`.
pub(crate) fn record(histogram: &mut Histogram<u64>, start: Instant) {
    histogram.saturating_record(u64::try_from(start.elapsed().as_nanos()).unwrap_or(u64::MAX));
}
