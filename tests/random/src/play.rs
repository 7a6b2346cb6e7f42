//! Plays a program on a device.

use std::time::Duration;

use uverbs::soft::{Profile, SoftDevice};

use crate::footprint::Footprint;
use crate::language::Program;
use crate::world::{Machine, Outcome, World};

/// A new soft device.
pub fn soft(profile: Profile) -> Machine {
    let soft = SoftDevice::new(profile);
    Machine { device: soft.device(), soft: Some(soft), card: None }
}

/// What became of the steps of a program, and of its end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Played {
    pub outcomes: Vec<Outcome>,
    /// What it left behind.
    pub left: Option<String>,
}

/// Plays a program; on a device of the kernel's, what came of it elsewhere says what to wait for.
pub fn play(machine: &Machine, program: &Program, before: Option<&Played>, patience: Duration) -> Played {
    let held = machine.soft.is_none().then(Footprint::of_devices);
    let mut world = World::new(machine, patience);
    let mut outcomes = Vec::with_capacity(program.steps.len());
    for (at, step) in program.steps.iter().enumerate() {
        let expected = before.and_then(|played| played.outcomes.get(at)).and_then(Outcome::count);
        outcomes.push(world.step(step, expected));
    }
    drop(world);
    let left = match (&machine.soft, held) {
        (Some(soft), _) => {
            let left = soft.resources();
            (!left.is_empty()).then(|| format!("{left:?}"))
        }
        (None, held) => held.and_then(|held| {
            let holds = Footprint::of_devices();
            (held != holds).then(|| format!("{held:?}, then {holds:?}"))
        }),
    };
    Played { outcomes, left }
}
