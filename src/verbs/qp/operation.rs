//! The operations of queue pairs, by their type.

use std::fmt::Debug;

use uverbs_abi::types::qp_type;

use crate::driver::request::{Destination, Opcode, Remote, RequestKind, Terms, ToAddress, Told};
use crate::verbs::ah::AddressHandle;

/// The type of a queue pair; sealed.
#[doc(alias = "ibv_qp_type")]
pub trait QpType: sealed::Sealed {
    /// The kernel's number for it.
    const NUMBER: u8;
    /// The operation of its send requests.
    type Operation<'a>: Copy + Debug + sealed::Encode;
}

pub(super) mod sealed {
    use crate::driver::request::{Opcode, RequestKind, Terms};
    use crate::verbs::ah::AddressHandle;

    pub trait Sealed {}

    /// An operation in verbs' terms.
    pub trait Encode: Terms {
        /// The kind of the requests. Frames may have checksums that the device fills in, and a head that it needs separately.
        const KIND: RequestKind;
        /// Whether it is a datagram with its address.
        const IS_DATAGRAM: bool = false;

        /// Whether the operation has to be checked before it is posted.
        #[inline(always)]
        fn needs_a_look(&self) -> bool {
            matches!(self.opcode(), Opcode::Large { .. } | Opcode::SendInvalidate(_))
        }

        /// Whether the operation returns data, for which there must be registered memory.
        #[inline(always)]
        fn is_answered(&self) -> bool {
            matches!(self.opcode(), Opcode::Read(_) | Opcode::CompareSwap { .. } | Opcode::FetchAdd { .. })
        }

        /// The address handle that the request needs until it has completed.
        #[inline]
        fn address(&self) -> Option<&AddressHandle> {
            None
        }
    }
}

use sealed::Encode;

