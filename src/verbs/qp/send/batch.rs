//! Writes requests into the slots of a send queue.

use std::borrow::Borrow;

use uverbs_abi::types::SendFlags;

use super::super::counting;
use crate::completion_counter::{Bound, Posted};
use crate::driver::request::{
    Address, Data, FrameHead, InlineParts, Opcode, Refused, RequestKind, Sge, Terms,
};
use crate::driver::seam::Lower;

/// Fills a batch of requests, for any driver.
pub trait FillSends {
    /// The kind of all requests, if it is known at compile time; otherwise [`RequestKind::Addressed`].
    const KIND: RequestKind = RequestKind::Addressed;
    /// Whether each request has exactly one piece.
    const IS_OF_ONE_PIECE: bool = false;
    /// The error with which it stops.
    type Error: From<Refused>;

    /// Fills slots. If a request is refused, those before it stay filled.
    ///
    /// # Errors
    /// Its own.
    fn fill<L: Lower>(self, batch: &mut Batch<'_, L>) -> Result<(), Self::Error>;
}

/// A batch of requests that is written into the slots of a send queue.
#[derive(Debug)]
pub struct Batch<'a, L> {
    pub(super) lower: L,
    pub(super) pieces: u32,
    pub(super) inline: u32,
    pub(super) counting: Option<Counting<'a>>,
}

/// The data for completion counters.
#[derive(Debug)]
pub(super) struct Counting<'a> {
    /// The request that was begun last.
    pub(super) begun: &'a mut Option<Posted>,
    pub(super) bound: &'a mut Bound,
}

impl Counting<'_> {
    /// Lends the data, to be passed by value: the compiler keeps a batch in registers if nothing takes its address.
    fn lend(&mut self) -> Counting<'_> {
        Counting { begun: self.begun, bound: self.bound }
    }

    /// Records a request that begins. The one before it is then complete, and is staged.
    #[cold]
    #[inline(never)]
    fn begin(self, next: Posted) -> Result<(), Refused> {
        self.begun.take().iter().for_each(|begun| self.bound.stage(begun));
        if self.bound.free() == 0 {
            return Err(Refused::Full);
        }
        if next.signaled == 0 && self.bound.needs_completions() {
            return Err(Refused::Unsignaled);
        }
        *self.begun = Some(next);
        Ok(())
    }

    #[cold]
    #[inline(never)]
    fn set_bytes(self, bytes: u64) {
        // A sum of 4 GiB or more is not posted.
        self.begun.iter_mut().for_each(|begun| begun.bytes = bytes as u32);
    }
}

