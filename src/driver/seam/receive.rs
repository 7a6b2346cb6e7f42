//! What a driver's receive queue does.

use std::borrow::Borrow;
use std::sync::Arc;

use super::Late;
#[cfg(feature = "raw")]
use super::OwnRing;
use super::create::SrqSide;
use crate::driver::request::{Refused, Sge};

/// A driver's receive queue: that of a queue pair, or a shared one.
pub(crate) trait ReceiveRing {
    /// This queue, also where it is in a box.
    fn by_ref(&mut self) -> &mut Self {
        self
    }

    /// Number of places for what requests need.
    fn slots(&self) -> usize;

    /// Number of requests that it can hold.
    fn capacity(&self) -> u32 {
        self.slots() as u32
    }

    /// The part that queue pairs use that receive from it, if it is shared.
    fn side(&self) -> SrqSide {
        Arc::new(())
    }

    /// The device's number of a shared queue, if the driver returns it.
    #[cfg(feature = "raw")]
    fn number(&self) -> Option<u32> {
        None
    }

    /// The slot that is filled next.
    fn next_slot(&self) -> u32;

    /// Posts requests of at most `pieces` pieces, which `how` fills, or discards them.
    fn post<F: FillReceives>(&mut self, pieces: u32, how: F) -> F::Answer;

    /// Posts at most one request.
    #[inline]
    fn post_one<F: FillReceives>(&mut self, pieces: u32, how: F) -> F::Answer {
        self.post(pieces, how)
    }

    /// Posts what `how` fills, for which [`FillReceives::is_kept`] always returns true. `None`, with nothing done, if the queue accepts no
    /// requests.
    #[cfg(feature = "raw")]
    #[inline(always)]
    fn post_kept<F: FillReceives>(&mut self, pieces: u32, how: F) -> Option<F::Answer> {
        Some(self.post(pieces, how))
    }

    /// Whether [`ReceiveRing::post_fast`] and [`ReceiveRing::post_list_fast`] do anything.
    const HAS_FAST: bool = false;

    /// Posts one receive of one piece and returns its slot. Returns `None`, with nothing done, if there is no room, or if the request needs
    /// further checks.
    #[inline]
    fn post_fast(&mut self, _wr_id: u64, _piece: &Sge) -> Option<u32> {
        None
    }

    /// Posts all receives. Returns false, with nothing done, if there is no room for all, if one has another form, or if one needs further
    /// checks.
    #[inline]
    fn post_list_fast<'p>(&mut self, _requests: impl Plains<'p>) -> bool {
        false
    }

    /// Discards what was filled and not published.
    fn rewind(&mut self);

    /// Whether all that was posted has completed, if this is known without an extra request.
    fn is_idle(&self) -> Option<bool> {
        None
    }

    /// In the error state: removes the requests that the device does not read any more and has not flushed, oldest first. Most drivers flush
    /// every request.
    fn take_late(&mut self, _each: impl FnMut(Late)) {}

    /// The queue pair has entered a state. With some drivers the kernel keeps it; a shared queue has none.
    fn enter(&mut self, _state: u8) {}

    /// Hands the ring over, if a program may use it directly. From then on the queue accesses it only when it is asked to post or to poll.
    #[cfg(feature = "raw")]
    fn hand_over(&mut self) -> Option<OwnRing> {
        None
    }
}

/// A driver's receive queue, borrowed to write a batch of requests into it.
pub trait LowerReceive {
    /// Whether slots are used in their order, or by links.
    const IS_IN_ORDER: bool = true;

    /// The slot that is filled next.
    fn next_slot(&self) -> u32;

    /// If slots are used in another order, the slot that was filled last.
    fn last_slot(&self) -> u32 {
        0
    }

    /// A function that returns the slot that is filled after another one, if it is not the next of a ring.
    fn links(&self) -> impl Fn(u32) -> Option<u32> {
        |_| None
    }

    /// Fills the next slot.
    ///
    /// # Errors
    /// [`Refused::Full`] and [`Refused::TooLarge`]. Nothing is filled in these cases.
    fn put<P>(&mut self, wr_id: u64, pieces: P) -> Result<(), Refused>
    where
        P: ExactSizeIterator<Item: Borrow<Sge>>;
}

/// Fills a batch of receives, for any driver. It is compiled for each.
pub trait FillReceives {
    /// The result.
    type Answer;

    /// Fills slots.
    fn fill<L: LowerReceive>(self, batch: &mut ReceiveBatch<L>) -> Self::Answer;

    /// Whether the filled requests are posted. Otherwise they are discarded.
    fn is_kept(answer: &Self::Answer) -> bool;
}

/// A batch of requests that is written into the slots of a receive queue.
#[derive(Debug)]
pub struct ReceiveBatch<L> {
    pub(in crate::driver) lower: L,
    pieces: u32,
}

impl<L: LowerReceive> ReceiveBatch<L> {
    #[inline]
    pub(in crate::driver) fn new(lower: L, pieces: u32) -> Self {
        Self { lower, pieces }
    }

    /// The slot that is filled next.
    #[inline]
    pub fn next_slot(&self) -> u32 {
        self.lower.next_slot()
    }

    /// The slot of the next request; zero if the queue reports it only afterwards: see [`LowerReceive::last_slot`].
    #[inline]
    pub(crate) fn slot_before(&self) -> u32 {
        if L::IS_IN_ORDER { self.lower.next_slot() } else { 0 }
    }

    /// The slot of the last request. `before` is what `slot_before` returned before it was filled.
    #[inline]
    pub(crate) fn slot_behind(&self, before: u32) -> u32 {
        if L::IS_IN_ORDER { before } else { self.lower.last_slot() }
    }

    /// A function that returns the slot that is filled after another one, if it is not the next of a ring.
    pub(crate) fn links(&self) -> impl Fn(u32) -> Option<u32> {
        self.lower.links()
    }

    /// Maximum number of pieces of memory of a request.
    #[inline]
    pub fn max_pieces(&self) -> u32 {
        self.pieces
    }

    /// Fills the next slot.
    ///
    /// # Errors
    /// [`Refused::Full`] and [`Refused::TooLarge`]; nothing is filled then.
    #[inline(always)]
    pub fn put<P>(&mut self, wr_id: u64, pieces: P) -> Result<(), Refused>
    where
        P: ExactSizeIterator<Item: Borrow<Sge>>,
    {
        if pieces.len() > self.pieces as usize {
            return Err(Refused::TooLarge);
        }
        self.lower.put(wr_id, pieces)
    }
}

/// A receive of one piece: the number for its completion, and the piece. `None` for a request of another form.
pub(crate) type Plain<'a> = Option<(u64, &'a Sge)>;

/// Several such requests.
pub(crate) trait Plains<'a>: DoubleEndedIterator<Item = Plain<'a>> + ExactSizeIterator {}

impl<'a, T: DoubleEndedIterator<Item = Plain<'a>> + ExactSizeIterator> Plains<'a> for T {}

/// Receives into this piece, with these numbers.
#[cfg(test)]
pub(crate) fn plain(wr_ids: std::ops::Range<u64>, piece: &Sge) -> Vec<Plain<'_>> {
    wr_ids.map(|wr_id| Some((wr_id, piece))).collect()
}
