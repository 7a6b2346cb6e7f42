//! Data that a queue pair shares with its completion queues.
//!
//! A completion names its queue pair and the slot of its request. The poster notes each request at its first slot before it rings the
//! doorbell, and the poller reads the note after the device has completed the request: each place belongs to one side at a time. `done`
//! goes the other way: the poller stores with release how far the device has come, and the poster loads it with acquire and then uses the
//! slots again. A request without a completion of its own ends with the next one that has.
//!
//! The device's numbers of slots have 16 bits and begin at zero after a reset. The counters here have them as their lower half, and go on.
//! Completions from before a reset may still be in the queue: those before position `since` are not reported.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering, fence};

use super::completions::CompletionSide;
use crate::kernel::error::{Error, Result};

/// A queue pair, as its completion queues see it.
#[derive(Debug)]
pub(super) struct Track {
    pub(super) number: u32,
    pub(super) sends: Lane,
    pub(super) receives: Lane,
}

/// The state that both queues of a queue pair share. The queue pair is in the lists of its completion queues as long as one of the two
/// exists.
#[derive(Debug)]
pub(super) struct Queues {
    pub(super) track: Arc<Track>,
    /// The completion queues of sends and of receives.
    sides: [Arc<CompletionSide>; 2],
}

impl Queues {
    pub(super) fn new(track: Track, sides: [Arc<CompletionSide>; 2]) -> Arc<Self> {
        // Entries of an earlier queue pair with this number may still be in the completion queues.
        for (lane, side) in [&track.sends, &track.receives].into_iter().zip(&sides) {
            side.at_end(|since| lane.since.store(since, Ordering::Relaxed));
        }
        let track = Arc::new(track);
        sides.iter().for_each(|side| side.add(&track));
        Arc::new(Self { track, sides })
    }

    /// The queue of sends, or that of receives, was reset: completions before this are not reported.
    pub(super) fn reset(&self, lane: &Lane, side: usize) -> u32 {
        self.sides[side].at_end(|since| lane.reset(since))
    }
}

impl Drop for Queues {
    fn drop(&mut self) {
        self.sides.iter().for_each(|side| side.remove(&self.track));
    }
}

/// A request that has ended: its number, and its operation if it is a send (one of [`uverbs_abi::types::wc_opcode`]).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Done {
    pub(super) wr_id: u64,
    pub(super) opcode: u32,
}

/// A queue of a queue pair.
pub(super) struct Lane {
    /// One for each slot. Their number is a power of two, at most [`MOST`].
    entries: Box<[Entry]>,
    since: AtomicU64,
    /// Written by the poller: everything before this counter is done.
    done: AtomicU32,
    /// Written by the poster: the last value of `done` that it saw, or the counter after the last reset.
    seen: AtomicU32,
    /// A request has failed since the last reset: each one behind it ends with a completion of its own.
    has_failed: AtomicBool,
}

/// Maximum number of slots: the device's numbers of slots are then before or after another one, and not both.
pub(super) const MOST: u32 = 1 << 15;

/// The place of the first slot of a request.
#[derive(Debug, Default)]
struct Entry {
    wr_id: AtomicU64,
    /// Bits 16 to 31 have the number of the slot, 8 to 15 the operation, 1 to 3 the number of slots, and bit 0 whether the request has a
    /// completion also if it succeeds; zero if there is no request.
    what: AtomicU32,
}

/// What the poster notes about a request.
#[derive(Clone, Copy, Debug)]
pub(super) struct Note {
    pub(super) wr_id: u64,
    /// Less than 256.
    pub(super) opcode: u32,
    /// One to four.
    pub(super) slots: u32,
    pub(super) is_signaled: bool,
}

/// Does not print the entries, of which there may be thousands.
impl fmt::Debug for Lane {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Lane").field("slots", &self.slots()).field("done", &self.done).finish_non_exhaustive()
    }
}

impl Lane {
    pub(super) fn new(op: &'static str, slots: u32) -> Result<Self> {
        let mut entries = Error::room(op, slots as usize)?;
        entries.extend((0..slots).map(|_| Entry::default()));
        let [done, seen] = [(); 2].map(|()| AtomicU32::new(0));
        let (since, has_failed) = (AtomicU64::new(0), AtomicBool::new(false));
        Ok(Self { entries: entries.into_boxed_slice(), since, done, seen, has_failed })
    }

