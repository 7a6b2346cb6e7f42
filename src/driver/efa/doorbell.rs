//! Doorbells: registers of four bytes.

use crate::driver::Kernel;
use crate::driver::ring::units::Word;
use crate::kernel::error::{Error, Result};
use crate::kernel::mapping::page::page_size;

/// A register in a page of them. The driver gives each queue a page, which may be that of others.
#[derive(Debug)]
pub(super) struct Doorbell(Word);

impl Doorbell {
    /// The one at `at` in the page with this key: a page of the system (`qp_mmap_entries_setup`, efa_verbs.c, Linux 6.1), in which a larger one has more of the
    /// device's pages before it.
    pub(super) fn map(op: &'static str, key: u64, at: u32, kernel: &dyn Kernel) -> Result<Self> {
        let word = Word::new(&kernel.map(op, key, page_size())?, at as usize);
        word.map(Self).ok_or_else(|| Error::malformed(op, "a doorbell outside of its page"))
    }

    /// Where it is.
    #[cfg(feature = "raw")]
    pub(super) fn address(&self) -> u64 {
        self.0.address()
    }

    /// Rings it. What was written before is seen by the device first.
    #[inline(always)]
    pub(super) fn ring(&self, value: u32) {
        self.0.ring(value);
    }

    /// The same of a completion queue, when entries that were read are given back. Its page is not cached and combines no writes
    /// (`cq_mmap_entries_setup`, efa_verbs.c, Linux 6.12: `EFA_MMAP_IO_NC`).
    #[inline(always)]
    pub(super) fn ring_back(&self, value: u32) {
        self.0.ring_back(value);
    }
}
