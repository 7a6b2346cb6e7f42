//! State that a queue pair and its completion queues share.
//!
//! A completion names the queue pair and the request by 16 bits each. Datagrams complete in any order, so the number of a request is
//! not its place in the ring: its lower bits are the index of an entry here, which is taken from the free ones. The bits above contain
//! the generation of the queue pair's life, which begins when the queue pair is created and at each reset. So a late completion of an
//! earlier life, or of an earlier queue pair with the same number, is recognized.
//!
//! One thread posts, and another one may poll. An entry belongs to the poster until it stores `what` (release), and to the poller from
//! the doorbell until the poller exchanges `what` for zero. The poller then puts the entry's index into the ring of free ones, and
//! increments `returned` (stored with release, loaded with acquire). At a reset, the poster also exchanges `what`: only one of the two
//! succeeds for each entry, and takes its index. So each index is in one place at a time, and no lock is needed.
//!
//! The numbers are chosen as libefa chooses them (`efa_wq_get_next_wrid_idx` and others, providers/efa/verbs.c, rdma-core 65).

mod run;

pub(super) use self::run::Run;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use uverbs_abi::types::wc_opcode;

use crate::kernel::error::{Error, Result};

/// The generations of queue pairs: numbers of queue pairs in ascending order, and how many lives each had.
#[derive(Debug, Default)]
pub(crate) struct Generations(Mutex<Vec<(u16, u16)>>);

impl Generations {
    /// The next generation of the queue pair with this number.
    fn next(&self, number: u16) -> u16 {
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        match known.binary_search_by_key(&number, |(of, _)| *of) {
            Ok(at) => {
                known[at].1 = known[at].1.wrapping_add(1);
                known[at].1
            }
            Err(at) => {
                known.insert(at, (number, 1));
                1
            }
        }
    }
}

/// The operation of a request, as its completion reports it: a [`wc_opcode`].
#[repr(u8)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Send = wc_opcode::SEND as u8,
    Read = wc_opcode::RDMA_READ as u8,
    Write = wc_opcode::RDMA_WRITE as u8,
    Receive = wc_opcode::RECV as u8,
}

/// What was stored about a request that has completed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Done {
    pub(super) wr_id: u64,
    /// The value of its [`Kind`].
    pub(super) opcode: u32,
    /// The length that the completion reports.
    pub(super) bytes: u32,
}

/// The part of a queue pair that its completion queues use.
#[derive(Debug)]
pub(crate) struct Track {
    pub(super) number: u32,
    pub(super) sends: Lane,
    pub(super) receives: Lane,
    generations: Arc<Generations>,
}

impl Track {
    /// For the queue pair with this number, with room for this many requests.
    ///
    /// # Errors
    /// [`Exhausted`](crate::ErrorKind::Exhausted) if there is no memory.
    pub(super) fn new(
        op: &'static str,
        number: u32,
        [sends, receives]: [u32; 2],
        generations: &Arc<Generations>,
    ) -> Result<Self> {
        let (sends, receives) = (Lane::new(op, sends)?, Lane::new(op, receives)?);
        Ok(Self { number, sends, receives, generations: generations.clone() })
    }

    /// Begins another life. Returns its generation.
    pub(super) fn next_generation(&self) -> u16 {
        self.generations.next(self.number as u16)
    }
}

/// One direction of a queue pair.
#[derive(Debug)]
pub(super) struct Lane {
    entries: Box<[Entry]>,
    /// Ring of the indices of free entries, in the order in which they were returned. Its size is a power of two.
    free: Box<[AtomicU32]>,
    /// Number of indices that were put into the ring. Only the poller changes it.
    returned: AtomicU32,
    /// Number of bits of the index in a request's number, and their mask.
    bits: u32,
    index: u32,
}

#[derive(Debug, Default)]
struct Entry {
    wr_id: AtomicU64,
    bytes: AtomicU32,
    /// Bits 0 to 7 are the kind, bit 8 is one, and bits 16 to 31 are the number; zero if the entry has no request.
    what: AtomicU32,
}

impl Entry {
    /// Called by the poster: the entry belongs to this request from now on.
    #[inline(always)]
    fn begin(&self, number: u16, wr_id: u64, kind: Kind, bytes: u32) {
        self.wr_id.store(wr_id, Ordering::Relaxed);
        self.bytes.store(bytes, Ordering::Relaxed);
        self.what.store(u32::from(number) << NUMBER | TAKEN | kind as u32, Ordering::Release);
    }
}

