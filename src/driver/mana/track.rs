//! The requests of a queue pair that have not completed. The queues add them, and completion queues end them.
//!
//! Numbers of requests count on, so that no number is used twice by requests that are outstanding together. A queue stores a request's
//! entry before it publishes the request's number (release), and a completion queue reads an entry only after it has seen that number
//! (acquire); likewise the other way, when an entry becomes free. The ends of requests are decided under a lock: by the queues where sends
//! and receives complete, and by the change of the queue pair's state.

use std::sync::atomic::{AtomicU8, AtomicU32, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError, Weak};

use super::doorbell::Doorbell;
use super::gdma::{POSITION, PSN, distance};
use super::side::CompletionSide;
use crate::kernel::error::{Error, Result};
use crate::kernel::mapping::Mapping;

/// What is known of an outstanding request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Posted {
    pub(super) wr_id: u64,
    /// One of [`uverbs_abi::types::wc_opcode`].
    pub(super) opcode: u32,
    /// It completes even if it succeeds.
    pub(super) is_signaled: bool,
    /// Position and size of the request in its ring, and the size of the place of its answer, in units.
    pub(super) at: u32,
    pub(super) units: u32,
    pub(super) answer: u32,
    /// The number of a send's last packet.
    pub(super) end: u32,
    /// Number of bytes of a receive.
    pub(super) bytes: u64,
}

#[derive(Debug, Default)]
struct Entry {
    wr_id: AtomicU64,
    bytes: AtomicU64,
    what: AtomicU32,
    at: AtomicU32,
    sizes: AtomicU32,
    end: AtomicU32,
}

const RELAXED: Ordering = Ordering::Relaxed;
const SIGNALED: u32 = 1 << 31;

impl Entry {
    fn store(&self, posted: &Posted) {
        self.wr_id.store(posted.wr_id, RELAXED);
        self.bytes.store(posted.bytes, RELAXED);
        self.what.store(posted.opcode | if posted.is_signaled { SIGNALED } else { 0 }, RELAXED);
        self.at.store(posted.at, RELAXED);
        self.sizes.store(posted.units & 0xffff | posted.answer << 16, RELAXED);
        self.end.store(posted.end, RELAXED);
    }

    fn load(&self) -> Posted {
        let (what, sizes) = (self.what.load(RELAXED), self.sizes.load(RELAXED));
        Posted {
            wr_id: self.wr_id.load(RELAXED),
            opcode: what & !SIGNALED,
            is_signaled: what & SIGNALED != 0,
            at: self.at.load(RELAXED),
            units: sizes & 0xffff,
            answer: sizes >> 16,
            end: self.end.load(RELAXED),
            bytes: self.bytes.load(RELAXED),
        }
    }
}

/// One direction of a queue pair.
#[derive(Debug)]
pub(super) struct Lane {
    /// A power of two.
    entries: Box<[Entry]>,
    /// Maximum number of outstanding requests.
    most: u32,
    /// Number of requests that were published, and that have ended.
    posted: AtomicU32,
    taken: AtomicU32,
    /// Units of the places of answers that have ended.
    answered: AtomicU32,
}

impl Lane {
    /// For this many requests.
    pub(super) fn new(op: &'static str, requests: u32) -> Result<Self> {
        let places = requests.max(1).checked_next_power_of_two().unwrap_or(u32::MAX);
        let mut entries = Error::room(op, places as usize)?;
        entries.extend((0..places).map(|_| Entry::default()));
        Ok(Self {
            entries: entries.into_boxed_slice(),
            most: requests,
            posted: AtomicU32::new(0),
            taken: AtomicU32::new(0),
            answered: AtomicU32::new(0),
        })
    }

    /// Called by the poster: whether there is no room for the request with this number.
    pub(super) fn is_full(&self, number: u32) -> bool {
        number.wrapping_sub(self.taken()) >= self.most
    }

    /// Number of places for requests, a power of two.
    pub(super) fn places(&self) -> u32 {
        self.entries.len() as u32
    }

    /// The place of the request with this number.
    pub(super) fn place(&self, number: u32) -> u32 {
        number & (self.places() - 1)
    }

