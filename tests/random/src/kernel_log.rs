//! What the kernel says meanwhile.

use std::fs::{File, OpenOptions};
use std::io::{Read, Seek, SeekFrom};
use std::os::unix::fs::OpenOptionsExt;

/// The kernel's log, from here on.
pub struct KernelLog(Option<File>);

/// What it says when something is wrong; the lanes have the same (`SPLATS` in tests/vm/guest.sh).
const SPLATS: &[&str] = &[
    "BUG:",
    "WARNING:",
    "Oops",
    "general protection fault",
    "Call Trace",
    "UBSAN:",
    "ODEBUG:",
    "INFO: task",
    "refcount_t:",
    "possible circular locking",
    "possible recursive locking",
    "inconsistent lock state",
    "suspicious RCU usage",
];

/// Warnings that are known.
const KNOWN: &[&str] = &[
    // mlx5 has no name for the state of a queue pair whose receive queue alone has stopped (docs/internals/kernels.md).
    "Buggy Raw Packet QP state",
];

impl KernelLog {
    /// Without the right to read it there is nothing in it.
    pub fn from_here() -> Self {
        let file = OpenOptions::new().read(true).custom_flags(nix::libc::O_NONBLOCK).open("/dev/kmsg");
        Self(file.ok().and_then(|mut file| file.seek(SeekFrom::End(0)).ok().map(|_| file)))
    }

    /// The lines since the last time, if any of them says that something is wrong.
    pub fn complaint(&mut self) -> Option<String> {
        let mut text = String::new();
        let mut record = [0; 8192];
        // A record a read, to the end; one that was overwritten meanwhile is an error, and so is the end.
        for _ in 0..10_000 {
            let Some(file) = &mut self.0 else { break };
            match file.read(&mut record) {
                Ok(0) => break,
                Ok(len) => {
                    let line = String::from_utf8_lossy(&record[..len]);
                    let line = line.split_once(';').map_or(&*line, |(_, line)| line);
                    text.push_str(line.lines().next().unwrap_or_default());
                    text.push('\n');
                }
                Err(error) if error.raw_os_error() == Some(nix::libc::EPIPE) => {}
                Err(_) => break,
            }
        }
        // What is known is no complaint, up to the end of its trace.
        while let Some(at) = KNOWN.iter().find_map(|known| text.find(known)) {
            let end = text[at..].find("end trace").map_or(text.len(), |len| at + len + "end trace".len());
            text.replace_range(at..end, "");
        }
        SPLATS.iter().any(|splat| text.contains(splat)).then_some(text)
    }
}