const TAKEN: u32 = 1 << 8;
const NUMBER: u32 = 16;

/// Maximum number of requests of one direction: the device's counters have 16 bits.
pub(super) const MOST: u32 = 1 << (u16::BITS - 1);

impl Lane {
    /// For this many requests, at most [`MOST`].
    fn new(op: &'static str, requests: u32) -> Result<Self> {
        let places = requests.next_power_of_two();
        let (mut entries, mut free) =
            (Error::room(op, requests as usize)?, Error::room(op, places as usize)?);
        entries.extend((0..requests).map(|_| Entry::default()));
        free.extend((0..places).map(AtomicU32::new));
        Ok(Self {
            entries: entries.into_boxed_slice(),
            free: free.into_boxed_slice(),
            returned: AtomicU32::new(requests),
            bits: places.trailing_zeros(),
            index: places - 1,
        })
    }

    /// Maximum number of outstanding requests.
    pub(super) fn requests(&self) -> u32 {
        self.entries.len() as u32
    }

    /// The index in a number.
    #[inline(always)]
    pub(super) fn index_of(&self, number: u16) -> u16 {
        number & self.index as u16
    }

    /// The bits of a generation above the index in a number: only as many as fit.
    fn marks(&self, generation: u16) -> u16 {
        (u32::from(generation) << self.bits) as u16
    }

    /// Called by the poller: ends the request with this number. Returns `None` if there is no such request, or if it is from another
    /// life.
    #[inline(always)]
    pub(super) fn complete(&self, number: u16) -> Option<Done> {
        self.end(number, |entry, opcode| {
            let (wr_id, bytes) = (entry.wr_id.load(Ordering::Relaxed), entry.bytes.load(Ordering::Relaxed));
            Done { wr_id, opcode, bytes }
        })
    }

    /// Called by the poller: ends the request with this number, and returns only its `wr_id`. `None` as for [`Self::complete`].
    #[inline(always)]
    pub(super) fn complete_one(&self, number: u16) -> Option<u64> {
        self.end(number, |entry, _| entry.wr_id.load(Ordering::Relaxed))
    }

    #[inline(always)]
    fn end<D>(&self, number: u16, done: impl FnOnce(&Entry, u32) -> D) -> Option<D> {
        let mask = self.index;
        let index = u32::from(number) & mask;
        let entry = self.entries.get(index as usize)?;
        let what = entry.what.load(Ordering::Acquire);
        let opcode = what ^ (u32::from(number) << NUMBER | TAKEN);
        if opcode > u8::MAX.into() {
            return None;
        }
        let done = done(entry, opcode);
        // The poster may have begun another life meanwhile.
        entry.what.compare_exchange(what, 0, Ordering::AcqRel, Ordering::Relaxed).ok()?;
        let returned = self.returned.load(Ordering::Relaxed);
        self.free.get((returned & mask) as usize)?.store(index, Ordering::Relaxed);
        self.returned.store(returned.wrapping_add(1), Ordering::Release);
        Some(done)
    }

    #[inline(always)]
    fn place(&self, position: u32) -> Option<&AtomicU32> {
        self.free.get((position & self.index) as usize)
    }
}

/// The part of a [`Lane`] that only the poster uses.
#[derive(Debug)]
pub(super) struct Numbers {
    /// Number of indices that were taken from the ring, and the value of [`Lane::returned`] when it was last read.
    taken: u32,
    seen: u32,
    /// The bits above the index in each number.
    marks: u16,
    /// The index that was taken last.
    last: u16,
    /// Free indices that are not in the ring: those of requests that were not posted, or that a reset ended. There is room for all.
    spare: Vec<u16>,
}

impl Numbers {
    pub(super) fn new(op: &'static str, lane: &Lane, generation: u16) -> Result<Self> {
        let spare = Error::room(op, lane.entries.len())?;
        Ok(Self { taken: 0, seen: 0, marks: lane.marks(generation), last: 0, spare })
    }

    /// Number of indices in the ring.
    fn waiting(&self, lane: &Lane) -> u32 {
        lane.returned.load(Ordering::Acquire).wrapping_sub(self.taken)
    }

    /// The index that is taken next, if there is one.
    #[inline]
    pub(super) fn next(&self, lane: &Lane) -> Option<u16> {
        if self.taken == self.seen {
            if let Some(index) = self.spare.last() {
                return Some(*index);
            }
            if self.waiting(lane) == 0 {
                return None;
            }
        }
        Some(lane.place(self.taken)?.load(Ordering::Relaxed) as u16)
    }