    fn entry(&self, number: u32) -> Option<&Entry> {
        self.entries.get(self.place(number) as usize)
    }

    /// Called by the poster: the number of requests that have ended. Their places may be used again.
    pub(super) fn taken(&self) -> u32 {
        self.taken.load(Ordering::Acquire)
    }

    /// Called by the poster: the units of places of answers that are free again.
    pub(super) fn answered(&self) -> u32 {
        self.answered.load(Ordering::Acquire)
    }

    /// Called by the poster, which owns the entry until it publishes it.
    pub(super) fn store(&self, number: u32, posted: &Posted) {
        if let Some(entry) = self.entry(number) {
            entry.store(posted);
        }
    }

    /// Called by the poster, of an entry that it has stored.
    pub(super) fn stored(&self, number: u32) -> Posted {
        self.entry(number).map(Entry::load).unwrap_or_default()
    }

    /// Called by the poster: the requests before this number are published.
    pub(super) fn publish(&self, number: u32) {
        self.posted.store(number, Ordering::Release);
    }

    /// Whether everything that was published has ended.
    pub(super) fn is_idle(&self) -> bool {
        self.taken.load(Ordering::Acquire) == self.posted.load(Ordering::Acquire)
    }

    /// With the lock: the oldest request.
    pub(super) fn front(&self) -> Option<Posted> {
        let taken = self.taken.load(RELAXED);
        (taken != self.posted.load(Ordering::Acquire)).then(|| self.stored(taken))
    }

    /// With the lock: the newest request.
    fn back(&self) -> Option<Posted> {
        let posted = self.posted.load(Ordering::Acquire);
        (self.taken.load(RELAXED) != posted).then(|| self.stored(posted.wrapping_sub(1)))
    }

    /// With the lock: the oldest request has ended.
    pub(super) fn pop(&self) -> Option<Posted> {
        let front = self.front()?;
        self.answered.fetch_add(front.answer, RELAXED);
        self.taken.store(self.taken.load(RELAXED).wrapping_add(1), Ordering::Release);
        Some(front)
    }

    /// With the lock: the last packet of the oldest signaled request.
    fn next_signaled(&self) -> Option<u32> {
        let (taken, posted) = (self.taken.load(RELAXED), self.posted.load(Ordering::Acquire));
        let outstanding = posted.wrapping_sub(taken).min(self.places());
        (0..outstanding)
            .map(|i| self.stored(taken.wrapping_add(i)))
            .find(|posted| posted.is_signaled)
            .map(|posted| posted.end)
    }

    /// With the lock: all requests end without a completion.
    fn clear(&self) {
        self.answered.store(0, RELAXED);
        self.taken.store(self.posted.load(Ordering::Acquire), Ordering::Release);
    }
}

/// What is decided under the lock.
#[derive(Debug, Default)]
pub(super) struct Ending {
    /// Number of resets.
    pub(super) life: u32,
    /// In the queues of sends and of receives: completions before this index are from before the last reset.
    since: [u64; 2],
}

/// The numbers that the device has given to rings.
#[derive(Clone, Copy, Debug)]
pub(super) struct Numbers {
    /// The responder's receives, by which the queue pair is known.
    pub(super) qp: u32,
    /// The requester's sends and receives.
    pub(super) sends: u32,
    pub(super) answers: u32,
}

/// The halves of a queue pair.
pub(super) const SENDS: u8 = 1;
pub(super) const RECEIVES: u8 = 2;

/// The outstanding requests of a queue pair.
#[derive(Debug)]
pub(super) struct Track {
    pub(super) numbers: Numbers,
    pub(super) sends: Lane,
    pub(super) receives: Lane,
    /// The halves of which nothing is left to the device, because it has reported their error, or because the queue pair was moved to the
    /// error state: what has not completed is flushed. Bits: [`SENDS`] and [`RECEIVES`].
    over: AtomicU8,
    ending: Mutex<Ending>,
    arm: Doorbell,
    /// Behind the ring of sends: what the device reads of their positions, at this offset.
    trailer: (Mapping, usize),
    /// The queues where its sends and receives complete.
    sides: [Weak<CompletionSide>; 2],
}

