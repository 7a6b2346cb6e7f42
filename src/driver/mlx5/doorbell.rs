//! Doorbells: writes to a page of device registers.

use crate::kernel::error::{Error, Result};
use crate::kernel::mapping::{Mapping, Register};

/// A page of device registers, to which doorbells are written.
#[derive(Clone, Debug)]
pub(crate) struct Registers {
    pub(crate) page: Mapping,
    /// The kernel's number of the page; none of the page that was made with the context, which queues have unless they
    /// name another.
    pub(crate) id: Option<u32>,
}

/// Where in the page the doorbells of completion queues and of send queues are.
pub(super) const CQ_DOORBELL: usize = 0x20;
pub(super) const SEND_DOORBELL: usize = 0x800;

impl Registers {
    /// The doorbell at `offset`: what was written to memory before is seen by the device first, and a ring leaves the processor at once.
    pub(super) fn doorbell(&self, op: &'static str, offset: usize) -> Result<Register> {
        Register::new(&self.page, offset)
            .ok_or_else(|| Error::malformed(op, "a page of registers without doorbells"))
    }
}
