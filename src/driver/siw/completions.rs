//! The completion queue of siw: an array of entries, followed by a word by which an event is requested from the kernel.
//!
//! An entry belongs to this side while the bit in its flags is set, and to the kernel again when the flags are zero. To request an event,
//! the program stores the kind of event in the word; the kernel sets the word to zero when it makes the event (`siw_cq_notify_now`,
//! siw_qp.c, Linux 6.1).
//!
//! A send may complete before a read that was posted earlier (`siw_qp_sq_process`, siw_qp_tx.c), so completions of the two are in no
//! particular order.

use std::mem::offset_of;
use std::sync::Arc;
use std::sync::atomic::{Ordering, fence};

use uverbs_abi::siw::{
    Cqe, NOTIFY_NEXT_COMPLETION, NOTIFY_SOLICITED, OP_COMP_AND_SWAP, OP_FETCH_AND_ADD, OP_READ,
    OP_READ_LOCAL_INV, OP_RECEIVE, OP_SEND, OP_SEND_REMOTE_INV, OP_SEND_WITH_IMM, OP_WRITE, WC_BAD_RESP_ERR,
    WC_LOC_ACCESS_ERR, WC_LOC_LEN_ERR, WC_LOC_PROT_ERR, WC_LOC_QP_OP_ERR, WC_REM_ACCESS_ERR,
    WC_REM_INV_REQ_ERR, WC_SUCCESS, WC_WR_FLUSH_ERR,
};
use uverbs_abi::types::{wc_opcode, wc_status};
use uverbs_abi::write::Wc;

use super::slots::Entries;
use crate::driver::completion::{Extended, Place, Raised};
use crate::driver::ring::Filled;
#[cfg(feature = "raw")]
use crate::driver::ring::flagged::IS_SET;
use crate::driver::seam::{CompletionRing, CqSide};
use crate::kernel::mapping::Mapping;

/// The word by which events are requested.
#[derive(Debug)]
pub(crate) struct Alarm {
    memory: Mapping,
    at: usize,
}

impl CqSide for Alarm {
    /// Requests an event at the next completion, or at the next one of a message that is marked as solicited. Completions after this are
    /// announced; the next poll finds those before it.
    fn arm_apart(&self, solicited_only: bool, _: bool) -> bool {
        let next = if solicited_only { 0 } else { NOTIFY_NEXT_COMPLETION };
        self.memory.store(self.at, NOTIFY_SOLICITED | next, Ordering::Release);
        fence(Ordering::SeqCst);
        true
    }
}

/// The part of a completion queue that polls.
#[derive(Debug)]
pub(crate) struct Completions {
    entries: Entries,
    /// Number of entries that were taken.
    taken: u32,
    alarm: Arc<Alarm>,
}

/// The completion in an entry.
#[inline(always)]
fn wc(filled: Filled<'_, Cqe>, (status, opcode): (u32, u32)) -> Wc {
    Wc {
        wr_id: filled.field::<{ offset_of!(Cqe, id) }, u64>(),
        status,
        opcode,
        byte_len: filled.field::<{ offset_of!(Cqe, bytes) }, u32>(),
        qp_num: filled.field::<{ offset_of!(Cqe, qp_id) }, u64>() as u32,
        ..Wc::default()
    }
}

/// A completion that has succeeded.
#[derive(Clone, Copy, Debug)]
struct Plain<'a> {
    filled: Filled<'a, Cqe>,
    opcode: u32,
}

impl Raised for Plain<'_> {
    #[inline]
    fn wc(&self) -> Wc {
        wc(self.filled, (wc_status::SUCCESS, self.opcode))
    }

    #[inline]
    fn flags(&self) -> u32 {
        0
    }
}

impl Completions {
    /// With these entries, and the word after them.
    pub(super) fn new(entries: Entries) -> Self {
        let alarm = Arc::new(Alarm { memory: entries.map().clone(), at: entries.bytes() });
        Self { entries, taken: 0, alarm }
    }

    /// Puts completions into `places`, as many as there are and fit, as long as `may_take` returns true. Gives their entries back, and
    /// returns their number.
    pub(crate) fn take<T: Place>(&mut self, places: &mut [T], may_take: impl Fn() -> bool) -> usize {
        let mut count = 0;
        for place in places {
            let Some(next) = self.next(&may_take) else { break };
            place.put(&next);
            count += 1;
        }
        count
    }

    /// Takes the next completion, if there is one and `may_take` returns true. Its entry is given back.
    #[inline(never)]
    pub(crate) fn next(&mut self, may_take: &dyn Fn() -> bool) -> Option<Extended> {
        let mut entries = self.entries.reading();
        let taken = entries.taken(self.taken)?;
        if !may_take() {
            return None;
        }
        let wc = wc(taken.filled(), said(taken.word()));
        taken.give_back();
        self.taken = self.taken.wrapping_add(1);
        // There are no flags: the driver reports the key that was invalidated only to users in the kernel.
        Some(Extended { wc, ..Extended::default() })
    }

    /// Takes completions of requests that have succeeded, up to the first that has not.
    #[inline(never)]
    fn take_more<T: Place>(&mut self, places: &mut [T]) -> usize {
        let (first, mut next) = (self.taken, self.taken);
        let mut entries = self.entries.reading();
        for place in places {
            let Some(taken) = entries.taken(next) else { break };
            let Some(opcode) = succeeded(taken.word()) else { break };
            place.put(&Plain { filled: taken.filled(), opcode });
            taken.give_back();
            next = next.wrapping_add(1);
        }
        self.taken = next;
        next.wrapping_sub(first) as usize
    }
}

