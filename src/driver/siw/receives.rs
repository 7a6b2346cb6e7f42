//! The receive queue of siw: that of a queue pair, or a shared one.
//!
//! The kernel takes receives in their order, and gives a slot back when it has read it, before the message has arrived (`siw_rqe_get`,
//! siw_qp_rx.c, Linux 6.1). What a request needs is therefore held by twice as many places as there are slots: when a place is used
//! again, the request after it was taken, so the request itself has ended. This does not hold for a shared queue, from which several
//! queue pairs receive at the same time. It is not necessary there, because the kernel checks the region's key with each packet
//! (`siw_proc_send`, siw_qp_rx.c).
//!
//! The flag of the first request of a batch is stored last, because the kernel goes from slot to slot and reaches no later one before it.
//! If each request has one piece, the slots are therefore filled from the last to the first. A list whose requests before a bad one are
//! posted is shown request by request.

use std::borrow::Borrow;
use std::mem::offset_of;

use uverbs_abi::siw::{MAX_SGE, OP_RECEIVE, Rqe, WQE_VALID};
use uverbs_abi::types::{qp_state, wc_opcode};

use super::sends::put_pieces;
use super::slots::{RECEIVE, ReceiveHead, ReceiveSlots, are_free, mark, take_back};
use crate::driver::request::{Refused, Sge};
use crate::driver::ring::Slot;
use crate::driver::ring::flagged;
use crate::driver::seam::{FillReceives, Late, LowerReceive, Plains, ReceiveBatch, ReceiveRing};
use crate::kernel::error::{Error, Result};
use crate::kernel::mapping::Mapping;

/// The receive queue; see the module's page.
#[derive(Debug)]
pub(crate) struct Receives {
    slots: ReceiveSlots,
    state: State,
}

/// The position of the queue.
#[derive(Debug, Default)]
struct State {
    /// Why nothing can be posted: the queue pair is in the error state, or was created without receives.
    closed: Option<Refused>,
    /// Number of requests that were filled, and that the kernel was shown.
    head: u32,
    published: u32,
    /// The word of the first request that is not shown.
    word: u32,
}

impl Receives {
    pub(super) fn new(slots: ReceiveSlots) -> Self {
        Self { slots, state: State::default() }
    }

    /// For a queue pair that was created without receives: the kernel has no queue.
    pub(super) fn without_slots(op: &'static str) -> Result<Self> {
        let slots = ReceiveSlots::new(op, 1, 0, &|bytes| {
            Mapping::block(bytes).map_err(|errno| Error::kernel(op, errno))
        })?;
        Ok(Self { slots, state: State { closed: Some(Refused::Full), ..State::default() } })
    }

    /// Borrows the queue to fill it. A request that is filled belongs to the kernel immediately if it `IS_SHOWN`.
    pub(crate) fn writing<const IS_SHOWN: bool>(&mut self) -> Writing<'_, IS_SHOWN> {
        let Self { slots, state } = self;
        let State { closed, head: next, published, .. } = *state;
        let end = if closed.is_some() { next } else { published.wrapping_add(slots.count()) };
        Writing { slots: slots.writing(), next, end, state }
    }

    /// Shows the kernel every request that was filled. There is no doorbell: the kernel reads them when a message arrives.
    pub(crate) fn publish(&mut self) {
        if self.state.head != self.state.published {
            self.slots.store(self.state.published, self.state.word);
            self.state.published = self.state.head;
        }
    }
}

/// A queue, borrowed to be filled. It contains only what each request needs: with more, a compiler would keep nothing in registers.
#[derive(Debug)]
pub(crate) struct Writing<'a, const IS_SHOWN: bool> {
    slots: flagged::Writing<'a, ReceiveHead, RECEIVE>,
    /// The request that is filled next, and the first one for which there is no slot.
    next: u32,
    end: u32,
    state: &'a mut State,
}

impl<const IS_SHOWN: bool> Drop for Writing<'_, IS_SHOWN> {
    fn drop(&mut self) {
        self.state.head = self.next;
        if IS_SHOWN {
            self.state.published = self.next;
        }
    }
}

/// Writes another number of pieces than one, without making the code around it longer.
#[cold]
#[inline(never)]
fn put_others<W>(mut slot: Slot<'_, W>, pieces: impl ExactSizeIterator<Item: Borrow<Sge>>) -> Option<u8> {
    put_pieces(&mut slot, pieces, MAX_SGE)
}

impl<const IS_SHOWN: bool> LowerReceive for Writing<'_, IS_SHOWN> {
    fn next_slot(&self) -> u32 {
        self.next & (self.slots.mask() << 1 | 1)
    }

    fn put<P>(&mut self, wr_id: u64, pieces: P) -> Result<(), Refused>
    where
        P: ExactSizeIterator<Item: Borrow<Sge>>,
    {
        // If requests are shown one by one, each has its flag, which shows when the queue is full.
        if !IS_SHOWN && self.next == self.end {
            return Err(self.state.closed.unwrap_or(Refused::Full));
        }
        let Some(mut free) = self.slots.free(self.next) else { return Err(Refused::Full) };
        let mut slot = free.slot();
        slot.put::<{ offset_of!(Rqe, id) }, _>(wr_id);
        // Usually there is one piece.
        let put = if pieces.len() == 1 {
            put_pieces(&mut slot, pieces.take(1), MAX_SGE)
        } else {
            put_others(slot.lend(), pieces)
        };
        let Some(count) = put else { return Err(Refused::TooLarge) };
        let word = mark(WQE_VALID, count, OP_RECEIVE);
        if !IS_SHOWN && self.next == self.state.published {
            self.state.word = word;
        } else {
            free.end(word);
        }
        self.next = self.next.wrapping_add(1);
        Ok(())
    }
}

