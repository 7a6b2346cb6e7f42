//! The parts of the commands that are not compared.
//!
//! Offsets are in bytes, from `include/linux/mlx5/mlx5_ifc.h` of Linux 6.1. The head of a command has 16 bytes. The context of a
//! completion queue is at 0x10, that of a send or receive queue at 0x20, with its work queue 0x30 further.

use std::ops::Range;

/// Which half of a command.
pub(crate) const INPUT: usize = 0;
pub(crate) const OUTPUT: usize = 1;

/// Addresses, numbers that each library assigns by itself, and how many pages of which size the kernel found. They differ in every run.
#[rustfmt::skip]
const MASKED: &[(&str, usize, Range<usize>)] = &[
    // page_offset, log_page_size, dbr_addr, pas
    ("CREATE_CQ", INPUT, 0x1a..0x1b),
    ("CREATE_CQ", INPUT, 0x28..0x29),
    ("CREATE_CQ", INPUT, 0x48..0x50),
    ("CREATE_CQ", INPUT, 0x110..usize::MAX),
    // page_offset, log_page_size, pas
    ("MODIFY_CQ", INPUT, 0x1a..0x1b),
    ("MODIFY_CQ", INPUT, 0x28..0x29),
    ("MODIFY_CQ", INPUT, 0x110..usize::MAX),
    // user_index, wq.page_offset, wq.dbr_addr, wq.log_wq_pg_sz, wq.pas
    ("CREATE_SQ", INPUT, 0x25..0x28),
    ("CREATE_SQ", INPUT, 0x55..0x56),
    ("CREATE_SQ", INPUT, 0x60..0x68),
    ("CREATE_SQ", INPUT, 0x72..0x73),
    ("CREATE_SQ", INPUT, 0x110..usize::MAX),
    ("CREATE_RQ", INPUT, 0x25..0x28),
    ("CREATE_RQ", INPUT, 0x55..0x56),
    ("CREATE_RQ", INPUT, 0x60..0x68),
    ("CREATE_RQ", INPUT, 0x72..0x73),
    ("CREATE_RQ", INPUT, 0x110..usize::MAX),
    // mkey_7_0, start_addr, translations_octword_size, log_page_size, translations_octword_actual_size, klm_pas_mtt
    ("CREATE_MKEY", INPUT, 0x17..0x18),
    ("CREATE_MKEY", INPUT, 0x20..0x28),
    ("CREATE_MKEY", INPUT, 0x44..0x48),
    ("CREATE_MKEY", INPUT, 0x4b..0x4c),
    ("CREATE_MKEY", INPUT, 0x60..0x64),
    ("CREATE_MKEY", INPUT, 0x110..usize::MAX),
];

/// Commands that contain a list of pages, so their length depends on the number of pages.
const WITH_PAGES: &[&str] = &["CREATE_CQ", "MODIFY_CQ", "CREATE_SQ", "CREATE_RQ", "CREATE_MKEY"];

/// Whether the length of a command is not compared.
pub(crate) fn has_pages(name: &str, half: usize) -> bool {
    half == INPUT && WITH_PAGES.contains(&name)
}

/// Clears the bytes that are not compared.
pub(crate) fn mask(name: &str, half: usize, bytes: &mut [u8]) {
    for (_, _, range) in MASKED.iter().filter(|row| row.0 == name && row.1 == half) {
        let len = bytes.len();
        bytes[range.start.min(len)..range.end.min(len)].fill(0);
    }
}
