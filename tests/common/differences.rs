//! Where a real device answers otherwise than the soft device: the one list of it.
//!
//! A row is asserted as strictly as everything else, and each that is met is printed, as
//! `differs: WHAT | SOFT DEVICE | THIS DEVICE`; `tests/vm/run` makes a table of these lines.

use std::fmt::Debug;

use super::Target;

/// A version of the kernel.
type Version = (u32, u32);

/// What was asked, the kernels from the first version on and below the second, and their answer.
type Row = (&'static str, Version, Version, &'static str);

const ALWAYS: Version = (0, 0);
const NEVER: Version = (u32::MAX, 0);

const ON_RXE: &[Row] = &[];

fn kernel() -> Version {
    let text = std::fs::read_to_string("/proc/sys/kernel/osrelease").expect("the kernel's version");
    let mut parts = text.split(|c: char| !c.is_ascii_digit()).map_while(|part| part.parse().ok());
    (parts.next().expect("a major version"), parts.next().expect("a minor version"))
}

/// Compares the answers of one device with what is expected, and reports all that are wrong at the end.
pub struct Answers<'a> {
    target: &'a Target,
    wrong: Vec<String>,
}

impl<'a> Answers<'a> {
    pub fn of(target: &'a Target) -> Self {
        Self { target, wrong: Vec::new() }
    }

    /// `what` was asked; the device said `got`, the soft device says `expected`.
    pub fn is<T: Debug + PartialEq>(&mut self, what: &str, got: T, expected: T) {
        let kernel = kernel();
        let rows: &[Row] = if self.target.device.driver() == "rxe" { ON_RXE } else { &[] };
        let is_met = |row: &&Row| row.0 == what && (row.1..row.2).contains(&kernel);
        match rows.iter().find(is_met) {
            None if got == expected => {}
            None => self.wrong.push(format!("{what}: {got:?}, not {expected:?}")),
            Some((.., answer)) => {
                let got = format!("{got:?}");
                println!("differs: {what} | {expected:?} | {got}");
                if got != *answer {
                    self.wrong.push(format!("{what}: {got}, not {answer}, as listed for this kernel"));
                }
            }
        }
    }
}

impl Drop for Answers<'_> {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            let name = self.target.device.name();
            assert!(self.wrong.is_empty(), "wrong on {name}:\n{}", self.wrong.join("\n"));
        }
    }
}
