//! Memory of a program's own, for regions that it does not register itself.

use std::fs::File;

use nix::sys::memfd::{MFdFlags, memfd_create};
use uverbs::Mapping;

/// So much memory, of a file that has no name.
pub fn mapping(len: usize) -> Mapping {
    Mapping::of_file(&file(len), 0, len).expect("memory")
}

/// A file that has no name.
pub fn file(len: usize) -> File {
    let file = File::from(memfd_create(c"random", MFdFlags::empty()).expect("a file"));
    file.set_len(len as u64).expect("its length");
    file
}
