//! Programs on the soft device alone, and the results that are errors there.

use std::time::Duration;

use uverbs::soft::Profile;

use crate::compare::never;
use crate::language::Program;
use crate::play::{Played, play, soft};
use crate::world::Machine;
use crate::{child, threads};

/// The processes or threads in which a program runs.
#[derive(Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum How {
    /// In one thread
    Alone,
    /// With a child of fork, which continues beside its parent
    Fork,
    /// With a second thread on the same objects
    Threads,
}

/// The soft device has finished a command before it answers.
pub const NATIVE: Duration = Duration::ZERO;

/// A soft device with all features.
pub fn any_soft() -> Machine {
    soft(Profile::default().with_completion_counters(64))
}

/// The soft device on which a program ran: one with all features, or one that behaves like rxe of the version in a line `# like rxe 6.1`.
pub fn device_of(text: &str) -> Machine {
    let Some(version) = text.lines().find_map(|line| line.strip_prefix("# like rxe ")) else {
        return any_soft();
    };
    let (major, minor) = version.trim().split_once('.').expect("a version");
    let version = (major.parse().expect("a number"), minor.parse().expect("a number"));
    soft(Profile::default().with_rxe(Some(version)).with_port_mtu(1024).with_max_sge(32))
}

/// The step before which a program forks, or starts a second thread. It depends only on the program, so it is always the same.
pub fn turn(program: &Program) -> usize {
    let sum: u64 = program
        .steps
        .iter()
        .flat_map(|step| &step.args)
        .fold(7, |sum, arg| sum.wrapping_mul(31).wrapping_add(*arg));
    (sum % (program.steps.len().max(1) as u64)) as usize
}

/// The error of a program on the soft device: the step, and its result.
pub fn wrong(program: &Program, how: How) -> Option<(usize, String)> {
    let first = play(&any_soft(), program, None, NATIVE);
    let other = |second: &Played, when: &str| {
        // The available memory differs.
        if program.faults().starves {
            return None;
        }
        let at = first.outcomes.iter().zip(&second.outcomes).position(|(one, two)| one != two)?;
        Some((at, format!("{}, {when} {}", first.outcomes[at], second.outcomes[at])))
    };
    if let Some(wrong) = never(program, &first) {
        return Some(wrong);
    }
    match how {
        How::Alone => other(&play(&any_soft(), program, None, NATIVE), "and then"),
        How::Fork => {
            let at = turn(program);
            let forked = child::play(&any_soft(), program, at, None, NATIVE);
            let of_child = child::wrong(program, at, &forked).map(|(at, what)| {
                let verb = program.steps.get(at).map_or("the end", |step| step.verb.name);
                (at, format!("in the child: {verb}: {what}"))
            });
            of_child
                .or_else(|| never(program, &forked.parent))
                .or_else(|| other(&forked.parent, "with a child beside it"))
        }
        How::Threads => never(program, &threads::play(&any_soft(), program, turn(program), NATIVE)),
    }
}
