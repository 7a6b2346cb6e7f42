//! The report: what holds, and what was measured, without anything that names the machine.

use std::fs;

use serde::{Deserialize, Serialize};
use uverbs::{Context, Device, Error};

use super::behaviours::{Behaviour, Held, Stopped};
use super::measure::Time;
use super::private::Private;
use crate::Outcome;
use crate::bench::Kind;
use crate::info::words;

/// The number of the format. It grows when a field changes its meaning.
pub(super) const FORMAT: u32 = 1;

#[derive(Debug, Serialize)]
pub(super) struct Report {
    pub(super) format: u32,
    /// The version of this crate.
    pub(super) uverbs: &'static str,
    pub(super) kernel: Option<String>,
    pub(super) architecture: &'static str,
    pub(super) device: Described,
    /// Whether flows were permitted.
    pub(super) flows: bool,
    pub(super) interrupted: bool,
    pub(super) elapsed_ms: u64,
    pub(super) counts: Counts,
    pub(super) rows: Vec<Row>,
    pub(super) times: Vec<Time>,
    /// What is not measured, and why.
    pub(super) not_measured: [&'static str; 2],
}

/// A device, by what is common to all of its model.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Described {
    pub(super) kind: Kind,
    pub(super) driver: String,
    pub(super) firmware: String,
    pub(super) vendor_id: u32,
    pub(super) vendor_part_id: u32,
    pub(super) hardware_version: u32,
    /// The identifier of the board (PSID), if the driver tells it.
    pub(super) board: Option<String>,
    pub(super) protocol: Option<String>,
    pub(super) ports: u32,
    pub(super) link_layer: &'static str,
    /// Bytes of a packet's payload.
    pub(super) mtu: Option<u32>,
    /// All lanes together.
    pub(super) rate: Option<String>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Counts {
    pub(super) holds: usize,
    pub(super) differs: usize,
    pub(super) not_supported: usize,
    pub(super) skipped: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Result {
    Holds,
    Differs,
    NotSupported,
    Skipped,
}

/// What was seen of a behaviour.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Row {
    pub(super) area: &'static str,
    pub(super) behaviour: String,
    pub(super) result: Result,
    /// For a difference: where, what was expected and what was seen.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) step: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) expected: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) seen: Option<String>,
    /// Who does not support it: `kernel`, `driver`, `device` or `uverbs`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) by: Option<&'static str>,
    /// Why it is not supported, or was skipped.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) why: Option<String>,
    pub(super) elapsed_ms: u64,
}

/// The name of a behaviour as a sentence.
pub(super) fn sentence(name: &str) -> String {
    name.replace('_', " ")
}

impl Row {
    fn new(behaviour: &Behaviour, result: Result) -> Self {
        let (area, behaviour) = (behaviour.area, sentence(behaviour.name));
        let (step, expected, seen, by, why) = (None, None, None, None, None);
        Self { area, behaviour, result, step, expected, seen, by, why, elapsed_ms: 0 }
    }

    pub(super) fn skipped(behaviour: &Behaviour, why: &str) -> Self {
        Self { why: Some(why.to_owned()), ..Self::new(behaviour, Result::Skipped) }
    }

    pub(super) fn of(behaviour: &Behaviour, held: Held, device: &Device, private: &Private) -> Self {
        let row = |result| Self::new(behaviour, result);
        let hide = |text: &str| Some(private.hide(text));
        match held {
            Ok(()) => row(Result::Holds),
            Err(Stopped::Differs(it)) => Self {
                step: hide(&it.step),
                expected: hide(&it.expected),
                seen: hide(&it.seen),
                ..row(Result::Differs)
            },
            Err(Stopped::Unsupported(error)) => Self {
                by: Some(who_lacks(&error, device.node().is_none())),
                why: hide(&error.to_string()),
                ..row(Result::NotSupported)
            },
            Err(Stopped::Skipped(why)) => Self { why: hide(&why), ..row(Result::Skipped) },
            Err(Stopped::Interrupted) => Self::skipped(behaviour, "the run was ended"),
        }
    }
}

const EPROTONOSUPPORT: i32 = 93;
const ENOTTY: i32 = 25;

/// Who does not support something: the hint says it, or else the errno. The core of the kernel has one for commands that neither it nor
/// the driver has (uverbs_ioctl.c, Linux 6.1). A device that is embedded in the program has neither.
fn who_lacks(error: &Error, is_embedded: bool) -> &'static str {
    let hint = error.hint().unwrap_or_default().to_lowercase();
    let names = |words: &[&str]| words.iter().any(|word| hint.contains(word));
    if names(&[
        "of the devices that this crate knows",
        "this version of the crate",
        "this crate does not",
        "this crate has no",
    ]) {
        "uverbs"
    } else if is_embedded {
        "device"
    } else if names(&["driver"]) {
        "driver"
    } else if names(&["kernel", "linux"]) || matches!(error.errno(), Some(EPROTONOSUPPORT | ENOTTY)) {
        "kernel"
    } else if names(&["device", "card", "port"]) {
        "device"
    } else {
        "driver"
    }
}

impl Report {
    pub(super) fn new(device: &Device, context: &Context, port: u8, flows: bool) -> Outcome<Self> {
        let kernel = fs::read_to_string("/proc/sys/kernel/osrelease").ok();
        Ok(Self {
            format: FORMAT,
            uverbs: env!("CARGO_PKG_VERSION"),
            kernel: kernel.map(|kernel| kernel.trim().to_owned()),
            architecture: std::env::consts::ARCH,
            device: Described::new(device, context, port)?,
            flows,
            interrupted: false,
            elapsed_ms: 0,
            counts: Counts::default(),
            rows: Vec::new(),
            times: Vec::new(),
            not_measured: [
                "instructions: this program does not call perf_event_open",
                "libibverbs: lanes of this project compare with it",
            ],
        })
    }

    pub(super) fn count(&mut self) {
        let count = |result| self.rows.iter().filter(|row| row.result == result).count();
        self.counts = Counts {
            holds: count(Result::Holds),
            differs: count(Result::Differs),
            not_supported: count(Result::NotSupported),
            skipped: count(Result::Skipped),
        };
    }
}

impl Described {
    fn new(device: &Device, context: &Context, port: u8) -> Outcome<Self> {
        let base = context.query_device()?.base;
        let answer = context.query_port(port)?.legacy_resp;
        let file = |name: &str| {
            let text = fs::read_to_string(device.sysfs()?.join(name)).ok()?;
            Some(text.trim().to_owned())
        };
        let firmware = device.firmware();
        let from_device = || context.firmware(base.fw_ver);
        Ok(Self {
            kind: Kind::of(device),
            driver: device.driver().to_owned(),
            firmware: if firmware.is_empty() { from_device() } else { firmware.to_owned() },
            vendor_id: base.vendor_id,
            vendor_part_id: base.vendor_part_id,
            hardware_version: base.hw_ver,
            board: file("board_id"),
            protocol: device.protocol().map(str::to_owned),
            ports: device.ports(),
            link_layer: words::link(answer.link_layer),
            mtu: words::mtu(answer.active_mtu),
            rate: file(&format!("ports/{port}/rate")),
        })
    }
}
