//! Completion queues of mlx5.
//!
//! The device writes entries to the ring, which it uses again and again. An entry may be read when its owner bit has the parity
//! of the current round and its opcode is not "invalid". The consumer counter in the doorbell record shows the device how far
//! this side has read. The arm word behind it, together with a doorbell, requests an event.
//!
//! The device accepts a request for an event only with a sequence number that it has not answered yet, so the number is increased
//! with each event. The program may read events from their file at any time; the queue itself shows that an event was made,
//! because an armed queue makes it at the first completion for which it was armed. Bindings read events themselves, and report
//! each event instead.
//!
//! Source: `mlx5_cq_arm`, include/linux/mlx5/cq.h; `struct mlx5_cqe64`, device.h; Linux 6.1.

mod poll;

use std::mem::offset_of;
#[cfg(feature = "raw")]
use std::sync::atomic::AtomicBool;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use nix::errno::Errno;
use uverbs_abi::mlx5::wqe::{CQE_REQ_ERR, CQE_RESP_ERR, Cqe64};
use uverbs_abi::mlx5::{CREATE_CQ_FLAGS_UAR_PAGE_INDEX, CreateCq, CreateCqResp, ResizeCq};
use zerocopy::native_endian::U32 as NativeU32;
use zerocopy::{FromZeros, IntoBytes};

use super::completion_ring::{Ring, end_of};
use super::entry::Found;
use super::known::Known;
use super::track::{Track, is_send};
use super::{CQ_DOORBELL, Limits, Registers};
use crate::driver::completion::Extended;
use crate::driver::ring::units::{Item, Word};
use crate::driver::seam::{CqSide, Created, DriverCq, Payload, Plan};
use crate::kernel::error::{Error, Result};
use crate::kernel::mapping::source::BlockSource;
use crate::kernel::mapping::{Mapping, Register};
use crate::kernel::process::Origin;

/// Bytes of the doorbell record, and the positions of its words.
const RECORD: usize = 64;
const CONSUMER: usize = 0;
const ARM: usize = 4;
/// Bits of a position that the device counts, which are also those of a queue pair's index.
const COUNTER: u32 = 0xff_ffff;
/// Bit of [`Cqe64::op_own`]: the message was solicited.
const SOLICITED: u8 = 2;

/// A completion queue that is about to be created: the driver's request, and the memory.
#[derive(Debug)]
pub(crate) struct CqPlan {
    /// Followed by the doorbell record.
    ring: Ring,
    consumer: Word,
    arm: Word,
    doorbell: Register,
    request: CreateCq,
    response: CreateCqResp,
    /// What the poller reads if the entries are compressed: a ring that stays empty.
    empty: Option<Ring>,
}

impl CqPlan {
    pub(crate) fn new(op: &'static str, wanted: u32, limits: &Limits, registers: Registers) -> Result<Self> {
        let ring = Ring::new(op, &limits.memory, wanted, limits.cqe_size, RECORD)?;
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
        Ok(Self { ring, consumer, arm, doorbell, request, response, empty: None })
    }

    /// With options for programs that read the ring themselves.
    pub(super) fn with(mut self, op: &'static str, driver: DriverCq) -> Result<Self> {
        self.request.flags |= u16::from(driver.flags);
        if let Some(format) = driver.compression {
            (self.request.cqe_comp_en, self.request.cqe_comp_res_format) = (1, format);
            self.empty = Some(Ring::new(op, &BlockSource::default(), 1, self.ring.size(), 0)?);
        }
        Ok(self)
    }
}

impl Plan<u32, Completions> for CqPlan {
    fn payload(&mut self) -> Payload<'_> {
        (self.request.as_bytes(), self.response.as_mut_bytes())
    }

    fn memory(&self) -> Option<&Mapping> {
        Some(self.ring.memory())
    }

    /// Nothing completes here yet, so the device does not use the ring. The ring is cleared only now: a queue that is larger than the
    /// device's limit is then refused before its memory is touched.
    fn open(mut self: Box<Self>, _: Created<'_, u32>) -> Result<Completions> {
        self.ring.clear();
        let own = Arc::new(self.ring);
        let ring = self.empty.map_or_else(
            || own.clone(),
            |mut empty| {
                empty.clear();
                Arc::new(empty)
            },
        );
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
            #[cfg(feature = "raw")]
            is_handed_over: AtomicBool::new(false),
            armed: AtomicU32::new(NOT_ARMED),
            sequence: AtomicU32::new(0),
        };
        let (known, shared) = (Known::default(), Arc::new(shared));
        Ok(Completions { ring, own, position: 0, released: 0, known, changes: 0, shared })
    }
}

const NOT_ARMED: u32 = 0;
const ARMED_SOLICITED: u32 = 1;
const ARMED: u32 = 2;

