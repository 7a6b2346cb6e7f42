//! Batches of requests of one piece each: messages to the connected peer, operations on its memory, and datagrams. Room for all of them is
//! looked for once, and a request is written as one item, or as two.

use std::mem::size_of;

use uverbs_abi::mlx5::wqe::{
    OPCODE_RDMA_READ, OPCODE_RDMA_WRITE, OPCODE_RDMA_WRITE_IMM, OPCODE_SEND, OPCODE_SEND_IMM, SEND_WQE_BB,
};
use uverbs_abi::types::SendFlags;
use zerocopy::{Immutable, IntoBytes};

use super::address::{Block, units};
use super::receives::segment;
use super::segments::{UNIT, mode};
use super::sends::unit;
use super::track::Entry;
use super::writing::{ADDRESSED, MESSAGES};
use crate::driver::request::{Opcode, Remote, Sge, Terms, ToAddress};
use crate::driver::ring::units;

/// Units of the largest request of a kind: control segment, address or remote memory, and piece.
pub(super) const fn most_units(kind: u8) -> u32 {
    match kind {
        MESSAGES => 3,
        ADDRESSED => 5,
        _ => unreachable!(),
    }
}

/// Blocks of each request of a kind.
pub(super) const fn blocks(kind: u8) -> u32 {
    (most_units(kind) * UNIT as u32).div_ceil(SEND_WQE_BB as u32)
}

const _: () = assert!(size_of::<Block>() == SEND_WQE_BB && blocks(ADDRESSED) == 2 && blocks(MESSAGES) == 1);

/// The block of an operation on the peer's memory.
#[derive(IntoBytes, Immutable)]
#[repr(C)]
struct OnRemote {
    control: [u64; 2],
    remote: [u64; 2],
    piece: [u64; 2],
    unused: [u64; 2],
}

/// A send ring while such a batch is written. Its values are copied here, so that the compiler keeps them in registers.
#[derive(Debug)]
#[cfg_attr(not(feature = "raw"), expect(unreachable_pub))]
pub struct Plain<'a, const KIND: u8> {
    pub(super) units: units::Writing<'a>,
    pub(super) places: &'a [Entry],
    /// The number of the queue pair, as it is in a control segment.
    pub(super) number: u32,
    pub(super) head: u32,
    /// The last place at which a request may begin, for [`Plain::put_if_free`].
    pub(super) end: u32,
    /// The first bytes of the last request, which are written to the doorbell.
    pub(super) told: [u8; 8],
}

impl<const KIND: u8> Plain<'_, KIND> {
    /// The slot that is filled next.
    #[inline(always)]
    pub(crate) fn next_slot(&self) -> u32 {
        self.head & (self.places.len() as u32).wrapping_sub(1)
    }

    /// Fills the next slot. Returns false, with nothing filled, if the piece has no bytes or too many, and for operations other than sends,
    /// writes and reads.
    #[inline(always)]
    pub(crate) fn put(&mut self, wr_id: u64, flags: SendFlags, operation: &impl Terms, piece: &Sge) -> bool {
        let end = self.head.wrapping_add(blocks(KIND));
        let (Some(piece), Some(place)) = (segment(piece), self.places.get(self.next_slot() as usize)) else {
            return false;
        };
        let is_put = if KIND == ADDRESSED {
            operation.datagram().map(|to| self.put_datagram(flags, &to, piece))
        } else {
            self.put_message(flags, &operation.opcode(), piece)
        };
        if is_put.is_some() {
            place.set(end, wr_id);
            self.head = end;
        }
        is_put.is_some()
    }

    /// The same if the next slot is known to be free.
    #[cfg(feature = "raw")]
    #[inline(always)]
    pub fn put_if_free(&mut self, wr_id: u64, flags: SendFlags, operation: &impl Terms, piece: &Sge) -> bool {
        self.end.wrapping_sub(self.head) as i32 >= 0 && self.put(wr_id, flags, operation, piece)
    }

    /// The control segment of the next request, of so many units.
    #[inline(always)]
    fn control(&mut self, flags: SendFlags, opcode: u8, with: u32, units: u32) -> [u64; 2] {
        let first = (self.head & 0xffff) << 8 | u32::from(opcode);
        self.told = (u64::from(first) << 32 | u64::from(self.number | units)).to_be_bytes();
        let [a, b, c, d] = with.to_ne_bytes();
        [u64::from_ne_bytes(self.told), u64::from_ne_bytes([0, 0, 0, mode(flags), a, b, c, d])]
    }

    #[inline(always)]
    fn put_datagram(&mut self, flags: SendFlags, to: &ToAddress<'_>, piece: [u64; 2]) {
        let opcode = if to.immediate.is_some() { OPCODE_SEND_IMM } else { OPCODE_SEND };
        let control = self.control(flags, opcode, to.immediate.unwrap_or(0), most_units(ADDRESSED));
        self.units.put(self.head as usize, Block { control, to: units(to.ah, to.qp_num, to.qkey) });
        self.units.put(unit(self.head.wrapping_add(1)), piece);
    }

    #[inline(always)]
    fn put_message(&mut self, flags: SendFlags, opcode: &Opcode<'_>, piece: [u64; 2]) -> Option<()> {
        match *opcode {
            Opcode::Send => self.put_send(flags, OPCODE_SEND, 0, piece),
            Opcode::SendImmediate(number) => self.put_send(flags, OPCODE_SEND_IMM, number, piece),
            Opcode::Write(remote) => self.put_on_remote(flags, OPCODE_RDMA_WRITE, 0, remote, piece),
            Opcode::WriteImmediate(remote, number) => {
                self.put_on_remote(flags, OPCODE_RDMA_WRITE_IMM, number, remote, piece);
            }
            Opcode::Read(remote) => self.put_on_remote(flags, OPCODE_RDMA_READ, 0, remote, piece),
            _ => return None,
        }
        Some(())
    }

    #[inline(always)]
    fn put_send(&mut self, flags: SendFlags, opcode: u8, with: u32, piece: [u64; 2]) {
        let control = self.control(flags, opcode, with, 2);
        // Half of a block.
        self.units.put(self.head.wrapping_mul(2) as usize, [control, piece]);
    }

    #[inline(always)]
    fn put_on_remote(&mut self, flags: SendFlags, opcode: u8, with: u32, remote: Remote, piece: [u64; 2]) {
        let control = self.control(flags, opcode, with, 3);
        let remote = [remote.address.to_be(), (u64::from(remote.rkey) << 32).to_be()];
        self.units.put(self.head as usize, OnRemote { control, remote, piece, unused: [0; 2] });
    }
}
