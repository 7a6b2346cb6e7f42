//! `uverbs verify`: what holds on this device of what this crate says of every device.
//!
//! `behaviours/` is shared with the tests, which run the same behaviours.

mod behaviours;
mod frames;
mod measure;
mod page;
mod private;
mod report;
mod row;

use std::cell::OnceCell;
use std::fs::{File, OpenOptions};
use std::io::{self, IsTerminal, Write};
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Instant;

use uverbs::Context;
use uverbs::abi::types::port_state;

use self::behaviours::{ALL, Behaviour, Frames, Ground, unless_cut_short};
use self::frames::{Injected, Own};
use self::private::Private;
use self::report::{Report, Row};
use crate::Outcome;
use crate::failure::{self, Failure};
use crate::output::Output;
use crate::stop::Stop;
use crate::target::{Named, Target};

/// The exit status if a behaviour differs.
const DIFFERS: u8 = 8;

/// The exit statuses, for `--help`.
const EXIT_CODES: &str = "\
Exit codes, besides those of all commands:
  0  every behaviour holds, or is not supported, or could not be tried
  8  a behaviour differs";

/// Options of `uverbs verify`.
#[derive(Debug, clap::Args)]
#[command(after_help = EXIT_CODES)]
pub(crate) struct Args {
    #[command(flatten)]
    device: Named,
    /// The port. Default: the first one that is active.
    #[arg(long, value_name = "N")]
    port: Option<u8>,
    /// Try flows and their counters too, for addresses that no host has. On a real device this sends up to 3,200 small frames to these
    /// addresses, and counts them if they come back.
    #[arg(long)]
    flows: bool,
    /// Write a report to this file, as JSON. It has no names, addresses or keys of this machine.
    #[arg(long, value_name = "FILE")]
    report: Option<PathBuf>,
    /// Print the report in place of the page.
    #[arg(long)]
    json: bool,
    /// Print the row of a table for the report in this file. No device is used.
    #[arg(long, value_name = "FILE", exclusive = true)]
    row: Option<PathBuf>,
}

pub(crate) fn run(args: &Args, trace: bool) -> ExitCode {
    let outcome = match &args.row {
        Some(path) => row::print(path).map(|()| false),
        None => verify(args, trace),
    };
    match outcome {
        Ok(true) => ExitCode::from(DIFFERS),
        Ok(false) => ExitCode::SUCCESS,
        Err(failure) => failure::ended(Err(failure)),
    }
}

/// Runs all behaviours and prints what holds. Returns whether one differs.
fn verify(args: &Args, trace: bool) -> Outcome<bool> {
    let target = args.device.find(trace)?;
    if let Some(port) = args.port {
        target.check_port(port)?;
    }
    // Whether these can be written is known before the device is used.
    let file = args.report.as_deref().map(create).transpose()?;
    let context = target.open()?;
    let port = args.port.map_or_else(|| first_active(&target, &context), Ok)?;
    let stop = Stop::on_signals()?;
    let started = Instant::now();
    let private = Private::of(&target.device, &context);
    let mut report = Report::new(&target.device, &context, port, args.flows)?;
    drop(context);

    let frames = if args.flows { source(&target, port) } else { None };
    let ground = Ground {
        device: &target.device,
        opener: &|| target.context(),
        port,
        address: address(&target, port),
        frames: frames.as_deref(),
        is_silent: OnceCell::new(),
        is_over: &|| stop.is_set(),
    };
    let progress = Progress::new(ALL.len());
    for (number, behaviour) in ALL.iter().enumerate() {
        progress.show(number, behaviour);
        report.rows.push(tried(behaviour, args.flows, &ground, &private));
        if stop.is_set() {
            break;
        }
    }
    if !stop.is_set() {
        progress.say("times");
        report.times = measure::all(&target, &ground, args.flows, &private);
    }
    progress.end();
    report.interrupted = stop.is_set();
    report.elapsed_ms = millis(started);
    report.count();

    let mut output = Output::new();
    let told = if args.json { output.json(&report) } else { output.text(page::of(&target, &report)) };
    failure::first([file.map_or(Ok(()), |file| file.write(&report)), told])?;
    Ok(report.counts.differs > 0)
}

