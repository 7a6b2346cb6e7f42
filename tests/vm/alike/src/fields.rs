//! Names of what differs in commands, and what of them is not compared.
//!
//! Offsets are bytes, from `include/linux/mlx5/mlx5_ifc.h` of Linux 6.1: the head of a command has 16 bytes, the context
//! of a completion queue follows at 0x10, that of a send or receive queue at 0x20, its work queue 0x30 behind.

use std::ops::Range;

/// Which half of a command.
pub(crate) const INPUT: usize = 0;
pub(crate) const OUTPUT: usize = 1;

/// Addresses, and what comes from counters of the driver: different in every run.
#[rustfmt::skip]
const MASKED: &[(&str, usize, Range<usize>)] = &[
    // The address of the doorbell record, and the pages of the queue.
    ("CREATE_CQ", INPUT, 0x48..0x50),
    ("CREATE_CQ", INPUT, 0x110..usize::MAX),
    ("CREATE_SQ", INPUT, 0x60..0x68),
    ("CREATE_SQ", INPUT, 0x110..usize::MAX),
    ("CREATE_RQ", INPUT, 0x60..0x68),
    ("CREATE_RQ", INPUT, 0x110..usize::MAX),
    // The changing part of the key, the address, and the pages.
    ("CREATE_MKEY", INPUT, 0x17..0x18),
    ("CREATE_MKEY", INPUT, 0x20..0x28),
    ("CREATE_MKEY", INPUT, 0x110..usize::MAX),
];

/// Fields of four bytes by their names.
#[rustfmt::skip]
const NAMES: &[(&str, usize, usize, &str)] = &[
];

/// Clears what is not compared.
pub(crate) fn mask(name: &str, half: usize, bytes: &mut [u8]) {
    for (_, _, range) in MASKED.iter().filter(|row| row.0 == name && row.1 == half) {
        let len = bytes.len();
        bytes[range.start.min(len)..range.end.min(len)].fill(0);
    }
}

/// The name of the four bytes at an offset.
pub(crate) fn name(name: &str, half: usize, offset: usize) -> String {
    let known = NAMES.iter().find(|row| (row.0, row.1, row.2) == (name, half, offset));
    known.map_or_else(
        || format!("{name} {}[{offset:#x}]", ["in", "out"][half]),
        |row| format!("{name} {}", row.3),
    )
}
