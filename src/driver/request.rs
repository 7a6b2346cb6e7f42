//! A request for a send queue, independent of the driver: the operation, and its memory by address, length and key.
//!
//! The caller creates a request, and each driver writes it directly into its slot. Everything here is inlined. If the opcode is known
//! where the request is created, no later code has to choose, and most of the request is never stored in memory.

use std::borrow::Borrow;

use uverbs_abi::mlx5::wqe::ETH_L2_INLINE_HEADER_SIZE;
#[cfg(test)]
use uverbs_abi::types::SendFlags;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// A piece of registered memory.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable)]
pub struct Sge {
    /// Address in the process, or in the region.
    pub addr: u64,
    /// Bytes.
    pub length: u32,
    /// Local key of the region.
    pub lkey: u32,
}

/// An address in the memory of the other side.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Remote {
    /// Address, as returned by [`MemoryRegion::remote`](crate::MemoryRegion::remote) on that side, or an address behind it.
    pub address: u64,
    /// Remote key of the region.
    pub rkey: u32,
}

/// The destination of a datagram in the form that drivers need: the number of an address handle in the kernel or in the device, or, on
/// mlx5, a vector that is part of each request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Address {
    /// The driver's number of the address handle; zero if it has none.
    pub number: u32,
    /// The part of the vector that is the same in each request.
    pub(crate) vector: [u32; 9],
}

/// The destination of a reliable datagram.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Destination {
    /// The address handle.
    pub ah: Address,
    /// The queue pair there.
    pub qp_num: u32,
    /// The queue key that it expects.
    pub qkey: u32,
}

/// What a memory window is bound to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Binding {
    /// Start of the window.
    pub addr: u64,
    /// Bytes of the window.
    pub length: u64,
    /// Local key of the region; zero if there is none.
    pub lkey: u32,
    /// The current key of the window.
    pub rkey: u32,
    /// The key of the window after the bind.
    pub new_rkey: u32,
    /// Bits of [`AccessFlags`](crate::AccessFlags).
    pub access: u32,
    /// The window is of type 1.
    pub is_type_1: bool,
}

/// The kind of the requests of a queue. The code that writes requests is compiled for each kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RequestKind {
    /// Frames.
    Frames,
    /// Messages to a fixed queue pair.
    Messages,
    /// Messages with a destination each. Code for this kind writes requests of all kinds.
    Addressed,
}

/// The kinds as parameters of code.
pub const FRAMES: u8 = RequestKind::Frames as u8;
/// See [`RequestKind::Messages`].
pub const MESSAGES: u8 = RequestKind::Messages as u8;
/// See [`RequestKind::Addressed`].
pub const ADDRESSED: u8 = RequestKind::Addressed as u8;

/// Does the work with a kind as a parameter.
macro_rules! with_kind {
    ($kind:expr, $name:ident => $work:expr) => {
        match $kind {
            $crate::driver::request::RequestKind::Frames => {
                const $name: u8 = $crate::driver::request::FRAMES;
                $work
            }
            $crate::driver::request::RequestKind::Messages => {
                const $name: u8 = $crate::driver::request::MESSAGES;
                $work
            }
            $crate::driver::request::RequestKind::Addressed => {
                const $name: u8 = $crate::driver::request::ADDRESSED;
                $work
            }
        }
    };
}
pub(crate) use with_kind;