    #[inline]
    pub(super) fn slots(&self) -> u32 {
        self.entries.len() as u32
    }

    #[inline(always)]
    fn entry(&self, counter: u32) -> Option<&Entry> {
        self.entries.get((counter & self.slots().wrapping_sub(1)) as usize)
    }

    /// Called by the poster: the request that begins at this slot. No request is noted at its other slots.
    #[inline(always)]
    pub(super) fn post(&self, begin: u32, note: Note) {
        for slot in 1..note.slots {
            self.forget(begin.wrapping_add(slot));
        }
        if let Some(entry) = self.entry(begin) {
            entry.wr_id.store(note.wr_id, Ordering::Relaxed);
            let what = begin << 16 | note.opcode << 8 | note.slots << 1 | u32::from(note.is_signaled);
            entry.what.store(what, Ordering::Release);
        }
    }

    /// Called by the poster: no request begins at this slot.
    #[inline(always)]
    pub(super) fn forget(&self, counter: u32) {
        if let Some(entry) = self.entry(counter) {
            entry.what.store(0, Ordering::Relaxed);
        }
    }

    /// Everything before this counter is done. A poller that was handling a completion from before a reset may have stored its value.
    #[inline(always)]
    fn reached(&self, order: Ordering) -> u32 {
        let (done, seen) = (self.done.load(order), self.seen.load(Ordering::Relaxed));
        if (done.wrapping_sub(seen) as i32) < 0 { seen } else { done }
    }

    /// Called by the poster: everything before this counter is done.
    #[inline(always)]
    pub(super) fn done(&self) -> u32 {
        let done = self.reached(Ordering::Acquire);
        self.seen.store(done, Ordering::Relaxed);
        done
    }

    /// Whether a request has failed since the last reset.
    pub(super) fn has_failed(&self) -> bool {
        self.has_failed.load(Ordering::Relaxed)
    }

    /// Called by the poster: the number of free slots from `head` on. A device that has completed what was not posted may have set the
    /// counter to any value; then the result is zero.
    #[inline(always)]
    pub(super) fn free(&self, head: u32) -> u32 {
        self.slots().saturating_sub(head.wrapping_sub(self.done()))
    }

    /// Called by the poster: counters continue with the returned one, and completions before position `since` are ignored.
    fn reset(&self, since: u64) -> u32 {
        const ROUND: u32 = 1 << u16::BITS;
        let begin = (self.done() & !(ROUND - 1)).wrapping_add(2 * ROUND);
        self.since.store(since, Ordering::Relaxed);
        // A poller that sees anything written after the reset sees `since`.
        fence(Ordering::Release);
        self.entries.iter().for_each(|entry| entry.what.store(0, Ordering::Relaxed));
        self.has_failed.store(false, Ordering::Relaxed);
        self.seen.store(begin, Ordering::Relaxed);
        self.done.store(begin, Ordering::Relaxed);
        begin
    }

    /// Called by the poller: ends the request whose first slot has this number, and whose completion is at `position`. `None` if there is
    /// none, if it is from before a reset, if it has ended, or if it `succeeded` and has no completion: a faulty device may name any slot.
    #[inline(always)]
    pub(super) fn complete(&self, number: u16, succeeded: bool, position: u64) -> Option<Done> {
        let done = self.reached(Ordering::Relaxed);
        // Slots before `done` are at least half of all numbers ahead.
        let begin = done.wrapping_add(u32::from(number.wrapping_sub(done as u16)));
        let entry = self.entry(begin).filter(|_| begin.wrapping_sub(done) < self.slots())?;
        let what = entry.what.load(Ordering::Acquire);
        let wr_id = entry.wr_id.load(Ordering::Relaxed);
        // `since` is read after the entry, because the poster may have reset the queue meanwhile.
        fence(Ordering::Acquire);
        let is_it = what >> 1 & 7 != 0 && what >> 16 == number.into() && (what & 1 == 1 || !succeeded);
        if !is_it || position < self.since.load(Ordering::Relaxed) {
            return None;
        }
        if !succeeded {
            self.has_failed.store(true, Ordering::Relaxed);
        }
        self.done.store(begin.wrapping_add(what >> 1 & 7), Ordering::Release);
        Some(Done { wr_id, opcode: what >> 8 & 0xff })
    }

