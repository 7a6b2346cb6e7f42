//! The thread that executes commands, one after the other, in the order of their doorbells.

use std::sync::mpsc::Receiver;
use std::thread;
use std::time::{Duration, Instant};

use super::ring::{LOG_COMMANDS, carry_out, opcode_of};
use crate::server::Shared;
use vpci::lock;

/// Executes commands until no doorbell can be rung any more.
pub(crate) fn work(device: &Shared, rung: &Receiver<u32>) {
    while let Ok(slots) = rung.recv() {
        for slot in (0..1 << LOG_COMMANDS).filter(|slot| slots >> slot & 1 == 1) {
            let delay = {
                let device = lock(device);
                opcode_of(&device, slot).map(|opcode| device.faults.delay_of(opcode)).unwrap_or_default()
            };
            // Not under the lock, so that packets and doorbells are processed meanwhile.
            wait(delay);
            let mut device = lock(device);
            if carry_out(&mut device, slot).is_err() {
                device.statistics.faults += 1;
            }
        }
    }
}

/// The time by which a sleep of the host may be too long.
const SLACK: Duration = Duration::from_micros(200);

/// Waits: sleeping, except at the end, where a sleep would not be exact enough.
fn wait(delay: Duration) {
    let until = Instant::now() + delay;
    thread::sleep(delay.saturating_sub(SLACK));
    while Instant::now() < until {
        thread::yield_now();
    }
}
