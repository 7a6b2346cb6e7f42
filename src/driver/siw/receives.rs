//! The receive queue of siw: that of a queue pair, or a shared one.
//!
//! The kernel takes receives one behind the other, and gives a slot back when it has taken what stands there, before the message is there
//! (`siw_rqe_get`, siw_qp_rx.c, Linux 6.1). So what a request needs is held by twice as many places as there are slots: by the time one is
//! used again, the request after it was taken, and it has ended. It is not known so of a shared queue, where several queue
//! pairs receive at once; nor needs it be, since the kernel looks at a region's key with each packet (`siw_proc_send`, siw_qp_rx.c).
//!
//! The first request of a batch gets its flag last: the kernel, which goes from slot to slot, comes to no other before. Where there is nothing but
//! a piece to each request, they are filled from the last to the first for that. A list of which those before the first that cannot be posted are
//! is shown one by one.

use std::borrow::Borrow;
use std::mem::offset_of;

use uverbs_abi::siw::{MAX_SGE, OP_RECEIVE, Rqe, WQE_VALID};
use uverbs_abi::types::{qp_state, wc_opcode};

use super::sends::put_pieces;
use super::slots::{RECEIVE, ReceiveHead, ReceiveSlots, are_free, mark, take_back};
use crate::driver::queues::{Late, LowerReceive};
use crate::driver::receives::{Plains, ShortReceives};
use crate::driver::request::{Refused, Sge};
use crate::driver::ring::flagged;
use crate::kernel::error::{Error, Result};
use crate::kernel::mapping::Mapping;

/// The receive queue; see the module's page.
#[derive(Debug)]
pub(crate) struct Receives {
    slots: ReceiveSlots,
    state: State,
}

/// How far it is.
#[derive(Debug, Default)]
struct State {
    /// Why nothing can be posted: the queue pair is in the error state, or was made to receive nothing.
    closed: Option<Refused>,
    /// Requests that were filled, and that the kernel was shown.
    head: u32,
    published: u32,
    /// The word of the first that is not shown.
    word: u32,
}

impl Receives {
    pub(super) fn new(slots: ReceiveSlots) -> Self {
        Self { slots, state: State::default() }
    }

    /// That of a queue pair that was made to receive nothing: the kernel has none.
    pub(super) fn without_slots(op: &'static str) -> Result<Self> {
        let slots = ReceiveSlots::new(op, 1, 0, &|bytes| {
            Mapping::block(bytes).map_err(|errno| Error::kernel(op, errno))
        })?;
        Ok(Self { slots, state: State { closed: Some(Refused::Full), ..State::default() } })
    }

    /// How many requests it can hold.
    pub(crate) fn capacity(&self) -> u32 {
        if self.state.closed == Some(Refused::Full) { 0 } else { self.slots.count() }
    }

    /// Number of places for what requests need.
    pub(crate) fn places(&self) -> usize {
        self.capacity() as usize * 2
    }

    /// The place of the request that is filled next.
    #[inline(always)]
    pub(crate) fn next_slot(&self) -> u32 {
        self.state.head & (self.slots.mask() << 1 | 1)
    }

