//! Plays a program on a device.

use std::time::Duration;

use uverbs::soft::{Profile, SoftDevice};

use crate::footprint::Footprint;
use crate::language::{Program, Step};
use crate::world::{Machine, Outcome, World};

/// A new soft device.
pub fn soft(profile: Profile) -> Machine {
    let soft = SoftDevice::new(profile);
    Machine {
        device: soft.device(),
        soft: Some(soft),
        card: None,
        lacks_messages: false,
        has_wire: true,
        lid: 0,
        tells_as_mlx5: false,
    }
}

/// The results of the steps of a program, and of its end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Played {
    pub outcomes: Vec<Outcome>,
    /// What it left behind.
    pub left: Option<String>,
}

/// Plays a program. On a device of the kernel, the results of an earlier run say how much to wait for.
pub fn play(machine: &Machine, program: &Program, before: Option<&Played>, patience: Duration) -> Played {
    play_and(machine, program, before, patience, |_, _| ())
}

/// The same, with a function that is called before each step.
pub(crate) fn play_and(
    machine: &Machine,
    program: &Program,
    before: Option<&Played>,
    patience: Duration,
    mut and: impl FnMut(&mut World, usize),
) -> Played {
    let held = machine.soft.is_none().then(Footprint::of_devices);
    let mut world = World::new(machine, patience);
    let mut outcomes = Vec::with_capacity(program.steps.len());
    for (at, step) in program.steps.iter().enumerate() {
        and(&mut world, at);
        let expected = before.and_then(|played| played.outcomes.get(at)).and_then(Outcome::count);
        outcomes.push(world.step(step, expected));
    }
    // The program may have chosen another soft device.
    let machine = world.machine.clone();
    drop(world);
    let left = left(&machine, held).filter(|_| !may_stay_open(program, &outcomes));
    Played { outcomes, left }
}

/// If the firmware may have refused the first flow of some counters, the device file stays open until the process ends
/// (docs/internals/kernels.md).
fn may_stay_open(program: &Program, outcomes: &[Outcome]) -> bool {
    let counts = |step: &Step| ["flow", "flow-of", "flow-rss"].contains(&step.verb.name);
    let mut steps = program.steps.iter().zip(outcomes);
    program.faults().refuses && steps.any(|(step, end)| counts(step) && matches!(end, Outcome::Refused(..)))
}

/// What is left behind: objects of a soft device, or device files and mappings of this process, in addition to those before.
pub(crate) fn left(machine: &Machine, held: Option<Footprint>) -> Option<String> {
    if let Some(soft) = &machine.soft {
        let left = soft.resources();
        return (!left.is_empty()).then(|| format!("{left:?}"));
    }
    let (held, holds) = (held?, Footprint::of_devices());
    (held != holds).then(|| format!("{held:?}, then {holds:?}"))
}