/// The operation of a request. Immediate data is in network byte order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Opcode<'a> {
    /// Sends a message or a frame.
    Send,
    /// Sends a message with immediate data.
    SendImmediate(u32),
    /// Sends a message and invalidates a key of the peer.
    SendInvalidate(u32),
    /// Sends a datagram.
    Datagram {
        /// The address handle.
        ah: Address,
        /// The queue pair there.
        qp_num: u32,
        /// The queue key that it expects.
        qkey: u32,
        /// Immediate data.
        immediate: Option<u32>,
    },
    /// Writes to the memory of the peer.
    Write(Remote),
    /// Writes to the memory of the peer, with immediate data.
    WriteImmediate(Remote, u32),
    /// Reads from the memory of the peer.
    Read(Remote),
    /// Replaces eight bytes at the peer if they are equal to `compare`.
    CompareSwap {
        /// The address and key.
        remote: Remote,
        /// The expected value.
        compare: u64,
        /// The new value.
        swap: u64,
    },
    /// Adds to eight bytes at the peer.
    FetchAdd {
        /// The address and key.
        remote: Remote,
        /// The number to add.
        add: u64,
    },
    /// Writes eight bytes at the peer atomically.
    AtomicWrite(Remote),
    /// Makes the peer flush memory.
    Flush {
        /// Start of the memory.
        remote: Remote,
        /// Bytes.
        length: u32,
        /// Required visibility of the data.
        type_: u8,
        /// The extent of the flush.
        level: u8,
    },
    /// Binds a memory window.
    Bind(Binding),
    /// Invalidates a local key.
    LocalInvalidate(u32),
    /// Sends as many frames as the data needs.
    Large {
        /// The headers of each frame.
        header: &'a [u8],
        /// Bytes of data in each frame except the last.
        mss: u16,
    },
}

/// The operation of a request: an [`Opcode`], or a type of its own that can be converted to one.
pub trait Terms {
    /// The opcode.
    fn opcode(&self) -> Opcode<'_>;

    /// Passes the opcode to `whom`. If the operation is one of several, each has its own call, so that the choice is made once and not
    /// again by the receiver.
    fn tell<T: Told>(&self, whom: T) -> T::Answer;

    /// The number of the peer's shared receive queue, which a request over an extended connection names; zero for others.
    #[inline(always)]
    fn srq(&self) -> u32 {
        0
    }

    /// A datagram with its address by reference, so that a request that contains the address is written without another copy.
    #[inline(always)]
    fn datagram(&self) -> Option<ToAddress<'_>> {
        None
    }

    /// The destination of a reliable datagram. Other requests have it in their opcode, or go to the connected peer.
    #[inline(always)]
    fn destination(&self) -> Option<Destination> {
        None
    }
}

/// A receiver of an opcode.
pub trait Told {
    /// The result.
    type Answer;

    /// Receives the opcode.
    fn told(self, opcode: &Opcode<'_>) -> Self::Answer;
}

impl Terms for Opcode<'_> {
    #[inline(always)]
    fn opcode(&self) -> Opcode<'_> {
        *self
    }

    #[inline(always)]
    fn tell<T: Told>(&self, whom: T) -> T::Answer {
        whom.told(self)
    }
}

/// An [`Opcode::Datagram`] whose address is borrowed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ToAddress<'a> {
    /// The address handle.
    pub ah: &'a Address,
    /// The queue pair there.
    pub qp_num: u32,
    /// The queue key there.
    pub qkey: u32,
    /// Immediate data in network byte order.
    pub immediate: Option<u32>,
}

impl From<ToAddress<'_>> for Opcode<'_> {
    #[inline(always)]
    fn from(to: ToAddress<'_>) -> Self {
        let ToAddress { ah, qp_num, qkey, immediate } = to;
        Self::Datagram { ah: *ah, qp_num, qkey, immediate }
    }
}

impl Terms for ToAddress<'_> {
    #[inline(always)]
    fn opcode(&self) -> Opcode<'_> {
        (*self).into()
    }

    #[inline(always)]
    fn tell<T: Told>(&self, whom: T) -> T::Answer {
        whom.told(&self.opcode())
    }

    #[inline(always)]
    fn datagram(&self) -> Option<ToAddress<'_>> {
        Some(*self)
    }
}

/// An [`Opcode`] over an extended connection, for the peer's shared receive queue with this number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ToSrq<'a>(pub Opcode<'a>, pub u32);

impl Terms for ToSrq<'_> {
    #[inline(always)]
    fn opcode(&self) -> Opcode<'_> {
        self.0
    }

    #[inline(always)]
    fn tell<T: Told>(&self, whom: T) -> T::Answer {
        whom.told(&self.0)
    }

    #[inline(always)]
    fn srq(&self) -> u32 {
        self.1
    }
}

/// An [`Opcode`] of a reliable datagram, and its destination.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ToDestination<'a>(pub Opcode<'a>, pub Destination);

