//! `uverbs doctor`: why RDMA does not work here.
//!
//! What is read of the machine (`seen.rs`, `machine.rs`) is separate from the checks, which look at it (`checks/`).

mod checks;
mod finding;
mod machine;
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
use crate::target;
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
    let devices = wanted(args)?;
    let mut seen = Seen::here(&devices);
    seen.watch(&devices, args.watch);
    let found = checks::all(&seen);
    let mut output = Output::new();
    if args.json {
        output.json(&Report {
            version: env!("CARGO_PKG_VERSION"),
            kernel: seen.machine.text("proc/sys/kernel/osrelease"),
            devices: seen.devices.iter().map(|device| device.name.as_str()).collect(),
            findings: &found,
            unseen: &seen.unseen,
        })?;
    } else {
        output.text(text(&seen, &found))?;
    }
    Ok(found.iter().map(|finding| finding.severity).max())
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

/// A page for people.
fn text(seen: &Seen, found: &[Finding]) -> String {
    let devices: Vec<_> = seen.devices.iter().map(|device| device.name.escape_debug().to_string()).collect();
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
