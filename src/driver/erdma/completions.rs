//! Completion queues of eRDMA.
//!
//! The device writes entries to a ring of this process, which it uses again and again. An entry may be read when its owner bit is that of
//! the current round: one in the first, then zero. Nothing reports to the device how many were taken until an event is requested: the
//! doorbell for that has the position, the number of events so far, and how often it was rung.
//!
//! The device accepts a request for an event only with a number of events that it has not answered yet. The program may read events from
//! their file at any time; the queue itself shows that an event was made, because an armed queue makes it at the first completion. An
//! entry does not say whether its message was solicited, so each receive counts as one, and the number may then be one that the device has
//! answered already: the next request is made with two numbers. Bindings read events themselves, and report each.
//!
//! Source: `erdma_create_cq`, `erdma_notify_cq` and `__erdma_poll_one_cqe`, providers/erdma/erdma_verbs.c, rdma-core 65;
//! `erdma_create_cq`, erdma_verbs.c, Linux 7.3.

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use uverbs_abi::erdma::{
    CQDB_ARM, CQDB_CI, CQDB_CMDSN, CQDB_CQN, CQDB_IDX, CQDB_SOL, CQE_OPCODE, CQE_OWNER, CQE_QTYPE,
    CQE_QTYPE_RQ, CQE_QTYPE_SQ, CQE_SYNDROME, Cqe, CreateCqReq, CreateCqResp, MIN_CQE, OP_RECV_IMM,
    OP_RECV_INV, OP_RSP_SEND_IMM, SLOT, WC_FLUSH_ERR, WC_RECV_STAG_INVALID_ERR, WC_RECV_WARRPING_ERR,
    WC_RECV_WQE_FORMAT_ERR, WC_RETRY_EXC_ERR, WC_SEND_STAG_INVALID_ERR, WC_SEND_WARRPING_ERR,
    WC_SEND_WQE_FORMAT_ERR, WC_SEND_WQE_ORD_EXCEED, WC_SUCCESS,
};
use uverbs_abi::types::{WcFlags, wc_opcode, wc_status};
use uverbs_abi::write::Wc;
use zerocopy::{FromZeros, IntoBytes};

use super::track::Track;
use super::{Pages, within};
use crate::driver::completion::{Extended, Place, Raised};
use crate::driver::ring::units::SmallUnits;
use crate::driver::seam::{CompletionRing, CqSide, Created, Payload, Plan};
use crate::kernel::error::{Error, Result};
use crate::kernel::mapping::{Mapping, Register};
use crate::kernel::process::Origin;

/// The device counts positions in 24 bits.
const MOST: u32 = 1 << 23;

/// A completion queue that is about to be created.
#[derive(Debug)]
pub(super) struct CqPlan {
    memory: Mapping,
    entries: u32,
    pages: Pages,
    request: CreateCqReq,
    response: CreateCqResp,
}

impl CqPlan {
    pub(super) fn new(op: &'static str, wanted: u32, pages: Pages) -> Result<Self> {
        if wanted == 0 || wanted > MOST {
            let what = "entries of a completion queue";
            return Err(Error::outside(op, what, wanted, format_args!("1 to {MOST}")));
        }
        let entries = wanted.next_power_of_two().max(MIN_CQE as u32);
        let bytes = entries as usize * SLOT;
        let memory = Mapping::block(bytes + SLOT).map_err(|errno| Error::kernel(op, errno))?;
        let request = CreateCqReq {
            db_record_va: memory.address() + bytes as u64,
            qbuf_va: memory.address(),
            qbuf_len: bytes.next_multiple_of(4096) as u32,
            ..CreateCqReq::new_zeroed()
        };
        Ok(Self { memory, entries, pages, request, response: CreateCqResp::new_zeroed() })
    }
}

