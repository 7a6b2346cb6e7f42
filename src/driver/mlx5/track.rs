//! Data that a queue pair shares with its completion queues.
//!
//! A completion names the queue pair by an index and the request by its place in the ring. This module stores the number that the user
//! gave with the request, and how far the device has come, from which the queue pair determines which places are free.
//!
//! One thread posts while another may poll. The poster writes a place's entries before it rings the doorbell, and the poller reads them
//! after the device has completed the request: each place belongs to one side at a time. Entries are therefore relaxed atomics. `done`
//! goes the other way: the poller stores it with release, and the poster loads it with acquire and then uses the places again.
//!
//! When a queue pair is reset, completions from before the reset may still be in the queue: those before position `since` are not
//! reported. The device's counters start at zero again. The counters here, of which the device has the lower 16 bits, continue after
//! the old ones.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};

use uverbs_abi::mlx5::wqe::{CQE_REQ, CQE_REQ_ERR};

use super::shared::Places;
use crate::kernel::error::{Error, Result};

/// One queue pair, as its completion queues see it.
#[derive(Debug)]
pub(crate) struct Track {
    /// The index in completions: 24 bits, in the byte order that it has there.
    index: u32,
    number: AtomicU32,
    /// Whether completions are of frames, which have other fields.
    pub(super) has_frames: bool,
    /// Whether they are of messages, and receives come from its own ring.
    pub(super) is_plain: bool,
    pub(super) sends: Lane,
    /// Without places if the queue pair receives from a shared queue, or is a shared queue.
    pub(super) receives: Lane,
    shared: Option<Arc<Places>>,
    /// After the queue pair was destroyed: the position in a completion queue after which it has no completions.
    end: AtomicU64,
}

/// Where receives come from.
#[derive(Debug)]
pub(super) enum Source {
    /// A separate ring with this many places.
    Own(u32),
    Shared(Arc<Places>),
}

impl Track {
    /// For a queue pair with this many places in its rings.
    ///
    /// # Errors
    /// [`Exhausted`](crate::ErrorKind::Exhausted) if there is not enough memory.
    pub(super) fn new(
        op: &'static str,
        index: u32,
        has_frames: bool,
        sends: u32,
        source: &Source,
    ) -> Result<Self> {
        let (receives, shared) = match source {
            Source::Own(places) => (*places, None),
            Source::Shared(places) => (0, Some(places.clone())),
        };
        let (sends, receives) = (Lane::new(op, sends)?, Lane::new(op, receives)?);
        let (number, end) = (AtomicU32::new(0), AtomicU64::new(u64::MAX));
        let (index, is_plain) = (index.to_be(), !has_frames && shared.is_none());
        Ok(Self { index, number, has_frames, is_plain, sends, receives, shared, end })
    }

    #[inline]
    pub(super) fn index(&self) -> u32 {
        u32::from_be(self.index)
    }

    /// Whether an entry with this index, in the byte order of an entry, belongs to it.
    #[inline]
    pub(super) fn is_of(&self, index: u32) -> bool {
        self.index == index
    }

    /// Sets the queue pair's number, after the kernel has returned it.
    pub(super) fn set_number(&self, number: u32) {
        self.number.store(number, Ordering::Relaxed);
    }

    #[inline]
    pub(super) fn number(&self) -> u32 {
        self.number.load(Ordering::Relaxed)
    }

    /// The direction to which a completion with this opcode belongs.
    pub(super) fn lane(&self, kind: u8) -> &Lane {
        if is_send(kind) { &self.sends } else { &self.receives }
    }

    /// Called by the poller. The number of a request that failed, and that of its queue pair, as [`Track::complete_shared`] returns it.
    #[cold]
    #[inline(never)]
    pub(super) fn failed(&self, kind: u8, counter: u16, position: u64, number: u32) -> Option<(u64, u32)> {
        match self.lane(kind).complete(counter, position) {
            Some(wr_id) => Some((wr_id, self.number())),
            None if is_send(kind) => None,
            None => self.complete_rare_shared(counter, position, number),
        }
    }

