//! Doorbells: registers of eight bytes in a page, one for each kind of queue. A value names the queue.

use crate::kernel::error::{Error, Result};
use crate::kernel::mapping::{Mapping, Register};

/// Size of the page in bytes.
pub(super) const PAGE: usize = 4096;

/// A register. Many queues use it.
#[derive(Debug)]
pub(super) struct Doorbell(Register);

impl Doorbell {
    /// Of requests: the position after the last one, in bytes.
    pub(super) const SENDS: usize = 0;
    /// Of receives: likewise, with the number of new ones.
    pub(super) const RECEIVES: usize = 0x400;
    /// Of a requester: the packet whose acknowledgement completes.
    pub(super) const ARM: usize = 0x408;
    /// Of a completion queue: the index of the next entry, and whether an event is requested.
    pub(super) const ENTRIES: usize = 0x800;

    pub(super) fn new(op: &'static str, page: &Mapping, offset: usize) -> Result<Self> {
        let register = Register::new(page, offset);
        register.map(Self).ok_or_else(|| Error::malformed(op, "a page of doorbells that is none"))
    }

    /// Rings it: `count` is in the byte above the queue's number. The device first sees everything that was written to memory before.
    pub(super) fn ring(&self, queue: u32, count: u8, value: u32) {
        let low = queue & 0xff_ffff | u32::from(count) << 24;
        self.0.ring((u64::from(value) << 32 | u64::from(low)).to_le_bytes());
    }
}
