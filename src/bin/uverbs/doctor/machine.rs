//! The files of the machine from which checks read: those of the kernel and /etc/hosts, all of which everybody may read.

use std::fs;
use std::net::Ipv4Addr;
use std::os::unix::fs::MetadataExt;
#[cfg(test)]
use std::path::Path;
use std::path::PathBuf;

/// The files below a root, which is that of this machine or, in tests, a folder.
#[derive(Debug)]
pub(super) struct Machine {
    root: PathBuf,
    /// The folder that libibverbs and this crate read in place of `/sys`.
    sysfs: PathBuf,
}

/// The capability to lock any amount of memory (linux/capability.h).
pub(super) const IPC_LOCK: u32 = 14;
/// The capability to send raw packets.
pub(super) const NET_RAW: u32 = 13;

impl Machine {
    pub(super) fn here() -> Self {
        let sysfs = std::env::var_os("SYSFS_PATH").map_or_else(|| PathBuf::from("/sys"), PathBuf::from);
        Self { root: PathBuf::from("/"), sysfs }
    }

    #[cfg(test)]
    pub(super) fn at(root: &Path) -> Self {
        Self { root: root.to_owned(), sysfs: root.join("sys") }
    }

    /// The folder that is read in place of `/sys`, if there is one.
    pub(super) fn elsewhere(&self) -> Option<std::path::Display<'_>> {
        (self.sysfs != self.root.join("sys")).then(|| self.sysfs.display())
    }

    /// Where a file is: `sys/class/net`, `proc/modules`, `dev/infiniband`.
    pub(super) fn path(&self, name: &str) -> PathBuf {
        match name.strip_prefix("sys/") {
            Some(rest) => self.sysfs.join(rest),
            None => self.root.join(name),
        }
    }

    pub(super) fn exists(&self, name: &str) -> bool {
        self.path(name).exists()
    }

    /// A file's text without the spaces around it.
    pub(super) fn text(&self, name: &str) -> Option<String> {
        let text = fs::read(self.path(name)).ok()?;
        Some(String::from_utf8_lossy(&text).trim().to_owned())
    }

    /// A file that has a number.
    pub(super) fn number(&self, name: &str) -> Option<u64> {
        self.text(name)?.parse().ok()
    }

    /// The names in a folder, in order.
    pub(super) fn names(&self, name: &str) -> Vec<String> {
        let entries = fs::read_dir(self.path(name)).into_iter().flatten().flatten();
        let mut names: Vec<_> = entries.filter_map(|entry| entry.file_name().into_string().ok()).collect();
        names.sort_unstable();
        names
    }

    /// The last part of what a link leads to.
    pub(super) fn link(&self, name: &str) -> Option<String> {
        let target = fs::read_link(self.path(name)).ok()?;
        Some(target.file_name()?.to_str()?.to_owned())
    }

    /// The mode, the owner and the group of a file.
    pub(super) fn mode(&self, name: &str) -> Option<(u32, u32, u32)> {
        let file = fs::metadata(self.path(name)).ok()?;
        Some((file.mode() & 0o7777, file.uid(), file.gid()))
    }

    /// Addresses that nobody has answered for by ARP, with the interface: entries without the flag 2 (`ATF_COM`) in /proc/net/arp (proc(5)).
    pub(super) fn silent_neighbours(&self) -> Vec<(Ipv4Addr, String)> {
        let entry = |line: &str| {
            let words: Vec<_> = line.split_whitespace().collect();
            let flags = u32::from_str_radix(words.get(2)?.strip_prefix("0x")?, 16).ok()?;
            let is_silent = flags & 2 == 0;
            is_silent.then_some((words.first()?.parse().ok()?, (*words.last()?).to_owned()))
        };
        self.text("proc/net/arp").unwrap_or_default().lines().filter_map(entry).collect()
    }

    /// The kernel's version: `6.12.1-amd64` is (6, 12).
    pub(super) fn kernel(&self) -> Option<(u32, u32)> {
        let release = self.text("proc/sys/kernel/osrelease")?;
        let mut parts = release.split(|c: char| !c.is_ascii_digit());
        Some((parts.next()?.parse().ok()?, parts.next()?.parse().ok()?))
    }

    /// Whether a module is loaded, or built into the kernel with parameters or a version.
    pub(super) fn has_module(&self, name: &str) -> bool {
        self.exists(&format!("sys/module/{name}"))
    }

    /// Whether this process has a capability (`CapEff`, proc(5)). `None` if that cannot be seen.
    pub(super) fn has_capability(&self, capability: u32) -> Option<bool> {
        let status = self.text("proc/self/status")?;
        let set = status.lines().find_map(|line| line.strip_prefix("CapEff:"))?;
        Some(u64::from_str_radix(set.trim(), 16).ok()? >> capability & 1 == 1)
    }

    /// The soft limit of memory that this process may lock, in bytes; `u64::MAX` without a limit.
    pub(super) fn lockable(&self) -> Option<u64> {
        let limits = self.text("proc/self/limits")?;
        let line = limits.lines().find_map(|line| line.strip_prefix("Max locked memory"))?;
        let soft = line.split_whitespace().next()?;
        if soft == "unlimited" { Some(u64::MAX) } else { soft.parse().ok() }
    }
}