impl Plan<u32, Completions> for CqPlan {
    fn payload(&mut self) -> Payload<'_> {
        (self.request.as_bytes(), self.response.as_mut_bytes())
    }

    fn asked(&self, _: u32) -> u32 {
        self.entries
    }

    fn memory(&self) -> Option<&Mapping> {
        Some(&self.memory)
    }

    fn open(self: Box<Self>, made: Created<'_, u32>) -> Result<Completions> {
        let Self { memory, entries, pages, response: CreateCqResp { cq_id, num_cqe }, .. } = *self;
        let bytes = entries as usize * SLOT;
        let units = SmallUnits::small(&memory, 0, bytes).filter(|_| num_cqe == entries);
        let units = units.ok_or_else(|| Error::malformed(made.op, "a completion queue of another size"))?;
        let side = CompletionSide {
            origin: Origin::here(),
            ring: Arc::new(Ring { units, entries }),
            record: within(made.op, &memory, bytes)?,
            doorbell: within(made.op, &pages.completions, (cq_id & 0x1ff) as usize * 8)?,
            number: u64::from(cq_id) << CQDB_CQN.trailing_zeros() & CQDB_CQN,
            next: AtomicU64::new(0),
            tracks: Mutex::default(),
            changes: AtomicU32::new(0),
            armed: AtomicU32::new(NOT_ARMED),
            events: AtomicU32::new(0),
            is_unsure: AtomicBool::new(false),
            arms: AtomicU32::new(0),
        };
        // The answer to a request for an event that there was not.
        side.record.tell((CQDB_IDX | side.number | CQDB_CMDSN).to_le_bytes());
        let (ring, tracks) = (side.ring.clone(), Vec::new());
        Ok(Completions { ring, position: 0, tracks, changes: 0, side: Arc::new(side) })
    }
}

/// The entries.
#[derive(Debug)]
struct Ring {
    units: SmallUnits,
    entries: u32,
}

impl Ring {
    /// The first word of the entry at a position, if the device has written it in this round.
    #[inline(always)]
    fn filled(&self, position: u64) -> Option<u32> {
        const WORDS: usize = SLOT / 4;
        let word = u32::from_be(self.units.reading().load((position as usize).wrapping_mul(WORDS)));
        let is_first = position & u64::from(self.entries) == 0;
        ((word & CQE_OWNER != 0) == is_first).then_some(word)
    }
}

const NOT_ARMED: u32 = 0;
const ARMED_SOLICITED: u32 = 1;
const ARMED: u32 = 2;

/// The part of a completion queue that its queue pairs use, and that requests events.
#[derive(Debug)]
pub(super) struct CompletionSide {
    /// The process that created the queue. A child of `fork` must not take its locks.
    origin: Origin,
    ring: Arc<Ring>,
    record: Register,
    doorbell: Register,
    /// Its number, in the bits of the doorbell.
    number: u64,
    /// Position of the next entry to be read. Only the poller changes it.
    next: AtomicU64,
    /// The queue pairs that complete here, in the order of their numbers, and the number of changes to the list. The poller has a copy.
    tracks: Mutex<Vec<Arc<Track>>>,
    changes: AtomicU32,
    /// The kind of event that was requested, and is searched for; the number of events; and how often the doorbell was rung.
    armed: AtomicU32,
    events: AtomicU32,
    /// The number may have counted an event that the device has not made.
    is_unsure: AtomicBool,
    arms: AtomicU32,
}

impl CompletionSide {
    fn change(&self, how: impl FnOnce(&mut Vec<Arc<Track>>)) {
        if self.origin.is_here() {
            how(&mut self.tracks.lock().unwrap_or_else(PoisonError::into_inner));
            self.changes.fetch_add(1, Ordering::Release);
        }
    }

    /// Adds a queue pair. It replaces an earlier one with the same number.
    pub(super) fn add(&self, track: &Arc<Track>) {
        self.change(|tracks| match tracks.binary_search_by_key(&track.number, |known| known.number) {
            Ok(at) => tracks[at] = track.clone(),
            Err(at) => tracks.insert(at, track.clone()),
        });
    }

    /// Removes a queue pair. Entries that it left in the queue are skipped.
    pub(super) fn remove(&self, track: &Arc<Track>) {
        self.change(|tracks| tracks.retain(|known| !Arc::ptr_eq(known, track)));
    }

    /// Calls `what` with the position behind everything that the device has written.
    pub(super) fn at_end<T>(&self, what: impl FnOnce(u64) -> T) -> T {
        let mut position = self.next.load(Ordering::Acquire);
        loop {
            if self.ring.filled(position).is_some() {
                position += 1;
            } else if self.next.load(Ordering::Acquire) <= position {
                break;
            }
            // The poller may have gone on, and the device may have written an entry again.
            position = position.max(self.next.load(Ordering::Acquire));
        }
        what(position)
    }

