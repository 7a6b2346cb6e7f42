//! The completion queue of siw: an array of entries, and behind it a word by which the kernel is asked for an event.
//!
//! An entry is this side's while the bit of its flags is set, and the kernel's again when they are zero. Who asks for an event stores what
//! for into the word; the kernel makes it zero when it makes the event (`siw_cq_notify_now`, siw_qp.c, Linux 6.1).
//!
//! A send may complete before a read that was posted before it (`siw_qp_sq_process`, siw_qp_tx.c): completions come in no order between the
//! two.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering, fence};

use uverbs_abi::siw::{
    CqCtrl, NOTIFY_NEXT_COMPLETION, NOTIFY_SOLICITED, OP_COMP_AND_SWAP, OP_FETCH_AND_ADD, OP_READ,
    OP_READ_LOCAL_INV, OP_RECEIVE, OP_SEND, OP_SEND_REMOTE_INV, OP_SEND_WITH_IMM, OP_WRITE, WC_BAD_RESP_ERR,
    WC_LOC_ACCESS_ERR, WC_LOC_LEN_ERR, WC_LOC_PROT_ERR, WC_LOC_QP_OP_ERR, WC_REM_ACCESS_ERR,
    WC_REM_INV_REQ_ERR, WC_SUCCESS, WC_WR_FLUSH_ERR, WQE_VALID,
};
use uverbs_abi::types::{wc_opcode, wc_status};
use uverbs_abi::write::Wc;

use super::slots::{self, COMPLETION, FLAGS, Slots, whole};
use crate::driver::completion::{Place, Raised};
use crate::kernel::error::Result;
use crate::kernel::mapping::Mapping;

/// The word by which events are asked for.
#[derive(Debug)]
pub(crate) struct Alarm {
    memory: Mapping,
    at: usize,
}

impl Alarm {
    /// Asks for an event at the next completion, or at the next of a message that is marked as solicited. What completes after this is
    /// announced, and what completed before is seen by the next poll.
    pub(crate) fn set(&self, solicited_only: bool) {
        let next = if solicited_only { 0 } else { NOTIFY_NEXT_COMPLETION };
        self.memory.store(self.at, NOTIFY_SOLICITED | next, Ordering::Release);
        fence(Ordering::SeqCst);
    }
}

/// The side of a completion queue that polls.
#[derive(Debug)]
pub(crate) struct Completions {
    slots: Slots<COMPLETION>,
    /// Entries that were taken.
    taken: u32,
    alarm: Arc<Alarm>,
}

/// An entry of a queue that is this side's.
#[derive(Clone, Copy, Debug)]
struct Entry<'a> {
    slot: &'a [AtomicU32; COMPLETION],
    /// The word with its flags, operation and status.
    word: u32,
}

impl Entry<'_> {
    #[inline(always)]
    fn load(&self, at: usize) -> u32 {
        self.slot[at].load(Ordering::Relaxed)
    }
}

impl Raised for Entry<'_> {
    #[inline(always)]
    fn wc(&self) -> Wc {
        let [_, opcode, first, second] = self.word.to_ne_bytes();
        let (status, opcode) = said(u16::from_ne_bytes([first, second]), opcode);
        Wc {
            wr_id: whole([self.load(0), self.load(1)]),
            status,
            opcode,
            byte_len: self.load(3),
            qp_num: whole([self.load(6), self.load(7)]) as u32,
            ..Wc::default()
        }
    }
}

impl Completions {
    /// With so many entries at the begin of this memory, and the word behind them.
    pub(super) fn new(op: &'static str, memory: Mapping, entries: u32) -> Result<Self> {
        let at = slots::bytes::<COMPLETION>(entries).ok_or_else(|| slots::nonsense(op))?;
        if memory.words::<{ size_of::<CqCtrl>() / 4 }>(at).is_none() {
            return Err(slots::nonsense(op));
        }
        let slots = Slots::new(op, memory, entries)?;
        let alarm = Arc::new(Alarm { memory: slots.memory().clone(), at });
        Ok(Self { slots, taken: 0, alarm })
    }

