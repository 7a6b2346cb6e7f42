//! Completion queues of mlx5.
//!
//! The device writes entries round and round the ring. An entry is ours when its owner bit has the parity of the
//! round that we are in and its opcode is not "invalid". We tell how far we have read by the consumer counter in the
//! doorbell record, and ask for an event by the arm word behind it and a doorbell.
//!
//! The device takes an ask for an event only with a sequence number that it has not answered yet, so the number goes
//! up with each event. Events reach the program by way of a file that it may read when it likes; but that one
//! was made is seen in the queue: an armed queue makes it at the first completion that it was armed for. Bindings, which read
//! events themselves, tell of each instead.
//!
//! Source: `mlx5_cq_arm`, include/linux/mlx5/cq.h; `struct mlx5_cqe64`, device.h; Linux 6.1.

use std::mem::offset_of;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use nix::errno::Errno;
use uverbs_abi::mlx5::wqe::{CQE_REQ_ERR, CQE_RESP_ERR, Cqe64};
use uverbs_abi::mlx5::{CREATE_CQ_FLAGS_UAR_PAGE_INDEX, CreateCq, CreateCqResp, ResizeCq};
use zerocopy::native_endian::U32 as NativeU32;
use zerocopy::{FromZeros, IntoBytes};

use super::completion_ring::{Ring, end_of};
use super::entry::Found;
#[cfg(feature = "raw")]
use super::entry::Unread;
use super::known::Known;
use super::track::{Track, is_send};
use super::{CQ_DOORBELL, Limits, Registers};
use crate::driver::completion::Extended;
use crate::driver::ring::units::{Item, Word};
use crate::kernel::error::{Error, Result};
use crate::kernel::mapping::{Mapping, Register};
use crate::kernel::process::Origin;

/// Bytes of the doorbell record, and its words.
const RECORD: usize = 64;
const CONSUMER: usize = 0;
const ARM: usize = 4;
/// Bits of a position that the device counts, and of the index of a queue pair.
const COUNTER: u32 = 0xff_ffff;
/// Bit of [`Cqe64::op_own`]: the message was solicited.
const SOLICITED: u8 = 2;

/// A completion queue about to be made: what the driver is told, and its memory.
#[derive(Debug)]
pub(crate) struct CqPlan {
    /// With the doorbell record behind it.
    ring: Ring,
    consumer: Word,
    arm: Word,
    doorbell: Register,
    request: CreateCq,
    response: CreateCqResp,
}

impl CqPlan {
    pub(crate) fn new(op: &'static str, wanted: u32, limits: &Limits, registers: Registers) -> Result<Self> {
        let ring = Ring::new(op, wanted, limits.cqe_size, RECORD)?;
        let word =
            |at| Word::new(ring.memory(), ring.bytes() + at).ok_or_else(|| Error::kernel(op, Errno::EINVAL));
        let (consumer, arm, doorbell) = (word(CONSUMER)?, word(ARM)?, registers.doorbell(op, CQ_DOORBELL)?);
        let uar_page_index = u16::try_from(registers.id.unwrap_or(0))
            .map_err(|_| Error::malformed(op, "a page of registers with a number above 65535"))?;
        let request = CreateCq {
            buf_addr: ring.memory().address(),
            db_addr: ring.memory().address() + ring.bytes() as u64,
            cqe_size: ring.size(),
            flags: registers.id.map_or(0, |_| CREATE_CQ_FLAGS_UAR_PAGE_INDEX),
            uar_page_index,
            ..CreateCq::new_zeroed()
        };
        let response = CreateCqResp::new_zeroed();
        Ok(Self { ring, consumer, arm, doorbell, request, response })
    }

    /// The driver's request, and the place of its answer.
    pub(crate) fn payload(&mut self) -> (&[u8], &mut [u8]) {
        (self.request.as_bytes(), self.response.as_mut_bytes())
    }