    /// Rings the doorbell. `events` has the number of events in its two highest bits.
    fn ask(&self, solicited_only: bool, events: u32) {
        let arms = u64::from(self.arms.fetch_add(1, Ordering::Relaxed));
        let value = arms << CQDB_IDX.trailing_zeros()
            | self.number
            | CQDB_ARM
            | if solicited_only { CQDB_SOL } else { 0 }
            | u64::from(events >> 30) << CQDB_CMDSN.trailing_zeros()
            | self.next.load(Ordering::Relaxed) & CQDB_CI;
        self.record.tell(value.to_le_bytes());
        self.doorbell.ring(value.to_le_bytes());
    }

    /// If the queue was armed for this completion, the device makes an event.
    #[cold]
    fn event_made(&self, is_notable: bool) {
        let armed = self.armed.load(Ordering::Relaxed);
        if armed == ARMED || armed == ARMED_SOLICITED && is_notable {
            self.armed.store(NOT_ARMED, Ordering::Relaxed);
            self.events.fetch_add(1, Ordering::Relaxed);
            self.is_unsure.store(armed == ARMED_SOLICITED, Ordering::Relaxed);
        }
    }
}

impl CqSide for CompletionSide {
    /// Requests an event for the next completion, or the next solicited one; the poller searches for that completion. Returns false, with
    /// nothing done, in a process that did not create the queue.
    fn arm(&self, solicited_only: bool) -> bool {
        let is_here = self.origin.is_here();
        if is_here {
            self.armed.store(if solicited_only { ARMED_SOLICITED } else { ARMED }, Ordering::Relaxed);
            let events = self.events.load(Ordering::Relaxed);
            self.ask(solicited_only, events << 30);
            if self.is_unsure.load(Ordering::Relaxed) {
                // The device may have answered this number before, but not this one and the next.
                self.events.fetch_add(1, Ordering::Relaxed);
                self.ask(solicited_only, events.wrapping_add(1) << 30);
            }
        }
        is_here
    }

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
    ring: Arc<Ring>,
    /// Position of the next entry to be read.
    position: u64,
    /// A copy of the list of queue pairs, and the number of changes up to it.
    tracks: Vec<Arc<Track>>,
    changes: u32,
    side: Arc<CompletionSide>,
}

impl Completions {
    /// Number of queue pairs that complete here.
    #[cfg(test)]
    pub(super) fn known(&self) -> usize {
        self.side.tracks.lock().unwrap_or_else(PoisonError::into_inner).len()
    }

    /// Takes the next completion, if there is one and `may_take` returns true. The error says whether the queue is empty.
    #[inline(always)]
    fn next(&mut self, may_take: impl Fn() -> bool) -> Result<Extended, bool> {
        loop {
            let Some(word) = self.ring.filled(self.position) else { return Err(true) };
            if !may_take() {
                return Err(false);
            }
            let cqe = self.ring.units.reading().get::<Cqe>(self.position as usize).read();
            let position = self.position;
            self.position += 1;
            self.side.next.store(self.position, Ordering::Release);
            if self.side.armed.load(Ordering::Relaxed) != NOT_ARMED {
                self.side.event_made(is_of(word, CQE_QTYPE_RQ) || word & CQE_SYNDROME != 0);
            }
            // A device may write entries of what is not there any more, or never was.
            if let Some(wc) = self.completion(word, &cqe, position) {
                return Ok(Extended { wc, ..Extended::default() });
            }
        }
    }

    /// The queue pair with a number. The list may have changed since the entry before: everything that changed before the request was posted
    /// must be seen.
    #[inline(always)]
    fn track(&mut self, number: u32) -> Option<&Track> {
        let changes = self.side.changes.load(Ordering::Acquire);
        if changes != self.changes {
            let tracks = self.side.tracks.lock().unwrap_or_else(PoisonError::into_inner);
            (self.tracks, self.changes) = (tracks.clone(), changes);
        }
        let at = match &self.tracks[..] {
            [only] if only.number == number => 0,
            all => all.binary_search_by_key(&number, |known| known.number).ok()?,
        };
        self.tracks.get(at).map(|track| &**track)
    }

