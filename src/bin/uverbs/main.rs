//! The program `uverbs`: lists RDMA devices, describes one, prints their counters, counts packets, sends messages back and forth,
//! and measures.
//!
//! `docs/guide/cli.md` is its manual.
#![forbid(unsafe_code)]

mod bench;
mod devices;
mod doctor;
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
mod verify;
mod watch;

use std::process::ExitCode;

use clap::{CommandFactory, Parser, Subcommand};

use crate::failure::Failure;

/// RDMA devices from user space: list and describe devices, read counters, count packets, ping, measure.
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
    /// Say why RDMA does not work on this machine, or what it lacks: devices, permissions, ports, addresses, counters of errors. Changes nothing.
    Doctor(doctor::Args),
    /// Say what holds on a device of what this program expects of every device, and measure: for a report. Loops its own messages back,
    /// resets nothing, and takes no packets from others.
    Verify(verify::Args),
    /// Print a device's attributes, as `ibv_devinfo -v` does, and whether it supports flows and counters.
    Info(info::Args),
    /// Count the packets that a rule matches, and print the values every interval.
    Watch(watch::Args),
    /// Print the counters of the devices of this machine and the objects on them, as `perfquery`, `rdma statistic` and
    /// `rdma resource` do.
    Stat(stat::Args),
    /// Serve the counters of devices to Prometheus over HTTP, or write them to a file once.
    Export(export::Args),
    /// Send messages back and forth between two hosts and report how long they take. The other side can be `ibv_rc_pingpong` or
    /// another of libibverbs' pingpong programs.
    Ping(ping::Args),
    /// Measure the latency of calls.
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
        Command::Doctor(args) => return doctor::run(args),
        Command::Verify(args) => return verify::run(args, cli.trace),
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