    /// Whether it receives from a shared queue.
    pub(super) fn is_sharing(&self) -> bool {
        self.shared.is_some()
    }

    /// Called by the poller. The number of the request in this entry of the shared queue, which is done, and the number of the queue
    /// pair; if the shared queue itself is registered, that number is in the completion. `None` if the request dates from before a reset:
    /// nothing is reported, but the entry is given back to the queue.
    #[inline(always)]
    pub(super) fn complete_shared(&self, entry: u16, position: u64, number: u32) -> Option<(u64, u32)> {
        let wr_id = self.shared.as_ref()?.complete(entry)?;
        let number = if self.number() == 0 { number } else { self.number() };
        (!self.receives.is_of_an_earlier_life(position)).then_some((wr_id, number))
    }

    /// Completes a request of the shared queue as [`Self::complete_shared`] does, for callers to which it is a rare case.
    #[inline(never)]
    pub(super) fn complete_rare_shared(&self, entry: u16, position: u64, number: u32) -> Option<(u64, u32)> {
        self.complete_shared(entry, position, number)
    }

    /// From now on, completions are ignored.
    pub(super) fn fall_silent(&self) {
        self.sends.reset(u64::MAX);
        self.receives.reset(u64::MAX);
    }

    /// The queue pair was destroyed, and has no completions after this position.
    pub(super) fn set_end(&self, end: u64) {
        self.end.store(end, Ordering::Relaxed);
    }

    /// Whether it may have completions after this position.
    pub(super) fn is_behind(&self, position: u64) -> bool {
        self.end.load(Ordering::Relaxed) > position
    }
}

/// Whether a completion with this opcode belongs to a send.
#[inline]
pub(super) fn is_send(kind: u8) -> bool {
    matches!(kind, CQE_REQ | CQE_REQ_ERR)
}

/// One direction of a queue pair.
pub(super) struct Lane {
    entries: Box<[Entry]>,
    since: AtomicU64,
    /// Written by the poller: everything before this counter is done.
    done: AtomicU32,
    /// Used by the poster: the last value of `done` that it saw, or the counter after the last reset.
    seen: AtomicU32,
}

/// A place of the ring.
#[derive(Debug, Default)]
pub(super) struct Entry {
    wr_id: AtomicU64,
    /// Written by the poster: the counter after the request.
    end: AtomicU32,
    /// For a request whose opcode does not name the operation: one of [`wc_opcode`](uverbs_abi::types::wc_opcode), in the half of the
    /// word for its counter ([`Lane::half`]).
    opcodes: AtomicU32,
}

impl Entry {
    /// Called by the poster: the request here has this number, and the next one begins at `end`.
    #[inline(always)]
    pub(super) fn set(&self, end: u32, wr_id: u64) {
        self.wr_id.store(wr_id, Ordering::Relaxed);
        self.end.store(end, Ordering::Relaxed);
    }
}

/// Does not print the places, of which there may be thousands.
impl fmt::Debug for Lane {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Lane")
            .field("places", &self.places())
            .field("done", &self.done)
            .finish_non_exhaustive()
    }
}

impl Lane {
    /// `places` is a power of two, or zero.
    fn new(op: &'static str, places: u32) -> Result<Self> {
        let mut entries = Error::room(op, places as usize)?;
        entries.extend((0..places).map(|_| Entry::default()));
        let entries = entries.into_boxed_slice();
        let [done, seen] = [(); 2].map(|()| AtomicU32::new(0));
        Ok(Self { entries, since: AtomicU64::new(0), done, seen })
    }

    #[inline]
    pub(super) fn places(&self) -> u32 {
        self.entries.len() as u32
    }

    /// All places.
    #[inline]
    pub(super) fn all(&self) -> &[Entry] {
        &self.entries
    }

    /// The index of the place for this counter.
    #[inline(always)]
    fn place(&self, counter: u32) -> usize {
        (counter & self.places().wrapping_sub(1)) as usize
    }

    #[inline(always)]
    fn entry(&self, counter: u32) -> Option<&Entry> {
        // Without places, the result is `None`.
        self.entries.get(self.place(counter))
    }

