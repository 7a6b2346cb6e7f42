//! What a queue pair can be asked to do, by its type.

use std::fmt::Debug;

use uverbs_abi::types::qp_type;

use crate::driver::request::{Destination, Opcode, Remote, RequestKind, Terms, Told};
use crate::verbs::ah::AddressHandle;

/// A kind of queue pair; sealed.
#[doc(alias = "ibv_qp_type")]
pub trait QpType: sealed::Sealed {
    /// The kernel's number for it.
    const NUMBER: u8;
    /// What a send request of it does.
    type Operation<'a>: Copy + Debug + sealed::Encode;
}

pub(super) mod sealed {
    use crate::driver::request::{Opcode, RequestKind, Terms};
    use crate::verbs::ah::AddressHandle;

    pub trait Sealed {}

    /// An operation in verbs' terms.
    pub trait Encode: Terms {
        /// What requests are. Frames may have checksums that the device fills in, and a head that it must find apart.
        const KIND: RequestKind;

        /// Whether it is one of those that are looked at before they are posted.
        #[inline(always)]
        fn needs_a_look(&self) -> bool {
            matches!(self.opcode(), Opcode::Large { .. } | Opcode::SendInvalidate(_))
        }

        /// Whether data comes back, for which there must be registered memory.
        #[inline(always)]
        fn is_answered(&self) -> bool {
            matches!(self.opcode(), Opcode::Read(_) | Opcode::CompareSwap { .. } | Opcode::FetchAdd { .. })
        }

        /// The address handle that the request needs until it is completed.
        #[inline(always)]
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
    /// Queue pairs connected to one other, reliably: messages, remote reads and writes, atomic operations.
    #[doc(alias = "IBV_QPT_RC")]
    Rc = RC, Operation;
    /// Queue pairs connected to one other, unreliably: messages and remote writes, which may be lost.
    #[doc(alias = "IBV_QPT_UC")]
    Uc = UC, UcOperation;
    /// Queue pairs that send datagrams to any other, and receive them after 40 bytes of routing header.
    #[doc(alias = "IBV_QPT_UD")]
    Ud = UD, Datagram<'a>;
    /// Queue pairs that send over an extended reliable connection, to an [`XrcReceiveQueuePair`](crate::XrcReceiveQueuePair): what
    /// [`Rc`] has, each request for one of the shared receive queues there. They receive nothing.
    #[doc(alias = "IBV_QPT_XRC_SEND")]
    XrcSend = XRC_INI, XrcOperation;
    /// Queue pairs that send reliable datagrams to any other, read and write memory there, and complete in any order: scalable reliable
    /// datagrams, which only EFA has. There is no connection: each request names its destination.
    ///
    /// Every request is to be [`signaled`](crate::SendRequest::signaled). Messages are not longer than the port's largest packet, and come
    /// without a header before them.
    #[doc(alias = "EFADV_QP_DRIVER_TYPE_SRD")]
    Srd = DRIVER, SrdDatagram<'a>;
}

/// What a [`RawPacket`] queue pair does: sends Ethernet frames, without their FCS.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Frame<'a> {
    /// One frame: the data is all of it.
    #[default]
    Whole,
    /// As many frames as the data needs; see [`SendRequest::large_send`](crate::SendRequest::large_send).
    #[doc(alias = "IBV_WR_TSO")]
    Large {
        /// What each of them begins with.
        header: &'a [u8],
        /// Bytes of the data in each of them but the last.
        mss: u16,
    },
}

/// What an [`Rc`] queue pair does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[doc(alias = "ibv_wr_opcode")]
pub enum Operation {
    /// Sends a message into the other side's next receive.
    #[doc(alias = "ibv_wr_send")]
    Send,
    /// The same, with a number that comes in the other side's completion.
    #[doc(alias = "ibv_wr_send_imm")]
    SendImmediate(u32),
    /// Sends a message and invalidates a key of the other side: that of a memory window of type 2 which the queue
    /// pair there has bound, and which it has told this side.
    ///
    /// Once for each bind: the kernel at the other end stops with a null pointer if that is rxe and the window
    /// is not bound any more (rxe_do_invalidate_mw, rxe_mw.c; seen on Linux 6.1 and 7.2). So on rxe and on the soft device a second
    /// one for the same key is refused, from whichever queue pair of this process, and one for a key that a window of this process has
    /// while it is free: [`InvalidInput`](crate::ErrorKind::InvalidInput), with a hint. After a failure too, since it is not
    /// known then whether the other side got it: the window is to be released and bound again, under another key.
    #[doc(alias = "ibv_wr_send_inv")]
    SendInvalidate(u32),
    /// Writes into the other side's memory; the other side does not notice.
    #[doc(alias = "ibv_wr_rdma_write")]
    Write(Remote),
    /// The same, and completes the other side's next receive with a number.
    #[doc(alias = "ibv_wr_rdma_write_imm")]
    WriteImmediate(Remote, u32),
    /// Reads from the other side's memory.
    #[doc(alias = "ibv_wr_rdma_read")]
    Read(Remote),
    /// Replaces eight bytes there if they are `compare`; the old value comes back into the segment.
    #[doc(alias = "ibv_wr_atomic_cmp_swp")]
    CompareSwap {
        /// Where, a multiple of eight.
        remote: Remote,
        /// What the value must be.
        compare: u64,
        /// What it becomes.
        swap: u64,
    },
    /// Adds to eight bytes there; the old value comes back into the segment.
    #[doc(alias = "ibv_wr_atomic_fetch_add")]
    FetchAdd {
        /// Where, a multiple of eight.
        remote: Remote,
        /// What is added.
        add: u64,
    },
}