    /// The index that was taken last.
    #[inline(always)]
    pub(super) fn last(&self) -> u32 {
        self.last.into()
    }

    /// Takes an index for a request with this many bytes. Returns the request's number, or `None` if no index is free.
    #[inline(always)]
    pub(super) fn take(&mut self, lane: &Lane, wr_id: u64, kind: Kind, bytes: u32) -> Option<u16> {
        let index = if self.taken == self.seen { self.look(lane)? } else { self.take_seen(lane)? };
        self.give(lane, index, wr_id, kind, bytes)
    }

    /// Takes an index that is known to be in the ring, for a request with this many bytes. Returns the request's number. If it returns
    /// `None`, there may be other indices.
    #[inline(always)]
    pub(super) fn take_quick(&mut self, lane: &Lane, wr_id: u64, kind: Kind, bytes: u32) -> Option<u16> {
        let index = if self.taken == self.seen { None } else { self.take_seen(lane) };
        self.give(lane, index?, wr_id, kind, bytes)
    }

    /// Gives this index to a request, and returns the request's number.
    #[inline(always)]
    fn give(&mut self, lane: &Lane, index: u32, wr_id: u64, kind: Kind, bytes: u32) -> Option<u16> {
        let entry = lane.entries.get(index as usize)?;
        self.last = index as u16;
        let number = self.last | self.marks;
        entry.begin(number, wr_id, kind, bytes);
        Some(number)
    }

    #[inline(always)]
    fn take_seen(&mut self, lane: &Lane) -> Option<u32> {
        let index = lane.place(self.taken)?.load(Ordering::Relaxed);
        self.taken = self.taken.wrapping_add(1);
        Some(index)
    }

    /// Takes an index when none is left of those that are known to be in the ring.
    #[cold]
    #[inline(never)]
    fn look(&mut self, lane: &Lane) -> Option<u32> {
        if let Some(index) = self.spare.pop() {
            return Some(index.into());
        }
        self.seen = lane.returned.load(Ordering::Acquire);
        if self.taken == self.seen { None } else { self.take_seen(lane) }
    }

    /// Sets the number of bytes of the request that took an index last.
    #[inline(always)]
    pub(super) fn set_bytes(&self, lane: &Lane, bytes: u32) {
        if let Some(entry) = lane.entries.get(usize::from(self.last)) {
            entry.bytes.store(bytes, Ordering::Relaxed);
        }
    }

    /// Frees the index of a request that was not announced to the device. Several are given back in reverse order.
    pub(super) fn give_back(&mut self, lane: &Lane, index: u16) {
        if let Some(entry) = lane.entries.get(usize::from(index)) {
            entry.what.store(0, Ordering::Release);
            self.spare.push(index);
        }
    }

    /// Whether no request is outstanding.
    pub(super) fn is_idle(&self, lane: &Lane) -> bool {
        self.spare.len() as u32 + self.waiting(lane) >= lane.requests()
    }

