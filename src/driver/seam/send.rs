//! What a driver's send queue does.

use std::borrow::Borrow;

use uverbs_abi::types::SendFlags;

use crate::driver::request::{Address, Data, FrameHead, Opcode, Refused, RequestKind, Sge, Terms};

/// A driver's send queue, borrowed to write a batch of requests into it.
pub trait Lower {
    /// Whether slots are used in their order.
    const IS_IN_ORDER: bool = true;

    /// The slot that is filled next.
    fn next_slot(&self) -> u32;

    /// If slots are used in another order, the slot that was filled last. It is then used instead of `next_slot`.
    fn last_slot(&self) -> u32 {
        0
    }

    /// If slots are used in another order, the slot of the request with this number, counted from zero since the last publication.
    fn filled(&self, _number: u32) -> Option<u32> {
        None
    }

    /// Writes a request into the next slot. `head` contains the first bytes of a frame, if the device needs them separately.
    ///
    /// # Errors
    /// [`Refused::Full`], [`Refused::TooLarge`], [`Refused::NotReady`] and [`Refused::Lacks`]. The slot is not used in these cases.
    fn put<'b, P, B>(
        &mut self,
        wr_id: u64,
        flags: SendFlags,
        opcode: &impl Terms,
        head: Option<FrameHead>,
        data: &Data<P, B>,
    ) -> Result<(), Refused>
    where
        P: ExactSizeIterator<Item: Borrow<Sge>> + Clone,
        B: Iterator<Item = &'b [u8]> + Clone;

    /// Writes a request into the next slot without its data. It has no data until [`Lower::set_data`].
    ///
    /// # Errors
    /// [`Refused::Full`], [`Refused::NotReady`] and [`Refused::Lacks`]. The slot is not used in these cases.
    fn begin(&mut self, wr_id: u64, flags: SendFlags, opcode: &Opcode<'_>) -> Result<(), Refused>;

    /// Sets the data and flags of the request that was begun last, replacing what was set before.
    ///
    /// # Errors
    /// [`Refused::TooLarge`]; [`Refused::NotBegun`].
    fn set_data<'b, P, B>(
        &mut self,
        flags: SendFlags,
        head: Option<FrameHead>,
        data: &Data<P, B>,
    ) -> Result<(), Refused>
    where
        P: ExactSizeIterator<Item: Borrow<Sge>> + Clone,
        B: Iterator<Item = &'b [u8]> + Clone;

    /// Sets the address of this datagram: the address handle, and the queue pair and queue key at the destination.
    ///
    /// # Errors
    /// [`Refused::NotBegun`]; [`Refused::Lacks`].
    fn set_address(&mut self, ah: Address, qp_num: u32, qkey: u32) -> Result<(), Refused>;

    /// Sets the number of the peer's shared receive queue for this request over an extended connection.
    ///
    /// # Errors
    /// As [`Lower::set_address`].
    fn set_srq(&mut self, _srq: u32) -> Result<(), Refused> {
        Err(Refused::Lacks)
    }
}

/// An operation on the send queue of any driver. It is compiled once per driver, so that a batch selects the driver only once.
pub(crate) trait WithSends {
    /// The kind of all requests, if it is known at compile time. Code for other kinds is then left out.
    const KIND: Option<RequestKind> = None;
    /// Whether the operation has code for slots with a flag each.
    const KNOWS_FLAGS: bool = true;
    type Answer;
    fn with<L: Lower>(self, lower: L) -> Self::Answer;
}

/// What has to be done about the slots that were filled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Published {
    /// No slots were filled.
    Nothing,
    /// The kernel must be notified by a command.
    Shown,
    /// Nothing: the device was notified, or reads the slots by itself.
    Told,
}

/// A request that the device does not read any more and has not flushed, because it was posted after the error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Late {
    pub(crate) wr_id: u64,
    /// One of [`uverbs_abi::types::wc_opcode`].
    pub(crate) opcode: u32,
}