macro_rules! types {
    ($($(#[$doc:meta])* $name:ident = $number:ident, $operation:ty;)*) => {
        $(
            $(#[$doc])*
            #[derive(Clone, Copy, Debug)]
            pub enum $name {}

            impl sealed::Sealed for $name {}

            impl QpType for $name {
                const NUMBER: u8 = qp_type::$number;
                type Operation<'a> = $operation;
            }
        )*
    };
}

types! {
    /// Queue pairs that send and receive whole Ethernet frames.
    #[doc(alias = "IBV_QPT_RAW_PACKET")]
    RawPacket = RAW_PACKET, Frame<'a>;
    /// Queue pairs with a reliable connection to one other: messages, remote reads and writes, atomic operations.
    #[doc(alias = "IBV_QPT_RC")]
    Rc = RC, Operation;
    /// Queue pairs with an unreliable connection to one other: messages and remote writes, which may be lost.
    #[doc(alias = "IBV_QPT_UC")]
    Uc = UC, UcOperation;
    /// Queue pairs that send datagrams to any other. Each receive begins with 40 bytes of routing header.
    #[doc(alias = "IBV_QPT_UD")]
    Ud = UD, Datagram<'a>;
    /// Queue pairs that send over an extended reliable connection, to an [`XrcReceiveQueuePair`](crate::XrcReceiveQueuePair),
    /// with the operations of [`Rc`]. Each request names one of the shared receive queues there. They receive nothing.
    #[doc(alias = "IBV_QPT_XRC_SEND")]
    XrcSend = XRC_INI, XrcOperation;
    /// Queue pairs for scalable reliable datagrams, which only EFA has. They send reliable datagrams to any other and read and
    /// write its memory. There is no connection: each request names its destination, and requests complete in any order.
    ///
    /// Every request must be [`signaled`](crate::SendRequest::signaled). Messages are at most as long as the port's MTU, and are
    /// received without a header.
    #[doc(alias = "EFADV_QP_DRIVER_TYPE_SRD")]
    Srd = DRIVER, SrdDatagram<'a>;
}

/// Operations of a [`RawPacket`] queue pair, which sends Ethernet frames without their FCS.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Frame<'a> {
    /// Sends one frame: the data is the whole frame.
    #[default]
    Whole,
    /// Sends as many frames as the data needs; see [`SendRequest::large_send`](crate::SendRequest::large_send).
    #[doc(alias = "IBV_WR_TSO")]
    Large {
        /// The headers of each frame.
        header: &'a [u8],
        /// Bytes of data in each frame except the last.
        mss: u16,
    },
}

/// Operations of an [`Rc`] queue pair.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[doc(alias = "ibv_wr_opcode")]
pub enum Operation {
    /// Sends a message into the other side's next receive.
    #[doc(alias = "ibv_wr_send")]
    #[doc(alias = "IBV_WR_SEND")]
    Send,
    /// Sends a message into the other side's next receive, with a number that the completion there contains (immediate data).
    #[doc(alias = "ibv_wr_send_imm")]
    #[doc(alias = "IBV_WR_SEND_WITH_IMM")]
    SendImmediate(u32),
    /// Sends a message and invalidates a key of the other side: the key of a memory window of type 2 that the queue pair there
    /// has bound.
    ///
    /// Use it only once for each bind: rxe's driver does not survive an invalidate that it does not expect (rxe_do_invalidate_mw,
    /// rxe_mw.c; observed on Linux 6.1 and 7.2). On rxe and on the soft device, a second
    /// invalidate of the same key by any queue pair of this process is therefore refused as
    /// [`InvalidInput`](crate::ErrorKind::InvalidInput), with a hint; so is one for the key of a window of this process that is
    /// not bound. This also applies after a failure, because it is not known whether the other side executed it: release the
    /// window and bind it again, which gives it another key.
    #[doc(alias = "ibv_wr_send_inv")]
    #[doc(alias = "IBV_WR_SEND_WITH_INV")]
    SendInvalidate(u32),
    /// Writes into the other side's memory; the other side gets no completion.
    #[doc(alias = "ibv_wr_rdma_write")]
    #[doc(alias = "IBV_WR_RDMA_WRITE")]
    Write(Remote),
    /// Writes into the other side's memory, and completes the other side's next receive with a number (immediate data).
    #[doc(alias = "ibv_wr_rdma_write_imm")]
    #[doc(alias = "IBV_WR_RDMA_WRITE_WITH_IMM")]
    WriteImmediate(Remote, u32),
    /// Reads from the other side's memory.
    #[doc(alias = "ibv_wr_rdma_read")]
    #[doc(alias = "IBV_WR_RDMA_READ")]
    Read(Remote),
    /// Replaces eight bytes there if they are equal to `compare`, and returns the old value in the segment.
    #[doc(alias = "ibv_wr_atomic_cmp_swp")]
    #[doc(alias = "IBV_WR_ATOMIC_CMP_AND_SWP")]
    CompareSwap {
        /// The remote address, a multiple of eight, and its key.
        remote: Remote,
        /// The expected value.
        compare: u64,
        /// The new value.
        swap: u64,
    },
    /// Adds to eight bytes there, and returns the old value in the segment.
    #[doc(alias = "ibv_wr_atomic_fetch_add")]
    #[doc(alias = "IBV_WR_ATOMIC_FETCH_AND_ADD")]
    FetchAdd {
        /// The remote address, a multiple of eight, and its key.
        remote: Remote,
        /// The number to add.
        add: u64,
    },
}

/// An operation of an [`XrcSend`] queue pair, and the shared receive queue there that it uses.
///
/// A send, or a write with immediate data, takes a receive from that queue. Every other operation also names a queue: it accesses
/// memory in the protection domain of that queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[doc(alias = "ibv_wr_set_xrc_srqn")]
pub struct XrcOperation {
    /// Number of the queue, as returned by [`SharedReceiveQueue::number`](crate::SharedReceiveQueue::number) on that side.
    pub srq: u32,
    /// The operation.
    pub operation: Operation,
}

impl Operation {
    /// This operation over an extended connection, for the shared receive queue with this number.
    #[must_use]
    pub fn to_srq(self, srq: u32) -> XrcOperation {
        XrcOperation { srq, operation: self }
    }
}

/// Operations of a [`Uc`] queue pair.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UcOperation {
    /// Sends a message into the other side's next receive.
    Send,
    /// Sends a message into the other side's next receive, with a number that the completion there contains (immediate data).
    SendImmediate(u32),
    /// Writes into the other side's memory; the other side gets no completion.
    Write(Remote),
    /// Writes into the other side's memory, and completes the other side's next receive with a number (immediate data).
    WriteImmediate(Remote, u32),
}

/// The operation of a [`Ud`] queue pair: it sends a datagram.
#[derive(Clone, Copy, Debug)]
#[doc(alias = "ibv_wr_set_ud_addr")]
pub struct Datagram<'a> {
    /// The destination.
    pub to: &'a AddressHandle,
    /// Number of the queue pair there.
    pub qp_num: u32,
    /// The queue key that it expects.
    pub qkey: u32,
    /// A number that the other side's completion contains (immediate data).
    pub immediate: Option<u32>,
}

/// An operation of an [`Srd`] queue pair, and its destination: the fields of a [`Datagram`], and an operation.
#[derive(Clone, Copy, Debug)]
pub struct SrdDatagram<'a> {
    /// The other side.
    pub to: &'a AddressHandle,
    /// Number of the queue pair there.
    pub qp_num: u32,
    /// The queue key that it expects.
    pub qkey: u32,
    /// The operation.
    pub operation: SrdOperation,
}

/// Operations of reliable datagrams. [`efa::Device`](crate::efa::Device) reports which of them the device supports.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SrdOperation {
    /// Sends a message into the other side's next receive.
    Send,
    /// Sends a message into the other side's next receive, with a number that the completion there contains (immediate data).
    SendImmediate(u32),
    /// Writes into the other side's memory; the other side gets no completion.
    Write(Remote),
    /// Writes into the other side's memory, with a number (immediate data). The other side gets it in a completion: of its next receive,
    /// unless such writes [consume none](crate::QueuePairBuilder::unsolicited_writes).
    WriteImmediate(Remote, u32),
    /// Reads from the other side's memory.
    Read(Remote),
}