/// The part of a completion queue that its queue pairs use.
#[derive(Debug)]
pub(crate) struct CompletionSide {
    /// The process that created the queue. A child of `fork` must not take its locks.
    origin: Origin,
    /// Shared with the poller. Both copies are replaced on a resize.
    ring: Mutex<Arc<Ring>>,
    consumer: Word,
    arm: Word,
    doorbell: Register,
    /// The second half of the value for the doorbell.
    number: u64,
    /// Position behind the last entry that was given back to the device, or that [`Completions::next_unread`] returned: an event
    /// that is requested in the middle of a poll is not for those entries. Only the poller changes it.
    next: AtomicU64,
    /// The queue pairs that complete here, and the number of changes to the list. The poller has a copy.
    tracks: Mutex<Vec<Arc<Track>>>,
    changes: AtomicU32,
    /// The program uses the ring directly: only a poll reads it.
    #[cfg(feature = "raw")]
    is_handed_over: AtomicBool,
    /// The kind of event that was requested, and the sequence number of the next request.
    armed: AtomicU32,
    sequence: AtomicU32,
}

/// The value for a doorbell: two numbers in the device's byte order.
#[inline(always)]
fn halves(first: u32, second: u32) -> u64 {
    zerocopy::transmute!([first.to_be(), second.to_be()])
}

impl CompletionSide {
    /// Whether an event was requested and the queue has to be searched for the completion that makes it.
    #[inline]
    pub(super) fn is_armed(&self) -> bool {
        self.armed.load(Ordering::Relaxed) != NOT_ARMED
    }

    /// If the queue was armed for this completion, the device makes an event.
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

    /// How often the list of queue pairs has changed.
    #[inline]
    pub(super) fn changes(&self) -> u32 {
        self.changes.load(Ordering::Acquire)
    }

    fn change<T>(&self, how: impl FnOnce(&mut Vec<Arc<Track>>) -> T) -> T {
        let mut tracks = self.tracks.lock().unwrap_or_else(PoisonError::into_inner);
        // All entries of queue pairs that were removed have been taken.
        let next = self.next.load(Ordering::Acquire);
        tracks.retain(|known| known.is_behind(next));
        let answer = how(&mut tracks);
        self.changes.fetch_add(1, Ordering::Release);
        answer
    }

    /// Adds a queue pair. Returns false if another one has the same index.
    pub(super) fn add(&self, track: &Arc<Track>) -> bool {
        self.change(|tracks| match tracks.binary_search_by_key(&track.index(), |known| known.index()) {
            Ok(at) => Arc::ptr_eq(&tracks[at], track),
            Err(at) => {
                tracks.insert(at, track.clone());
                true
            }
        })
    }

    /// Removes a queue pair. Entries that it left in the queue are skipped.
    pub(super) fn remove(&self, track: &Arc<Track>) {
        if self.origin.is_here() {
            self.change(|tracks| tracks.retain(|known| !Arc::ptr_eq(known, track)));
        }
    }

    /// Removes a queue pair that receives from a shared queue. It stays in the list until all its entries have been taken,
    /// because taking an entry also gives the request back to the shared queue.
    pub(super) fn retire(&self, track: &Arc<Track>) {
        if self.origin.is_here() {
            self.at_end(|end| track.set_end(end));
            self.change(|_| ());
        }
    }

    /// Number of queue pairs in the list.
    #[cfg(test)]
    pub(super) fn known(&self) -> usize {
        self.tracks.lock().unwrap_or_else(PoisonError::into_inner).len()
    }

    /// Rings the doorbell. The device's sequence number has two bits: the highest of `sequence`.
    #[inline(always)]
    fn ask(&self, solicited_only: bool, sequence: u32) {
        let next = self.next.load(Ordering::Relaxed) as u32 & COUNTER;
        let word = sequence >> 30 << 28 | u32::from(solicited_only) << 24 | next;
        self.arm.tell(word);
        self.doorbell.ring((halves(word, 0) | self.number).to_ne_bytes());
    }

    /// Calls `what` with the position behind everything that the device has written. The queue is not resized meanwhile. In a ring that was
    /// handed over, it is the position behind what was polled.
    pub(super) fn at_end<T>(&self, what: impl FnOnce(u64) -> T) -> T {
        let ring = self.ring.lock().unwrap_or_else(PoisonError::into_inner);
        #[cfg(feature = "raw")]
        if self.is_handed_over.load(Ordering::Relaxed) {
            return what(self.next.load(Ordering::Acquire));
        }
        what(end_of(|| self.next.load(Ordering::Acquire), |position| ring.is_filled(position)))
    }
}

impl CqSide for CompletionSide {
    /// Requests an event for the next completion, or the next solicited one; the poller searches for that completion. Returns false, with
    /// nothing done, in a process that did not create the queue.
    fn arm(&self, solicited_only: bool) -> bool {
        let is_here = self.origin.is_here();
        if is_here {
            let armed = if solicited_only { ARMED_SOLICITED } else { ARMED };
            self.armed.store(armed, Ordering::Relaxed);
            self.ask(solicited_only, self.sequence.load(Ordering::Relaxed) << 30);
        }
        is_here
    }

