//! The memory of the program, by the addresses that it gave to the device.
//!
//! # Safety
//! The addresses are those of commands and of the requests in its queues. As with a real device, a program that passes a wrong one breaks
//! itself: this library is only preloaded into the programs of `benches/path`.

#![allow(unsafe_code)]

use std::sync::atomic::{AtomicU8, AtomicU16, AtomicU32, Ordering};

use zerocopy::{FromBytes, IntoBytes};

pub(crate) fn read<T: FromBytes>(address: u64) -> T {
    // SAFETY: the program keeps what it names readable (see above); any bytes are a `T`.
    unsafe { (address as *const T).read_unaligned() }
}

pub(crate) fn write<T: IntoBytes>(address: u64, value: T) {
    // SAFETY: the program keeps what it names writable (see above).
    unsafe { (address as *mut T).write_unaligned(value) }
}

/// Copies the beginning of `bytes`, as much as `room` takes.
pub(crate) fn copy(address: u64, room: usize, bytes: &[u8]) {
    let len = room.min(bytes.len());
    // SAFETY: the program keeps `room` bytes writable there (see above), and they are none of this library's.
    unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), address as *mut u8, len) }
}

/// The flags by which an entry changes hands.
pub(crate) fn load_u16(address: u64) -> u16 {
    // SAFETY: as in `read`; the drivers align such flags.
    unsafe { AtomicU16::from_ptr(address as *mut u16) }.load(Ordering::Acquire)
}

/// A word that the program publishes, such as a doorbell record.
pub(crate) fn load_u32(address: u64) -> u32 {
    // SAFETY: as in `read`; the drivers align such words, and also access them as whole words.
    unsafe { AtomicU32::from_ptr(address as *mut u32) }.load(Ordering::Acquire)
}

/// Stores the byte that gives an entry to the program.
pub(crate) fn store_u8(address: u64, value: u8) {
    // SAFETY: as in `write`.
    unsafe { AtomicU8::from_ptr(address as *mut u8) }.store(value, Ordering::Release);
}

/// Stores the flags that give an entry to the program.
pub(crate) fn store_u16(address: u64, value: u16) {
    // SAFETY: as in `write`; the drivers align such flags.
    unsafe { AtomicU16::from_ptr(address as *mut u16) }.store(value, Ordering::Release);
}

/// Stores an index that gives entries to the program.
pub(crate) fn store_u32(address: u64, value: u32) {
    // SAFETY: as in `write`; the drivers align such words.
    unsafe { AtomicU32::from_ptr(address as *mut u32) }.store(value, Ordering::Release);
}