    /// The memory that the device may write to as long as the queue exists.
    pub(crate) fn memory(&self) -> &Mapping {
        self.ring.memory()
    }

    /// The queue, now that the kernel has made it. Nothing completes here yet, so the ring is still ours alone; before, a
    /// queue larger than the device's limit would have cost its memory, and not only an error.
    pub(crate) fn open(mut self) -> Completions {
        self.ring.clear();
        let ring = Arc::new(self.ring);
        let shared = CompletionSide {
            ring: Mutex::new(ring.clone()),
            consumer: self.consumer,
            arm: self.arm,
            doorbell: self.doorbell,
            number: halves(0, self.response.cqn),
            next: AtomicU64::new(0),
            origin: Origin::here(),
            tracks: Mutex::default(),
            changes: AtomicU32::new(0),
            armed: AtomicU32::new(NOT_ARMED),
            sequence: AtomicU32::new(0),
        };
        Completions {
            ring,
            position: 0,
            released: 0,
            known: Known::default(),
            changes: 0,
            shared: Arc::new(shared),
        }
    }
}

const NOT_ARMED: u32 = 0;
const ARMED_SOLICITED: u32 = 1;
const ARMED: u32 = 2;

/// What queue pairs know of a completion queue.
#[derive(Debug)]
pub(crate) struct CompletionSide {
    /// The process that has the queue: a child of `fork` takes no lock of it.
    origin: Origin,
    /// The poller has it too, and changes both.
    ring: Mutex<Arc<Ring>>,
    consumer: Word,
    arm: Word,
    doorbell: Register,
    /// The second half of what is written to the doorbell.
    number: u64,
    /// Position behind the last entry that was given back, or that was taken by [`Completions::next_unread`]: an ask for an event in
    /// the middle of a poll is not for those. Only the poller changes it.
    next: AtomicU64,
    /// The queue pairs that complete here, and how often that has changed: the poller has a copy.
    tracks: Mutex<Vec<Arc<Track>>>,
    changes: AtomicU32,
    /// What an event was asked for, and the sequence number of the next ask.
    armed: AtomicU32,
    sequence: AtomicU32,
}

/// What is written to a doorbell: two numbers in the device's order of bytes.
#[inline(always)]
fn halves(first: u32, second: u32) -> u64 {
    zerocopy::transmute!([first.to_be(), second.to_be()])
}

impl CompletionSide {
    /// Whether an event was asked for, and the queue is searched for what makes it.
    #[inline(always)]
    pub(super) fn is_armed(&self) -> bool {
        self.armed.load(Ordering::Relaxed) != NOT_ARMED
    }

