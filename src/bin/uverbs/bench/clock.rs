//! The clock, what a look at it costs, and the floor that no read can be below.

use std::hint::black_box;
use std::thread;
use std::time::{Duration, Instant};

use nix::unistd::getppid;
use uverbs::Context;

use super::tally::Tally;
use crate::Outcome;

/// Looks at the clock, and calls of each floor, that are measured.
const SAMPLES: u32 = 10_000;
/// What is left of a wait when sleeping ends and looking at the clock begins: a sleep may end that much too late.
const SPIN: u64 = 1_000_000;
/// Longest sleep, so that a signal is seen.
const NAP: u64 = 50_000_000;

/// Time in ns since some moment.
pub(super) trait Clock {
    fn now(&self) -> u64;

    /// Waits until `time`, or for a while: who needs it all looks at the clock and calls again.
    fn wait(&self, time: u64);
}

/// `CLOCK_MONOTONIC`, by way of `std`.
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

/// The clock's name, with the kernel's source behind it.
pub(super) fn name() -> String {
    let source = std::fs::read_to_string("/sys/devices/system/clocksource/clocksource0/current_clocksource");
    match source {
        Ok(source) => format!("CLOCK_MONOTONIC ({})", source.trim()),
        Err(_) => "CLOCK_MONOTONIC".to_owned(),
    }
}

/// What every sample contains, and what nothing that asks the kernel can be below; medians, in ns, each measured as
/// samples are: between two looks at the clock.
#[derive(Clone, Copy, Debug)]
pub(super) struct Floor {
    /// Nothing at all between the two looks.
    pub(super) clock: u64,
    /// A system call that does nothing: `getppid`.
    pub(super) system_call: u64,
}

impl Floor {
    pub(super) fn measure() -> Outcome<Self> {
        Ok(Self { clock: median(|| ())?, system_call: median(|| _ = black_box(getppid()))? })
    }
}

/// The same of a command that the kernel parses on the device's file and refuses before it asks the driver.
pub(super) fn refused(context: &Context) -> Outcome<u64> {
    // There is no port 0 (rdma_is_port_valid, before the driver: uverbs_std_types_device.c, Linux 6.1).
    median(|| _ = black_box(context.gid(0, 0)))
}

fn median(work: impl Fn()) -> Outcome<u64> {
    let clock = Monotonic::new();
    let mut tally = Tally::new()?;
    // The first half only makes it warm.
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
