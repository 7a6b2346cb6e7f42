//! The clock, the cost of reading it, and the lower limits of a read.

use std::hint::black_box;
use std::thread;
use std::time::{Duration, Instant};

use nix::unistd::getppid;
use uverbs::Context;

use super::tally::Tally;
use crate::Outcome;

/// Number of readings of the clock, and of calls for each limit, that are measured.
const SAMPLES: u32 = 10_000;
/// The last part of a wait, in which the clock is read repeatedly: a sleep may end too late by this much.
const SPIN: u64 = 1_000_000;
/// Maximum sleep, so that a signal is noticed.
const NAP: u64 = 50_000_000;

/// Time in ns since some moment.
pub(super) trait Clock {
    fn now(&self) -> u64;

    /// Waits until `time`, or for a shorter time: callers check the clock and call again.
    fn wait(&self, time: u64);
}

/// `CLOCK_MONOTONIC`, as provided by `std`.
#[derive(Clone, Copy, Debug)]
pub(super) struct Monotonic(Instant);

impl Monotonic {
    pub(super) fn new() -> Self {
        Self(Instant::now())
    }
}

impl Clock for Monotonic {
    #[inline]
    fn now(&self) -> u64 {
        self.0.elapsed().as_nanos() as u64
    }

    fn wait(&self, time: u64) {
        let left = time.saturating_sub(self.now());
        if left > SPIN {
            thread::sleep(Duration::from_nanos((left - SPIN).min(NAP)));
        } else {
            std::hint::spin_loop();
        }
    }
}

/// The clock's name, followed by the kernel's clock source.
pub(super) fn name() -> String {
    let source = std::fs::read_to_string("/sys/devices/system/clocksource/clocksource0/current_clocksource");
    match source {
        Ok(source) => format!("CLOCK_MONOTONIC ({})", source.trim()),
        Err(_) => "CLOCK_MONOTONIC".to_owned(),
    }
}

/// Times that every sample contains, and times below which no call of the kernel can be. Medians in ns, each measured in the same way as
/// samples: between two readings of the clock.
#[derive(Clone, Copy, Debug)]
pub(super) struct Floor {
    /// Nothing between the two readings.
    pub(super) clock: u64,
    /// A system call that does nothing: `getppid`.
    pub(super) system_call: u64,
}

impl Floor {
    pub(super) fn measure() -> Outcome<Self> {
        Ok(Self { clock: median(|| ())?, system_call: median(|| _ = black_box(getppid()))? })
    }
}

/// The time of a command that the kernel parses and refuses before it calls the driver: the median in ns, as in [`Floor`].
pub(super) fn refused(context: &Context) -> Outcome<u64> {
    // Port 0 does not exist (rdma_is_port_valid, before the driver: uverbs_std_types_device.c, Linux 6.1).
    median(|| _ = black_box(context.gid(0, 0)))
}

fn median(work: impl Fn()) -> Outcome<u64> {
    let clock = Monotonic::new();
    let mut tally = Tally::new()?;
    // The first half is a warm-up.
    for i in 0..2 * SAMPLES {
        let begun = clock.now();
        work();
        let spent = clock.now() - begun;
        if i >= SAMPLES {
            tally.record(spent);
        }
    }
    Ok(tally.quantile(0.5))
}
