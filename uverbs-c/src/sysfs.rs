//! Files that describe devices.

use std::ffi::{OsStr, c_int};
use std::io::Read;
use std::os::unix::ffi::OsStrExt;
use std::sync::atomic::{AtomicPtr, Ordering};

use nix::libc;
use uverbs::raw::sysfs_root;

use crate::answer::{Answer, Code, EINVAL, or_null};
use crate::boundary::{Places, Pointer, Text};

/// The path of sysfs: `SYSFS_PATH` if it is set, without slashes at its end.
pub(crate) extern "C" fn get_sysfs_path() -> Pointer {
    // Not a lock, which a child of `fork` could find held.
    static PATH: AtomicPtr<[u8; 256]> = AtomicPtr::new(std::ptr::null_mut());
    if PATH.load(Ordering::Acquire).is_null() {
        let path = sysfs_root();
        let path = path.as_os_str().as_bytes();
        let end = path.iter().rposition(|byte| *byte != b'/').map_or(0, |last| last + 1);
        let text = Box::into_raw(Box::new(crate::device::text(&path[..end])));
        // If several threads arrive here together, the first one's text is used; the other texts stay unused.
        let _ = PATH.compare_exchange(std::ptr::null_mut(), text, Ordering::AcqRel, Ordering::Acquire);
    }
    Pointer::from_word(PATH.load(Ordering::Acquire).expose_provenance() as u64)
}

fn read(directory: &Text, file: &Text, places: &mut Places<'_, u8>, size: usize) -> Answer<c_int> {
    let (directory, file) = (directory.get().ok_or(EINVAL)?, file.get().ok_or(EINVAL)?);
    let path = [directory.to_bytes(), b"/", file.to_bytes()].concat();
    let mut text = Vec::new();
    let opened = std::fs::File::open(OsStr::from_bytes(&path));
    let read = opened.and_then(|file| file.take(size as u64).read_to_end(&mut text));
    read.map_err(|error| Code::new(error.raw_os_error().unwrap_or(libc::EIO)))?;
    // The line without its end, followed by a zero byte.
    if text.last() == Some(&b'\n') {
        text.pop();
    }
    if !text.is_empty() && text.len() >= size {
        return Err(Code::new(libc::EIO));
    }
    let with_end = text.iter().copied().chain([0]);
    for (place, byte) in places.get(size).iter_mut().zip(with_end) {
        place.write(byte);
    }
    Ok(text.len() as c_int)
}

/// The length, or -1.
pub(crate) extern "C" fn read_sysfs_file(
    directory: Text,
    file: Text,
    mut places: Places<'_, u8>,
    size: usize,
) -> c_int {
    or_null(read(&directory, &file, &mut places, size)).unwrap_or(-1)
}
