//! A program that forks: first the child continues with everything that its parent had, then the parent.
//!
//! # Safety
//! As in `tests/fork/main.rs`: a child of `fork` may do what needs no lock held by a thread that does not exist in it. For the crate,
//! this is what is tested here; the C library releases the allocator's locks; and a child that hangs is ended by SIGALRM.

#![allow(unsafe_code)]

use std::fs::File;
use std::io::{Read, Write};
use std::time::Duration;

use nix::sys::wait::{WaitStatus, waitpid};
use nix::unistd::{ForkResult, alarm, fork, pipe};

use crate::language::Program;
use crate::play::{self, Played};
use crate::world::{Machine, World};

/// The results of the steps of both, for the child from the fork on.
#[derive(Debug)]
pub struct Forked {
    pub parent: Played,
    /// The child's results, and how it ended.
    pub child: Vec<String>,
    pub ended: Option<String>,
}

/// Maximum time of a child in seconds.
const LONG: u32 = 30;

/// Plays a program that forks before this step.
pub fn play(
    machine: &Machine,
    program: &Program,
    fork_at: usize,
    before: Option<&Played>,
    patience: Duration,
) -> Forked {
    let (mut child, mut ended) = (Vec::new(), None);
    // A command that is to fail is counted from the first one on, and this sends some commands of its own.
    let is_counted = program.steps.iter().any(|step| step.verb.name == "open-failing");
    let parent = play::play_and(machine, program, before, patience, |world, at| {
        if at == fork_at && !is_counted {
            // If nothing was created yet with a device, the first process that creates something is its owner, and that may be the child.
            for (_, context) in world.contexts.iter() {
                let _ = context.create_cq(1);
            }
            (child, ended) = beside(world, program, at);
        }
    });
    Forked { parent, child, ended }
}

fn beside(world: &mut World, program: &Program, from: usize) -> (Vec<String>, Option<String>) {
    let (read, write) = pipe().expect("a pipe");
    // SAFETY: see above; the child leaves this function only by `_exit`.
    match unsafe { fork() }.expect("a child") {
        ForkResult::Child => {
            alarm::set(LONG);
            // Devices that it opens itself would be its own.
            world.is_child = true;
            let mut pipe = File::from(write);
            for step in &program.steps[from..] {
                let outcome = world.step(step, None);
                let _ = writeln!(pipe, "{outcome}");
            }
            // SAFETY: it ends the process, and runs none of its code.
            unsafe { nix::libc::_exit(0) }
        }
        ForkResult::Parent { child } => {
            drop(write);
            let mut text = String::new();
            let _ = File::from(read).read_to_string(&mut text);
            let ended = match waitpid(child, None) {
                Ok(WaitStatus::Exited(_, 0)) => None,
                other => Some(format!("{other:?}")),
            };
            (text.lines().map(str::to_owned).collect(), ended)
        }
    }
}

/// What a child may do, by the first words of verbs: drop its parent's objects, which destroys nothing; use memory; query what is known
/// without a command; use completion counters, which are copies, and everything that it has created itself.
const MAY: &[&str] = &[
    "scarce",
    "destroy-",
    "drop-",
    "mr-read",
    "mr-write",
    "mr-facts",
    "mw-facts",
    "memory",
    "about",
    "describe",
    "refused",
    "rule",
    "pd-context",
    "unplug",
    "device-mlx5",
    "pool-snapshot",
    "counter",
    "sampler",
    "rates",
    "reader-values",
    "snapshot-facts",
    "leave",
];

/// The first step of the child that should have been refused, and its result.
pub fn wrong(program: &Program, fork_at: usize, forked: &Forked) -> Option<(usize, String)> {
    let steps = program.steps[fork_at..].iter().zip(&forked.child).enumerate();
    for (at, (step, ended)) in steps {
        let is_asked = ended.starts_with("ok no rule");
        let is_fine = is_asked
            || !ended.starts_with("ok")
            || MAY.iter().any(|verb| step.verb.name.starts_with(verb))
            || ended.starts_with("ok 0");
        if !is_fine || ended.starts_with("panicked") {
            return Some((fork_at + at, ended.clone()));
        }
    }
    forked.ended.clone().map(|how| (fork_at + forked.child.len(), how))
}