    /// Begins another life: all outstanding requests end without a completion.
    pub(super) fn reset(&mut self, lane: &Lane, generation: u16) {
        for (index, entry) in lane.entries.iter().enumerate() {
            if entry.what.swap(0, Ordering::AcqRel) != 0 {
                self.spare.push(index as u16);
            }
        }
        self.marks = lane.marks(generation);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    pub(super) fn pair(requests: u32) -> (Lane, Numbers) {
        let lane = Lane::new("test", requests).unwrap();
        let numbers = Numbers::new("test", &lane, 1).unwrap();
        (lane, numbers)
    }

    fn post(numbers: &mut Numbers, lane: &Lane, wr_id: u64) -> Option<u16> {
        let number = numbers.take(lane, wr_id, Kind::Send, 0);
        if number.is_some() {
            numbers.set_bytes(lane, 8);
        }
        number
    }

    #[test]
    fn requests_complete_in_any_order_and_their_numbers_are_used_again() {
        let (lane, mut numbers) = pair(4);
        for round in 0..if cfg!(miri) { 20 } else { 1000_u64 } {
            let posted: Vec<_> = (0..4).map(|i| post(&mut numbers, &lane, round * 4 + i).unwrap()).collect();
            assert_eq!((post(&mut numbers, &lane, 0), numbers.is_idle(&lane)), (None, false));
            for at in [2, 0, 3, 1] {
                let done = lane.complete(posted[at]).unwrap();
                let wanted = Done { wr_id: round * 4 + at as u64, opcode: wc_opcode::SEND, bytes: 8 };
                assert_eq!(done, wanted);
                assert_eq!(lane.complete(posted[at]), None, "it is done");
            }
            assert!(numbers.is_idle(&lane));
        }
    }

    #[test]
    fn a_slow_request_holds_back_no_other() {
        let (lane, mut numbers) = pair(2);
        let slow = post(&mut numbers, &lane, 7).unwrap();
        for wr_id in 100..400 {
            let number = post(&mut numbers, &lane, wr_id).unwrap();
            assert_eq!(lane.complete(number).unwrap().wr_id, wr_id);
        }
        assert_eq!(lane.complete(slow).unwrap().wr_id, 7);
    }

    #[test]
    fn what_was_not_posted_gives_its_number_back() {
        let (lane, mut numbers) = pair(4);
        for _ in 0..100 {
            let taken = [0, 1, 2].map(|wr_id| {
                let index = numbers.next(&lane).unwrap();
                let number = numbers.take(&lane, wr_id, Kind::Send, 0).unwrap();
                assert_eq!((lane.index_of(number), numbers.last()), (index, index.into()));
                index
            });
            assert!(!numbers.is_idle(&lane));
            taken.iter().rev().for_each(|index| numbers.give_back(&lane, *index));
            assert!(numbers.is_idle(&lane));
            let number = post(&mut numbers, &lane, 9).unwrap();
            assert_eq!(lane.complete(number).unwrap().wr_id, 9);
            assert!(numbers.is_idle(&lane));
        }
    }

    #[test]
    fn a_completion_of_an_earlier_life_is_nobodys() {
        let (lane, mut numbers) = pair(4);
        let posted: Vec<_> = (0..4).map(|wr_id| post(&mut numbers, &lane, wr_id).unwrap()).collect();
        lane.complete(posted[1]).unwrap();
        numbers.reset(&lane, 2);
        assert!(numbers.is_idle(&lane));
        assert!(posted.iter().all(|number| lane.complete(*number).is_none()));
        let again: Vec<_> = (10..14).map(|wr_id| post(&mut numbers, &lane, wr_id).unwrap()).collect();
        assert_eq!(post(&mut numbers, &lane, 14), None);
        assert!(posted.iter().all(|number| lane.complete(*number).is_none()));
        assert!(again.iter().all(|number| lane.complete(*number).is_some()));
    }

    #[test]
    fn any_number_is_answered() {
        // If trying all numbers is too slow, some of each kind.
        let all = || (0..=u16::MAX).step_by(if cfg!(miri) { 4099 } else { 1 });
        for requests in [0, 1, 3, 4, if cfg!(miri) { 64 } else { MOST }] {
            let (lane, mut numbers) = pair(requests);
            assert!(all().all(|number| lane.complete(number).is_none()));
            if let Some(number) = post(&mut numbers, &lane, 5) {
                let found =
                    all().chain([number]).filter(|any| lane.complete(*any).is_some()).collect::<Vec<_>>();
                assert_eq!(found, [number]);
            }
            assert_eq!(numbers.next(&lane).is_some(), requests > 0);
        }
    }

    #[test]
    fn each_queue_pair_of_a_number_has_a_generation_of_its_own() {
        let generations = Generations::default();
        assert_eq!([generations.next(3), generations.next(3), generations.next(4)], [1, 2, 1]);
    }

    /// A poster that resets while a poller completes: no number is lost or duplicated.
    #[test]
    fn a_reset_beside_a_poller_keeps_every_number() {
        let (lane, mut numbers) = pair(8);
        let stop = std::sync::atomic::AtomicBool::new(false);
        std::thread::scope(|scope| {
            let (lane, stop) = (&lane, &stop);
            scope.spawn(move || {
                while !stop.load(Ordering::Relaxed) {
                    for number in 0..64 {
                        let _ = lane.complete(number);
                    }
                }
            });
            for generation in 0..if cfg!(miri) { 20 } else { 5_000 } {
                for wr_id in 0..8 {
                    let _ = post(&mut numbers, lane, wr_id);
                }
                numbers.reset(lane, generation);
            }
            stop.store(true, Ordering::Relaxed);
        });
        assert!(numbers.is_idle(&lane));
        let mut indices: Vec<_> = (0..8)
            .map(|_| {
                let index = numbers.next(&lane).unwrap();
                numbers.take(&lane, 0, Kind::Send, 0).unwrap();
                index
            })
            .collect();
        indices.sort_unstable();
        assert_eq!(indices, [0, 1, 2, 3, 4, 5, 6, 7]);
        assert_eq!(numbers.next(&lane), None);
    }
}
