//! Programs that run until they are told to end. Tests wait for an action of the program, not for a time in which it may have happened.

use std::fs;
use std::io::{BufRead, BufReader};
use std::process::Child;
use std::thread;
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;

/// Longer than any operation takes, on a busy machine too.
const LONG: Duration = Duration::from_secs(60);

pub(super) fn signal(child: &Child, signal: Signal) {
    let id = i32::try_from(child.id()).expect("a process id");
    kill(Pid::from_raw(id), signal).expect("the signal is sent");
}

/// Ends it as ctrl-C does, after it has installed its handler for that.
pub(super) fn interrupt(child: &Child) {
    let mask = 1_u64 << (Signal::SIGINT as u32 - 1);
    until("handles SIGINT", || {
        let caught =
            field(child, "status", |status| status.lines().find_map(|line| line.strip_prefix("SigCgt:")));
        u64::from_str_radix(&caught, 16).expect("a number") & mask != 0
    });
    signal(child, Signal::SIGINT);
}

/// Waits until it has used the processor for a while, which it does only when it works.
pub(super) fn at_work(child: &Child) {
    // In hundredths of a second, the fourteenth field (proc(5)); the fields after the name.
    until("works", || {
        let used = field(child, "stat", |stat| stat.rsplit_once(')')?.1.split_whitespace().nth(11));
        used.parse::<u64>().expect("a number") >= 30
    });
}

/// Ends it as ctrl-C does, when it works.
pub(super) fn interrupt_at_work(child: &Child) {
    at_work(child);
    interrupt(child);
}

/// A field of the kernel's information about the process.
fn field(child: &Child, file: &str, find: impl Fn(&str) -> Option<&str>) -> String {
    let text = fs::read_to_string(format!("/proc/{}/{file}", child.id())).expect("the process is there");
    find(&text).unwrap_or_else(|| panic!("{text}")).trim().to_owned()
}

fn until(what: &str, is: impl Fn() -> bool) {
    let begun = Instant::now();
    while !is() {
        assert!(begun.elapsed() < LONG, "in vain until it {what}");
        thread::sleep(Duration::from_millis(5));
    }
}

/// Reads JSON documents, one per line, until `enough` returns true; then ends the program. The last documents are those after that.
pub(super) fn readings_until(mut child: Child, enough: impl Fn(&Value) -> bool) -> Vec<Value> {
    let lines = BufReader::new(child.stdout.take().expect("a pipe")).lines();
    let (mut readings, mut is_told) = (Vec::<Value>::new(), false);
    let begun = Instant::now();
    for line in lines {
        readings.push(serde_json::from_str(&line.expect("a line")).expect("JSON"));
        let is_enough = readings.last().is_some_and(&enough);
        assert!(is_enough || is_told || begun.elapsed() < LONG, "in vain: {readings:?}");
        if is_enough && !std::mem::replace(&mut is_told, true) {
            interrupt(&child);
        }
    }
    assert!(is_told && child.wait().expect("it ends").success(), "{readings:?}");
    readings
}
