//! The kernel's messages during the programs.

use std::fs::{File, OpenOptions};
use std::io::{Read, Seek, SeekFrom};
use std::os::unix::fs::OpenOptionsExt;

/// The rows of `splats.known` for this kernel.
fn known_splats() -> Vec<String> {
    let release = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    let path = std::env::var("KNOWN_SPLATS").unwrap_or_default();
    let rows = std::fs::read_to_string(path).unwrap_or_default();
    let text = |row: &str| {
        let mut fields = row.split(" | ");
        let (kernel, text) = (fields.next()?, fields.next()?);
        let is_meant = !row.starts_with('#') && (kernel == "*" || release.starts_with(kernel));
        is_meant.then(|| text.to_owned())
    };
    rows.lines().filter_map(text).collect()
}

/// The kernel's log, from here on.
pub struct KernelLog {
    file: Option<File>,
    /// Texts that indicate an error.
    splats: Vec<String>,
    /// Known reports, each up to the end of its trace.
    known: Vec<String>,
}

impl KernelLog {
    /// The lanes define errors and known messages in `SPLATS`, `KNOWN_WARNING` and the file of `KNOWN_SPLATS` (tests/vm/lib/guest.sh).
    /// Elsewhere nothing is searched for, and without the right to read the log it is empty.
    pub fn from_here() -> Self {
        let splats = std::env::var("SPLATS").unwrap_or_default();
        let file = OpenOptions::new().read(true).custom_flags(nix::libc::O_NONBLOCK).open("/dev/kmsg");
        Self {
            file: file.ok().and_then(|mut file| file.seek(SeekFrom::End(0)).ok().map(|_| file)),
            splats: splats.split('|').filter(|splat| !splat.is_empty()).map(str::to_owned).collect(),
            known: std::env::var("KNOWN_WARNING").into_iter().chain(known_splats()).collect(),
        }
    }

    /// The lines since the last call, if any of them indicates an error.
    pub fn complaint(&mut self) -> Option<String> {
        let mut text = String::new();
        let mut record = [0; 8192];
        // One record per read, up to the end. A record that was overwritten meanwhile is an error, and so is the end.
        for _ in 0..10_000 {
            let Some(file) = &mut self.file else { break };
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
        for known in &self.known {
            while let Some(at) = text.find(known) {
                let start = text[..at].rfind('\n').map_or(0, |newline| newline + 1);
                let ends = ["end trace", "=========="];
                let end =
                    ends.into_iter().filter_map(|end| Some(at + text[at..].find(end)? + end.len())).min();
                text.replace_range(start..end.unwrap_or(text.len()), "");
            }
        }
        self.splats.iter().any(|splat| text.contains(splat)).then_some(text)
    }
}
