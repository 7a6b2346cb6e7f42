//! Doorbells: registers of four bytes.

use crate::driver::Kernel;
use crate::kernel::error::{Error, Result};
use crate::kernel::mapping::Mapping;

/// A register in a page of them. The driver gives each queue a page, which may be that of others.
#[derive(Debug)]
pub(super) struct Doorbell {
    page: Mapping,
    at: usize,
}

/// The size of a page, or less: the kernel rounds it up.
const PAGE: usize = 4096;

impl Doorbell {
    /// The one at `at` in the page with this key.
    pub(super) fn map(op: &'static str, key: u64, at: u32, kernel: &dyn Kernel) -> Result<Self> {
        let page = kernel.map(op, key, PAGE)?;
        let at = at as usize;
        if page.words::<1>(at).is_none() {
            return Err(Error::malformed(op, "a doorbell outside of its page"));
        }
        Ok(Self { page, at })
    }

    /// Where it is.
    #[cfg(feature = "raw")]
    pub(super) fn address(&self) -> u64 {
        self.page.address() + self.at as u64
    }

    /// Rings it. What was written before is seen by the device first.
    #[inline]
    pub(super) fn ring(&self, value: u32) {
        self.page.ring_word(self.at, value);
    }
}
