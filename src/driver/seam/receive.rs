//! What a driver's receive queue does.

use std::borrow::Borrow;

use crate::driver::request::{Refused, Sge};

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

impl<L: LowerReceive> LowerReceive for &mut L {
    #[inline(always)]
    fn next_slot(&self) -> u32 {
        L::next_slot(self)
    }

    #[inline(always)]
    fn links(&self) -> impl Fn(u32) -> Option<u32> {
        L::links(self)
    }

    #[inline(always)]
    fn put<P>(&mut self, wr_id: u64, pieces: P) -> Result<(), Refused>
    where
        P: ExactSizeIterator<Item: Borrow<Sge>>,
    {
        L::put(self, wr_id, pieces)
    }
}

/// An operation on the receive queue of any driver. It is compiled once per driver.
pub(crate) trait WithReceives {
    type Answer;
    fn with<L: LowerReceive>(self, lower: L) -> Self::Answer;
    /// Whether the device is to see what was filled. Otherwise it is discarded.
    fn is_kept(answer: &Self::Answer) -> bool;
}

/// A receive of one piece: the number for its completion, and the piece. `None` for a request of another form.
pub(crate) type Plain<'a> = Option<(u64, &'a Sge)>;

/// Several such requests.
pub(crate) trait Plains<'a>: DoubleEndedIterator<Item = Plain<'a>> + ExactSizeIterator {}

impl<'a, T: DoubleEndedIterator<Item = Plain<'a>> + ExactSizeIterator> Plains<'a> for T {}

/// A queue with a short path.
pub(crate) trait ShortReceives {
    /// Posts one receive and returns its slot. Returns `None`, with nothing done, if there is no room, or if the request needs further
    /// checks.
    fn post_one(&mut self, wr_id: u64, piece: &Sge) -> Option<u32>;

    /// Posts all receives. Returns false, with nothing done, if there is no room for all, if one has another form, or if one needs further
    /// checks.
    fn post_all<'p>(&mut self, requests: impl Plains<'p>) -> bool;
}

/// Receives into this piece, with these numbers.
#[cfg(test)]
pub(crate) fn plain(wr_ids: std::ops::Range<u64>, piece: &Sge) -> Vec<Plain<'_>> {
    wr_ids.map(|wr_id| Some((wr_id, piece))).collect()
}
