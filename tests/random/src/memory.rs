//! Memory of a program itself, for regions that it does not allocate.

use std::fs::File;

use nix::sys::memfd::{MFdFlags, memfd_create};
use uverbs::Mapping;

/// Memory of this size, of an unnamed file.
pub fn mapping(len: usize) -> Mapping {
    Mapping::of_file(&file(len), 0, len).expect("memory")
}

/// An unnamed file.
pub fn file(len: usize) -> File {
    let file = File::from(memfd_create(c"random", MFdFlags::empty()).expect("a file"));
    file.set_len(len as u64).expect("its length");
    file
}