    /// The queue while it is filled. What is filled is the kernel's at once if it `IS_SHOWN`.
    #[inline(always)]
    pub(crate) fn writing<const IS_SHOWN: bool>(&mut self) -> Writing<'_, IS_SHOWN> {
        let Self { slots, state } = self;
        let State { closed, head: next, published, .. } = *state;
        let end = if closed.is_some() { next } else { published.wrapping_add(slots.count()) };
        Writing { slots: slots.writing(), next, end, state }
    }

    /// Shows the kernel every request filled so far. It looks at them when a message comes: there is no doorbell.
    #[inline(always)]
    pub(crate) fn publish(&mut self) {
        if self.state.head != self.state.published {
            self.slots.store(self.state.published, self.state.word);
            self.state.published = self.state.head;
        }
    }

    /// Forgets what was filled since.
    pub(crate) fn rewind(&mut self) {
        while self.state.head != self.state.published {
            self.state.head = self.state.head.wrapping_sub(1);
            self.slots.store(self.state.head, 0);
        }
    }

    /// The queue pair has come to a state. From its error state there is no way, and the kernel takes no more from the queue, nor does
    /// it flush what comes later (`siw_qp_modify`, siw_qp.c).
    pub(crate) fn enter(&mut self, state: u8) {
        if state == qp_state::ERR && self.state.closed.is_none() {
            self.state.closed = Some(Refused::NotReady);
        }
    }

    /// Whether the kernel has nothing that was posted.
    pub(crate) fn is_idle(&self) -> bool {
        are_free(&self.slots)
    }

    /// Takes out what the kernel does not look at any more: it has flushed what was there when the queue pair came to its error state.
    pub(crate) fn take_late(&mut self, mut each: impl FnMut(Late)) {
        self.rewind();
        take_back(&mut self.slots, self.state.published, |wr_id, _| {
            each(Late { wr_id, opcode: wc_opcode::RECV })
        });
    }
}

/// A queue while it is filled. What is looked at for each request is at hand, and no more: else a compiler keeps none of it in a register.
#[derive(Debug)]
pub(crate) struct Writing<'a, const IS_SHOWN: bool> {
    slots: flagged::Writing<'a, ReceiveHead, RECEIVE>,
    /// The request that is filled next, and the first for which there is no slot.
    next: u32,
    end: u32,
    state: &'a mut State,
}

impl<const IS_SHOWN: bool> Drop for Writing<'_, IS_SHOWN> {
    #[inline(always)]
    fn drop(&mut self) {
        self.state.head = self.next;
        if IS_SHOWN {
            self.state.published = self.next;
        }
    }
}

impl<const IS_SHOWN: bool> LowerReceive for Writing<'_, IS_SHOWN> {
    #[inline(always)]
    fn next_slot(&self) -> u32 {
        self.next & (self.slots.mask() << 1 | 1)
    }

    #[inline(always)]
    fn put<P>(&mut self, wr_id: u64, pieces: P) -> Result<(), Refused>
    where
        P: ExactSizeIterator<Item: Borrow<Sge>>,
    {
        // Of those that are shown each has its flag, by which a queue that is full is seen.
        if !IS_SHOWN && self.next == self.end {
            return Err(self.state.closed.unwrap_or(Refused::Full));
        }
        let Some(mut free) = self.slots.free(self.next) else { return Err(Refused::Full) };
        let mut slot = free.slot();
        slot.put::<{ offset_of!(Rqe, id) }, _>(wr_id);
        let Some(count) = put_pieces(&mut slot, pieces, MAX_SGE) else { return Err(Refused::TooLarge) };
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
    /// As [`Receives::writing`] of what is shown at once; none if nothing can be posted. What was filled otherwise is shown or forgotten.
    #[inline(always)]
    pub(crate) fn showing(&mut self) -> Option<Writing<'_, true>> {
        debug_assert_eq!(self.state.head, self.state.published, "a batch has ended");
        self.state.closed.is_none().then(|| self.writing())
    }
}

/// The word of a request of one piece.
const PLAIN: u32 = mark(WQE_VALID, 1, OP_RECEIVE);

impl ShortReceives for Receives {
    #[inline(always)]
    fn post_one(&mut self, wr_id: u64, piece: &Sge) -> Option<u32> {
        let mut showing = self.showing()?;
        let place = showing.next_slot();
        showing.put(wr_id, std::iter::once(piece)).ok()?;
        Some(place)
    }

    #[inline(always)]
    fn post_all<'p>(&mut self, requests: impl Plains<'p>) -> bool {
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

/// Fills the slot of the request with this number, and sets its flag; false, and nothing is done, if it is the kernel's.
#[inline(always)]
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

/// Takes away the flags of requests to which the kernel does not come, since that of one before them is not set.
#[cold]
#[inline(never)]
fn forget(slots: &mut ReceiveSlots, first: u32, end: u32) {
    (0..end.wrapping_sub(first)).for_each(|behind| slots.store(first.wrapping_add(behind), 0));
}
