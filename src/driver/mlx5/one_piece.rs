//! The shorter path for requests of one piece each: messages to the connected peer, operations on its memory, and datagrams. Room for all of
//! them is looked for once, and a request is written as one item, or as two.

use std::borrow::Borrow;
use std::mem::size_of;

use uverbs_abi::mlx5::wqe::{
    OPCODE_RDMA_READ, OPCODE_RDMA_WRITE, OPCODE_RDMA_WRITE_IMM, OPCODE_SEND, OPCODE_SEND_IMM, SEND_WQE_BB,
};
use uverbs_abi::types::SendFlags;
use zerocopy::{Immutable, IntoBytes};

use super::Form;
use super::address::{Block, units as address_units};
use super::receives::segment;
use super::segments::{UNIT, mode};
use super::sends::{Sends, Start, unit};
use super::track::Entry;
use crate::driver::request::{
    ADDRESSED, Data, FRAMES, FrameHead, InlineParts, MESSAGES, Opcode, Refused, Remote, Sge, Terms, ToAddress,
};
use crate::driver::ring::units;
use crate::driver::seam::Lower;

/// Units of the largest request of a kind: control segment, address or remote memory, and piece.
const fn most_units(kind: u8) -> u32 {
    if kind == MESSAGES { 3 } else { 5 }
}

/// Blocks of each request of a kind.
const fn blocks(kind: u8) -> u32 {
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
pub(super) struct OnePiece<'a, const KIND: u8> {
    units: units::Writing<'a>,
    places: &'a [Entry],
    /// The number of the queue pair, as it is in a control segment.
    number: u32,
    head: u32,
    /// The last place at which a request may begin.
    end: u32,
    /// The first bytes of the last request, which are written to the doorbell.
    told: [u8; 8],
    after: After<'a>,
}

/// Where the values go at the end.
#[derive(Debug)]
struct After<'a> {
    head: &'a mut u32,
    told: &'a mut [u8; 8],
    begun: &'a mut Option<Start>,
}

impl<const KIND: u8> Drop for OnePiece<'_, KIND> {
    #[inline]
    fn drop(&mut self) {
        (*self.after.head, *self.after.told, *self.after.begun) = (self.head, self.told, None);
    }
}

impl Sends {
    /// Borrows the ring in this way. `None` if there is no room for `room` requests; if requests of one piece need further checks; and in a
    /// queue of requests of another kind.
    #[inline(always)]
    pub(super) fn one_piece<const KIND: u8>(&mut self, room: usize) -> Option<OnePiece<'_, KIND>> {
        // With room for the largest request in place of the last one, as on the path for all requests.
        let blocks = room.saturating_sub(1).saturating_mul(blocks(KIND) as usize);
        let blocks = blocks.saturating_add(self.most_blocks as usize);
        if !self.is_of_one_piece::<KIND>() || room > 0 && !self.is_free(blocks) {
            return None;
        }
        let Self { units, track, number, head, told, limit, most_blocks, begun, .. } = self;
        let (units, places) = (units.writing(), track.sends.all());
        let end = limit.wrapping_sub(*most_blocks);
        let (number, told_now, head_now) = (*number, *told, *head);
        let after = After { head, told, begun };
        Some(OnePiece { units, places, number, head: head_now, end, told: told_now, after })
    }

    /// Whether requests of one piece may be written without further checks, if they are of this kind.
    #[inline(always)]
    fn is_of_one_piece<const KIND: u8>(&self) -> bool {
        let form = if KIND == MESSAGES { Form::Messages } else { Form::Datagrams };
        KIND != FRAMES
            && self.form == form
            && self.is_ready
            && self.change == 0
            && self.most_units >= most_units(KIND)
    }
}

impl<const KIND: u8> Lower for OnePiece<'_, KIND> {
    #[inline(always)]
    fn next_slot(&self) -> u32 {
        self.head & (self.places.len() as u32).wrapping_sub(1)
    }

    #[inline(always)]
    fn put<'b, P, B>(
        &mut self,
        wr_id: u64,
        flags: SendFlags,
        opcode: &impl Terms,
        _: Option<FrameHead>,
        data: &Data<P, B>,
    ) -> Result<(), Refused>
    where
        P: ExactSizeIterator<Item: Borrow<Sge>> + Clone,
        B: InlineParts<'b>,
    {
        let Data::Pieces(pieces) = data else { return Err(Refused::Lacks) };
        let only = pieces.clone().next().filter(|_| pieces.len() == 1);
        let Some(piece) = only.as_ref().and_then(|piece| segment(piece.borrow())) else {
            return Err(Refused::Lacks);
        };
        if (self.end.wrapping_sub(self.head) as i32) < 0 {
            return Err(Refused::Full);
        }
        let end = self.head.wrapping_add(blocks(KIND));
        let Some(place) = self.places.get(self.next_slot() as usize) else { return Err(Refused::Full) };
        if KIND == ADDRESSED {
            let to = opcode.datagram().ok_or(Refused::Lacks)?;
            self.put_datagram(flags, &to, piece);
        } else {
            self.put_message(flags, &opcode.opcode(), piece)?;
        }
        place.set(end, wr_id);
        self.head = end;
        Ok(())
    }
}

impl<const KIND: u8> OnePiece<'_, KIND> {
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
        self.units.put(self.head as usize, Block { control, to: address_units(to.ah, to.qp_num, to.qkey) });
        self.units.put(unit(self.head.wrapping_add(1)), piece);
    }

    #[inline(always)]
    fn put_message(&mut self, flags: SendFlags, opcode: &Opcode<'_>, piece: [u64; 2]) -> Result<(), Refused> {
        match *opcode {
            Opcode::Send => self.put_send(flags, OPCODE_SEND, 0, piece),
            Opcode::SendImmediate(number) => self.put_send(flags, OPCODE_SEND_IMM, number, piece),
            Opcode::Write(remote) => self.put_on_remote(flags, OPCODE_RDMA_WRITE, 0, remote, piece),
            Opcode::WriteImmediate(remote, number) => {
                self.put_on_remote(flags, OPCODE_RDMA_WRITE_IMM, number, remote, piece);
            }
            Opcode::Read(remote) => self.put_on_remote(flags, OPCODE_RDMA_READ, 0, remote, piece),
            _ => return Err(Refused::Lacks),
        }
        Ok(())
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
