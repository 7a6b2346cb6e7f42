//! Batches of datagrams of one piece each: a request is two blocks, and the first block is written as one item.

use std::mem::size_of;

use uverbs_abi::mlx5::wqe::{OPCODE_SEND, OPCODE_SEND_IMM, SEND_WQE_BB};
use uverbs_abi::types::SendFlags;

use super::address::{Block, units};
use super::receives::segment;
use super::segments::{UNIT, mode};
use super::sends::unit;
use super::track::Entry;
use crate::driver::request::{Sge, ToAddress};
use crate::driver::ring::units;

/// Units of a request (control segment, address and piece), and its blocks.
pub(super) const UNITS: u32 = 5;
pub(super) const BLOCKS: u32 = (UNITS * UNIT as u32).div_ceil(SEND_WQE_BB as u32);

const _: () = assert!(size_of::<Block>() == SEND_WQE_BB && BLOCKS == 2);

/// A send ring while such a batch is written. Its values are copied here, so that the compiler keeps them in registers.
#[derive(Debug)]
pub(crate) struct Datagrams<'a> {
    pub(super) units: units::Writing<'a>,
    pub(super) places: &'a [Entry],
    /// The second word of each request.
    pub(super) second: u32,
    pub(super) head: u32,
    /// The first bytes of the last request, which are written to the doorbell.
    pub(super) told: [u8; 8],
}

impl Datagrams<'_> {
    /// The slot that is filled next.
    #[inline(always)]
    pub(crate) fn next_slot(&self) -> u32 {
        self.head & (self.places.len() as u32).wrapping_sub(1)
    }

    /// Fills the next slot. Returns false, with nothing filled, if the piece has no bytes or too many.
    #[inline(always)]
    pub(crate) fn put(&mut self, wr_id: u64, flags: SendFlags, to: &ToAddress<'_>, piece: &Sge) -> bool {
        let (begin, end) = (self.head, self.head.wrapping_add(BLOCKS));
        let (Some(piece), Some(place)) = (segment(piece), self.places.get(self.next_slot() as usize)) else {
            return false;
        };
        let opcode = if to.immediate.is_some() { OPCODE_SEND_IMM } else { OPCODE_SEND };
        let first = (begin & 0xffff) << 8 | u32::from(opcode);
        self.told = (u64::from(first) << 32 | u64::from(self.second)).to_be_bytes();
        let [a, b, c, d] = to.immediate.unwrap_or(0).to_ne_bytes();
        let control = [u64::from_ne_bytes(self.told), u64::from_ne_bytes([0, 0, 0, mode(flags), a, b, c, d])];
        self.units.put(begin as usize, Block { control, to: units(to.ah, to.qp_num, to.qkey) });
        self.units.put(unit(begin.wrapping_add(1)), piece);
        place.set(end, wr_id);
        self.head = end;
        true
    }
}
