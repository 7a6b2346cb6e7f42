//! What a queue pair can be asked to do, by its type.

use std::fmt::Debug;

use uverbs_abi::rxe::{AtomicWr, RdmaWr, SendWr, UdWr};
use uverbs_abi::types::{qp_type, wr_opcode};
use zerocopy::{FromZeros, Immutable, IntoBytes};

use crate::ah::AddressHandle;

/// A kind of queue pair; sealed.
#[doc(alias = "ibv_qp_type")]
pub trait QpType: sealed::Sealed {
    /// The kernel's number for it.
    const NUMBER: u8;
    /// What a send request of it does.
    type Operation<'a>: Copy + Debug + sealed::Encode;
}

pub(super) mod sealed {
    use uverbs_abi::rxe::SendWr;

    use crate::ah::AddressHandle;

    pub trait Sealed {}

    /// An operation as rxe's ring holds it.
    pub trait Encode {
        /// Fills in opcode, immediate data and the part that depends on the opcode; gives the remote address.
        fn encode(&self, wr: &mut SendWr) -> u64;

        /// Header and piece size of a send that the device cuts, if it is one.
        #[inline]
        fn large(&self) -> Option<(&[u8], u16)> {
            None
        }

        /// The key that it takes from the other side, if it does.
        #[inline]
        fn invalidates(&self) -> Option<u32> {
            None
        }

        /// The address handle that the request needs until it is completed.
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

/// A place in the memory of the other side.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Remote {
    /// Address, as [`MemoryRegion::address`](crate::MemoryRegion::address) tells it there.
    pub address: u64,
    /// Remote key of the region.
    pub rkey: u32,
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
    /// is not bound any more (rxe_do_invalidate_mw, rxe_mw.c; seen on Linux 6.1 and 7.2). So a second one for
    /// the same key is refused, from whichever queue pair of this process, and one for a key that a window of this process has
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

/// Lays a structure over the part of a request that depends on the opcode.
fn overlay(wr: &mut SendWr, part: &(impl IntoBytes + Immutable)) {
    let bytes = part.as_bytes();
    wr.wr[..bytes.len()].copy_from_slice(bytes);
}

fn rdma(wr: &mut SendWr, opcode: u32, remote: Remote) -> u64 {
    wr.opcode = opcode;
    overlay(wr, &RdmaWr { remote_addr: remote.address, rkey: remote.rkey, reserved: 0 });
    remote.address
}

fn atomic(wr: &mut SendWr, opcode: u32, remote: Remote, compare_add: u64, swap: u64) -> u64 {
    wr.opcode = opcode;
    let (remote_addr, rkey) = (remote.address, remote.rkey);
    overlay(wr, &AtomicWr { remote_addr, compare_add, swap, rkey, reserved: 0 });
    remote_addr
}

/// Numbers travel in network order.
fn immediate(wr: &mut SendWr, opcode: u32, number: u32) -> u64 {
    wr.opcode = opcode;
    wr.ex = number.to_be();
    0
}

impl Encode for Frame<'_> {
    fn encode(&self, wr: &mut SendWr) -> u64 {
        wr.opcode = if matches!(self, Self::Whole) { wr_opcode::SEND } else { wr_opcode::TSO };
        0
    }

    #[inline]
    fn large(&self) -> Option<(&[u8], u16)> {
        match *self {
            Self::Whole => None,
            Self::Large { header, mss } => Some((header, mss)),
        }
    }
}

/// A message for the other side's next receive.
fn send(wr: &mut SendWr) -> u64 {
    wr.opcode = wr_opcode::SEND;
    0
}

impl Encode for Operation {
    fn encode(&self, wr: &mut SendWr) -> u64 {
        match *self {
            Self::Send => send(wr),
            Self::SendImmediate(number) => immediate(wr, wr_opcode::SEND_WITH_IMM, number),
            Self::SendInvalidate(key) => {
                (wr.opcode, wr.ex) = (wr_opcode::SEND_WITH_INV, key);
                0
            }
            Self::Write(remote) => rdma(wr, wr_opcode::RDMA_WRITE, remote),
            Self::WriteImmediate(remote, number) => {
                immediate(wr, wr_opcode::RDMA_WRITE_WITH_IMM, number);
                rdma(wr, wr_opcode::RDMA_WRITE_WITH_IMM, remote)
            }
            Self::Read(remote) => rdma(wr, wr_opcode::RDMA_READ, remote),
            Self::CompareSwap { remote, compare, swap } => {
                atomic(wr, wr_opcode::ATOMIC_CMP_AND_SWP, remote, compare, swap)
            }
            Self::FetchAdd { remote, add } => atomic(wr, wr_opcode::ATOMIC_FETCH_AND_ADD, remote, add, 0),
        }
    }

    #[inline]
    fn invalidates(&self) -> Option<u32> {
        match *self {
            Self::SendInvalidate(key) => Some(key),
            _ => None,
        }
    }
}

impl Encode for UcOperation {
    fn encode(&self, wr: &mut SendWr) -> u64 {
        match *self {
            Self::Send => Operation::Send,
            Self::SendImmediate(number) => Operation::SendImmediate(number),
            Self::Write(remote) => Operation::Write(remote),
            Self::WriteImmediate(remote, number) => Operation::WriteImmediate(remote, number),
        }
        .encode(wr)
    }
}

impl Encode for Datagram<'_> {
    fn encode(&self, wr: &mut SendWr) -> u64 {
        match self.immediate {
            Some(number) => immediate(wr, wr_opcode::SEND_WITH_IMM, number),
            None => send(wr),
        };
        let ah_num = self.to.number();
        let part = UdWr { remote_qpn: self.qp_num, remote_qkey: self.qkey, ah_num, ..UdWr::new_zeroed() };
        overlay(wr, &part);
        0
    }

    fn address(&self) -> Option<&AddressHandle> {
        Some(self.to)
    }
}