/// What is behind the ring of sends: this word, the size of all, and the positions of the oldest and of the newest send.
pub(super) const TRAILER: usize = 16;
const SIGNATURE: u32 = u32::from_le_bytes(*b"RLBK");

impl Track {
    pub(super) fn new(
        numbers: Numbers,
        [sends, receives]: [Lane; 2],
        arm: Doorbell,
        trailer: (Mapping, usize),
        sides: [Weak<CompletionSide>; 2],
    ) -> Self {
        let track = Self {
            numbers,
            sends,
            receives,
            over: AtomicU8::new(0),
            ending: Mutex::default(),
            arm,
            trailer,
            sides,
        };
        track.tell(0, SIGNATURE);
        track.tell(4, TRAILER as u32);
        track.tell(8, 0);
        track.tell(12, 0);
        track
    }

    fn tell(&self, at: usize, value: u32) {
        let (memory, trailer) = &self.trailer;
        memory.store(trailer + at, value.to_le(), Ordering::Release);
    }

    /// Tells the device where the newest send is.
    pub(super) fn tell_newest(&self, at: u32) {
        self.tell(12, at);
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, Ending> {
        self.ending.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether a half of it has failed. Nothing may be posted then, also not to the other half.
    pub(super) fn is_over(&self) -> bool {
        self.over() != 0
    }

    /// The halves whose requests are flushed.
    pub(super) fn over(&self) -> u8 {
        self.over.load(Ordering::Acquire)
    }

    /// From now on everything of these halves that has not completed is flushed.
    pub(super) fn end(&self, halves: u8) {
        self.over.fetch_or(halves, Ordering::Release);
        for (side, half) in self.sides.iter().zip([SENDS, RECEIVES]) {
            if halves & half != 0 {
                side.upgrade().iter().for_each(|side| side.flush());
            }
        }
    }

    /// Begins another life: all outstanding requests end without a completion. `written` are the indices of the next entries of the queues
    /// for sends and for receives.
    pub(super) fn reset(&self, written: [u64; 2]) {
        let mut ending = self.lock();
        self.clear(&mut ending, written);
        self.tell(8, 0);
        self.tell(12, 0);
    }

    /// The queue pair does not exist any more: nothing of it completes, whoever still knows it.
    pub(super) fn retire(&self) {
        self.clear(&mut self.lock(), [u64::MAX; 2]);
    }

    fn clear(&self, ending: &mut Ending, since: [u64; 2]) {
        *ending = Ending { life: ending.life.wrapping_add(1), since };
        self.sends.clear();
        self.receives.clear();
        self.over.store(0, Ordering::Release);
    }

    /// Asks for a completion when this packet is acknowledged.
    pub(super) fn arm(&self, psn: u32) {
        self.arm.ring(self.numbers.answers, 1, psn & PSN);
    }

    /// With the lock: asks for the completion of the next request, or of the packet after `psn`.
    pub(super) fn arm_next(&self, psn: u32) {
        self.arm(self.sends.next_signaled().unwrap_or(psn.wrapping_add(1)));
    }

    /// With the lock: whether the device may say that packet `psn` is acknowledged.
    pub(super) fn is_sent(&self, psn: u32) -> bool {
        self.sends.back().is_some_and(|newest| distance(psn, newest.end) >= 0)
    }

    /// With the lock: takes the oldest send, if its last packet is not after `psn`.
    pub(super) fn take_sent(&self, psn: u32) -> Option<Posted> {
        self.sends.front().filter(|oldest| distance(oldest.end, psn) >= 0)?;
        let oldest = self.sends.pop()?;
        self.tell(8, oldest.at.wrapping_add(oldest.units) & POSITION);
        Some(oldest)
    }
}

impl Ending {
    /// Whether an entry of a completion queue, with this index, is from before the last reset. `which` is 0 for the queue of sends.
    pub(super) fn is_stale(&self, which: usize, index: u64) -> bool {
        self.since.get(which).is_some_and(|first| index < *first)
    }
}