/// Runs one behaviour.
fn tried(behaviour: &Behaviour, flows: bool, ground: &Ground<'_>, private: &Private) -> Row {
    if behaviour.has_flows && !flows {
        return Row::skipped(behaviour, "it creates flows, which --flows permits");
    }
    let started = Instant::now();
    let held = unless_cut_short((behaviour.run)(ground), (ground.is_over)());
    Row { elapsed_ms: millis(started), ..Row::of(behaviour, held, ground.device, private) }
}

fn millis(since: Instant) -> u64 {
    u64::try_from(since.elapsed().as_millis()).unwrap_or(u64::MAX)
}

/// The first port that is active, or the first one.
fn first_active(target: &Target, context: &Context) -> Outcome<u8> {
    for port in 1..=u8::try_from(target.device.ports()).unwrap_or(u8::MAX) {
        if context.query_port(port)?.legacy_resp.state == port_state::ACTIVE {
            return Ok(port);
        }
    }
    Ok(1)
}

/// An address of the port's network interface, if it has one in this namespace: of IPv4 if there is one.
fn address(target: &Target, port: u8) -> Option<IpAddr> {
    let of_port = target.device.interfaces().iter().filter(|interface| interface.port == u32::from(port));
    let names: Vec<_> = of_port.map(|interface| interface.name.as_str()).collect();
    let mut addresses: Vec<_> = nix::ifaddrs::getifaddrs()
        .into_iter()
        .flatten()
        .filter(|entry| names.contains(&entry.interface_name.as_str()))
        .filter_map(|entry| {
            let address = entry.address?;
            let v4 = address.as_sockaddr_in().map(|address| IpAddr::V4(address.ip()));
            let v6 = address.as_sockaddr_in6().map(|address| address.ip());
            v4.or(v6.filter(|address| !address.is_unicast_link_local()).map(IpAddr::V6))
        })
        .collect();
    addresses.sort_unstable();
    addresses.first().copied()
}

/// How frames are made to arrive: on the embedded device by a call, on others by sending them.
fn source(target: &Target, port: u8) -> Option<Box<dyn Frames>> {
    match &target.soft {
        Some(soft) => Some(Box::new(Injected(soft.clone()))),
        // Without raw packets, the behaviours say who lacks them.
        None => Own::new(&target.device, port).ok().map(|own| Box::new(own) as Box<dyn Frames>),
    }
}

/// A file for the report.
struct ReportFile {
    path: PathBuf,
    file: File,
}

/// Opens or creates it. An earlier report stays in it until there is another.
fn create(path: &Path) -> Outcome<ReportFile> {
    let opened = OpenOptions::new().write(true).create(true).truncate(false).open(path);
    let file = opened.map_err(|error| Failure::File(path.display().to_string(), error))?;
    Ok(ReportFile { path: path.to_owned(), file })
}

impl ReportFile {
    fn write(mut self, report: &Report) -> Outcome {
        let text = serde_json::to_string_pretty(report).map_err(|error| Failure::Other(error.to_string()))?;
        let mut write = || {
            // A pipe has no length.
            if self.file.metadata()?.is_file() {
                self.file.set_len(0)?;
            }
            self.file.write_all(text.as_bytes())?;
            self.file.write_all(b"\n")
        };
        write().map_err(|error| Failure::File(self.path.display().to_string(), error))
    }
}

/// What runs now, in one line on standard error if that is a terminal.
struct Progress {
    count: usize,
    is_terminal: bool,
}

impl Progress {
    fn new(count: usize) -> Self {
        Self { count, is_terminal: io::stderr().is_terminal() }
    }

    fn show(&self, number: usize, behaviour: &Behaviour) {
        self.say(&format!("{} of {}  {}", number + 1, self.count, report::sentence(behaviour.name)));
    }

    fn say(&self, text: &str) {
        if self.is_terminal {
            // If this cannot be written, nothing can.
            let _ = write!(io::stderr(), "\r{text}\x1b[K");
        }
    }

    fn end(&self) {
        self.say("");
    }
}

#[cfg(test)]
mod tests {
    use super::behaviours::{Stopped, holds};
    use super::*;

    #[test]
    fn a_difference_counts_unless_a_signal_may_have_made_it() {
        let differs = || holds("wait", false, "an event", "none");
        assert!(matches!(unless_cut_short(differs(), false), Err(Stopped::Differs(_))));
        let Err(Stopped::Skipped(why)) = unless_cut_short(differs(), true) else {
            panic!("it was cut short")
        };
        assert!(why.ends_with("until then, wait: expected an event, seen none"), "{why}");
        assert_eq!(unless_cut_short(Ok(()), true), Ok(()));
    }
}
