//! A program that continues in two threads, on the same objects if they can be shared.

use std::time::Duration;

use crate::footprint::Footprint;
use crate::language::Program;
use crate::play::{self, Played};
use crate::world::{Machine, World};

/// Plays the steps up to one, and the others in turns in two threads. The results of the threads are in no order.
pub fn play(machine: &Machine, program: &Program, from: usize, patience: Duration) -> Played {
    let held = machine.soft.is_none().then(Footprint::of_devices);
    let mut one = World::new(machine, patience);
    let mut outcomes: Vec<_> = program.steps[..from].iter().map(|step| one.step(step, None)).collect();
    let mut two = one.beside();
    let steps = &program.steps[from..];
    let run = |world: &mut World, odd: usize| -> Vec<_> {
        let mine = steps.iter().enumerate().filter(|(at, _)| at % 2 == odd);
        mine.map(|(at, step)| (at, world.step(step, None))).collect()
    };
    let mut both = std::thread::scope(|scope| {
        let other = scope.spawn(|| run(&mut two, 1));
        let mut all = run(&mut one, 0);
        // A panic in a step was already caught there.
        all.extend(other.join().unwrap_or_default());
        all
    });
    both.sort_by_key(|(at, _)| *at);
    outcomes.extend(both.into_iter().map(|(_, outcome)| outcome));
    // The program may have chosen another soft device.
    let machines = [one.machine.clone(), two.machine.clone()];
    drop((one, two));
    let left = machines.iter().find_map(|machine| play::left(machine, held));
    Played { outcomes, left }
}
