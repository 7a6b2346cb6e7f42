//! The control line of a virtual device (`tests/vhca`), the tty that `UVERBS_TEST_CONTROL` names.

use std::fs::{File, OpenOptions};
use std::io::{Read, Write};
use std::process::Command;
use std::sync::{Mutex, PoisonError};

/// The control line; `tests/vhca/README.md` has its requests.
pub struct Control(Mutex<File>);

impl Control {
    /// Opens the line, if there is one, and ends the faults that an earlier test has left.
    pub fn open() -> Option<Self> {
        let path = std::env::var_os("UVERBS_TEST_CONTROL")?;
        let raw = Command::new("stty").arg("-F").arg(&path).args(["raw", "-echo"]).status();
        assert!(raw.expect("stty").success());
        let tty = OpenOptions::new().read(true).write(true).open(path).expect("the control line");
        let line = Self(Mutex::new(tty));
        line.heal();
        Some(line)
    }

    /// Makes a request. It has been carried out when this returns. Returns the lines of the answer.
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

    /// Ends all faults, limits and the loopback plug.
    pub fn heal(&self) {
        for request in ["heal", "limit counters 0xffffffff", "loop off"] {
            self.ask(request);
        }
    }

    /// Number of commands of this name that the device has received.
    pub fn commands(&self, name: &str) -> u32 {
        let lines = self.ask("commands");
        let line = lines.iter().find(|line| line.split_whitespace().any(|word| word == name));
        line.and_then(|line| line.split_whitespace().last()?.parse().ok()).unwrap_or(0)
    }

    /// Sends a frame to the device from the wire, without check sequence.
    pub fn send(&self, frame: &[u8]) {
        self.send_many(frame, 1);
    }

    /// The same many times.
    pub fn send_many(&self, frame: &[u8], count: u64) {
        let digits: String = frame.iter().map(|byte| format!("{byte:02x}")).collect();
        self.ask(&format!("send {digits} {count}"));
    }
}
