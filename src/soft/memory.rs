//! Registered memory: what the soft device reads and writes as a real one does by DMA.
//!
//! A `Block` is safe: the region holds the memory itself. A [`Range`] is an address that is trusted.
//!
//! # Safety
//! - A [`Range`] is made of a REG_MR command that says only an address, of a connection without a list of its own
//!   memory. Such a command is made by `mr.rs` only: no other crate can make commands, and those of `RawCommand`
//!   go to connections that do have a list. `mr.rs` registers memory that it owns, whose address it has exposed,
//!   and that nobody has a Rust reference to.
//! - A range is dropped by DEREG_MR, or with its file, under the lock that all access is under. `mr.rs` frees
//!   its memory when DEREG_MR has succeeded *or* answered EIO. This does not hold when something between the two
//!   answers in the device's place (a transport that wraps this one, such as `Fault` with EIO): the memory is
//!   freed, the range is not dropped. With [`Command::registers`](crate::command::Command) in `mr.rs` no range is
//!   made any more, and this file needs no unsafe code.
//! - No access leaves the range: each is checked here.

#![allow(unsafe_code)]

use std::ptr::{self, NonNull};

use nix::errno::Errno;

use crate::transport::{Mapping, copy_in, copy_out};

/// Memory behind a region.
#[derive(Debug)]
pub(super) enum Memory {
    /// A range of addresses of this process.
    Range(Range),
    /// Part of a block that the device itself keeps alive.
    Block { map: Mapping, offset: usize },
}

#[derive(Debug)]
pub(super) struct Range {
    start: usize,
    len: usize,
}

impl Memory {
    /// Registers a range of addresses; EFAULT if not all of it can be used so.
    pub(super) fn range(start: u64, len: u64, writable: bool) -> Result<Self, Errno> {
        let (start, len) = whole(start, len).ok_or(Errno::EINVAL)?;
        if !is_mapped(start, start + len, writable) {
            return Err(Errno::EFAULT);
        }
        Ok(Self::Range(Range { start, len }))
    }

    /// Registers part of one of these blocks; EFAULT if it is not inside one.
    pub(super) fn block(blocks: &[Mapping], start: u64, len: u64) -> Result<Self, Errno> {
        let (start, len) = whole(start, len).ok_or(Errno::EINVAL)?;
        for map in blocks {
            // A block is mapped, so its address is an address.
            let offset = start.checked_sub(map.address() as usize);
            if let Some(offset) =
                offset.filter(|offset| offset.checked_add(len).is_some_and(|end| end <= map.len()))
            {
                return Ok(Self::Block { map: map.clone(), offset });
            }
        }
        Err(Errno::EFAULT)
    }

    /// Copies out of the memory; false and nothing done when that leaves it.
    #[must_use]
    pub(super) fn read(&self, offset: usize, bytes: &mut [u8]) -> bool {
        match self {
            Self::Block { map, offset: start } => map.read(start.saturating_add(offset), bytes),
            Self::Range(range) => {
                let Some(place) = range.at(offset, bytes.len()) else { return false };
                // SAFETY: `place` is valid for so many bytes: they are inside the range, which is alive and
                // is only ever accessed atomically (the invariants above).
                unsafe { copy_out(place, bytes) };
                true
            }
        }
    }

    /// Copies into the memory; false and nothing done when that leaves it.
    #[must_use]
    pub(super) fn write(&self, offset: usize, bytes: &[u8]) -> bool {
        match self {
            Self::Block { map, offset: start } => map.write(start.saturating_add(offset), bytes),
            Self::Range(range) => {
                let Some(place) = range.at(offset, bytes.len()) else { return false };
                // SAFETY: as in `read`; and the memory may be written, `mr.rs` owns it.
                unsafe { copy_in(place, bytes) };
                true
            }
        }
    }
}

impl Range {
    /// The place of `len` bytes at `offset`, if they are inside.
    fn at(&self, offset: usize, len: usize) -> Option<NonNull<u8>> {
        let end = offset.checked_add(len)?;
        // The range does not wrap: checked when it was made.
        let place = ptr::with_exposed_provenance_mut(self.start + offset);
        NonNull::new(place).filter(|_| end <= self.len)
    }
}

/// A range that is neither empty nor wraps, in the machine's own integers.
fn whole(start: u64, len: u64) -> Option<(usize, usize)> {
    let (start, len) = (usize::try_from(start).ok()?, usize::try_from(len).ok()?);
    start.checked_add(len)?.checked_next_multiple_of(4096)?;
    (len > 0).then_some((start, len))
}

/// Whether the process has memory at all these addresses: what pinning the pages finds out in the kernel.
///
/// Without /proc, and under Miri, where memory is not the system's, everything is taken to be there.
fn is_mapped(start: usize, end: usize, writable: bool) -> bool {
    if cfg!(miri) {
        return true;
    }
    let Ok(maps) = std::fs::read_to_string("/proc/self/maps") else { return true };
    let mut reached = start;
    for line in maps.lines() {
        let Some((from, to, mode)) = parse(line) else { continue };
        let usable = mode.starts_with('r') && (!writable || mode.as_bytes().get(1) == Some(&b'w'));
        if from <= reached && reached < to && usable {
            reached = to;
        }
        if reached >= end {
            return true;
        }
    }
    false
}

/// `start-end mode ...`, in the order of addresses.
fn parse(line: &str) -> Option<(usize, usize, &str)> {
    let (range, rest) = line.split_once(' ')?;
    let (from, to) = range.split_once('-')?;
    Some((usize::from_str_radix(from, 16).ok()?, usize::from_str_radix(to, 16).ok()?, rest))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_range_is_read_and_written_inside_only() {
        let map = Mapping::block(4096).unwrap();
        let memory = Memory::range(map.address() + 8, 16, true).unwrap();
        assert!(memory.write(12, &[1, 2, 3, 4]));
        let mut back = [0; 2];
        assert!(memory.read(13, &mut back));
        assert_eq!(back, [2, 3]);
        assert!(!memory.write(13, &[0; 4]));
        assert!(!memory.read(usize::MAX, &mut back));
    }

    #[test]
    fn what_is_not_there_cannot_be_registered() {
        let refused = |start, len| Memory::range(start, len, true).unwrap_err();
        assert_eq!(refused(4096, 0), Errno::EINVAL);
        assert_eq!(refused(u64::MAX - 4, 8), Errno::EINVAL);
        if !cfg!(miri) {
            assert_eq!(refused(4096, 1), Errno::EFAULT);
            let read_only = "text".as_ptr() as u64;
            assert_eq!(refused(read_only, 1), Errno::EFAULT);
            assert!(Memory::range(read_only, 1, false).is_ok());
        }
        let map = Mapping::block(4096).unwrap();
        let blocks = [map.clone()];
        assert!(Memory::block(&blocks, map.address() + 4095, 1).is_ok());
        assert_eq!(Memory::block(&blocks, map.address() + 4095, 2).unwrap_err(), Errno::EFAULT);
    }
}