impl Terms for ToDestination<'_> {
    #[inline(always)]
    fn opcode(&self) -> Opcode<'_> {
        self.0
    }

    #[inline(always)]
    fn tell<T: Told>(&self, whom: T) -> T::Answer {
        whom.told(&self.0)
    }

    #[inline(always)]
    fn destination(&self) -> Option<Destination> {
        Some(self.1)
    }
}

/// The data of a request: pieces of registered memory, or bytes that are copied into the queue, in their order.
#[derive(Clone, Copy, Debug)]
pub enum Data<P, B> {
    /// Each an [`Sge`].
    Pieces(P),
    /// Each a slice of bytes.
    Inline(B),
}

impl<'b, P, B> Data<P, B>
where
    P: Iterator<Item: Borrow<Sge>> + Clone,
    B: InlineParts<'b>,
{
    /// Length in bytes.
    #[inline(always)]
    #[allow(clippy::len_without_is_empty)]
    pub fn len(&self) -> u64 {
        match self {
            Self::Pieces(pieces) => pieces.clone().map(|piece| u64::from(piece.borrow().length)).sum(),
            Self::Inline(parts) => parts.total(),
        }
    }
}

impl<P, B> Data<P, B>
where
    P: ExactSizeIterator<Item: Borrow<Sge>> + Clone,
{
    /// The piece, if there is exactly one.
    #[inline(always)]
    pub(crate) fn only_piece(&self) -> Option<Sge> {
        match self {
            Self::Pieces(pieces) if pieces.len() == 1 => pieces.clone().next().map(|piece| *piece.borrow()),
            Self::Pieces(_) | Self::Inline(_) => None,
        }
    }
}

impl<'b, P, B> Data<P, B>
where
    B: InlineParts<'b>,
{
    /// The bytes, if their type says that they are in one place.
    #[inline(always)]
    pub(crate) fn only_bytes(&self) -> Option<&'b [u8]> {
        if let Self::Inline(parts) = self { parts.whole() } else { None }
    }
}

/// Bytes that are copied into a queue: parts, in their order.
pub trait InlineParts<'b>: Iterator<Item = &'b [u8]> + Clone {
    /// Number of bytes.
    fn total(&self) -> u64 {
        self.clone().fold(0, |sum: u64, part| sum.saturating_add(part.len() as u64))
    }

    /// The bytes, for a type that always has one part. The code for several is then left out.
    fn whole(&self) -> Option<&'b [u8]> {
        None
    }
}

impl<'b> InlineParts<'b> for std::iter::Once<&'b [u8]> {
    fn whole(&self) -> Option<&'b [u8]> {
        self.clone().next()
    }
}

impl<'b> InlineParts<'b> for std::iter::Empty<&'b [u8]> {}

#[cfg(test)]
impl<'b> InlineParts<'b> for std::iter::Copied<std::slice::Iter<'b, &'b [u8]>> {}

/// No data.
pub(crate) type NoPieces = std::iter::Empty<Sge>;
pub(crate) type NoBytes = std::iter::Empty<&'static [u8]>;

/// The first bytes of a frame, for devices that need them in the request itself.
pub type FrameHead = [u8; ETH_L2_INLINE_HEADER_SIZE];

/// A complete request for a send queue, for tests. `P` and `B` are the types of its data.
#[cfg(test)]
#[derive(Clone, Copy, Debug)]
pub(crate) struct Request<'a, P, B> {
    /// The number that is returned in the completion.
    pub(crate) wr_id: u64,
    /// Bits of [`SendFlags`].
    pub(crate) flags: SendFlags,
    /// The operation.
    pub(crate) opcode: Opcode<'a>,
    /// The data.
    pub(crate) data: Data<P, B>,
    /// The first bytes of a frame, if the device needs them separately.
    pub(crate) head: Option<FrameHead>,
}

/// Why a request cannot be put into a queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refused {
    /// There is no room for it at the moment.
    Full,
    /// It has more pieces or bytes than the queue was created for.
    TooLarge,
    /// The queue pair is not in a state in which it can send.
    NotReady,
    /// The queue belongs to the other process of a fork.
    Elsewhere,
    /// The queue's ring was lost in a resize.
    Lost,
    /// The driver or the device does not support such requests.
    Lacks,
    /// No request was begun.
    NotBegun,
    /// The request is unsignaled, but on this device every request has a completion, or the counters see only requests that have one.
    Unsignaled,
}