impl CompletionRing for Completions {
    fn capacity(&self) -> u32 {
        self.entries.count()
    }

    fn side(&self) -> Arc<dyn CqSide> {
        self.alarm.clone()
    }

    #[cfg(feature = "raw")]
    fn next_copied(&mut self, may_take: &dyn Fn() -> bool) -> Option<Extended> {
        self.next(may_take)
    }

    #[cfg(feature = "raw")]
    #[inline]
    fn is_empty(&self) -> bool {
        self.entries.load(self.taken) & IS_SET == 0
    }

    /// Up to the first request that has failed. `None` if that is the first one.
    #[inline(always)]
    fn poll_fast<P: Place>(&mut self, places: &mut [P], may_take: impl Fn() -> bool) -> Option<usize> {
        // A separate case: most polls find one completion or none.
        let [place, rest @ ..] = places else { return Some(0) };
        let count = self.poll_one_fast(place, may_take)?;
        Some(if count == 0 || rest.is_empty() { count } else { 1 + self.take_more(rest) })
    }

    /// Not if the request has failed.
    #[inline(always)]
    fn poll_one_fast<P: Place>(&mut self, place: &mut P, may_take: impl Fn() -> bool) -> Option<usize> {
        let mut entries = self.entries.reading();
        let Some(taken) = entries.taken(self.taken) else { return Some(0) };
        let opcode = succeeded(taken.word())?;
        if !may_take() {
            return None;
        }
        place.put(&Plain { filled: taken.filled(), opcode });
        taken.give_back();
        self.taken = self.taken.wrapping_add(1);
        Some(1)
    }

    #[cfg(feature = "raw")]
    const FEW: usize = usize::MAX;

    #[inline(always)]
    fn poll<P: Place>(&mut self, places: &mut [P], may_take: impl Fn() -> bool) -> usize {
        self.poll_fast(places, &may_take).unwrap_or_else(|| self.take(places, may_take))
    }
}

/// The kernel's numbers, each with its number in verbs.
const STATUSES: [(u16, u32); 9] = [
    (WC_SUCCESS, wc_status::SUCCESS),
    (WC_LOC_LEN_ERR, wc_status::LOC_LEN_ERR),
    (WC_LOC_PROT_ERR, wc_status::LOC_PROT_ERR),
    (WC_LOC_QP_OP_ERR, wc_status::LOC_QP_OP_ERR),
    (WC_WR_FLUSH_ERR, wc_status::WR_FLUSH_ERR),
    (WC_BAD_RESP_ERR, wc_status::BAD_RESP_ERR),
    (WC_LOC_ACCESS_ERR, wc_status::LOC_ACCESS_ERR),
    (WC_REM_ACCESS_ERR, wc_status::REM_ACCESS_ERR),
    (WC_REM_INV_REQ_ERR, wc_status::REM_INV_REQ_ERR),
];
const OPCODES: [(u8, u32); 9] = [
    (OP_WRITE, wc_opcode::RDMA_WRITE),
    (OP_READ, wc_opcode::RDMA_READ),
    (OP_READ_LOCAL_INV, wc_opcode::RDMA_READ),
    (OP_SEND, wc_opcode::SEND),
    (OP_SEND_WITH_IMM, wc_opcode::SEND),
    (OP_SEND_REMOTE_INV, wc_opcode::SEND),
    (OP_FETCH_AND_ADD, wc_opcode::FETCH_ADD),
    (OP_COMP_AND_SWAP, wc_opcode::COMP_SWAP),
    (OP_RECEIVE, wc_opcode::RECV),
];

/// The number in verbs, by the kernel's number.
static STATUS: [u32; STATUSES.len()] = {
    let (mut table, mut at) = ([0; STATUSES.len()], 0);
    while at < table.len() {
        assert!(STATUSES[at].0 as usize == at);
        table[at] = STATUSES[at].1;
        at += 1;
    }
    table
};
static OPCODE: [u32; OPCODES.len()] = {
    let (mut table, mut at) = ([0; OPCODES.len()], 0);
    while at < table.len() {
        assert!(OPCODES[at].0 as usize == at);
        table[at] = OPCODES[at].1;
        at += 1;
    }
    table
};

/// The operation in verbs' numbers; `None` for one that no request has.
#[inline(always)]
pub(super) fn opcode_of(opcode: u8) -> Option<u32> {
    OPCODE.get(usize::from(opcode)).copied()
}

/// The operation, if it has succeeded.
#[inline(always)]
fn succeeded(word: u32) -> Option<u32> {
    // Operation and status; the status is then zero.
    OPCODE.get((u32::from_le_bytes(word.to_ne_bytes()) >> 8) as usize).copied()
}

/// Status and operation of a completion, from the word that contains them.
#[inline(always)]
fn said(word: u32) -> (u32, u32) {
    match succeeded(word) {
        Some(opcode) => (wc_status::SUCCESS, opcode),
        None => failed(word),
    }
}

/// For an unknown number, it is only known that the request failed.
#[cold]
#[inline(never)]
fn failed(word: u32) -> (u32, u32) {
    let [_, opcode, first, second] = word.to_ne_bytes();
    let status = STATUS.get(usize::from(u16::from_ne_bytes([first, second])));
    match (status, opcode_of(opcode)) {
        (Some(status), Some(opcode)) => (*status, opcode),
        (_, opcode) => (wc_status::GENERAL_ERR, opcode.unwrap_or(wc_opcode::SEND)),
    }
}
