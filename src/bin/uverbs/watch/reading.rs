//! One reading of the counters, for people and for programs.

use std::fmt;
use std::time::Duration;

use serde::Serialize;

use crate::units::Scaled;

/// What one rule has counted: totals since the start, and rates since the previous reading.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub(super) struct Count {
    pub(super) packets: u64,
    pub(super) bytes: u64,
    /// None if a counter was set back.
    pub(super) packets_per_second: Option<f64>,
    pub(super) bytes_per_second: Option<f64>,
    /// Whether a counter is lower than in the previous reading.
    pub(super) reset: bool,
}

impl Count {
    /// Counts with these totals now, this long after the previous reading.
    pub(super) fn new(before: &Self, packets: u64, bytes: u64, passed: Duration) -> Self {
        let reset = packets < before.packets || bytes < before.bytes;
        let rate = |now: u64, before: u64| match now.saturating_sub(before) as f64 / passed.as_secs_f64() {
            _ if reset => None,
            rate if rate.is_finite() => Some(rate),
            // No time has passed.
            _ => Some(0.0),
        };
        Self {
            packets,
            bytes,
            packets_per_second: rate(packets, before.packets),
            bytes_per_second: rate(bytes, before.bytes),
            reset,
        }
    }

    /// The rates, for people.
    pub(super) fn rates(&self) -> [String; 2] {
        let shown =
            |rate: Option<f64>, unit| rate.map_or("reset".to_owned(), |rate| Scaled(rate, unit).to_string());
        let bits = self.bytes_per_second.map(|rate| rate * 8.0);
        [shown(self.packets_per_second, "packets/s"), shown(bits, "bit/s")]
    }
}

impl fmt::Display for Count {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [packets, bits] = self.rates();
        write!(f, "{} packets  {} bytes  {packets}  {bits}", self.packets, self.bytes)
    }
}

/// A time since the start, for people.
pub(super) struct Elapsed(pub(super) Duration);

impl fmt::Display for Elapsed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:9.3} s", self.0.as_secs_f64())
    }
}

/// A time in nanoseconds.
pub(super) fn nanoseconds(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

/// One reading of one rule.
#[derive(Clone, Debug, Default, Serialize)]
pub(super) struct Reading {
    pub(super) elapsed_ns: u64,
    #[serde(flatten)]
    pub(super) count: Count,
    /// Packets that reached the queue pair's memory.
    pub(super) received: u64,
    /// Frames that the capture or the generator has given to the device; none on a real device.
    pub(super) offered: Option<u64>,
}

impl fmt::Display for Reading {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}  {}", Elapsed(Duration::from_nanos(self.elapsed_ns)), self.count)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_counter_that_is_set_back_has_no_rate_and_says_so() {
        let second = Duration::from_secs(1);
        let before = Count::new(&Count::default(), 1000, 60_000, second);
        assert_eq!((before.packets_per_second, before.reset), (Some(1000.0), false));
        let back = Count::new(&before, 10, 600, second);
        assert_eq!((back.packets_per_second, back.bytes_per_second, back.reset), (None, None, true));
        assert_eq!(back.to_string(), "10 packets  600 bytes  reset  reset");
        let json = serde_json::to_value(back).expect("JSON");
        assert!(json["packets_per_second"].is_null() && json["reset"] == true, "{json}");
        let after = Count::new(&back, 30, 1800, second);
        assert_eq!(
            (after.packets_per_second, after.bytes_per_second, after.reset),
            (Some(20.0), Some(1200.0), false)
        );
    }
}