    #[inline(always)]
    fn completion(&mut self, word: u32, cqe: &Cqe, position: u64) -> Option<Wc> {
        let number = cqe.qpn.get();
        let track = self.track(number)?;
        let (slot, syndrome) = (cqe.qe_idx.get() as u16, (word & CQE_SYNDROME) as u8);
        let succeeded = syndrome == WC_SUCCESS;
        let wc = Wc { qp_num: number, byte_len: cqe.size.get(), ..Wc::default() };
        let wc = if is_of(word, CQE_QTYPE_SQ) {
            let done = track.sends.complete(slot, succeeded, position)?;
            Wc { wr_id: done.wr_id, opcode: done.opcode, ..wc }
        } else if is_of(word, CQE_QTYPE_RQ) {
            let done = track.receives.complete_at(slot, succeeded, position)?;
            received(word, cqe, Wc { wr_id: done.wr_id, ..wc })
        } else {
            return None;
        };
        Some(if succeeded { wc } else { failed(syndrome, wc) })
    }
}

#[inline(always)]
fn is_of(word: u32, queue: u8) -> bool {
    word & CQE_QTYPE == u32::from(queue) << CQE_QTYPE.trailing_zeros()
}

/// What a receive has brought.
#[inline(always)]
fn received(word: u32, cqe: &Cqe, wc: Wc) -> Wc {
    let data = cqe.imm_data.get();
    match ((word & CQE_OPCODE) >> CQE_OPCODE.trailing_zeros()) as u8 {
        OP_RSP_SEND_IMM => {
            Wc { opcode: wc_opcode::RECV, ex: data.to_be(), wc_flags: WcFlags::WITH_IMM.bits(), ..wc }
        }
        OP_RECV_IMM => Wc {
            opcode: wc_opcode::RECV_RDMA_WITH_IMM,
            ex: data.to_be(),
            wc_flags: WcFlags::WITH_IMM.bits(),
            ..wc
        },
        OP_RECV_INV => Wc {
            opcode: wc_opcode::RECV,
            ex: data.swap_bytes(),
            wc_flags: WcFlags::WITH_INVALIDATE.bits(),
            ..wc
        },
        _ => Wc { opcode: wc_opcode::RECV, ..wc },
    }
}

/// The status of a request that has failed, and rdma-core's number for it (`map_cqe_status`, erdma_verbs.c).
#[cold]
#[inline(never)]
fn failed(syndrome: u8, wc: Wc) -> Wc {
    let (status, vendor_err) = match syndrome {
        WC_RECV_WQE_FORMAT_ERR => (wc_status::GENERAL_ERR, 1),
        WC_RECV_STAG_INVALID_ERR..=WC_RECV_WARRPING_ERR => (wc_status::REM_ACCESS_ERR, syndrome - 1),
        WC_SEND_WQE_FORMAT_ERR => (wc_status::LOC_QP_OP_ERR, 0x20),
        // There may be no reads.
        WC_SEND_WQE_ORD_EXCEED => (wc_status::GENERAL_ERR, 0x21),
        WC_SEND_STAG_INVALID_ERR..=WC_SEND_WARRPING_ERR => {
            (wc_status::LOC_ACCESS_ERR, syndrome - WC_SEND_STAG_INVALID_ERR + 0x30)
        }
        WC_FLUSH_ERR => (wc_status::WR_FLUSH_ERR, 0),
        WC_RETRY_EXC_ERR => (wc_status::RETRY_EXC_ERR, 0),
        // Also a number that is not known.
        _ => (wc_status::GENERAL_ERR, 0),
    };
    Wc { status, vendor_err: vendor_err.into(), ..wc }
}

/// A completion that was taken.
#[derive(Clone, Copy, Debug)]
struct Taken(Wc);

impl Raised for Taken {
    #[inline(always)]
    fn wc(&self) -> Wc {
        self.0
    }
}

impl CompletionRing for Completions {
    fn capacity(&self) -> u32 {
        self.ring.entries
    }

    fn side(&self) -> Arc<dyn CqSide> {
        self.side.clone()
    }

    #[cfg(feature = "raw")]
    fn next_copied(&mut self, may_take: &dyn Fn() -> bool) -> Option<Extended> {
        self.next(may_take).ok()
    }

    #[cfg(feature = "raw")]
    #[inline]
    fn is_empty(&self) -> bool {
        self.ring.filled(self.position).is_none()
    }

    #[inline]
    fn poll_fast<P: Place>(&mut self, places: &mut [P], may_take: impl Fn() -> bool) -> Option<usize> {
        let mut count = 0;
        for place in places {
            match self.next(&may_take) {
                Ok(taken) => place.put(&Taken(taken.wc)),
                Err(false) if count == 0 => return None,
                Err(_) => break,
            }
            count += 1;
        }
        Some(count)
    }
}
