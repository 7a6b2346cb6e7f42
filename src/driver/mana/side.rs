//! The part of a completion queue that its queue pairs use, and callers that request events.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use super::doorbell::Doorbell;
use super::track::{RECEIVES, SENDS, Track};
use crate::driver::ring::units::Units;
use crate::driver::seam::CqSide;
use crate::kernel::process::Origin;

/// Size of an entry in bytes, and in words, of which the last one has its owner.
pub(super) const ENTRY: usize = 64;
const WORDS: usize = ENTRY / 4;

/// A queue pair that completes its sends, its receives, or both in a queue.
#[derive(Clone, Debug)]
pub(super) struct Known {
    pub(super) track: Arc<Track>,
    pub(super) sends: bool,
    pub(super) receives: bool,
}

impl Known {
    /// Whether nothing is left to be flushed here.
    pub(super) fn has_ended(&self) -> bool {
        let over = self.track.over();
        !(self.sends && over & SENDS != 0 && !self.track.sends.is_idle()
            || self.receives && over & RECEIVES != 0 && !self.track.receives.is_idle())
    }
}

/// The queue pairs of a completion queue, in the order of the [`key`] of their rings.
pub(super) type Table = Vec<(u32, Known)>;

/// The key of a ring in the table: its number without the bits for the kind of ring. Send queues have a bit more.
pub(super) fn key(number: u32, is_send: bool) -> u32 {
    number & !3 | if is_send { 1 << 31 } else { 0 }
}

/// The last doorbell: the index in it, and whether it has requested an event.
#[derive(Debug)]
struct Rung {
    index: u64,
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
    units: Units,
    /// Number of entries, a power of two.
    count: u32,
    /// The index of the entry that is taken next. Only the poller changes it.
    taken: AtomicU64,
    rung: Mutex<Rung>,
    known: Mutex<Table>,
    /// Number of changes to the table, and of its queue pairs that may have something to flush.
    changes: AtomicU32,
    over: AtomicU32,
}

impl CompletionSide {
    pub(super) fn new(number: u32, doorbell: Doorbell, units: Units, count: u32) -> Self {
        Self {
            origin: Origin::here(),
            number,
            doorbell,
            units,
            count,
            // Entries of zeros are not of the first round.
            taken: AtomicU64::new(count.into()),
            rung: Mutex::new(Rung { index: count.into(), arms: false }),
            known: Mutex::default(),
            changes: AtomicU32::new(0),
            over: AtomicU32::new(0),
        }
    }

    pub(super) fn count(&self) -> u32 {
        self.count
    }

    pub(super) fn taken(&self) -> u64 {
        self.taken.load(Ordering::Acquire)
    }

    /// Whether the device has written the entry with this index, which is not taken yet. The entry is read after this.
    #[inline]
    pub(super) fn is_written(&self, index: u64) -> bool {
        let at = (index as usize).wrapping_mul(WORDS).wrapping_add(WORDS - 1);
        let word = u32::from_le(self.units.reading().load(at));
        word >> 29 == (index >> self.count.trailing_zeros()) as u32 & 7
    }

    /// The entry with this index, which the device has written.
    pub(super) fn entry(&self, index: u64) -> [u32; WORDS] {
        self.units.reading().get::<[u32; WORDS]>(index as usize).read().map(u32::from_le)
    }

    /// The index of the first entry that the device has not written.
    pub(super) fn written(&self) -> u64 {
        let mut index = self.taken();
        loop {
            if self.is_written(index) {
                index += 1;
            } else if self.taken() <= index {
                return index;
            }
            // The poller may have gone on, and the device may have written an entry again.
            index = index.max(self.taken());
        }
    }

    /// The poller has taken an entry. The device has to know before it has written half of the rounds that can be told from one another.
    pub(super) fn pass(&self, taken: u64) {
        self.taken.store(taken, Ordering::Release);
        let count = u64::from(self.count);
        if taken & (count - 1) == 0 {
            let mut rung = self.rung.lock().unwrap_or_else(PoisonError::into_inner);
            // An event that was requested by the last doorbell has been made meanwhile, unless that was ahead.
            if taken.saturating_sub(rung.index) >= 3 * count - 1 {
                self.ring(&mut rung, taken - 1, false);
            }
        }
    }

    fn ring(&self, rung: &mut Rung, index: u64, arms: bool) {
        *rung = Rung { index, arms };
        // The device counts eight rounds, in 31 bits at most.
        let index = (index & ((u64::from(self.count) << 3) - 1)) as u32;
        self.doorbell.ring(self.number, 0, index | if arms { 1 << 31 } else { 0 });
    }

    /// Whether this is the process that created the queue.
    pub(super) fn is_here(&self) -> bool {
        self.origin.is_here()
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
            for key in [key(numbers.sends, true), key(numbers.answers, false), key(numbers.qp, false)] {
                match table.binary_search_by_key(&key, |(key, _)| *key) {
                    Ok(at) => table[at].1 = known.clone(),
                    Err(at) => table.insert(at, (key, known.clone())),
                }
            }
        });
    }

    /// Removes a queue pair. Entries that it left in the queue are skipped.
    pub(super) fn remove(&self, track: &Arc<Track>) {
        self.change(|table| table.retain(|(_, known)| !Arc::ptr_eq(&known.track, track)));
    }

    /// A queue pair has ended: what of it completes here is flushed.
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
        let is_pending = rung.arms && rung.index.wrapping_sub(taken) < self.count.into();
        let index = match is_pending {
            false => taken,
            true if self.is_written(rung.index) => rung.index + 1,
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
