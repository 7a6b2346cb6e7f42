//! Behaviours that `uverbs verify` tries too, on every device under test.

use std::cell::OnceCell;
use std::panic::Location;
use std::time::Duration;

use crate::behaviours::{Frames, Ground, Held, NO_FRAMES, Stopped};
use crate::common::{LACKING, Target, Wire, address, on_every_device, skip_at};

impl Frames for Wire<'_> {
    fn send(&self, frame: &[u8]) -> Held {
        self.inject(frame);
        Ok(())
    }

    // It was processed when `inject` returns.
    fn late(&self) -> Duration {
        Duration::ZERO
    }

    fn longest(&self) -> usize {
        9000
    }

    fn many(&self, frame: &[u8], count: u64) -> Held {
        self.inject_many(frame, count);
        Ok(())
    }
}

/// Tries a behaviour on every device; reports those that do not support it as skipped. The soft device must support all but those that it is
/// known to lack, and none is skipped there.
#[track_caller]
pub(crate) fn hold<B: Fn(&Ground<'_>) -> Held>(behaviour: B) {
    let at = Location::caller();
    let name = std::any::type_name::<B>().rsplit("::").next().expect("a name");
    on_every_device(|target| {
        let on = format!("on {}, {at}", target.device.name());
        let is_soft = target.device.driver() == "soft";
        match tried(target, &behaviour) {
            Ok(()) => assert!(!is_soft || !LACKING.contains(&name), "{on}: it is supported by now"),
            Err(Stopped::Differs(difference)) => panic!("{on}: {difference}"),
            Err(Stopped::Unsupported(error)) => {
                assert!(!is_soft || LACKING.contains(&name), "{on}: {error}");
                skip_at(at, target, &error.to_string());
            }
            Err(Stopped::Skipped(why)) => {
                // On a wire it has no source of frames.
                let is_alone = is_soft && (target.soft.is_some() || why != NO_FRAMES);
                assert!(!is_alone, "{on}: {why}");
                skip_at(at, target, &why);
            }
            Err(Stopped::Interrupted) => unreachable!("nobody ends it"),
        }
    });
}

fn tried(target: &Target, behaviour: impl Fn(&Ground<'_>) -> Held) -> Held {
    let wire = target.wire();
    behaviour(&Ground {
        device: &target.device,
        opener: &|| target.device.open(),
        port: 1,
        address: address().map(Into::into),
        frames: wire.as_ref().map(|wire| wire as &dyn Frames),
        is_silent: OnceCell::new(),
        is_over: &|| false,
    })
}