    /// Called by the poster: `places` places from `head` on; `None` if the ring ends before.
    #[inline(always)]
    pub(super) fn run(&self, head: u32, places: u32) -> Option<&[Entry]> {
        let first = self.place(head);
        self.entries.get(first..first + places as usize)
    }

    /// Called by the poster: the places from `head` on that are free, up to the end of the ring.
    #[cold]
    #[inline(never)]
    pub(super) fn free_run(&self, head: u32) -> &[Entry] {
        let rest = self.entries.get(self.place(head)..).unwrap_or_default();
        rest.get(..self.free(head) as usize).unwrap_or(rest)
    }

    /// Called by the poster: the request at `begin` has this number, and the next one begins at `end`.
    #[inline(always)]
    pub(super) fn post(&self, begin: u32, end: u32, wr_id: u64) {
        if let Some(entry) = self.entry(begin) {
            entry.set(end, wr_id);
        }
    }

    /// The half of the word for this counter. The previous round uses the other half, unless the ring has as many places as the device
    /// counts. The poller reads the word when the place is already free, and the poster may have begun the next round.
    fn half(&self, counter: u16) -> u32 {
        if u32::from(counter) & self.places() == 0 { 0 } else { u16::BITS }
    }

    /// Called by the poster: the request at `begin` is this one of the operations that share an opcode.
    pub(super) fn note(&self, begin: u32, opcode: u32) {
        if let Some(entry) = self.entry(begin) {
            let half = self.half(begin as u16);
            let others = entry.opcodes.load(Ordering::Relaxed) & !(u32::from(u16::MAX) << half);
            entry.opcodes.store(others | opcode << half, Ordering::Relaxed);
        }
    }

    /// Called by the poller: the operation of the request at place `counter`.
    pub(super) fn noted(&self, counter: u16) -> u32 {
        let opcodes = self.entry(counter.into()).map_or(0, |entry| entry.opcodes.load(Ordering::Relaxed));
        opcodes >> self.half(counter) & u32::from(u16::MAX)
    }

    /// Called by the poster: the end of the request at `begin` has changed to `end`.
    #[inline(always)]
    pub(super) fn move_end(&self, begin: u32, end: u32) {
        if let Some(entry) = self.entry(begin) {
            entry.end.store(end, Ordering::Relaxed);
        }
    }

    /// Called by the poster: everything before this counter is done.
    pub(super) fn done(&self) -> u32 {
        let (done, seen) = (self.done.load(Ordering::Acquire), self.seen.load(Ordering::Relaxed));
        // A poller that was handling a completion from before a reset may have stored its value.
        if is_behind(seen, done) {
            return seen;
        }
        // Both counters overflow. The poster reads `done` at least once per round, which keeps them near each other.
        self.seen.store(done, Ordering::Relaxed);
        done
    }

    /// Sets the counter before which everything is done.
    #[cfg(test)]
    pub(super) fn start_at(&self, counter: u32) {
        self.seen.store(counter, Ordering::Relaxed);
        self.done.store(counter, Ordering::Relaxed);
    }

    /// Called by the poster: the number of free places from `head` on. A device that names a place without a request may have set the
    /// counter to any value; then the result is zero.
    #[inline]
    pub(super) fn free(&self, head: u32) -> u32 {
        self.places().saturating_sub(head.wrapping_sub(self.done()))
    }

    /// Called by the poster at a reset: counters continue with the returned one, and completions before position `since` are ignored.
    pub(super) fn reset(&self, since: u64) -> u32 {
        // After everything that was posted, which cannot be more than the places after `done`.
        const ROUND: u32 = 1 << u16::BITS;
        let begin = (self.done() & !(ROUND - 1)).wrapping_add(2 * ROUND);
        self.since.store(since, Ordering::Relaxed);
        // A poller that sees anything written after the reset sees `since`.
        fence(Ordering::Release);
        self.entries.iter().for_each(|entry| entry.set(begin, 0));
        self.seen.store(begin, Ordering::Relaxed);
        self.done.store(begin, Ordering::Relaxed);
        begin
    }

