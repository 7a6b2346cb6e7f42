//! Doorbells: writes to a page of device registers.

use crate::kernel::mapping::Mapping;

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
    /// Writes a doorbell of eight bytes. What was written to memory before is seen by the device first; the
    /// doorbell leaves the processor at once.
    #[inline]
    pub(super) fn ring(&self, offset: usize, value: [u8; 8]) {
        self.page.ring(offset, value);
    }
}
