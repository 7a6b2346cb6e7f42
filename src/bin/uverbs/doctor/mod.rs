//! `uverbs doctor`: why RDMA does not work here.
//!
//! What is read of the machine (`seen.rs`, `machine.rs`) is separate from the checks, which look at it (`checks/`).

mod checks;
mod finding;
mod machine;
mod peer;
mod routes;
mod seen;

use std::process::ExitCode;
use std::time::Duration;

use serde::Serialize;
use uverbs::Device;

use self::finding::{Finding, Severity};
use self::seen::Seen;
use crate::Outcome;
use crate::failure::{self, Failure};
use crate::output::Output;
use crate::table::Colours;
use crate::target::{self, Target};
use crate::units;

/// The exit statuses, for `--help`.
const EXIT_CODES: &str = "\
Exit codes, besides those of all commands:
  0  nothing, or notes alone
  6  the worst finding is a warning
  7  the worst finding is a problem";

/// Options of `uverbs doctor`.
#[derive(Debug, clap::Args)]
#[command(after_help = EXIT_CODES)]
pub(crate) struct Args {
    /// Only this device: a name such as mlx5_0 or rxe0, or a device file. Default: all devices of the machine.
    #[arg(value_name = "DEV", conflicts_with = "device")]
    word: Option<String>,
    /// The device, as DEV.
    #[arg(short, long, value_name = "DEV")]
    device: Option<String>,
    /// How long counters are watched for errors that grow: 1s, 500ms, 1m.
    #[arg(long, value_name = "TIME", value_parser = units::duration, default_value = "1s")]
    watch: Duration,
    #[command(flatten)]
    peer: peer::Options,
    /// Print one JSON object.
    #[arg(long)]
    json: bool,
}

/// What `--json` prints.
#[derive(Serialize)]
struct Report<'a> {
    version: &'static str,
    kernel: Option<String>,
    devices: Vec<&'a str>,
    findings: &'a [Finding],
    /// What could not be seen, and why.
    unseen: &'a [String],
}

pub(crate) fn run(args: &Args) -> ExitCode {
    match examine(args) {
        Ok(None) | Ok(Some(Severity::Note)) => ExitCode::SUCCESS,
        Ok(Some(Severity::Warning)) => ExitCode::from(6),
        Ok(Some(Severity::Problem)) => ExitCode::from(7),
        Err(failure) => failure::ended(Err(failure)),
    }
}

/// Prints what all checks find, and returns the worst severity.
fn examine(args: &Args) -> Outcome<Option<Severity>> {
    let (devices, target) = match &args.peer.peer {
        None => (wanted(args)?, None),
        Some(_) => {
            let target = for_peer(args)?;
            // A device of this program has no part in the machine.
            (target.device.node().map(|_| target.device.clone()).into_iter().collect(), Some(target))
        }
    };
    let mut seen = Seen::here(&devices);
    seen.watch(&devices, args.watch);
    let mut found = if target.is_none() || !devices.is_empty() { checks::all(&seen) } else { Vec::new() };
    // What was found is printed also if the peer fails.
    let mut ended = Ok(());
    if let (Some(target), Some(host)) = (&target, &args.peer.peer) {
        ended = peer::examine(target, &args.peer, host, &mut found);
        finding::sort(&mut found);
    }
    let mut names: Vec<_> = seen.devices.iter().map(|device| device.name.as_str()).collect();
    names.extend(target.iter().map(|target| target.device.name()).filter(|_| devices.is_empty()));
    let mut output = Output::new();
    if args.json {
        output.json(&Report {
            version: env!("CARGO_PKG_VERSION"),
            kernel: seen.machine.text("proc/sys/kernel/osrelease"),
            devices: names,
            findings: &found,
            unseen: &seen.unseen,
        })?;
    } else {
        output.text(text(&seen, &names, &found))?;
    }
    ended.map(|()| found.iter().map(|finding| finding.severity).max())
}

/// The devices to look at. A machine without any is what this program is for.
fn wanted(args: &Args) -> Outcome<Vec<Device>> {
    let devices = uverbs::devices()?;
    match args.word.as_deref().or(args.device.as_deref()) {
        None => Ok(devices.iter().cloned().collect()),
        Some(name) => match target::called(&devices, name) {
            Ok(device) => Ok(vec![device.clone()]),
            Err(_) => {
                let name = name.escape_debug();
                Err(Failure::NotFound(format!(
                    "no device {name}; without a name, doctor says why it is not there"
                )))
            }
        },
    }
}

/// The device for messages to another host: the named one, or the only one.
fn for_peer(args: &Args) -> Outcome<Target> {
    if let Some(name) = args.word.as_deref().or(args.device.as_deref()) {
        return Target::find(name, false);
    }
    let devices = uverbs::devices()?;
    match devices.iter().collect::<Vec<_>>()[..] {
        [device] => Target::among(&devices, device.name(), false),
        _ => Err(target::missing()),
    }
}

/// A page for people.
fn text(seen: &Seen, names: &[&str], found: &[Finding]) -> String {
    let devices: Vec<_> = names.iter().map(|name| name.escape_debug().to_string()).collect();
    let devices = if devices.is_empty() { "no RDMA device".to_owned() } else { devices.join(", ") };
    let count = |severity| found.iter().filter(|finding| finding.severity == severity).count();
    let counts: Vec<_> = Severity::ALL.map(|severity| severity.counted(count(severity))).to_vec();
    let mut text = format!("{devices}: {}\n", counts.join(", "));
    found.iter().for_each(|finding| finding.write(&mut text, Colours::new()));
    if !seen.unseen.is_empty() {
        text.push_str("\nnot seen:\n");
        seen.unseen.iter().for_each(|what| text.push_str(&format!("  {what}\n")));
    }
    text
}