    pub(crate) fn alarm(&self) -> &Arc<Alarm> {
        &self.alarm
    }

    pub(crate) fn capacity(&self) -> u32 {
        self.slots.count()
    }

    /// The next entry, if the kernel has written it.
    #[inline(always)]
    fn next(&self) -> Option<Entry<'_>> {
        let slot = self.slots.get(self.taken)?;
        // What the kernel wrote before the flags is read after them.
        let word = slot[FLAGS].load(Ordering::Acquire);
        is_written(word).then_some(Entry { slot, word })
    }

    /// Whether the kernel has written no completion.
    #[cfg(feature = "raw")]
    #[inline(always)]
    pub(crate) fn is_empty(&self) -> bool {
        self.next().is_none()
    }

    /// Puts completions into `places`, as many as there are and fit; gives their entries back, and says how many. Before the first one is
    /// taken, `may_take` is asked: none if not.
    #[inline(always)]
    pub(crate) fn take_if<T: Place>(
        &mut self,
        places: &mut [T],
        may_take: impl Fn() -> bool,
    ) -> Option<usize> {
        let mut count = 0;
        for place in places {
            let Some(entry) = self.next() else { break };
            if count == 0 && !may_take() {
                return None;
            }
            place.put(&entry);
            entry.slot[FLAGS].store(0, Ordering::Release);
            self.taken = self.taken.wrapping_add(1);
            count += 1;
        }
        Some(count)
    }

    /// The same of one completion; false if there is none.
    #[inline(always)]
    pub(crate) fn take_one_if(&mut self, may_take: impl Fn() -> bool, put: impl FnOnce(&Wc)) -> Option<bool> {
        let Some(entry) = self.next() else { return Some(false) };
        if !may_take() {
            return None;
        }
        put(&entry.wc());
        entry.slot[FLAGS].store(0, Ordering::Release);
        self.taken = self.taken.wrapping_add(1);
        Some(true)
    }
}

/// Whether the word with the flags of an entry says that the kernel has written it.
#[inline(always)]
fn is_written(word: u32) -> bool {
    word.to_ne_bytes()[0] & WQE_VALID as u8 != 0
}

/// What completed, as verbs number it; none of what no request is.
#[inline(always)]
pub(super) fn opcode_of(opcode: u8) -> Option<u32> {
    Some(match opcode {
        OP_WRITE => wc_opcode::RDMA_WRITE,
        OP_READ | OP_READ_LOCAL_INV => wc_opcode::RDMA_READ,
        OP_SEND | OP_SEND_WITH_IMM | OP_SEND_REMOTE_INV => wc_opcode::SEND,
        OP_FETCH_AND_ADD => wc_opcode::FETCH_ADD,
        OP_COMP_AND_SWAP => wc_opcode::COMP_SWAP,
        OP_RECEIVE => wc_opcode::RECV,
        _ => return None,
    })
}

/// Status and operation of a completion. Of a number that is none of the driver's it is only known that something went wrong.
#[inline(always)]
fn said(status: u16, opcode: u8) -> (u32, u32) {
    let status = match status {
        WC_SUCCESS => wc_status::SUCCESS,
        WC_LOC_LEN_ERR => wc_status::LOC_LEN_ERR,
        WC_LOC_PROT_ERR => wc_status::LOC_PROT_ERR,
        WC_LOC_QP_OP_ERR => wc_status::LOC_QP_OP_ERR,
        WC_WR_FLUSH_ERR => wc_status::WR_FLUSH_ERR,
        WC_BAD_RESP_ERR => wc_status::BAD_RESP_ERR,
        WC_LOC_ACCESS_ERR => wc_status::LOC_ACCESS_ERR,
        WC_REM_ACCESS_ERR => wc_status::REM_ACCESS_ERR,
        WC_REM_INV_REQ_ERR => wc_status::REM_INV_REQ_ERR,
        _ => wc_status::GENERAL_ERR,
    };
    match opcode_of(opcode) {
        Some(opcode) => (status, opcode),
        None => (wc_status::GENERAL_ERR, wc_opcode::SEND),
    }
}
