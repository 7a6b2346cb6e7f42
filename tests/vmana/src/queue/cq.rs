//! Completion queues.

use vpci::bytes::BytesMut as _;
use vpci::{Fault, Memory};

use super::owner;
use crate::region::Pages;

const ENTRY: usize = 64;
const DATA: usize = 60;

/// A completion queue: a ring of entries, with an event queue.
#[derive(Debug)]
pub(crate) struct Cq {
    pages: Pages,
    count: u32,
    written: u32,
    /// The last index that the driver has rung with.
    told: u32,
    is_armed: bool,
    pub(crate) eq: u32,
    pub(crate) doorbell: u32,
}

impl Cq {
    pub(crate) fn new(pages: Pages, bytes: u32, eq: u32, doorbell: u32) -> Self {
        let count = (bytes / ENTRY as u32).max(1);
        Self { pages, count, written: count, told: count, is_armed: false, eq, doorbell }
    }

    /// The same, armed: the queue of commands.
    pub(crate) fn armed(self) -> Self {
        Self { is_armed: true, ..self }
    }

    fn ahead(&self, index: u32) -> u32 {
        self.written.wrapping_sub(index) % (self.count << 3)
    }

    /// Entries have a number of three bits for their round, so only half of the eight rounds can be told from the others. Beside the
    /// entries that were taken since the last doorbell there may be a ring of those that were not.
    pub(super) fn is_overrun(&self) -> bool {
        self.ahead(self.told) > 5 * self.count
    }

    /// Writes an entry; returns whether the driver gets an event.
    pub(super) fn post(
        &mut self,
        memory: &Memory,
        data: &[u8],
        queue: u32,
        is_send: bool,
    ) -> (Result<(), Fault>, bool) {
        let mut entry = [0; ENTRY];
        entry.put(0, data.get(..DATA).unwrap_or(data));
        let owner = owner(self.written, self.count);
        entry.put_u32(DATA, queue & 0xff_ffff | u32::from(is_send) << 24 | owner << 29);
        let at = u64::from(self.written % self.count) * ENTRY as u64;
        let result = self.pages.publish(memory, at, &entry);
        self.written = (self.written + 1) % (self.count << 3);
        (result, self.fire())
    }

    fn fire(&mut self) -> bool {
        // The driver may arm for an entry after those that it has not taken.
        let ahead = self.ahead(self.told);
        let is_new = ahead > 0 && ahead <= self.count << 2;
        if self.is_armed && is_new { std::mem::replace(&mut self.is_armed, false) } else { false }
    }

    /// The driver has taken the entries before this index, or wants an event for the next after it.
    pub(super) fn ring(&mut self, index: u32, arms: bool) -> bool {
        (self.told, self.is_armed) = (index % (self.count << 3), arms);
        self.fire()
    }
}
