//! The thread that carries out commands, one after the other, as they are rung.

use std::sync::mpsc::Receiver;
use std::thread;
use std::time::{Duration, Instant};

use super::ring::{LOG_COMMANDS, carry_out, opcode_of};
use crate::server::Shared;
use vpci::lock;

/// Carries out commands until nobody can ring for more.
pub(crate) fn work(device: &Shared, rung: &Receiver<u32>) {
    while let Ok(slots) = rung.recv() {
        for slot in (0..1 << LOG_COMMANDS).filter(|slot| slots >> slot & 1 == 1) {
            let delay = {
                let device = lock(device);
                opcode_of(&device, slot).map(|opcode| device.faults.delay_of(opcode)).unwrap_or_default()
            };
            // Not under the lock: packets and doorbells go on meanwhile.
            wait(delay);
            let mut device = lock(device);
            if carry_out(&mut device, slot).is_err() {
                device.statistics.faults += 1;
            }
        }
    }
}

/// What the host may oversleep.
const SLACK: Duration = Duration::from_micros(200);

/// Waits: asleep, but for the end, where a sleep would not be exact enough.
fn wait(delay: Duration) {
    let until = Instant::now() + delay;
    thread::sleep(delay.saturating_sub(SLACK));
    while Instant::now() < until {
        thread::yield_now();
    }
}
