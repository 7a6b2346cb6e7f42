//! Requests that are messages, or operations on the memory of the peer: the segments before their data.
//!
//! Source: `struct mlx5_wqe_raddr_seg` and `struct mlx5_wqe_atomic_seg`, qp.h, Linux 6.1.

use uverbs_abi::mlx5::wqe::{
    OPCODE_ATOMIC_CS, OPCODE_ATOMIC_FA, OPCODE_RDMA_READ, OPCODE_RDMA_WRITE, OPCODE_RDMA_WRITE_IMM,
    OPCODE_SEND, OPCODE_SEND_IMM, OPCODE_SEND_INVAL, WqeAtomicSeg, WqeRaddrSeg, WqeXrcSeg,
};
use zerocopy::FromZeros;

use super::address::units;
use super::sends::{Sends, Start, unit};
use crate::driver::request::{Address, Opcode, Refused, Remote, ToAddress};

/// Units of the address of a datagram.
const ADDRESS_UNITS: u8 = 3;
/// Units that name a shared receive queue.
const QUEUE_UNITS: u8 = 1;

/// The start of a datagram's request, which ends with its address, and the immediate data that goes with it (zero if there is none).
#[inline(always)]
pub(super) fn start_to(to: &ToAddress<'_>) -> (Start, u32) {
    let (opcode, immediate) = to.immediate.map_or((OPCODE_SEND, 0), |number| (OPCODE_SEND_IMM, number));
    (Start { opcode, units: 1 + ADDRESS_UNITS, left_out: 0 }, immediate)
}

impl Sends {
    /// Writes the segments before the data, after the first units. The second value is the immediate data or key that goes with the
    /// message, in network byte order.
    #[inline(always)]
    pub(super) fn start_message(&mut self, opcode: &Opcode<'_>, first: u8) -> Result<(Start, u32), Refused> {
        let start =
            |opcode, units, immediate| (Start { opcode, units: first + units, left_out: 0 }, immediate);
        Ok(match *opcode {
            Opcode::Send => start(OPCODE_SEND, 0, 0),
            Opcode::SendImmediate(immediate) => start(OPCODE_SEND_IMM, 0, immediate),
            Opcode::SendInvalidate(key) => start(OPCODE_SEND_INVAL, 0, key.to_be()),
            Opcode::Write(remote) => {
                self.put_remote(first, remote);
                start(OPCODE_RDMA_WRITE, 1, 0)
            }
            Opcode::WriteImmediate(remote, immediate) => {
                self.put_remote(first, remote);
                start(OPCODE_RDMA_WRITE_IMM, 1, immediate)
            }
            Opcode::Read(remote) => {
                self.put_remote(first, remote);
                start(OPCODE_RDMA_READ, 1, 0)
            }
            Opcode::CompareSwap { remote, compare, swap } => {
                self.put_atomic(first, remote, swap, compare);
                start(OPCODE_ATOMIC_CS, 2, 0)
            }
            Opcode::FetchAdd { remote, add } => {
                self.put_atomic(first, remote, add, 0);
                start(OPCODE_ATOMIC_FA, 2, 0)
            }
            // A copy, because a reference would force the whole request into memory.
            Opcode::Bind(binding) => self.start_bind(&binding)?,
            Opcode::LocalInvalidate(key) => self.start_invalidate(key)?,
            Opcode::Datagram { .. }
            | Opcode::AtomicWrite(_)
            | Opcode::Flush { .. }
            | Opcode::Large { .. } => return Err(Refused::Lacks),
        })
    }

    /// Writes the segments before the data of a message over an extended connection, for the peer's shared receive queue with this number.
    /// The second value is that of [`Sends::start_message`].
    #[inline(always)]
    pub(super) fn start_extended(&mut self, opcode: &Opcode<'_>, srq: u32) -> Result<(Start, u32), Refused> {
        // Local operations do not name a queue.
        if matches!(opcode, Opcode::Bind(_) | Opcode::LocalInvalidate(_)) {
            return self.start_message(opcode, 1);
        }
        self.put_srq(self.head, srq);
        self.start_message(opcode, 1 + QUEUE_UNITS)
    }

    /// Writes the number of the shared receive queue of the request at `begin`.
    #[inline(always)]
    pub(super) fn put_srq(&mut self, begin: u32, srq: u32) {
        let segment = WqeXrcSeg { xrc_srqn: srq.into(), ..WqeXrcSeg::new_zeroed() };
        self.units.put(unit(begin) + 1, segment);
    }

    /// Writes the segment before the data of a datagram: its address. The second value is the immediate data that goes with it (zero if
    /// there is none).
    #[inline(always)]
    pub(super) fn start_datagram(&mut self, opcode: &Opcode<'_>) -> Result<(Start, u32), Refused> {
        let to = match opcode {
            Opcode::Datagram { ah, qp_num, qkey, immediate } => {
                &ToAddress { ah, qp_num: *qp_num, qkey: *qkey, immediate: *immediate }
            }
            // Without a destination, for a queue pair in the error state.
            Opcode::Send => &ToAddress { ah: &Address::default(), qp_num: 0, qkey: 0, immediate: None },
            _ => return Err(Refused::Lacks),
        };
        self.put_address(self.head, to.ah, to.qp_num, to.qkey);
        Ok(start_to(to))
    }

    /// Writes the address of the datagram at `begin`.
    #[inline(always)]
    pub(super) fn put_address(&mut self, begin: u32, ah: &Address, qp_num: u32, qkey: u32) {
        let first = unit(begin) + 1;
        for (number, part) in units(ah, qp_num, qkey).into_iter().enumerate() {
            self.units.put(first + number, part);
        }
    }

    #[inline(always)]
    fn put_remote(&mut self, first: u8, Remote { address, rkey }: Remote) {
        let segment = WqeRaddrSeg { raddr: address.into(), rkey: rkey.into(), ..WqeRaddrSeg::new_zeroed() };
        self.units.put(unit(self.head) + usize::from(first), segment);
    }

    #[inline(always)]
    fn put_atomic(&mut self, first: u8, remote: Remote, operand: u64, compare: u64) {
        self.put_remote(first, remote);
        let segment = WqeAtomicSeg { swap_add: operand.into(), compare: compare.into() };
        self.units.put(unit(self.head) + usize::from(first) + 1, segment);
    }
}
