//! A kernel without memory for a command, and a process that cannot allocate memory.

use std::fs;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};

use nix::sys::resource::{Resource, getrlimit, rlim_t, setrlimit};
use uverbs::command::Command;
use uverbs::transport::{Errno, Watcher};

/// The file with the number of the kernel's allocations for a thread after which one fails; 0 for none
/// (Documentation/fault-injection/fault-injection.rst, Linux 6.1).
const FAIL_NTH: &str = "/proc/thread-self/fail-nth";

/// Makes an allocation fail in every nth command or mapping, sometimes an early one and sometimes a late one. A copy to or from the
/// program counts as an allocation.
#[derive(Debug)]
pub struct Starved {
    every: u64,
    first: u64,
    commands: AtomicU64,
}

impl Starved {
    /// `None` on a kernel that does not support this.
    pub fn new(every: u64, first: u64) -> Option<Self> {
        Path::new(FAIL_NTH).exists().then(|| Self { every, first, commands: AtomicU64::new(0) })
    }
}

impl Starved {
    /// Commands that destroy something are exempt: the driver of the card needs memory for it, leaves for good what it cannot destroy,
    /// and the kernel warns. So is the command that opens a device: a context that is not created leaks what it has taken (splats.known).
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
    // A remaining failure may affect this write, and is then used up.
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

/// Limits the additional memory of the process as long as it exists. Small allocations, which cannot be refused, still succeed.
#[derive(Debug)]
pub struct Scarce {
    before: (rlim_t, rlim_t),
}

impl Scarce {
    /// This number of MiB.
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