impl Receives {
    /// Borrows the queue to fill it with requests that are shown immediately. `None` if nothing can be posted. What was filled otherwise is
    /// shown or discarded.
    pub(crate) fn showing(&mut self) -> Option<Writing<'_, true>> {
        debug_assert_eq!(self.state.head, self.state.published, "a batch has ended");
        self.state.closed.is_none().then(|| self.writing())
    }
}

/// The word with the flags of a request of one piece.
const PLAIN: u32 = mark(WQE_VALID, 1, OP_RECEIVE);

impl ReceiveRing for Receives {
    /// Twice the number of slots: see the module's page.
    fn slots(&self) -> usize {
        self.capacity() as usize * 2
    }

    fn capacity(&self) -> u32 {
        if self.state.closed == Some(Refused::Full) { 0 } else { self.slots.count() }
    }

    fn next_slot(&self) -> u32 {
        self.state.head & (self.slots.mask() << 1 | 1)
    }

    fn post<F: FillReceives>(&mut self, pieces: u32, how: F) -> F::Answer {
        let answer = how.fill(&mut ReceiveBatch::new(self.writing::<false>(), pieces));
        if F::is_kept(&answer) {
            self.publish();
        } else {
            self.rewind();
        }
        answer
    }

    /// The request belongs to the kernel as soon as it is filled.
    fn post_one<F: FillReceives>(&mut self, pieces: u32, how: F) -> F::Answer {
        if self.state.closed.is_some() {
            return self.post(pieces, how);
        }
        how.fill(&mut ReceiveBatch::new(self.writing::<true>(), pieces))
    }

    #[cfg(feature = "raw")]
    fn post_kept<F: FillReceives>(&mut self, pieces: u32, how: F) -> Option<F::Answer> {
        Some(how.fill(&mut ReceiveBatch::new(self.showing()?, pieces)))
    }

    fn rewind(&mut self) {
        while self.state.head != self.state.published {
            self.state.head = self.state.head.wrapping_sub(1);
            self.slots.store(self.state.head, 0);
        }
    }

    fn is_idle(&self) -> Option<bool> {
        Some(are_free(&self.slots))
    }

    /// The kernel has flushed what was there when the queue pair entered its error state.
    fn take_late(&mut self, mut each: impl FnMut(Late)) {
        self.rewind();
        take_back(&mut self.slots, self.state.published, |wr_id, _| {
            each(Late { wr_id, opcode: wc_opcode::RECV })
        });
    }

    /// A queue pair cannot leave its error state, in which the kernel takes no more from the queue and does not flush what is posted later
    /// (`siw_qp_modify`, siw_qp.c).
    fn enter(&mut self, state: u8) {
        if state == qp_state::ERR && self.state.closed.is_none() {
            self.state.closed = Some(Refused::NotReady);
        }
    }

    const HAS_FAST: bool = true;

    fn post_fast(&mut self, wr_id: u64, piece: &Sge) -> Option<u32> {
        let mut showing = self.showing()?;
        let place = showing.next_slot();
        showing.put(wr_id, std::iter::once(piece)).ok()?;
        Some(place)
    }

    fn post_list_fast<'p>(&mut self, requests: impl Plains<'p>) -> bool {
        let Self { slots, state } = self;
        if state.closed.is_some() || requests.len() > slots.count() as usize {
            return false;
        }
        let end = state.published.wrapping_add(requests.len() as u32);
        let (mut number, mut writing) = (end, slots.writing());
        for request in requests.rev() {
            let before = number.wrapping_sub(1);
            let is_put = request.is_some_and(|(wr_id, piece)| put_plain(&mut writing, before, wr_id, piece));
            if !is_put {
                forget(slots, number, end);
                return false;
            }
            number = before;
        }
        (state.head, state.published) = (end, end);
        true
    }
}

/// Fills the slot of the request with this number, and sets its flag. Returns false, with nothing done, if the slot belongs to the kernel.
fn put_plain(
    writing: &mut flagged::Writing<'_, ReceiveHead, RECEIVE>,
    number: u32,
    wr_id: u64,
    piece: &Sge,
) -> bool {
    let Some(mut free) = writing.free(number) else { return false };
    let mut slot = free.slot();
    slot.put::<{ offset_of!(Rqe, id) }, _>(wr_id);
    if !slot.put_item(0, piece) {
        return false;
    }
    free.end(PLAIN);
    true
}

/// Clears the flags of requests that the kernel does not reach, because the flag of a request before them is not set.
#[cold]
#[inline(never)]
fn forget(slots: &mut ReceiveSlots, first: u32, end: u32) {
    (0..end.wrapping_sub(first)).for_each(|behind| slots.store(first.wrapping_add(behind), 0));
}
