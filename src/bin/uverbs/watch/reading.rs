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
    pub(super) packets_per_second: f64,
    pub(super) bytes_per_second: f64,
}

impl Count {
    /// Counts with these totals now, this long after the previous reading.
    pub(super) fn new(before: &Self, packets: u64, bytes: u64, passed: Duration) -> Self {
        let rate = |now: u64, before: u64| match now.saturating_sub(before) as f64 / passed.as_secs_f64() {
            rate if rate.is_finite() => rate,
            // No time has passed.
            _ => 0.0,
        };
        Self {
            packets,
            bytes,
            packets_per_second: rate(packets, before.packets),
            bytes_per_second: rate(bytes, before.bytes),
        }
    }

    /// The rates, for people.
    pub(super) fn rates(&self) -> [String; 2] {
        [
            Scaled(self.packets_per_second, "packets/s").to_string(),
            Scaled(self.bytes_per_second * 8.0, "bit/s").to_string(),
        ]
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
