//! The file descriptors and mappings of a process.

use std::fs;
use std::path::Path;

/// The numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Footprint {
    pub descriptors: usize,
    /// Mappings of device files.
    pub mappings: usize,
}

impl Footprint {
    /// All of this process.
    pub fn now() -> Self {
        Self { descriptors: descriptors(|_| true), mappings: mappings() }
    }

    /// Only those of RDMA devices, for a process in which other tests run.
    pub fn of_devices() -> Self {
        let is_device = |target: &Path| {
            let name = target.to_string_lossy();
            name.contains("/uverbs") || name.contains("[infinibandevent]") || name.contains("[uverbs")
        };
        Self { descriptors: descriptors(is_device), mappings: mappings() }
    }
}

fn descriptors(counts: impl Fn(&Path) -> bool) -> usize {
    let entries = fs::read_dir("/proc/self/fd").expect("the list of descriptors");
    entries
        .filter(|entry| {
            let target = entry.as_ref().ok().and_then(|entry| fs::read_link(entry.path()).ok());
            target.is_some_and(|target| counts(&target))
        })
        .count()
}

fn mappings() -> usize {
    let maps = fs::read_to_string("/proc/self/maps").expect("the list of mappings");
    maps.lines().filter(|line| line.contains("/uverbs")).count()
}

/// Kilobytes of memory in use.
pub fn resident() -> u64 {
    let status = fs::read_to_string("/proc/self/status").expect("the state of the process");
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).expect("VmRSS");
    line.trim().trim_end_matches("kB").trim().parse().expect("a number")
}
