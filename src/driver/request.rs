//! A request to a send queue, in verbs' own terms: what is done, and over which memory, by address, length and key.
//!
//! Whoever posts makes one and hands it on, and each driver writes it straight into its slot. Everything here is inlined, so that a
//! request whose opcode is known where it is made costs no choice later, and most of it is never in memory.

use std::borrow::Borrow;

use uverbs_abi::mlx5::wqe::ETH_L2_INLINE_HEADER_SIZE;
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
    /// Address, as returned by [`MemoryRegion::address`](crate::MemoryRegion::address) on that side.
    pub address: u64,
    /// Remote key of the region.
    pub rkey: u32,
}

/// Where a datagram goes, as the drivers have it: by the number of an address handle in the kernel or in the device, or, on mlx5, by a
/// vector that stands in each request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Address {
    /// The driver's number of the address handle; zero of one that has none.
    pub number: u32,
    /// The part of the vector that is the same in each request.
    pub(crate) vector: [u32; 9],
}

/// Where a reliable datagram goes.
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
    /// Local key of the region; zero of none.
    pub lkey: u32,
    /// The key that the window has, and the one that it gets.
    pub rkey: u32,
    /// See `rkey`.
    pub new_rkey: u32,
    /// Bits of [`AccessFlags`](crate::AccessFlags).
    pub access: u32,
    /// The window is of type 1.
    pub is_type_1: bool,
}

/// What the requests of a queue are: for each a way of its own is compiled by which they are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RequestKind {
    /// Frames.
    Frames,
    /// Messages to a queue pair that is known.
    Messages,
    /// Messages of which each says for whom it is.
    Addressed,
}

/// What a request does. Immediate data stands as it goes over the wire.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Opcode<'a> {
    /// Sends a message or a frame.
    Send,
    /// The same with immediate data.
    SendImmediate(u32),
    /// The same, and invalidates a key of the other side.
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
    /// Writes there.
    Write(Remote),
    /// The same with immediate data.
    WriteImmediate(Remote, u32),
    /// Reads from there.
    Read(Remote),
    /// Replaces eight bytes there if they are `compare`.
    CompareSwap {
        /// Where.
        remote: Remote,
        /// The expected value.
        compare: u64,
        /// The new value.
        swap: u64,
    },
    /// Adds to eight bytes there.
    FetchAdd {
        /// Where.
        remote: Remote,
        /// The number to add.
        add: u64,
    },
    /// Writes eight bytes there at once.
    AtomicWrite(Remote),
    /// Has the other side flush memory.
    Flush {
        /// Where it begins.
        remote: Remote,
        /// Bytes.
        length: u32,
        /// How visible the data shall be.
        type_: u8,
        /// How much is flushed.
        level: u8,
    },
    /// Binds a memory window.
    Bind(Binding),
    /// Invalidates a key of this side.
    LocalInvalidate(u32),
    /// Sends as many frames as the data needs.
    Large {
        /// The headers of each frame.
        header: &'a [u8],
        /// Bytes of data in each frame except the last.
        mss: u16,
    },
}

/// What can be said as an [`Opcode`]: one, or an operation of a type of its own.
pub trait Terms {
    /// What it is.
    fn opcode(&self) -> Opcode<'_>;

    /// Tells it. Where an operation is one of several, each has its own call, so that the choice is made once, and not again by
    /// whoever is told.
    fn tell<T: Told>(&self, whom: T) -> T::Answer;

    /// The number of the shared receive queue there, which a request over an extended connection names; zero of any other.
    #[inline(always)]
    fn srq(&self) -> u32 {
        0
    }

    /// A datagram with its address where it is: a request that the address stands in is written without a copy of it.
    #[inline(always)]
    fn datagram(&self) -> Option<ToAddress<'_>> {
        None
    }

    /// Where a reliable datagram goes; any other request has that in its opcode, or is for the one other side.
    #[inline(always)]
    fn destination(&self) -> Option<Destination> {
        None
    }
}

/// Who is told an opcode.
pub trait Told {
    /// What comes of it.
    type Answer;

    /// This is the opcode.
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
    /// A number that comes in the other side's completion, in network order.
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

/// An [`Opcode`] over an extended connection, for the shared receive queue there with this number.
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

/// An [`Opcode`] of a reliable datagram, and where that goes.
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

/// The data of a request: pieces of registered memory, or bytes that are copied into the queue; one behind the other.
#[derive(Clone, Copy, Debug)]
pub enum Data<P, B> {
    /// Each an [`Sge`].
    Pieces(P),
    /// Each a slice of bytes.
    Inline(B),
}

impl<P, B> Data<P, B>
where
    P: Iterator<Item: Borrow<Sge>> + Clone,
    B: Iterator<Item: AsRef<[u8]>> + Clone,
{
    /// Bytes of it.
    #[inline(always)]
    #[allow(clippy::len_without_is_empty)]
    pub fn len(&self) -> u64 {
        match self {
            Self::Pieces(pieces) => pieces.clone().map(|piece| u64::from(piece.borrow().length)).sum(),
            Self::Inline(bytes) => {
                let lengths = bytes.clone().map(|bytes| bytes.as_ref().len() as u64);
                lengths.fold(0, u64::saturating_add)
            }
        }
    }
}

impl<P, B> Data<P, B>
where
    P: ExactSizeIterator<Item: Borrow<Sge>> + Clone,
{
    /// The piece, if there is one and no more.
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
    B: Iterator<Item = &'b [u8]> + Clone,
{
    /// The bytes, if they stand in one place.
    #[inline(always)]
    pub(crate) fn only_bytes(&self) -> Option<&'b [u8]> {
        let Self::Inline(bytes) = self else { return None };
        let mut bytes = bytes.clone();
        bytes.next().filter(|_| bytes.next().is_none())
    }
}

/// No data.
pub(crate) type NoPieces = std::iter::Empty<Sge>;
pub(crate) type NoBytes = std::iter::Empty<&'static [u8]>;

/// The first bytes of a frame, where the device must find them in the request itself.
pub type FrameHead = [u8; ETH_L2_INLINE_HEADER_SIZE];

/// A whole request to a send queue. `P` and `B` give its data.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Request<'a, P, B> {
    /// The number that comes back in the completion.
    pub(crate) wr_id: u64,
    /// Bits of [`SendFlags`].
    pub(crate) flags: SendFlags,
    /// What it does.
    pub(crate) opcode: Opcode<'a>,
    /// Over what.
    pub(crate) data: Data<P, B>,
    /// The first bytes of a frame, if the device wants them apart.
    pub(crate) head: Option<FrameHead>,
}

/// Why a request is not put into a queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refused {
    /// There is no room for it now.
    Full,
    /// More pieces or bytes than the queue was made for.
    TooLarge,
    /// The queue pair is not in a state in which it sends.
    NotReady,
    /// The queue is another process's, since a fork.
    Elsewhere,
    /// The queue's ring was lost in a resize.
    Lost,
    /// The driver or the device has no such requests.
    Lacks,
    /// There is no request that was begun.
    NotBegun,
    /// All requests of the device have a completion, or counters know of those alone that have one; and this one wants none.
    Unsignaled,
}
