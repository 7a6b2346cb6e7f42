//! `uverbs bench`: measurements.

mod bulk;
mod clock;
mod figures;
mod hgrm;
mod kind;
mod mode;
mod options;
mod pace;
mod panels;
mod plot;
mod progress;
mod read;
mod report;
mod rig;
mod run;
mod tally;
mod wait;

use crate::Outcome;

/// What can be measured.
#[derive(Debug, clap::Subcommand)]
pub(crate) enum Command {
    /// The latency of reading counters.
    Read(read::Args),
    /// How long a thread takes to wake up that waits for a completion counter. Needs no device.
    Wait(wait::Args),
}

pub(crate) fn run(command: &Command, trace: bool) -> Outcome {
    match command {
        Command::Read(args) => read::run(args, trace),
        Command::Wait(args) => wait::run(args),
    }
}
