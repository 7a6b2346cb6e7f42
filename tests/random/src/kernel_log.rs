//! What the kernel says meanwhile.

use std::fs::{File, OpenOptions};
use std::io::{Read, Seek, SeekFrom};
use std::os::unix::fs::OpenOptionsExt;

/// The kernel's log, from here on.
pub struct KernelLog {
    file: Option<File>,
    /// Texts that say that something is wrong.
    splats: Vec<String>,
    /// A warning that is known, up to the end of its trace.
    known: Option<String>,
}

impl KernelLog {
    /// What is wrong and what is known the lanes say, in `SPLATS` and `KNOWN_WARNING` (tests/vm/guest.sh); elsewhere nothing is
    /// looked for, and without the right to read the log there is nothing in it.
    pub fn from_here() -> Self {
        let splats = std::env::var("SPLATS").unwrap_or_default();
        let file = OpenOptions::new().read(true).custom_flags(nix::libc::O_NONBLOCK).open("/dev/kmsg");
        Self {
            file: file.ok().and_then(|mut file| file.seek(SeekFrom::End(0)).ok().map(|_| file)),
            splats: splats.split('|').filter(|splat| !splat.is_empty()).map(str::to_owned).collect(),
            known: std::env::var("KNOWN_WARNING").ok(),
        }
    }

    /// The lines since the last time, if any of them says that something is wrong.
    pub fn complaint(&mut self) -> Option<String> {
        let mut text = String::new();
        let mut record = [0; 8192];
        // A record a read, to the end; one that was overwritten meanwhile is an error, and so is the end.
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
        while let Some(at) = self.known.as_ref().and_then(|known| text.find(known)) {
            let end = text[at..].find("end trace").map_or(text.len(), |len| at + len + "end trace".len());
            text.replace_range(at..end, "");
        }
        self.splats.iter().any(|splat| text.contains(splat)).then_some(text)
    }
}
