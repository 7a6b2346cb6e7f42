//! The time of a device's timers.

use std::thread;
use std::time::{Duration, Instant};

use crate::server::{Shared, lock};
use crate::wire::Line;

/// Time between two steps, and the maximum by which the time advances in one.
pub const TICK: Duration = Duration::from_millis(1);
const STEP: Duration = Duration::from_millis(4);

/// A device with timers.
pub trait Timed {
    /// The time since it began.
    fn time(&self) -> Duration;

    /// The wire to the other device, if there is one.
    fn line(&self) -> Option<&Line>;

    /// Advances the time, and does what is due.
    fn tick(&mut self, elapsed: Duration);
}

/// Runs the timers as long as the process lives.
///
/// The time stops while the process does not run, and while the device at the other end of the wire does not: on a busy host either may be
/// suspended for longer than the response timeout, although the response is already there.
pub fn keep_time(device: &Shared<impl Timed>) {
    let mut last = Instant::now();
    loop {
        thread::sleep(TICK);
        let mut device = lock(device);
        let (now, time) = (Instant::now(), device.time());
        let until = device.line().map_or(Duration::MAX, |line| {
            line.tell(time);
            line.until()
        });
        device.tick((now - last).min(STEP).min(until.saturating_sub(time)));
        last = now;
    }
}
