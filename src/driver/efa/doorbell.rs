//! Doorbells: registers of four bytes, in pages that the driver maps.

use crate::driver::ring::units::Word;
use crate::driver::seam::Kernel;
use crate::kernel::error::{Error, Result};
use crate::kernel::mapping::page::page_size;

/// A register in a page of doorbells. Queues may share a page.
#[derive(Debug)]
pub(super) struct Doorbell(Word);

impl Doorbell {
    /// Maps the page with this key (`qp_mmap_entries_setup`, efa_verbs.c, Linux 6.1), and finds the register at byte `at`. A page has
    /// the size that the system uses; if that is larger than the device's pages, `at` includes those before the register's.
    pub(super) fn map(op: &'static str, key: u64, at: u32, kernel: &dyn Kernel) -> Result<Self> {
        let word = Word::new(&kernel.map(op, key, page_size())?, at as usize);
        word.map(Self).ok_or_else(|| Error::malformed(op, "a doorbell outside of its page"))
    }

    /// The address of the register.
    #[cfg(feature = "raw")]
    pub(super) fn address(&self) -> u64 {
        self.0.address()
    }

    /// Rings the doorbell. The device sees everything that was written before.
    #[inline(always)]
    pub(super) fn ring(&self, value: u32) {
        self.0.ring(value);
    }

    /// Rings the doorbell of a completion queue whose entries, which have been read, are given back. Its page is not cached and does not
    /// combine writes (`cq_mmap_entries_setup`, efa_verbs.c, Linux 6.12: `EFA_MMAP_IO_NC`).
    #[inline(always)]
    pub(super) fn ring_back(&self, value: u32) {
        self.0.ring_back(value);
    }
}