    /// Called by the poller for a queue whose completions may tell only the place in the ring, of which `place` has the bits: whether the
    /// device reports more of the number, the sources do not say (`erdma_poll_one_cqe`, rdma-core 65).
    #[inline(always)]
    pub(super) fn complete_at(&self, place: u16, succeeded: bool, position: u64) -> Option<Done> {
        let done = self.reached(Ordering::Relaxed);
        let ahead = u32::from(place).wrapping_sub(done) & self.slots().wrapping_sub(1);
        self.complete(done.wrapping_add(ahead) as u16, succeeded, position)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn note(wr_id: u64, slots: u32, is_signaled: bool) -> Note {
        Note { wr_id, opcode: 3, slots, is_signaled }
    }

    fn wr_id(done: Option<Done>) -> Option<u64> {
        done.map(|done| done.wr_id)
    }

    #[test]
    fn a_completion_ends_what_was_posted_before_it() {
        let lane = Lane::new("test", 8).unwrap();
        lane.post(0, note(70, 1, false));
        lane.post(1, note(71, 4, true));
        lane.post(5, note(72, 2, true));
        assert_eq!((lane.free(7), wr_id(lane.complete(0, true, 0))), (1, None), "it has none");
        assert_eq!(lane.complete(1, true, 0), Some(Done { wr_id: 71, opcode: 3 }));
        assert_eq!((lane.done(), lane.free(7)), (5, 6));
        for number in [0, 1, 2, 6, 7, 8, 0x8005, u16::MAX] {
            assert_eq!(lane.complete(number, false, 0), None, "{number}");
        }
        assert_eq!((wr_id(lane.complete(5, false, 0)), lane.done()), (Some(72), 7));
        assert_eq!(lane.complete(5, false, 0), None, "it has ended");
    }

    #[test]
    fn numbers_go_round_and_no_old_request_comes_back() {
        let lane = Lane::new("test", MOST).unwrap();
        let mut head = 0_u32;
        for round in 0..if cfg!(miri) { 3 } else { 200_000 } {
            let slots = 1 + round % 4;
            lane.post(head, note(round.into(), slots, true));
            let middle = (head as u16).wrapping_add(1);
            assert_eq!(lane.complete(middle, true, 0), None);
            assert_eq!(wr_id(lane.complete(head as u16, true, 0)), Some(round.into()));
            head = head.wrapping_add(slots);
            assert_eq!(lane.free(head), MOST);
        }
    }

    #[test]
    fn completions_of_an_earlier_life_are_nobodys() {
        let lane = Lane::new("test", 4).unwrap();
        lane.post(0, note(70, 1, true));
        let begin = lane.reset(5);
        assert_eq!((lane.done(), begin & 0xffff, lane.complete(0, false, 9)), (begin, 0, None));
        lane.post(begin, note(80, 1, true));
        assert_eq!((lane.complete(0, true, 4), lane.done()), (None, begin));
        assert_eq!((wr_id(lane.complete(0, true, 5)), lane.done()), (Some(80), begin + 1));
        // The poller was handling a completion from before the reset.
        let next = lane.reset(6);
        lane.done.store(begin + 2, Ordering::Relaxed);
        assert_eq!(lane.done(), next);
        lane.post(next, note(90, 1, true));
        lane.done.store(begin + 2, Ordering::Relaxed);
        assert_eq!(wr_id(lane.complete(0, true, 6)), Some(90));
    }

    #[test]
    fn a_number_and_a_place_in_the_ring_are_told_apart_by_nobody() {
        let lane = Lane::new("test", 4).unwrap();
        for head in 0..20 {
            lane.post(head, note(head.into(), 1, true));
            let said = if head % 2 == 0 { head as u16 } else { head as u16 % 4 };
            assert_eq!(wr_id(lane.complete_at(said, true, 0)), Some(head.into()));
            assert_eq!(lane.complete_at(said, true, 0), None, "it has ended");
        }
    }

    #[test]
    fn after_a_failure_each_request_has_a_completion_until_a_reset() {
        let lane = Lane::new("test", 4).unwrap();
        lane.post(0, note(70, 1, true));
        lane.post(1, note(71, 1, false));
        assert!(!lane.has_failed() && lane.complete(0, false, 0).is_some() && lane.has_failed());
        assert_eq!(wr_id(lane.complete(1, false, 0)), Some(71));
        lane.reset(2);
        assert!(!lane.has_failed());
    }
}
