//! The wire of a device under test: the soft device gets frames by a call, a virtual device (`tests/vhca`) through its control line, the
//! tty that `UVERBS_TEST_CONTROL` names.

use std::panic::Location;

use uverbs::SoftDevice;

use super::{Control, Raw, Target, has_infiniband, on_every_device, skip_at};

/// Whether the machine will be switched off without a shutdown, so that its kernel may be left with objects that it cannot release.
pub fn is_switched_off_afterwards() -> bool {
    std::env::var_os("UVERBS_TEST_SWITCHED_OFF").is_some()
}

/// The source of frames.
pub enum Wire<'a> {
    Soft(&'a SoftDevice),
    Line(&'a Control),
}

impl Wire<'_> {
    /// A frame arrives, without check sequence. It was processed completely when this returns.
    pub fn inject(&self, frame: &[u8]) {
        match self {
            Self::Soft(soft) => soft.inject(frame),
            Self::Line(line) => line.send(frame),
        }
    }

    /// A frame arrives many times.
    pub fn inject_many(&self, frame: &[u8], count: u64) {
        match self {
            Self::Soft(soft) => (0..count).for_each(|_| soft.inject(frame)),
            Self::Line(line) => line.send_many(frame, count),
        }
    }

    /// Sent frames return, as with a loopback plug; on the soft device they always do.
    pub fn plug(&self) {
        if let Self::Line(line) = self {
            line.ask("loop on");
        }
    }
}

impl Target {
    /// The wire, if a test can send frames to the device.
    pub fn wire(&self) -> Option<Wire<'_>> {
        let soft = self.soft.as_ref().map(Wire::Soft);
        soft.or_else(|| self.control.as_ref().map(Wire::Line))
    }
}

/// Runs a behaviour on every device to which a test can send frames, with the wire and a queue pair; reports the others as skipped.
#[track_caller]
pub fn on_every_wire(behaviour: impl Fn(&Target, &Wire<'_>, Raw)) {
    let at = Location::caller();
    on_every_device(|target| match target.wire() {
        Some(_) if has_infiniband(target) => {
            skip_at(at, target, "a port of InfiniBand has no flows of frames")
        }
        Some(wire) => behaviour(target, &wire, Raw::new(&target.open())),
        None => skip_at(at, target, "no frames can be made to arrive"),
    });
}
