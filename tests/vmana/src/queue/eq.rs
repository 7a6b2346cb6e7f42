//! Event queues.

use vpci::bytes::BytesMut as _;
use vpci::{Fault, Memory};

use super::owner;
use crate::region::Pages;

const ENTRY: usize = 16;

/// An event queue: a ring of entries, and an interrupt.
#[derive(Debug)]
pub(crate) struct Eq {
    pages: Pages,
    count: u32,
    written: u32,
    is_armed: bool,
    vector: u32,
    pub(crate) doorbell: u32,
}

impl Eq {
    /// A queue of `bytes` bytes, which is armed.
    pub(crate) fn new(pages: Pages, bytes: u32, vector: u32, doorbell: u32) -> Self {
        let count = (bytes / ENTRY as u32).max(1);
        Self { pages, count, written: count, is_armed: true, vector, doorbell }
    }

    /// Writes an event; returns the interrupt that it raises.
    pub(super) fn post(&mut self, memory: &Memory, kind: u8, data: u32) -> (Result<(), Fault>, Option<u32>) {
        let mut entry = [0; ENTRY];
        entry.put_u32(0, data);
        entry.put_u32(12, u32::from(kind) | owner(self.written, self.count) << 29);
        let at = u64::from(self.written % self.count) * ENTRY as u64;
        let result = self.pages.publish(memory, at, &entry);
        self.written = (self.written + 1) % (self.count << 3);
        let fires = std::mem::take(&mut self.is_armed);
        (result, fires.then_some(self.vector))
    }

    /// The driver has taken the entries before this index.
    pub(super) fn ring(&mut self, index: u32, arms: bool) -> Option<u32> {
        let has_more = index % (self.count << 3) != self.written;
        self.is_armed = arms && !has_more;
        (arms && has_more).then_some(self.vector)
    }
}
