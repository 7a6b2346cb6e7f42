//! One reading of the counters, for people and for programs.

use std::fmt;
use std::time::Duration;

use serde::Serialize;

use crate::units::Scaled;

/// One reading. Packets and bytes are totals since the start, rates are those since the reading before.
#[derive(Clone, Debug, Default, Serialize)]
pub(super) struct Reading {
    elapsed_ns: u64,
    packets: u64,
    bytes: u64,
    packets_per_second: f64,
    bytes_per_second: f64,
    /// Packets that reached the queue pair's memory.
    received: u64,
    /// Frames that the capture or the generator has given to the device; none on a real one.
    offered: Option<u64>,
}

impl Reading {
    pub(super) fn new(previous: &Self, elapsed: Duration, packets: u64, bytes: u64) -> Self {
        let elapsed_ns = u64::try_from(elapsed.as_nanos()).unwrap_or(u64::MAX);
        let seconds = Duration::from_nanos(elapsed_ns.saturating_sub(previous.elapsed_ns)).as_secs_f64();
        let rate = |now: u64, before: u64| match now.saturating_sub(before) as f64 / seconds {
            rate if rate.is_finite() => rate,
            // No time at all has passed.
            _ => 0.0,
        };
        Self {
            elapsed_ns,
            packets,
            bytes,
            packets_per_second: rate(packets, previous.packets),
            bytes_per_second: rate(bytes, previous.bytes),
            ..Self::default()
        }
    }

    pub(super) fn with_traffic(mut self, received: u64, offered: Option<u64>) -> Self {
        self.received = received;
        self.offered = offered;
        self
    }
}

impl fmt::Display for Reading {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{:9.3} s  {} packets  {} bytes  {}  {}",
            Duration::from_nanos(self.elapsed_ns).as_secs_f64(),
            self.packets,
            self.bytes,
            Scaled(self.packets_per_second, "packets/s"),
            Scaled(self.bytes_per_second * 8.0, "bit/s"),
        )
    }
}