    /// Requests an event for the next completion, or the next solicited one, for a caller that counts the events that it reads: `events`
    /// has the count in its two highest bits. The poller does not search for the completion, so any thread may call this while another one
    /// polls. Returns false, with nothing done, in a process that did not create the queue.
    #[cfg(feature = "raw")]
    fn arm_behind(&self, events: u32, solicited_only: bool) -> bool {
        let is_here = self.origin.is_here();
        if is_here {
            self.ask(solicited_only, events);
        }
        is_here
    }
}

/// The part of a completion queue that polls.
#[derive(Debug)]
pub(crate) struct Completions {
    pub(super) ring: Arc<Ring>,
    /// The ring that the device writes: another one only if its entries are compressed.
    own: Arc<Ring>,
    /// Position of the next entry to be read, and of the first one that was not given back.
    pub(super) position: u64,
    released: u64,
    /// The queue pairs that complete here.
    pub(super) known: Known,
    pub(super) changes: u32,
    pub(super) shared: Arc<CompletionSide>,
}

impl Completions {
    #[cfg(test)]
    pub(crate) fn shared(&self) -> &Arc<CompletionSide> {
        &self.shared
    }

    /// Takes the next completion. Its entry belongs to this side until [`Completions::release`]. `may_take` is called first. The
    /// error says whether the queue is empty.
    ///
    /// The queue pair is looked up for each entry, because the list may have changed since the entry before it: the device may
    /// write an entry long after the previous one, and everything that changed before its request was posted must be seen.
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
            // Entries without a queue pair are skipped.
            if let Some(found) = self.find(position) {
                return Ok(raise(&found));
            }
        }
    }

    /// Takes the next completion with all its fields: for completions that [`Completions::run`] does not take. The error says whether the
    /// queue is empty.
    #[inline(never)]
    pub(super) fn next_other(&mut self, may_take: impl Fn() -> bool) -> Result<Extended, bool> {
        match self.next_shared(&may_take) {
            Some(said) => Ok(said),
            None => self.next_if(may_take, |found| found.said()),
        }
    }

    /// The entry and its request, if the queue pair still exists.
    #[inline(always)]
    fn find(&self, position: u64) -> Option<Found<'_>> {
        let cqe = self.ring.entry(position);
        Found::new(cqe, self.known.get(index_of(&cqe))?, position)
    }

    /// Gives the entries of all completions that were taken back to the device.
    #[inline(always)]
    pub(crate) fn release(&mut self) {
        if self.position != self.released {
            self.released = self.position;
            self.shared.next.store(self.position, Ordering::Release);
            self.shared.consumer.tell(self.position as u32 & COUNTER);
        }
    }

    /// Resizes the queue to at least `wanted` completions. `command` sends the kernel's command, with the driver's request and
    /// the memory of the new ring. Returns the memory of the old ring if the device no longer uses it, and nothing if the queue
    /// already has this size.
    pub(super) fn renew(
        &mut self,
        op: &'static str,
        wanted: u32,
        command: impl FnOnce(&ResizeCq, &Mapping) -> Result<()>,
    ) -> Result<Option<Mapping>> {
        if self.is_for_program() {
            return Err(Error::refused(
                op,
                Errno::EBUSY,
                "the program reads the ring, which would be another one",
            ));
        }
        // The kernel does nothing in this case.
        if Ring::entries_for(wanted) == Some(self.ring.entries()) {
            return Ok(None);
        }
        // No program reads this ring, so it need not be in memory of the program's.
        let mut new = Ring::new(op, &BlockSource::default(), wanted, self.ring.size(), 0)?;
        // The device may write to the new ring as soon as the command is sent.
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
        self.own = new.clone();
        let old = std::mem::replace(&mut self.ring, new);
        taken_over?;
        let has_record = old.memory().address() == shared.consumer.map().address();
        Ok((!has_record).then(|| old.memory().clone()))
    }

    /// Whether the program reads the ring itself.
    fn is_for_program(&self) -> bool {
        #[cfg(feature = "raw")]
        let is_handed_over = self.shared.is_handed_over.load(Ordering::Relaxed);
        #[cfg(not(feature = "raw"))]
        let is_handed_over = false;
        is_handed_over || !Arc::ptr_eq(&self.ring, &self.own)
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

/// The index of the queue pair in an entry, in the byte order of the entry.
#[inline(always)]
pub(super) fn index_of(cqe: &Item<'_, Cqe64>) -> u32 {
    cqe.field::<{ offset_of!(Cqe64, srqn_uidx) }, NativeU32>().get() & COUNTER.to_be()
}
