//! Behaviours that `uverbs verify` tries too, on every device under test.

use std::panic::Location;

use crate::behaviours::{Frames, Ground, Held, Stopped};
use crate::common::{Target, Wire, address, on_every_device, skip_at};

impl Frames for Wire<'_> {
    fn send(&self, frame: &[u8]) -> Held {
        self.inject(frame);
        Ok(())
    }

    fn many(&self, frame: &[u8], count: u64) -> Held {
        self.inject_many(frame, count);
        Ok(())
    }
}

/// Tries a behaviour on every device; reports those that do not support it as skipped.
#[track_caller]
pub(crate) fn hold(behaviour: fn(&Ground<'_>) -> Held) {
    let at = Location::caller();
    on_every_device(|target| match tried(target, behaviour) {
        Ok(()) => {}
        Err(Stopped::Differs(difference)) => panic!("on {}, {at}: {difference}", target.device.name()),
        Err(Stopped::Unsupported(error)) => skip_at(at, target, &error.to_string()),
        Err(Stopped::Skipped(why)) => skip_at(at, target, &why),
        Err(Stopped::Interrupted) => unreachable!("nobody ends it"),
    });
}

fn tried(target: &Target, behaviour: fn(&Ground<'_>) -> Held) -> Held {
    let wire = target.wire();
    behaviour(&Ground {
        device: &target.device,
        opener: &|| target.device.open(),
        port: 1,
        address: address().map(Into::into),
        frames: wire.as_ref().map(|wire| wire as &dyn Frames),
        is_over: &|| false,
    })
}
