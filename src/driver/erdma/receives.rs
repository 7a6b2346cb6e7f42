//! The receive queue of eRDMA: a slot of 32 bytes for each receive, of one piece of memory.
//!
//! The first eight bytes of a slot are also its doorbell. It is rung for each receive, as rdma-core and the kernel do.
//!
//! Source: `push_recv_wqe`, providers/erdma/erdma_verbs.c, rdma-core 65; `erdma_post_recv_one`, erdma_qp.c, Linux 7.3.

use std::borrow::Borrow;
use std::sync::Arc;

use uverbs_abi::erdma::{MAX_RECV_SGE, SLOT};
use uverbs_abi::types::{qp_state, wc_opcode};

use super::track::{Lane, Note, Queues};
use crate::driver::request::{Refused, Sge};
use crate::driver::ring::units::SmallUnits;
use crate::driver::seam::{FillReceives, LowerReceive, ReceiveBatch, ReceiveRing};
use crate::kernel::mapping::Register;

/// The receive queue.
#[derive(Debug)]
pub(crate) struct Receives {
    units: SmallUnits,
    queues: Arc<Queues>,
    record: Register,
    doorbell: Register,
    /// The queue pair is in the error state.
    is_over: bool,
    /// Not if no receives were asked for.
    has_room: bool,
    /// Numbers of the next slot, and of the first one that was not announced.
    head: u32,
    published: u32,
}

impl Receives {
    pub(super) fn new(
        units: SmallUnits,
        queues: Arc<Queues>,
        [record, doorbell]: [Register; 2],
        has_room: bool,
    ) -> Self {
        Self { units, queues, record, doorbell, is_over: false, has_room, head: 0, published: 0 }
    }

    fn lane(&self) -> &Lane {
        &self.queues.track.receives
    }

    /// The first eight bytes of the slot before this number.
    #[inline(always)]
    fn word(&self, behind: u32) -> u64 {
        u64::from(behind as u16) | u64::from(self.queues.track.number) << 32
    }

    fn publish(&mut self) {
        while self.published != self.head {
            self.published = self.published.wrapping_add(1);
            let value = self.word(self.published).to_le_bytes();
            self.record.tell(value);
            self.doorbell.ring(value);
        }
    }
}

/// The queue, borrowed to be filled.
#[derive(Debug)]
struct Writing<'a>(&'a mut Receives);

impl LowerReceive for Writing<'_> {
    #[inline]
    fn next_slot(&self) -> u32 {
        self.0.next_slot()
    }

    #[inline(always)]
    fn put<P>(&mut self, wr_id: u64, pieces: P) -> Result<(), Refused>
    where
        P: ExactSizeIterator<Item: Borrow<Sge>>,
    {
        let queue = &mut *self.0;
        if queue.is_over {
            return Err(Refused::NotReady);
        }
        if pieces.len() > MAX_RECV_SGE {
            return Err(Refused::TooLarge);
        }
        let begin = queue.head;
        if !queue.has_room || queue.lane().free(begin) == 0 {
            return Err(Refused::Full);
        }
        let piece = pieces.into_iter().next().map_or(Sge::default(), |piece| *piece.borrow());
        let head = begin.wrapping_add(1);
        let slot = [queue.word(head), 0, piece.addr, u64::from(piece.length) | u64::from(piece.lkey) << 32];
        queue.units.put::<[u64; SLOT / 8]>(begin as usize, slot.map(u64::to_le));
        let note = Note { wr_id, opcode: wc_opcode::RECV, slots: 1, is_signaled: true };
        queue.lane().post(begin, note);
        queue.head = head;
        Ok(())
    }
}

impl ReceiveRing for Receives {
    fn slots(&self) -> usize {
        self.lane().slots() as usize
    }

    fn next_slot(&self) -> u32 {
        self.head & (self.lane().slots() - 1)
    }

    fn post<F: FillReceives>(&mut self, pieces: u32, how: F) -> F::Answer {
        let answer = how.fill(&mut ReceiveBatch::new(Writing(self), pieces));
        if F::is_kept(&answer) {
            self.publish();
        } else {
            self.rewind();
        }
        answer
    }

    fn rewind(&mut self) {
        while self.head != self.published {
            self.head = self.head.wrapping_sub(1);
            self.lane().forget(self.head);
        }
    }

    fn is_idle(&self) -> Option<bool> {
        Some(self.lane().done() == self.published)
    }

    /// As for sends.
    fn enter(&mut self, state: u8) {
        if state == qp_state::RESET {
            let begin = self.queues.reset(&self.queues.track.receives, 1);
            (self.head, self.published) = (begin, begin);
        }
        self.is_over = state == qp_state::ERR;
    }
}
