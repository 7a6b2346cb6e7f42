//! Pools of counters that one command reads: the devices that support them, and a flow for each counter.

use std::panic::Location;

use uverbs::mlx5::Totals;
use uverbs::{ErrorKind, Eth, FlowRule, OpenOptions};

use super::{Raw, Target, Wire, on_every_device, skip_at};

pub const EAGAIN: i32 = 11;

/// Runs a behaviour on every device with DEVX to which a test can send frames; reports the other devices as skipped.
#[track_caller]
pub fn on_every_bulk_device(behaviour: impl Fn(&Target, &Wire<'_>, &Raw)) {
    let at = Location::caller();
    on_every_device(|target| {
        let context = match OpenOptions::new().devx(true).open(&target.device) {
            Err(error) if error.kind() == ErrorKind::Unsupported => {
                return skip_at(at, target, error.hint().expect("a reason"));
            }
            other => other.expect("a context with DEVX"),
        };
        assert!(context.has_devx());
        match target.wire() {
            Some(wire) => behaviour(target, &wire, &Raw::new(&context)),
            None => skip_at(at, target, "no frames can be made to arrive"),
        }
    });
}

pub fn mac(number: usize) -> [u8; 6] {
    [2, 0, 0, 1, (number >> 8) as u8, number as u8]
}

pub fn to(number: usize) -> FlowRule {
    FlowRule::normal(1).eth(Eth::any().dst(mac(number)))
}

pub fn totals(packets: u64, bytes: u64) -> Totals {
    Totals { packets, bytes }
}

/// Runs `action`. Returns its result, and how many commands of this name the firmware got meanwhile.
pub fn commands<T>(target: &Target, name: &str, action: impl FnOnce() -> T) -> (u32, T) {
    let count = || target.control.as_ref().map_or(0, |control| control.commands(name));
    let before = count();
    let result = action();
    (count() - before, result)
}
