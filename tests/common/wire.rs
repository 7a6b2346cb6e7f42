//! The wire of a device under test: the soft device is handed frames by a call, a virtual device (`tests/vhca`) on its
//! control line, the tty that `UVERBS_TEST_CONTROL` names.

use std::fs::{File, OpenOptions};
use std::io::{Read, Write};
use std::panic::Location;
use std::process::Command;
use std::sync::{Mutex, PoisonError};

use uverbs::SoftDevice;

use super::{Raw, Target, on_every_device, skip_at};

/// The control line; `tests/vhca/README.md` has its requests.
pub struct Control(Mutex<File>);

impl Control {
    /// Opens the line, if there is one, and ends whatever an earlier test has left.
    pub fn open() -> Option<Self> {
        let path = std::env::var_os("UVERBS_TEST_CONTROL")?;
        let raw = Command::new("stty").arg("-F").arg(&path).args(["raw", "-echo"]).status();
        assert!(raw.expect("stty").success());
        let tty = OpenOptions::new().read(true).write(true).open(path).expect("the control line");
        let line = Self(Mutex::new(tty));
        line.heal();
        Some(line)
    }

    /// Asks for something, which has been done when this returns; the lines of the answer.
    #[track_caller]
    pub fn ask(&self, request: &str) -> Vec<String> {
        let mut tty = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        tty.write_all(format!("{request}\n").as_bytes()).expect("the control line takes it");
        let (mut lines, mut line) = (Vec::new(), Vec::new());
        loop {
            let mut part = [0; 256];
            let count = tty.read(&mut part).expect("the control line answers");
            for byte in &part[..count] {
                if *byte != b'\n' {
                    line.push(*byte);
                    continue;
                }
                let text = String::from_utf8(std::mem::take(&mut line)).expect("text");
                assert!(!text.starts_with("error"), "{request:.60}: {text}");
                if text == "ok" {
                    return lines;
                }
                lines.push(text);
            }
        }
    }

    /// Nothing fails, lacks room or comes back any more.
    pub fn heal(&self) {
        for request in ["heal", "limit counters 0xffffffff", "loop off"] {
            self.ask(request);
        }
    }

    /// How many commands the device has had, of this name.
    pub fn commands(&self, name: &str) -> u32 {
        let lines = self.ask("commands");
        let line = lines.iter().find(|line| line.split_whitespace().any(|word| word == name));
        line.and_then(|line| line.split_whitespace().last()?.parse().ok()).unwrap_or(0)
    }
}

/// Whether the machine is switched off after this, without a shutdown, so that its kernel may be left with what it cannot
/// get rid of.
pub fn is_switched_off_afterwards() -> bool {
    std::env::var_os("UVERBS_TEST_SWITCHED_OFF").is_some()
}

/// Where frames come from.
pub enum Wire<'a> {
    Soft(&'a SoftDevice),
    Line(&'a Control),
}

impl Wire<'_> {
    /// A frame arrives, without check sequence. It has gone all the way when this returns.
    pub fn inject(&self, frame: &[u8]) {
        match self {
            Self::Soft(soft) => soft.inject(frame),
            Self::Line(line) => {
                let digits: String = frame.iter().map(|byte| format!("{byte:02x}")).collect();
                line.ask(&format!("send {digits}"));
            }
        }
    }

    /// Frames that are sent come back, as by a plug; those of the soft device always do.
    pub fn plug(&self) {
        if let Self::Line(line) = self {
            line.ask("loop on");
        }
    }
}

impl Target {
    /// Its wire, if frames can be made to arrive.
    pub fn wire(&self) -> Option<Wire<'_>> {
        let soft = self.soft.as_ref().map(Wire::Soft);
        soft.or_else(|| self.control.as_ref().map(Wire::Line))
    }
}

/// Runs a behaviour on every device that frames can be made to arrive at; says which are none. It is given the wire and
/// a queue pair.
#[track_caller]
pub fn on_every_wire(behaviour: impl Fn(&Target, &Wire<'_>, Raw)) {
    let at = Location::caller();
    on_every_device(|target| match target.wire() {
        Some(wire) => behaviour(target, &wire, Raw::new(&target.open())),
        None => skip_at(at, target, "no frames can be made to arrive"),
    });
}
