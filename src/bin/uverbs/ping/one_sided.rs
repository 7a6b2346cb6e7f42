//! Operations on the memory of the other side, which takes no part in them: one side measures, and the other waits for the end.

use std::time::{Duration, Instant};

use uverbs::{AccessFlags, Completion, Operation, Remote};

use super::side::{Queue, SPINS, Side};
use super::transport::Transport;
use crate::Outcome;
use crate::failure::Failure;
use crate::samples::record;
use crate::stop::Stop;

/// The operations of a ping.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum, serde::Serialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Op {
    /// Messages back and forth.
    Send,
    /// Writes to the other side's memory.
    Write,
    /// Reads from it.
    Read,
    /// Adds to eight bytes of it.
    Atomic,
}

impl Op {
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Send => "send",
            Self::Write => "write",
            Self::Read => "read",
            Self::Atomic => "atomic",
        }
    }

    /// The operation to post; `there` is the other side's memory.
    fn on(self, there: Remote) -> Operation {
        match self {
            Self::Send => Operation::Send,
            Self::Write => Operation::Write(there),
            Self::Read => Operation::Read(there),
            Self::Atomic => Operation::FetchAdd { remote: there, add: 1 },
        }
    }

    /// The access rights of the other side to this side's memory.
    pub(super) fn remote_access(self) -> AccessFlags {
        match self {
            Self::Send => AccessFlags::empty(),
            Self::Write => AccessFlags::REMOTE_WRITE,
            Self::Read => AccessFlags::REMOTE_READ,
            Self::Atomic => AccessFlags::REMOTE_ATOMIC,
        }
    }
}

/// Performs the planned number of operations on `there`, one after the other, or until a signal arrives.
pub(super) fn operate<T: Transport>(
    side: &mut Side<T>,
    there: Remote,
    timeout: Duration,
    stop: &Stop,
) -> Outcome {
    let segment = side.memory.segment(0..side.plan.size)?;
    let (Queue::Polled(cq), [line, ..]) = (&mut side.queue, &mut *side.lines) else { return Ok(()) };
    while side.sent < side.plan.iters && !stop.is_set() {
        let begun = Instant::now();
        line.post(side.plan.op.on(there), segment)?;
        let mut completions = Completion::batch::<1>();
        let mut idle = 0_u64;
        while cq.poll(&mut completions) == 0 {
            idle += 1;
            if !idle.is_multiple_of(SPINS) {
                continue;
            }
            if stop.is_set() {
                return Ok(());
            }
            if begun.elapsed() >= timeout {
                let (name, done) = (side.plan.op.name(), side.sent);
                return Err(Failure::Other(format!("a {name} was not done in {timeout:?}, after {done}")));
            }
            std::thread::yield_now();
        }
        record(&mut side.trips, begun);
        let [done] = completions;
        done.ok().map_err(|status| {
            let (name, number) = (side.plan.op.name(), side.sent + 1);
            Failure::Other(format!("{name} {number} of {}: {status}", side.plan.iters))
        })?;
        side.sent += 1;
    }
    Ok(())
}
