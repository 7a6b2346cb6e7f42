//! A kernel that has no memory for what a command needs.

use std::fs;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};

use uverbs::command::Command;
use uverbs::transport::{Errno, Watcher};

/// How many allocations of the kernel a thread gets before one fails; 0 for all
/// (Documentation/fault-injection/fault-injection.rst, Linux 6.1).
const FAIL_NTH: &str = "/proc/thread-self/fail-nth";

/// Has an allocation fail in every so manieth command or mapping, now an early one and now a late one; a copy to or from the program
/// counts as one.
#[derive(Debug)]
pub struct Starved {
    every: u64,
    first: u64,
    commands: AtomicU64,
}

impl Starved {
    /// None on a kernel that cannot be told.
    pub fn new(every: u64, first: u64) -> Option<Self> {
        Path::new(FAIL_NTH).exists().then(|| Self { every, first, commands: AtomicU64::new(0) })
    }
}

impl Starved {
    fn begin(&self) {
        let command = self.commands.fetch_add(1, Ordering::Relaxed) + 1;
        if command.is_multiple_of(self.every) {
            let nth = 1 + (self.first + command) % 12;
            fs::write(FAIL_NTH, nth.to_string()).expect("fault injection");
        }
    }
}

fn end() {
    // What is left over may hit this call, and is then used up.
    while fs::write(FAIL_NTH, "0").is_err() {}
}

impl Watcher for Starved {
    fn before(&self, _: &Command<'_>) -> Result<(), Errno> {
        self.begin();
        Ok(())
    }

    fn after(&self, _: &Command<'_>, _: Result<(), Errno>) {
        end();
    }

    fn before_map(&self, _: u64, _: usize) -> Result<(), Errno> {
        self.begin();
        Ok(())
    }

    fn after_map(&self, _: u64, _: usize, _: Result<(), Errno>) {
        end();
    }
}
