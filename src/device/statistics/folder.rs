//! A folder of sysfs with one counter in each file.

use std::ffi::{CStr, CString};
use std::fs::{self, File};
use std::io::{self, Read};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use nix::fcntl::{OFlag, openat};
use nix::sys::stat::Mode;

use super::meaning::place;
use crate::kernel::error::{Error, Result};

/// A setting that is among the counters: how long a value that was read is cached, in milliseconds.
const SETTING: &[u8] = b"lifespan";

/// A folder of counters. Its files are opened relative to the folder's descriptor. So they stay this device's files when it is renamed,
/// even if another device takes its name.
#[derive(Debug)]
pub(super) struct Folder {
    directory: File,
    names: Vec<CString>,
}

impl Folder {
    /// The folder at `path`; none if there is no folder or it is empty.
    pub(super) fn open(op: &'static str, path: &Path) -> Result<Option<Self>> {
        let entries = match fs::read_dir(path) {
            Ok(entries) => entries,
            // The driver has no such counters, or there is no sysfs.
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(Error::io(op, &error)),
        };
        let mut names = Vec::new();
        for entry in entries {
            let name = entry.map_err(|error| Error::io(op, &error))?.file_name();
            if name.as_bytes() != SETTING
                && let Ok(name) = CString::new(name.as_bytes())
            {
                names.push(name);
            }
        }
        names.sort_by_cached_key(|name| (place(&name.to_string_lossy()), name.clone()));
        let directory = File::open(path).map_err(|error| Error::io(op, &error))?;
        Ok((!names.is_empty()).then_some(Self { directory, names }))
    }

    pub(super) fn has(&self, name: &str) -> bool {
        self.names.iter().any(|known| known.as_bytes() == name.as_bytes())
    }

    /// Reads each file, and passes name and value to `take`.
    pub(super) fn read(&self, op: &'static str, mut take: impl FnMut(&[u8], Result<u64>)) {
        for name in &self.names {
            take(name.as_bytes(), self.value(op, name));
        }
    }

    fn value(&self, op: &'static str, name: &CStr) -> Result<u64> {
        let file = openat(&self.directory, name, OFlag::O_RDONLY | OFlag::O_CLOEXEC, Mode::empty());
        let mut file = File::from(file.map_err(|errno| Error::kernel(op, errno))?);
        // A number of 64 bits has 20 digits, and a newline.
        let mut text = [0; 32];
        let len = file.read(&mut text).map_err(|error| Error::io(op, &error))?;
        number(&text[..len]).ok_or_else(|| Error::malformed(op, "the kernel's file holds no number"))
    }
}

/// A decimal number and a newline. Older kernels may have text instead: `N/A (no PMA)`.
fn number(text: &[u8]) -> Option<u64> {
    let digits = text.trim_ascii_end();
    let is_number = !digits.is_empty() && digits.iter().all(u8::is_ascii_digit);
    str::from_utf8(digits).ok().filter(|_| is_number)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_decimal_and_whole() {
        assert_eq!(number(b"0\n"), Some(0));
        assert_eq!(number(b"18446744073709551615\n"), Some(u64::MAX));
        for text in [
            &b""[..],
            b"\n",
            b"N/A (no PMA)\n",
            b"-1\n",
            b"+1\n",
            b"0x1\n",
            b"1 2\n",
            b"18446744073709551616\n",
            b"\xff",
        ] {
            assert_eq!(number(text), None, "{text:?}");
        }
    }
}