    /// Called by the poller: whether a completion at `position` is from before the last reset.
    #[inline]
    pub(super) fn is_of_an_earlier_life(&self, position: u64) -> bool {
        position < self.since.load(Ordering::Relaxed)
    }

    /// Called by the poller: the number of the request at place `counter`, whose completion is at `position`. `None` if it is from before
    /// a reset, or if the request is already done: a faulty device may name a request twice, or a place without a request.
    #[inline(always)]
    pub(super) fn complete(&self, counter: u16, position: u64) -> Option<u64> {
        let entry = self.entry(counter.into())?;
        let wr_id = entry.wr_id.load(Ordering::Relaxed);
        let end = entry.end.load(Ordering::Relaxed);
        // `since` is read after the entry, because the poster may have reset the queue pair meanwhile.
        fence(Ordering::Acquire);
        if self.is_of_an_earlier_life(position) || !is_behind(end, self.done.load(Ordering::Relaxed)) {
            return None;
        }
        self.done.store(end, Ordering::Release);
        Some(wr_id)
    }
}

/// Whether a counter is after another one. Both overflow.
#[inline]
fn is_behind(counter: u32, other: u32) -> bool {
    (counter.wrapping_sub(other) as i32) > 0
}

#[cfg(test)]
mod tests {
    use uverbs_abi::types::wc_opcode;

    use super::*;

    #[test]
    fn a_completion_gives_the_number_and_frees_the_place() {
        let lane = Lane::new("test", 4).unwrap();
        lane.post(0, 1, 70);
        lane.post(1, 3, 71);
        assert_eq!(lane.done(), 0);
        assert_eq!(lane.complete(1, 0), Some(71));
        assert_eq!(lane.done(), 3, "what came before is done too");
        lane.post(3, 4, 72);
        lane.post(4, 5, 73);
        assert_eq!((lane.complete(3, 1), lane.complete(4, 2)), (Some(72), Some(73)));
        assert_eq!(lane.done(), 5);
    }

    #[test]
    fn a_life_goes_on_when_its_counter_goes_round() {
        let lane = Lane::new("test", 4).unwrap();
        for counter in (0..=12).map(|step: u32| step.wrapping_mul(1 << 29)) {
            lane.post(counter, counter + 1, counter.into());
            assert_eq!(lane.complete(counter as u16, 0), Some(counter.into()));
            assert_eq!((lane.done(), lane.free(counter + 1)), (counter + 1, 4));
        }
    }

    #[test]
    fn which_request_it_was_is_found_by_the_bits_that_a_device_knows() {
        for places in [4, 1 << 15, 1 << 16] {
            let lane = Lane::new("test", places).unwrap();
            for (round, opcode) in
                [(0, wc_opcode::BIND_MW), (1, wc_opcode::LOCAL_INV), (4, wc_opcode::BIND_MW)]
            {
                lane.note(round * places, opcode);
                assert_eq!(lane.noted((round * places) as u16), opcode, "round {round} of {places}");
            }
        }
    }

    #[test]
    fn completions_of_an_earlier_life_are_nobodys() {
        let lane = Lane::new("test", 4).unwrap();
        lane.post(0, 1, 70);
        let begin = lane.reset(5);
        assert_eq!((lane.done(), begin & 0xffff), (begin, 0));
        lane.post(begin, begin + 1, 80);
        assert_eq!(lane.complete(0, 4), None);
        assert_eq!(lane.done(), begin);
        assert_eq!(lane.complete(0, 5), Some(80));
        assert_eq!(lane.done(), begin + 1);
        let next = lane.reset(6);
        assert!(is_behind(next, begin + 4));
        assert_eq!(lane.done(), next);
        // The poller was handling a completion from before the reset.
        lane.done.store(begin + 2, Ordering::Relaxed);
        assert_eq!(lane.done(), next);
        lane.post(next, next + 1, 90);
        assert_eq!((lane.complete(0, 7), lane.done()), (Some(90), next + 1));
    }

    #[test]
    fn a_queue_pair_without_the_direction_has_no_places() {
        assert_eq!(Lane::new("test", 0).unwrap().complete(0, 0), None);
    }
}