impl<L: Lower> Batch<'_, L> {
    /// The slot that is filled next.
    #[inline]
    pub fn next_slot(&self) -> u32 {
        self.lower.next_slot()
    }

    /// The slot of the next request; zero if the queue reports it only afterwards: see [`Lower::last_slot`].
    #[inline]
    pub(crate) fn slot_before(&self) -> u32 {
        if L::IS_IN_ORDER { self.lower.next_slot() } else { 0 }
    }

    /// The slot of the last request. `before` is what `slot_before` returned before that request was put.
    #[inline]
    pub(crate) fn slot_behind(&self, before: u32) -> u32 {
        if L::IS_IN_ORDER { before } else { self.lower.last_slot() }
    }

    /// If slots are not used in their order, the slot of the request with this number, counted from zero since the last
    /// publication.
    pub(crate) fn filled(&self, number: u32) -> Option<u32> {
        self.lower.filled(number)
    }

    /// Maximum number of pieces of memory of a request.
    #[inline]
    pub fn max_pieces(&self) -> u32 {
        self.pieces
    }

    /// Writes a request into the next slot. `head` contains the first bytes of a frame, if
    /// [`SendQueue::wants_head`](super::SendQueue::wants_head) is true.
    ///
    /// # Errors
    /// [`Refused::Full`]; [`Refused::TooLarge`]; [`Refused::Lacks`] for what the driver or the device does not support;
    /// [`Refused::NotReady`]; [`Refused::Unsignaled`]. The slot is not used then.
    #[inline(always)]
    pub fn put<'b, P, B>(
        &mut self,
        wr_id: u64,
        flags: SendFlags,
        opcode: &impl Terms,
        head: Option<FrameHead>,
        data: &Data<P, B>,
    ) -> Result<(), Refused>
    where
        P: ExactSizeIterator<Item: Borrow<Sge>> + Clone,
        B: InlineParts<'b>,
    {
        if !self.fits(data) {
            return Err(Refused::TooLarge);
        }
        if let Some(counting) = &mut self.counting {
            counting.lend().begin(counting::posted(&opcode.opcode(), wr_id, flags, data.len() as u32))?;
        }
        let put = self.lower.put(wr_id, flags, opcode, head, data);
        if put.is_err() {
            self.forget();
        }
        put
    }

    /// Writes a request into the next slot without its data. It has no data until [`Batch::set_data`].
    ///
    /// # Errors
    /// As [`Batch::put`].
    #[inline(always)]
    pub fn begin(&mut self, wr_id: u64, flags: SendFlags, opcode: &Opcode<'_>) -> Result<(), Refused> {
        if let Some(counting) = &mut self.counting {
            counting.lend().begin(counting::posted(opcode, wr_id, flags, 0))?;
        }
        let begun = self.lower.begin(wr_id, flags, opcode);
        if begun.is_err() {
            self.forget();
        }
        begun
    }

    /// Sets the data and flags of the request that was begun last, replacing what was set before. `head` contains the first bytes
    /// of a frame, if [`SendQueue::wants_head`](super::SendQueue::wants_head) is true.
    ///
    /// # Errors
    /// [`Refused::TooLarge`]; [`Refused::NotBegun`]. All unpublished requests must be discarded then
    /// ([`SendQueue::rewind`](super::SendQueue::rewind)).
    #[inline(always)]
    pub fn set_data<'b, P, B>(
        &mut self,
        flags: SendFlags,
        head: Option<FrameHead>,
        data: &Data<P, B>,
    ) -> Result<(), Refused>
    where
        P: ExactSizeIterator<Item: Borrow<Sge>> + Clone,
        B: InlineParts<'b>,
    {
        if !self.fits(data) {
            return Err(Refused::TooLarge);
        }
        if let Some(counting) = &mut self.counting {
            counting.lend().set_bytes(data.len());
        }
        self.lower.set_data(flags, head, data)
    }

    /// Sets the address of that datagram: the address handle, and the queue pair and queue key at the destination.
    ///
    /// # Errors
    /// [`Refused::NotBegun`]; [`Refused::Lacks`].
    #[inline]
    pub fn set_address(&mut self, ah: Address, qp_num: u32, qkey: u32) -> Result<(), Refused> {
        self.lower.set_address(ah, qp_num, qkey)
    }

    /// Sets the number of the peer's shared receive queue for that request over an extended connection.
    ///
    /// # Errors
    /// As [`Batch::set_address`].
    #[inline]
    pub fn set_srq(&mut self, srq: u32) -> Result<(), Refused> {
        self.lower.set_srq(srq)
    }

    #[inline(always)]
    fn fits<'b, P, B>(&self, data: &Data<P, B>) -> bool
    where
        P: ExactSizeIterator<Item: Borrow<Sge>> + Clone,
        B: InlineParts<'b>,
    {
        match data {
            Data::Pieces(list) => list.len() <= self.pieces as usize,
            Data::Inline(_) => data.len() <= u64::from(self.inline),
        }
    }

    /// Discards the record of the request, which was not put.
    #[inline(always)]
    fn forget(&mut self) {
        if let Some(counting) = &mut self.counting {
            *counting.begun = None;
        }
    }
}