    /// If this completion is the one that the queue was armed for, an event is on its way.
    #[cold]
    fn event_made(&self, cqe: Item<'_, Cqe64>) {
        let op_own = cqe.read().op_own;
        let notable = op_own & SOLICITED != 0 || matches!(op_own >> 4, CQE_REQ_ERR | CQE_RESP_ERR);
        let armed = self.armed.load(Ordering::Relaxed);
        if armed == ARMED || (armed == ARMED_SOLICITED && notable) {
            self.armed.store(NOT_ARMED, Ordering::Relaxed);
            self.sequence.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// How often it has changed who completes here.
    #[inline(always)]
    pub(super) fn changes(&self) -> u32 {
        self.changes.load(Ordering::Acquire)
    }

    fn change<T>(&self, how: impl FnOnce(&mut Vec<Arc<Track>>) -> T) -> T {
        let mut tracks = self.tracks.lock().unwrap_or_else(PoisonError::into_inner);
        // Of those that are gone all was taken.
        let next = self.next.load(Ordering::Acquire);
        tracks.retain(|known| known.is_behind(next));
        let answer = how(&mut tracks);
        self.changes.fetch_add(1, Ordering::Release);
        answer
    }

    /// Adds a queue pair; false when another one has its index.
    pub(super) fn add(&self, track: &Arc<Track>) -> bool {
        self.change(|tracks| match tracks.binary_search_by_key(&track.index(), |known| known.index()) {
            Ok(at) => Arc::ptr_eq(&tracks[at], track),
            Err(at) => {
                tracks.insert(at, track.clone());
                true
            }
        })
    }

    /// Forgets a queue pair; what it left in the queue is nobody's.
    pub(super) fn remove(&self, track: &Arc<Track>) {
        if self.origin.is_here() {
            self.change(|tracks| tracks.retain(|known| !Arc::ptr_eq(known, track)));
        }
    }

    /// The same of one that takes what it receives here from a shared queue: it is known until all that it left was taken out, since
    /// entries of the shared queue go back by that.
    pub(super) fn retire(&self, track: &Arc<Track>) {
        if self.origin.is_here() {
            self.at_end(|end| track.set_end(end));
            self.change(|_| ());
        }
    }

    /// How many queue pairs are known.
    #[cfg(test)]
    pub(super) fn known(&self) -> usize {
        self.tracks.lock().unwrap_or_else(PoisonError::into_inner).len()
    }

    /// Asks for an event at the next completion, or the next solicited one, which the poller looks for. False, and nothing done, in a
    /// process that has not made the queue.
    #[inline(always)]
    pub(crate) fn arm(&self, solicited_only: bool) -> bool {
        let is_here = self.origin.is_here();
        if is_here {
            let armed = if solicited_only { ARMED_SOLICITED } else { ARMED };
            self.armed.store(armed, Ordering::Relaxed);
            self.ask(solicited_only, self.sequence.load(Ordering::Relaxed) << 30);
        }
        is_here
    }

    /// The same where `events` counts the events that were read, in its two highest bits. The poller looks for none, so any thread may
    /// ask while another polls.
    #[cfg(feature = "raw")]
    #[inline(always)]
    pub(crate) fn arm_behind(&self, events: u32, solicited_only: bool) -> bool {
        let is_here = self.origin.is_here();
        if is_here {
            self.ask(solicited_only, events);
        }
        is_here
    }

    /// The device has two bits of the sequence number: the highest of `sequence`.
    #[inline(always)]
    fn ask(&self, solicited_only: bool, sequence: u32) {
        let next = self.next.load(Ordering::Relaxed) as u32 & COUNTER;
        let word = sequence >> 30 << 28 | u32::from(solicited_only) << 24 | next;
        self.arm.tell(word);
        self.doorbell.ring((halves(word, 0) | self.number).to_ne_bytes());
    }

    /// Does something at the position behind all that the device has written, while the queue is not resized.
    pub(super) fn at_end<T>(&self, what: impl FnOnce(u64) -> T) -> T {
        let ring = self.ring.lock().unwrap_or_else(PoisonError::into_inner);
        what(end_of(|| self.next.load(Ordering::Acquire), |position| ring.is_filled(position)))
    }
}

/// The side of a completion queue that polls.
#[derive(Debug)]
pub(crate) struct Completions {
    pub(super) ring: Arc<Ring>,
    /// Position of the next entry to be read, and of the first that was not given back.
    pub(super) position: u64,
    released: u64,
    /// The queue pairs that complete here.
    pub(super) known: Known,
    pub(super) changes: u32,
    pub(super) shared: Arc<CompletionSide>,
}

impl Completions {
    pub(crate) fn shared(&self) -> &Arc<CompletionSide> {
        &self.shared
    }

    pub(crate) fn capacity(&self) -> u32 {
        self.ring.entries() - 1
    }

    /// Whether the device has written no completion.
    #[cfg(feature = "raw")]
    #[inline(always)]
    pub(crate) fn is_empty(&self) -> bool {
        !self.ring.is_filled(self.position)
    }

    /// Fills `places` with completions, as many as there are and fit; gives their places back at once, and says how
    /// many. Before each of them `may_take` is asked: if not, it stays, and so do those behind it.
    #[inline(always)]
    pub(crate) fn poll<T>(
        &mut self,
        places: &mut [T],
        may_take: impl Fn() -> bool,
        mut fill: impl FnMut(&mut T, &Extended),
    ) -> usize {
        let mut count = 0;
        while let Some(rest @ [_, ..]) = places.get_mut(count..) {
            let taken = match self.run(rest, &may_take, &mut fill) {
                Ok(0) => self.run_others(rest, &may_take, &mut fill),
                run => run,
            };
            let Ok(taken) = taken else { break };
            count += taken;
        }
        self.release();
        count
    }

    /// Takes the next completion, whose place stays this side's until [`Completions::release`]; `may_take` is asked before. Without
    /// one, whether there is none.
    ///
    /// Each is behind all that was changed before its request was posted: the device may have written it long after the one before.
    /// So who completes here is looked up for each.
    #[inline(always)]
    pub(super) fn next_if<R>(
        &mut self,
        may_take: impl Fn() -> bool,
        mut raise: impl FnMut(&Found<'_>) -> R,
    ) -> Result<R, bool> {
        loop {
            let position = self.position;
            if !self.ring.is_filled(position) {
                return Err(true);
            }
            if !may_take() {
                return Err(false);
            }
            self.look_for_changes();
            self.position = position + 1;
            if self.shared.is_armed() {
                self.shared.event_made(self.ring.entry(position));
            }
            // Of one that is nobody's nothing is said.
            if let Some(found) = self.find(position) {
                return Ok(raise(&found));
            }
        }
    }

    /// The same, with all that it says: for those that are not taken by [`Completions::run`].
    #[inline(never)]
    pub(super) fn next_other(&mut self, may_take: impl Fn() -> bool) -> Result<Extended, bool> {
        match self.next_shared(&may_take) {
            Some(said) => Ok(said),
            None => self.next_if(may_take, |found| found.said()),
        }
    }

    /// The entry with what is known of its request, if its queue pair is still there.
    #[inline(always)]
    fn find(&self, position: u64) -> Option<Found<'_>> {
        let cqe = self.ring.entry(position);
        Found::new(cqe, self.known.get(index_of(&cqe))?, position)
    }

    /// The next completion as the device wrote it; see [`Completions::next_if`]. Without one, what was nobody's is given back: a poll
    /// that finds nothing has no end, and the queue would fill up with it.
    #[cfg(feature = "raw")]
    pub(crate) fn next_unread(
        &mut self,
        may_take: impl Fn() -> bool,
        place: &mut Unread,
    ) -> Result<(), bool> {
        let taken = self.next_if(&may_take, |found| {
            found.keep(place);
            index_of(&found.cqe)
        });
        match taken {
            Ok(index) => self.known.note(index),
            Err(true) if may_take() => {
                self.release();
                return Err(true);
            }
            Err(_) => {}
        }
        self.shared.next.store(self.position, Ordering::Release);
        taken.map(drop)
    }

    /// The same by the shortest way, where nothing is out of the ordinary: a request that succeeded, of the queue pair of the one that was
    /// taken by the other way last. Nothing is done otherwise.
    #[cfg(feature = "raw")]
    #[inline(always)]
    pub(crate) fn short_unread(
        &mut self,
        may_take: impl Fn() -> bool,
        place: &mut Unread,
    ) -> Result<(), bool> {
        let position = self.position;
        let Some(cqe) = self.ring.reading().filled(position) else { return Err(true) };
        let shared = &*self.shared;
        let is_changed = shared.changes() != self.changes;
        if !may_take() || is_changed || shared.is_armed() {
            return Err(false);
        }
        let Some(track) = self.known.again(index_of(&cqe)) else { return Err(false) };
        let Some(found) = Found::succeeded(cqe, track, position) else { return Err(false) };
        found.keep_good(place);
        self.position = position + 1;
        shared.next.store(position + 1, Ordering::Release);
        Ok(())
    }

    /// Takes one, and gives its place back; none if there is one that may not be taken.
    #[inline(always)]
    pub(crate) fn short_one(
        &mut self,
        may_take: impl Fn() -> bool,
        mut fill: impl FnMut(&Extended),
    ) -> Option<bool> {
        let taken = match self.run(&mut [()], &may_take, |(), said| fill(said)) {
            Ok(0) => self.next_other(may_take).map(|said| fill(&said)),
            run => run.map(|_| ()),
        };
        self.release();
        match taken {
            Ok(()) => Some(true),
            Err(is_empty) => is_empty.then_some(false),
        }
    }

    /// Gives the places of all that was taken back to the device.
    #[inline(always)]
    pub(crate) fn release(&mut self) {
        if self.position != self.released {
            self.released = self.position;
            self.shared.next.store(self.position, Ordering::Release);
            self.shared.consumer.tell(self.position as u32 & COUNTER);
        }
    }

    /// Gives the queue room for `wanted` completions: `command` has the kernel do it, with the driver's request and the new
    /// ring's memory. Gives the memory of the old ring back, if the device needs nothing of it any more; none either if the
    /// queue has this size already.
    pub(crate) fn resize(
        &mut self,
        op: &'static str,
        wanted: u32,
        command: impl FnOnce(&ResizeCq, &Mapping) -> Result<()>,
    ) -> Result<Option<Mapping>> {
        // The kernel does nothing then.
        if Ring::entries_for(wanted) == Some(self.ring.entries()) {
            return Ok(None);
        }
        let mut new = Ring::new(op, wanted, self.ring.size(), 0)?;
        // The device writes to it as soon as it has it.
        new.clear();
        let (buf_addr, cqe_size) = (new.memory().address(), new.size() as u16);
        let request = ResizeCq { buf_addr, cqe_size, ..ResizeCq::new_zeroed() };
        self.release();
        self.look_for_changes();
        let shared = self.shared.clone();
        let mut ring = shared.ring.lock().unwrap_or_else(PoisonError::into_inner);
        command(&request, new.memory())?;
        let first = self.position;
        let is_nobodys = |cqe: &Cqe64, position| {
            let track = self.known.get((cqe.srqn_uidx.get() & COUNTER).to_be());
            track.is_none_or(|track| {
                let (kind, entry) = (cqe.op_own >> 4, cqe.wqe_counter.get());
                let is_of_earlier = track.lane(kind).is_of_an_earlier_life(position);
                if is_of_earlier && !is_send(kind) {
                    track.complete_rare_shared(entry, position, 0);
                }
                is_of_earlier
            })
        };
        let taken_over = new.take_over(op, &ring, first, is_nobodys);
        self.position = *taken_over.as_ref().unwrap_or(&(first + 1));
        self.release();
        let new = Arc::new(new);
        *ring = new.clone();
        let old = std::mem::replace(&mut self.ring, new);
        taken_over?;
        let has_record = old.memory().address() == shared.consumer.map().address();
        Ok((!has_record).then(|| old.memory().clone()))
    }

    #[inline(always)]
    pub(super) fn look_for_changes(&mut self) {
        let changes = self.shared.changes();
        if changes != self.changes {
            self.change(changes);
        }
    }

    #[cold]
    fn change(&mut self, changes: u32) {
        let tracks = self.shared.tracks.lock().unwrap_or_else(PoisonError::into_inner);
        self.known = Known::new(&tracks);
        self.changes = changes;
    }
}

/// The index of the queue pair that an entry is of, in the order of its bytes there.
#[inline(always)]
pub(super) fn index_of(cqe: &Item<'_, Cqe64>) -> u32 {
    cqe.field::<{ offset_of!(Cqe64, srqn_uidx) }, NativeU32>().get() & COUNTER.to_be()
}
