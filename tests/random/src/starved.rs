//! A kernel that has no memory for what a command needs, and a process that gets none.

use std::fs;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};

use nix::sys::resource::{Resource, getrlimit, rlim_t, setrlimit};
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
    /// What ends something is spared: the driver of the card needs memory for it, and what it cannot end it leaves for good, and the kernel
    /// warns. So is the command that opens: a context that is not made holds what it took (splats.known).
    fn spares(command: &Command<'_>) -> bool {
        command.op().ends_with(".destroy") || command.op() == "context.create"
    }

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
    fn before(&self, command: &Command<'_>) -> Result<(), Errno> {
        if !Self::spares(command) {
            self.begin();
        }
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

/// The process gets only so much more memory, while this is there. What is asked for in small pieces, and cannot be refused, has its place
/// still.
#[derive(Debug)]
pub struct Scarce {
    before: (rlim_t, rlim_t),
}

impl Scarce {
    /// So many MiB.
    pub fn new(more: u64) -> Self {
        let before = getrlimit(Resource::RLIMIT_AS).expect("limits");
        let pages = fs::read_to_string("/proc/self/statm").expect("the process's memory");
        let pages: u64 = pages.split(' ').next().and_then(|pages| pages.parse().ok()).expect("pages");
        let has = pages
            * nix::unistd::sysconf(nix::unistd::SysconfVar::PAGE_SIZE).ok().flatten().expect("a size") as u64;
        setrlimit(Resource::RLIMIT_AS, has + (more << 20), before.1).expect("a limit");
        Self { before }
    }
}

impl Drop for Scarce {
    fn drop(&mut self) {
        setrlimit(Resource::RLIMIT_AS, self.before.0, self.before.1).expect("a limit");
    }
}
