//! The receive queue of siw: that of a queue pair, or a shared one.
//!
//! The kernel takes receives one behind the other, and gives a slot back when it has taken what stands there, before the message is there
//! (`siw_rqe_get`, siw_qp_rx.c, Linux 6.1). So what a request needs is held by twice as many places as there are slots: by the time one is
//! used again, the request after it was taken, and it has ended. It is not known so of a shared queue, where several queue
//! pairs receive at once; nor needs it be, since the kernel looks at a region's key with each packet (`siw_proc_send`, siw_qp_rx.c).

use std::borrow::Borrow;
use std::sync::atomic::Ordering;

use uverbs_abi::siw::{MAX_SGE, OP_RECEIVE, WQE_VALID};
use uverbs_abi::types::{qp_state, wc_opcode};

use super::slots::{FLAGS, RECEIVE, Slots, halves, is_taken, mark};
use crate::driver::queues::{Late, LowerReceive};
use crate::driver::request::{Refused, Sge};

/// The word at which pieces begin.
const PIECES: usize = 4;

/// The receive queue; see the module's page.
#[derive(Debug)]
pub(crate) struct Receives {
    /// None of a queue pair that was made to receive nothing.
    slots: Option<Slots<RECEIVE>>,
    /// Requests that were filled, and that the kernel was shown.
    head: u32,
    published: u32,
    /// The queue pair is in the error state.
    is_over: bool,
}

impl Receives {
    pub(super) fn new(slots: Slots<RECEIVE>) -> Self {
        Self { slots: Some(slots), head: 0, published: 0, is_over: false }
    }

    pub(super) fn without_slots() -> Self {
        Self { slots: None, head: 0, published: 0, is_over: false }
    }

    /// How many requests it can hold.
    pub(crate) fn capacity(&self) -> u32 {
        self.slots.as_ref().map_or(0, Slots::count)
    }

    /// Number of places for what requests need.
    pub(crate) fn places(&self) -> usize {
        self.capacity() as usize * 2
    }

    /// The place of the request that is filled next.
    #[inline(always)]
    pub(crate) fn next_slot(&self) -> u32 {
        self.slots.as_ref().map_or(0, |slots| self.head & (slots.mask() << 1 | 1))
    }

    /// Shows the kernel every request filled so far. It looks at them when a message comes: there is no doorbell.
    #[inline(always)]
    pub(crate) fn publish(&mut self) {
        let Some(slots) = &self.slots else { return };
        while self.published != self.head {
            if let Some(slot) = slots.get(self.published) {
                // The flags alone are missing: they were zero.
                let word = slot[FLAGS].load(Ordering::Relaxed);
                slot[FLAGS].store(word | mark(WQE_VALID, 0, 0), Ordering::Release);
            }
            self.published = self.published.wrapping_add(1);
        }
    }

    /// Forgets what was filled since.
    pub(crate) fn rewind(&mut self) {
        self.head = self.published;
    }

    /// The queue pair has come to a state. From its error state there is no way, and the kernel takes no more from the queue, nor does
    /// it flush what comes later (`siw_qp_modify`, siw_qp.c).
    pub(crate) fn enter(&mut self, state: u8) {
        self.is_over |= state == qp_state::ERR;
    }

    /// Whether the kernel has nothing that was posted.
    pub(crate) fn is_idle(&self) -> bool {
        self.slots.as_ref().is_none_or(Slots::are_free)
    }

    /// Takes out what the kernel does not look at any more: it has flushed what was there when the queue pair came to its error state.
    pub(crate) fn take_late(&mut self, mut each: impl FnMut(Late)) {
        if let Some(slots) = &self.slots {
            slots.take_back(self.published, |wr_id, _| each(Late { wr_id, opcode: wc_opcode::RECV }));
        }
    }
}

impl LowerReceive for &mut Receives {
    #[inline(always)]
    fn next_slot(&self) -> u32 {
        Receives::next_slot(self)
    }

    #[inline(always)]
    fn put<P>(&mut self, wr_id: u64, pieces: P) -> Result<(), Refused>
    where
        P: ExactSizeIterator<Item: Borrow<Sge>>,
    {
        if self.is_over {
            return Err(Refused::NotReady);
        }
        let count = pieces.len();
        if count > MAX_SGE {
            return Err(Refused::TooLarge);
        }
        let Some(slots) = &self.slots else { return Err(Refused::Full) };
        if self.head.wrapping_sub(self.published) > slots.mask() {
            return Err(Refused::Full);
        }
        let Some(slot) = slots.get(self.head) else { return Err(Refused::Full) };
        if is_taken(slot[FLAGS].load(Ordering::Acquire)) {
            return Err(Refused::Full);
        }
        let [first, second] = halves(wr_id);
        slot[0].store(first, Ordering::Relaxed);
        slot[1].store(second, Ordering::Relaxed);
        slot[FLAGS].store(mark(0, count as u8, OP_RECEIVE), Ordering::Relaxed);
        for (place, piece) in slot[PIECES..].chunks_exact(4).zip(pieces) {
            super::sends::put_piece(place, piece.borrow());
        }
        self.head = self.head.wrapping_add(1);
        Ok(())
    }
}