/// What an [`XrcSend`] queue pair does, and the shared receive queue there that it is for.
///
/// A send, or a write with immediate data, takes a receive from that queue. Every other operation names one too: the memory that it
/// reaches is in the protection domain of that queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[doc(alias = "ibv_wr_set_xrc_srqn")]
pub struct XrcOperation {
    /// Number of the queue, as [`SharedReceiveQueue::number`](crate::SharedReceiveQueue::number) tells it there.
    pub srq: u32,
    /// What is done.
    pub operation: Operation,
}

impl Operation {
    /// The same over an extended connection, for the shared receive queue there with this number.
    #[must_use]
    pub fn to_srq(self, srq: u32) -> XrcOperation {
        XrcOperation { srq, operation: self }
    }
}

/// What a [`Uc`] queue pair does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UcOperation {
    /// Sends a message into the other side's next receive.
    Send,
    /// The same, with a number that comes in the other side's completion.
    SendImmediate(u32),
    /// Writes into the other side's memory; the other side does not notice.
    Write(Remote),
    /// The same, and completes the other side's next receive with a number.
    WriteImmediate(Remote, u32),
}

/// What a [`Ud`] queue pair does: sends a datagram.
#[derive(Clone, Copy, Debug)]
#[doc(alias = "ibv_wr_set_ud_addr")]
pub struct Datagram<'a> {
    /// Where to.
    pub to: &'a AddressHandle,
    /// The queue pair there.
    pub qp_num: u32,
    /// The queue key that it expects.
    pub qkey: u32,
    /// A number that comes in the other side's completion.
    pub immediate: Option<u32>,
}

/// What an [`Srd`] queue pair does, and with whom: the same as a [`Datagram`], and an operation.
#[derive(Clone, Copy, Debug)]
pub struct SrdDatagram<'a> {
    /// Where to, or from where.
    pub to: &'a AddressHandle,
    /// The queue pair there.
    pub qp_num: u32,
    /// The queue key that it expects.
    pub qkey: u32,
    /// What is done.
    pub operation: SrdOperation,
}

/// What a reliable datagram does. What the device has of it is told by [`efa::Device`](crate::efa::Device).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SrdOperation {
    /// Sends a message into the other side's next receive.
    Send,
    /// The same, with a number that comes in the other side's completion.
    SendImmediate(u32),
    /// Writes into the other side's memory; the other side does not notice.
    Write(Remote),
    /// The same with a number, for which the other side has a completion: of its next receive, unless it
    /// [takes none](crate::QueuePairBuilder::unsolicited_writes).
    WriteImmediate(Remote, u32),
    /// Reads from the other side's memory.
    Read(Remote),
}

/// What an operation is in verbs' terms.
macro_rules! encode {
    ($type:ty, $kind:ident { $($operation:pat => $opcode:expr,)* } $($address:item)?) => {
        impl Encode for $type {
            const KIND: RequestKind = RequestKind::$kind;

            $($address)?
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

// Numbers travel in network order.
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

encode! {
    Datagram<'_>, Addressed {
        Self { to, qp_num, qkey, immediate } => {
            Opcode::Datagram { ah: to.address(), qp_num, qkey, immediate: immediate.map(u32::to_be) }
        },
    }

    #[inline(always)]
    fn address(&self) -> Option<&AddressHandle> {
        Some(self.to)
    }
}

impl Encode for SrdDatagram<'_> {
    const KIND: RequestKind = RequestKind::Addressed;

    #[inline(always)]
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
        Some(Destination { ah: self.to.address(), qp_num: self.qp_num, qkey: self.qkey })
    }
}

impl Encode for XrcOperation {
    const KIND: RequestKind = RequestKind::Addressed;
}

impl Terms for XrcOperation {
    #[inline(always)]
    fn opcode(&self) -> Opcode<'_> {
        self.operation.opcode()
    }

    #[inline(always)]
    fn tell<T: Told>(&self, whom: T) -> T::Answer {
        self.operation.tell(whom)
    }

    #[inline(always)]
    fn srq(&self) -> u32 {
        self.srq
    }
}