/// Converts an operation to an [`Opcode`].
macro_rules! encode {
    ($type:ty, $kind:ident { $($operation:pat => $opcode:expr,)* }) => {
        impl Encode for $type {
            const KIND: RequestKind = RequestKind::$kind;
        }

        impl Terms for $type {
            #[inline(always)]
            fn opcode(&self) -> Opcode<'_> {
                match *self {
                    $($operation => $opcode,)*
                }
            }

            #[inline(always)]
            fn tell<T: Told>(&self, whom: T) -> T::Answer {
                match *self {
                    $($operation => whom.told(&$opcode),)*
                }
            }
        }
    };
}

encode! { Frame<'_>, Frames {
    Self::Whole => Opcode::Send,
    Self::Large { header, mss } => Opcode::Large { header, mss },
} }

// Numbers are sent in network byte order.
encode! { Operation, Messages {
    Self::Send => Opcode::Send,
    Self::SendImmediate(number) => Opcode::SendImmediate(number.to_be()),
    Self::SendInvalidate(key) => Opcode::SendInvalidate(key),
    Self::Write(remote) => Opcode::Write(remote),
    Self::WriteImmediate(remote, number) => Opcode::WriteImmediate(remote, number.to_be()),
    Self::Read(remote) => Opcode::Read(remote),
    Self::CompareSwap { remote, compare, swap } => Opcode::CompareSwap { remote, compare, swap },
    Self::FetchAdd { remote, add } => Opcode::FetchAdd { remote, add },
} }

encode! { UcOperation, Messages {
    Self::Send => Opcode::Send,
    Self::SendImmediate(number) => Opcode::SendImmediate(number.to_be()),
    Self::Write(remote) => Opcode::Write(remote),
    Self::WriteImmediate(remote, number) => Opcode::WriteImmediate(remote, number.to_be()),
} }

impl Encode for Datagram<'_> {
    const KIND: RequestKind = RequestKind::Addressed;
    const IS_DATAGRAM: bool = true;

    #[inline]
    fn address(&self) -> Option<&AddressHandle> {
        Some(self.to)
    }
}

impl Datagram<'_> {
    #[inline(always)]
    fn terms(&self) -> ToAddress<'_> {
        let Self { to, qp_num, qkey, immediate } = *self;
        ToAddress { ah: to.address(), qp_num, qkey, immediate: immediate.map(u32::to_be) }
    }
}

impl Terms for Datagram<'_> {
    #[inline(always)]
    fn opcode(&self) -> Opcode<'_> {
        self.terms().into()
    }

    #[inline(always)]
    fn tell<T: Told>(&self, whom: T) -> T::Answer {
        whom.told(&self.opcode())
    }

    #[inline(always)]
    fn datagram(&self) -> Option<ToAddress<'_>> {
        Some(self.terms())
    }
}

impl Encode for SrdDatagram<'_> {
    const KIND: RequestKind = RequestKind::Addressed;

    #[inline]
    fn address(&self) -> Option<&AddressHandle> {
        Some(self.to)
    }
}

impl Terms for SrdDatagram<'_> {
    #[inline(always)]
    fn opcode(&self) -> Opcode<'_> {
        match self.operation {
            SrdOperation::Send => Opcode::Send,
            SrdOperation::SendImmediate(number) => Opcode::SendImmediate(number.to_be()),
            SrdOperation::Write(remote) => Opcode::Write(remote),
            SrdOperation::WriteImmediate(remote, number) => Opcode::WriteImmediate(remote, number.to_be()),
            SrdOperation::Read(remote) => Opcode::Read(remote),
        }
    }

    #[inline(always)]
    fn tell<T: Told>(&self, whom: T) -> T::Answer {
        match self.operation {
            SrdOperation::Send => whom.told(&Opcode::Send),
            SrdOperation::SendImmediate(number) => whom.told(&Opcode::SendImmediate(number.to_be())),
            SrdOperation::Write(remote) => whom.told(&Opcode::Write(remote)),
            SrdOperation::WriteImmediate(remote, number) => {
                whom.told(&Opcode::WriteImmediate(remote, number.to_be()))
            }
            SrdOperation::Read(remote) => whom.told(&Opcode::Read(remote)),
        }
    }

    #[inline(always)]
    fn destination(&self) -> Option<Destination> {
        Some(Destination { ah: *self.to.address(), qp_num: self.qp_num, qkey: self.qkey })
    }
}

impl Encode for XrcOperation {
    const KIND: RequestKind = RequestKind::Addressed;
}

impl Terms for XrcOperation {
    #[inline]
    fn opcode(&self) -> Opcode<'_> {
        self.operation.opcode()
    }

    #[inline]
    fn tell<T: Told>(&self, whom: T) -> T::Answer {
        self.operation.tell(whom)
    }

    #[inline]
    fn srq(&self) -> u32 {
        self.srq
    }
}
