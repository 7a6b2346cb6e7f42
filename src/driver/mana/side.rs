//! The part of a completion queue that its queue pairs use, and callers that request events.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use super::doorbell::Doorbell;
use super::track::Track;
use crate::driver::seam::CqSide;
use crate::kernel::mapping::Mapping;
use crate::kernel::process::Origin;

/// Size of an entry in bytes, and the offset of the word with its owner.
pub(super) const ENTRY: usize = 64;
const OWNER: usize = 60;

/// A queue pair that completes its sends, its receives, or both in a queue.
#[derive(Clone, Debug)]
pub(super) struct Known {
    pub(super) track: Arc<Track>,
    pub(super) sends: bool,
    pub(super) receives: bool,
}

/// The queue pairs of a completion queue, by the numbers of their rings without the bits for the kind of ring; send queues have a bit more.
pub(super) type Table = HashMap<u32, Known>;

/// The key of a ring in the table.
pub(super) fn key(number: u32, is_send: bool) -> u32 {
    number & !3 | if is_send { 1 << 31 } else { 0 }
}

/// The last doorbell: the index in it, and whether it has requested an event.
#[derive(Debug)]
struct Rung {
    index: u32,
    arms: bool,
}

/// The part of a completion queue that others use.
#[derive(Debug)]
pub(crate) struct CompletionSide {
    /// The process that created the queue. A child of `fork` must not take its locks.
    origin: Origin,
    /// The device's number of the queue.
    number: u32,
    doorbell: Doorbell,
    memory: Mapping,
    /// Number of entries, a power of two.
    count: u32,
    /// The index of the entry that is taken next. Only the poller changes it.
    taken: AtomicU32,
    rung: Mutex<Rung>,
    known: Mutex<Table>,
    /// Number of changes to the table, and of its queue pairs that may have something to flush.
    changes: AtomicU32,
    over: AtomicU32,
}

impl CompletionSide {
    pub(super) fn new(number: u32, doorbell: Doorbell, memory: Mapping, count: u32) -> Self {
        Self {
            origin: Origin::here(),
            number,
            doorbell,
            memory,
            count,
            // Entries of zeros are not of the first round.
            taken: AtomicU32::new(count),
            rung: Mutex::new(Rung { index: count, arms: false }),
            known: Mutex::default(),
            changes: AtomicU32::new(0),
            over: AtomicU32::new(0),
        }
    }

    pub(super) fn count(&self) -> u32 {
        self.count
    }

    pub(super) fn taken(&self) -> u32 {
        self.taken.load(Ordering::Acquire)
    }

    /// Whether the device has written the entry with this index, which is not taken yet.
    pub(super) fn is_written(&self, index: u32) -> bool {
        let at = (index & (self.count - 1)) as usize * ENTRY + OWNER;
        let word = u32::from_le(self.memory.load(at, Ordering::Acquire));
        word >> 29 == (index / self.count) & 7
    }

    /// The index of the first entry that the device has not written.
    pub(super) fn written(&self) -> u32 {
        let taken = self.taken();
        let count = (0..self.count).take_while(|i| self.is_written(taken.wrapping_add(*i))).count();
        taken.wrapping_add(count as u32)
    }

    /// The poller has taken an entry. The device has to know before it has written half of the rounds that can be told from one another.
    pub(super) fn pass(&self, taken: u32) {
        self.taken.store(taken, Ordering::Release);
        if taken.is_multiple_of(self.count) {
            let mut rung = self.rung.lock().unwrap_or_else(PoisonError::into_inner);
            // An event that was requested by the last doorbell has been made meanwhile.
            if taken.wrapping_sub(rung.index) >= 3 * self.count - 1 {
                self.ring(&mut rung, taken.wrapping_sub(1), false);
            }
        }
    }

    fn ring(&self, rung: &mut Rung, index: u32, arms: bool) {
        *rung = Rung { index, arms };
        let index = index & ((self.count << 3) - 1);
        self.doorbell.ring(self.number, 0, index | if arms { 1 << 31 } else { 0 });
    }

    fn change(&self, how: impl FnOnce(&mut Table)) {
        if self.origin.is_here() {
            how(&mut self.known.lock().unwrap_or_else(PoisonError::into_inner));
            self.changes.fetch_add(1, Ordering::Release);
        }
    }

    /// Adds a queue pair. It replaces an earlier one with the same numbers.
    pub(super) fn add(&self, known: Known) {
        let numbers = known.track.numbers;
        self.change(|table| {
            table.insert(key(numbers.sends, true), known.clone());
            table.insert(key(numbers.answers, false), known.clone());
            table.insert(key(numbers.qp, false), known);
        });
    }

    /// Removes a queue pair. Entries that it left in the queue are skipped.
    pub(super) fn remove(&self, track: &Arc<Track>) {
        self.change(|table| table.retain(|_, known| !Arc::ptr_eq(&known.track, track)));
    }

    /// A queue pair has ended: its outstanding requests are flushed.
    pub(super) fn flush(&self) {
        self.over.fetch_add(1, Ordering::Release);
    }

    /// Number of calls of [`CompletionSide::flush`].
    pub(super) fn flushes(&self) -> u32 {
        self.over.load(Ordering::Acquire)
    }

    /// The number of changes to the table.
    pub(super) fn changes(&self) -> u32 {
        self.changes.load(Ordering::Acquire)
    }

    pub(super) fn table(&self) -> Table {
        self.known.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl CqSide for CompletionSide {
    /// An event is requested by the index of the next entry. If it was requested before and nothing was taken since, by the one after the
    /// entry that made the event; without such an entry it is still requested.
    fn arm(&self, solicited_only: bool) -> bool {
        if solicited_only || !self.origin.is_here() {
            return false;
        }
        let mut rung = self.rung.lock().unwrap_or_else(PoisonError::into_inner);
        let taken = self.taken();
        let is_pending = rung.arms && rung.index.wrapping_sub(taken) < self.count;
        let index = match is_pending {
            false => taken,
            true if self.is_written(rung.index) => rung.index.wrapping_add(1),
            true => return true,
        };
        self.ring(&mut rung, index, true);
        true
    }

    /// `mana_arm_cq`, providers/mana/cq.c, rdma-core 65.
    fn lacks_events(&self, solicited_only: bool) -> Option<&'static str> {
        solicited_only
            .then_some("mana has no events for solicited messages only: request one for any completion")
    }

    #[cfg(feature = "raw")]
    fn arm_behind(&self, _: u32, solicited_only: bool) -> bool {
        self.arm(solicited_only)
    }
}
