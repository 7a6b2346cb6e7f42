//! What is watched: one rule, or several.

use std::time::{Duration, Instant};

use super::reading::{Count, Reading, nanoseconds};
use crate::Outcome;
use crate::job::Job;
use crate::output::Output;

/// Rules that count and are read every interval.
pub(super) trait Counted {
    /// Takes the packets that were received.
    fn drain(&mut self) -> Outcome;

    /// Reads and shows the counters, with the time since `begun`. `offered` is the number of frames that were sent to a soft device.
    fn show(&mut self, begun: Instant, offered: Option<u64>, json: bool, output: &mut Output) -> Outcome;

    /// Number of packets so far, of all rules.
    fn packets(&mut self) -> Outcome<u64>;

    /// A port by which packets should arrive, and its state.
    fn port(&self) -> Outcome<(u8, u8)>;
}

/// One rule, whose packets are received.
pub(super) struct One {
    pub(super) job: Job,
    pub(super) port: u8,
    pub(super) previous: Reading,
}

impl Counted for One {
    fn drain(&mut self) -> Outcome {
        self.job.drain()
    }

    fn show(&mut self, begun: Instant, offered: Option<u64>, json: bool, output: &mut Output) -> Outcome {
        let (packets, bytes) = self.job.read()?;
        let elapsed_ns = nanoseconds(begun.elapsed());
        let passed = Duration::from_nanos(elapsed_ns.saturating_sub(self.previous.elapsed_ns));
        let count = Count::new(&self.previous.count, packets, bytes, passed);
        self.previous = Reading { elapsed_ns, count, received: self.job.received, offered };
        match json {
            true => output.json(&self.previous),
            false => output.progress(&self.previous),
        }
    }

    fn packets(&mut self) -> Outcome<u64> {
        Ok(self.job.read()?.0)
    }

    fn port(&self) -> Outcome<(u8, u8)> {
        Ok((self.port, self.job.port_state(self.port)?))
    }
}
