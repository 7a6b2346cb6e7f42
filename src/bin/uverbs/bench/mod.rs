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

pub(crate) use self::kind::Kind;
pub(crate) use self::rig::nobody;
use crate::Outcome;

/// What can be measured.
#[derive(Debug, clap::Subcommand)]
pub(crate) enum Command {
    /// The latency of reading counters.
    Read(read::Args),
}

pub(crate) fn run(command: &Command, trace: bool) -> Outcome {
    match command {
        Command::Read(args) => read::run(args, trace),
    }
}
