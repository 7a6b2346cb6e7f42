//! Doorbells: writes to a page of device registers.

use crate::kernel::error::{Error, Result};
use crate::kernel::mapping::{Mapping, Register};

/// A page of device registers, to which doorbells are written.
#[derive(Clone, Debug)]
pub(crate) struct Registers {
    pub(crate) page: Mapping,
    /// The kernel's number of the page; `None` for the page that was created with the context, which queues use unless they name another.
    pub(crate) id: Option<u32>,
    /// The offset at which it was mapped from the device file.
    #[cfg_attr(not(feature = "raw"), expect(dead_code))]
    pub(crate) offset: u64,
}

/// Offsets in the page of the doorbells of completion queues and of send queues.
pub(super) const CQ_DOORBELL: usize = 0x20;
pub(super) const SEND_DOORBELL: usize = 0x800;

impl Registers {
    /// The doorbell at `offset`. The device sees everything that was written to memory before it, and a write leaves the processor
    /// immediately.
    pub(super) fn doorbell(&self, op: &'static str, offset: usize) -> Result<Register> {
        Register::new(&self.page, offset)
            .ok_or_else(|| Error::malformed(op, "a page of registers without doorbells"))
    }
}
