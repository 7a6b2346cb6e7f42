//! The program `uverbs`: lists RDMA devices, describes one, tells what they have counted, watches packets being counted, sends
//! messages to and fro, and measures.
//!
//! `docs/guide/cli.md` is its manual.
#![forbid(unsafe_code)]

mod bench;
mod devices;
mod export;
mod failure;
mod generate;
mod info;
mod job;
mod output;
mod ping;
mod rules;
mod samples;
mod stat;
mod stop;
mod table;
mod target;
mod units;
mod watch;

use std::process::ExitCode;

use clap::{CommandFactory, Parser, Subcommand};

use crate::failure::Failure;

/// RDMA devices from user space: list, describe, tell counters, count packets, ping, measure.
#[derive(Debug, Parser)]
#[command(name = "uverbs", version, after_help = failure::EXIT_CODES)]
struct Cli {
    /// Write one line for each kernel command to standard error.
    #[arg(long, global = true)]
    trace: bool,
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// List the devices of this machine, and the embedded soft device.
    Devices(devices::Args),
    /// Tell what a device is and can do, as `ibv_devinfo -v` does, and whether it has flows and counters.
    Info(info::Args),
    /// Count the packets that a rule takes, and print the values every interval.
    Watch(watch::Args),
    /// Tell what the devices of this machine have counted, and what is alive on them, as `perfquery`, `rdma
    /// statistic` and `rdma resource` do.
    Stat(stat::Args),
    /// Serve what devices have counted to Prometheus, over HTTP, or write it to a file once.
    Export(export::Args),
    /// Send messages to and fro between two hosts, as `ibv_rc_pingpong` and its like do and with them as the
    /// other side, and tell how long they take.
    Ping(ping::Args),
    /// Measure.
    #[command(subcommand)]
    Bench(bench::Command),
    /// Print completions of this command line for a shell.
    Completions(generate::Completions),
    /// Print the manual page of this program, or write those of all subcommands.
    Man(generate::Man),
}

fn main() -> ExitCode {
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => return failure::usage(&error),
    };
    let result = match &cli.command {
        Command::Devices(args) => devices::run(args),
        Command::Info(args) => info::run(args, cli.trace),
        Command::Watch(args) => watch::run(args, cli.trace),
        Command::Stat(args) => stat::run(args, cli.trace),
        Command::Export(args) => export::run(args, cli.trace),
        Command::Ping(args) => ping::run(args, cli.trace),
        Command::Bench(command) => bench::run(command, cli.trace),
        Command::Completions(args) => args.run(Cli::command()),
        Command::Man(args) => args.run(Cli::command()),
    };
    failure::ended(result)
}

/// What every subcommand returns.
type Outcome<T = ()> = Result<T, Failure>;
