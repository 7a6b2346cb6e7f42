//! What a driver's send queue does.

use std::borrow::Borrow;

use uverbs_abi::types::SendFlags;
use uverbs_abi::write::ModifyQp;

#[cfg(feature = "raw")]
use super::OwnRing;
use crate::driver::request::{Address, Data, FrameHead, InlineParts, Opcode, Refused, Sge, Terms};

/// A driver's send queue. `KIND` is one of [`RequestKind`](crate::driver::request::RequestKind), as a number.
pub(crate) trait SendRing {
    /// This queue, also where it is in a box.
    fn by_ref(&mut self) -> &mut Self {
        self
    }

    /// Whether requests complete in their order.
    const COMPLETES_IN_ORDER: bool = true;

    /// Number of places for what requests need.
    fn slots(&self) -> usize;

    /// The slot that is filled next.
    fn next_slot(&self) -> u32;

    /// Whether the device requires the first bytes of a frame in the request itself.
    fn wants_head(&self) -> bool {
        false
    }

    /// Whether its requests are of this kind.
    #[cfg(feature = "raw")]
    fn is_of(&self, _kind: u8) -> bool {
        true
    }

    /// Borrows the queue for one request, or for one of its parts. Unless it `LOOKS` at what the device has done, only slots that are known
    /// to be free are used, and what needs further work may be refused.
    fn one<const LOOKS: bool, const KIND: u8>(&mut self) -> impl Lower;

    /// Borrows the queue for several requests.
    fn batch<const KIND: u8>(&mut self) -> impl Lower {
        self.one::<true, KIND>()
    }

    /// What [`SendRing::short`] is for.
    const SHORT: Short = Short::Nothing;

    /// Borrows the queue by a shorter path, which looks for `room` for so many requests beforehand. `None` if this path cannot be taken
    /// now.
    fn short<const KIND: u8>(&mut self, _room: usize) -> Option<impl Lower> {
        Some(self.one::<false, KIND>())
    }

    /// Whether [`SendRing::post_list`] posts anything.
    const HAS_LISTS: bool = false;

    /// Posts requests that all have one piece, or all have inline bytes, of which there may be `inline`. `read` returns a request, or `None`
    /// if it is another one; `hold` is told in which slot it is. Returns how many are posted: usually all, or none.
    fn post_list<'r, Q, O: Terms + 'r>(
        &mut self,
        _inline: u32,
        _requests: &'r [Q],
        _read: impl Fn(&'r Q) -> Option<Simple<'r, O>>,
        _hold: impl FnMut(u32, &'r Q),
    ) -> usize {
        0
    }

    /// Shows the device every slot that was filled.
    fn publish(&mut self) -> Published;

    /// Shows the device every slot that was filled by [`SendRing::short`], if no others were filled before.
    fn publish_short(&mut self) -> Published {
        self.publish()
    }

    /// Discards the slots that were filled and not published.
    fn rewind(&mut self);

    /// Takes back what was published last: the kernel has refused to read it.
    fn retract(&mut self) {}

    /// Whether all that was posted has completed, if each request has a completion that shows this.
    fn is_idle(&self) -> Option<bool> {
        None
    }

    /// In the error state: removes the requests that the device does not read any more and has not flushed, oldest first. Most drivers flush
    /// every request.
    fn take_late(&mut self, _each: impl FnMut(Late)) {}

    /// The kernel has changed the attributes of the queue pair that the mask of the request names. If the state is one of them,
    /// [`SendRing::enter`] follows. With some drivers the queue assigns what the device assigns with others, such as the numbers of packets.
    fn changed(&mut self, _request: &ModifyQp) {}

    /// The queue pair has entered a state. With some drivers the kernel keeps it.
    fn enter(&mut self, _state: u8) {}

    /// Sets the hints of the last request, in the numbers of its driver.
    #[cfg(feature = "raw")]
    fn set_hints(&mut self, _hints: u8) -> Result<(), Refused> {
        Err(Refused::Lacks)
    }

    /// Hands the ring over, if a program may use it directly. From then on the queue accesses it only when it is asked to post or to poll.
    #[cfg(feature = "raw")]
    fn hand_over(&mut self) -> Option<OwnRing> {
        None
    }
}

/// The requests for which a queue has a shorter path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(not(feature = "raw"), expect(unreachable_pub))]
pub enum Short {
    /// None: the path for any request is as short. A single request takes that of `SendRing::one`.
    Nothing,
    /// Requests of one piece. Others are refused with [`Refused::Lacks`].
    OnePiece,
    /// All requests. Code for those of one piece, or of inline bytes in one place, is compiled apart.
    Simple,
    /// All requests. What was put stays: it cannot be discarded.
    Everything,
}

/// A request of one piece, or of inline bytes.
pub(crate) struct Simple<'a, O> {
    pub(crate) wr_id: u64,
    pub(crate) flags: SendFlags,
    pub(crate) operation: &'a O,
    pub(crate) data: SimpleData<'a>,
}

/// Its data.
pub(crate) enum SimpleData<'a> {
    Piece(&'a Sge),
    Bytes(&'a [u8]),
}

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
        B: InlineParts<'b>;

    /// Writes a request into the next slot without its data. It has no data until [`Lower::set_data`].
    ///
    /// # Errors
    /// [`Refused::Full`], [`Refused::NotReady`] and [`Refused::Lacks`]. The slot is not used in these cases.
    fn begin(&mut self, _wr_id: u64, _flags: SendFlags, _opcode: &Opcode<'_>) -> Result<(), Refused> {
        Err(Refused::Lacks)
    }

    /// Sets the data and flags of the request that was begun last, replacing what was set before.
    ///
    /// # Errors
    /// [`Refused::TooLarge`]; [`Refused::NotBegun`].
    fn set_data<'b, P, B>(
        &mut self,
        _flags: SendFlags,
        _head: Option<FrameHead>,
        _data: &Data<P, B>,
    ) -> Result<(), Refused>
    where
        P: ExactSizeIterator<Item: Borrow<Sge>> + Clone,
        B: InlineParts<'b>,
    {
        Err(Refused::NotBegun)
    }

    /// Sets the address of this datagram: the address handle, and the queue pair and queue key at the destination.
    ///
    /// # Errors
    /// [`Refused::NotBegun`]; [`Refused::Lacks`].
    fn set_address(&mut self, _ah: Address, _qp_num: u32, _qkey: u32) -> Result<(), Refused> {
        Err(Refused::NotBegun)
    }

    /// Sets the number of the peer's shared receive queue for this request over an extended connection.
    ///
    /// # Errors
    /// As [`Lower::set_address`].
    fn set_srq(&mut self, _srq: u32) -> Result<(), Refused> {
        Err(Refused::Lacks)
    }
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
