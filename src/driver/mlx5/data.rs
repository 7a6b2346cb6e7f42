//! The data of requests: segments that describe memory, or the bytes themselves.
//!
//! Source: `struct mlx5_wqe_data_seg` and `struct mlx5_wqe_inline_seg`, qp.h, Linux 6.1.

use uverbs_abi::mlx5::wqe::{INLINE_SEG, OPCODE_ATOMIC_CS, OPCODE_ATOMIC_FA};
use zerocopy::big_endian::U32;

use super::receives::data_segment;
use super::segments::UNIT;
use super::sends::{Sends, Start, unit};
use super::sizes::INLINE_HEAD;
use crate::driver::request::{Data, FRAMES, InlineParts, Refused, Sge};

impl Sends {
    /// Writes the data of the request at `begin`, and returns the number of its units.
    #[inline(always)]
    pub(super) fn put_data<'b, const KIND: u8, P, B>(
        &mut self,
        begin: u32,
        start: Start,
        data: &Data<P, B>,
    ) -> Result<u32, Refused>
    where
        P: ExactSizeIterator<Item = Sge> + Clone,
        B: InlineParts<'b>,
    {
        let (units, mut left_out) = (u32::from(start.units), u32::from(start.left_out));
        match data {
            // The response has eight bytes, whatever room there is.
            Data::Pieces(pieces)
                if KIND != FRAMES && matches!(start.opcode, OPCODE_ATOMIC_CS | OPCODE_ATOMIC_FA) =>
            {
                let room = |piece: Sge| Sge { length: piece.length.min(8), ..piece };
                self.put_pieces(begin, units, pieces.clone().take(1).map(room))
            }
            Data::Pieces(pieces) if left_out == 0 => self.put_pieces(begin, units, pieces.clone()),
            Data::Pieces(pieces) => {
                let pieces = pieces.clone().map(|piece| {
                    let cut = left_out.min(piece.length);
                    left_out -= cut;
                    let (addr, length) = (piece.addr.wrapping_add(cut.into()), piece.length - cut);
                    Sge { addr, length, ..piece }
                });
                self.put_pieces(begin, units, pieces)
            }
            Data::Inline(bytes) => {
                let len = data.len().saturating_sub(left_out.into());
                self.put_inline(begin, units, len, left_out as usize, bytes.clone())
            }
        }
    }

    #[inline(always)]
    fn put_pieces(
        &mut self,
        begin: u32,
        mut units: u32,
        pieces: impl Iterator<Item = Sge>,
    ) -> Result<u32, Refused> {
        for Sge { addr, length, lkey } in pieces {
            // Zero bytes need no segment, and for the largest lengths the bit has another meaning.
            if length.wrapping_sub(1) >= INLINE_SEG - 1 {
                if length == 0 {
                    continue;
                }
                return Err(Refused::TooLarge);
            }
            if units == self.most_units {
                return Err(Refused::TooLarge);
            }
            self.units.put(unit(begin).wrapping_add(units as usize), data_segment(addr, length, lkey));
            units += 1;
        }
        Ok(units)
    }

    /// Writes `len` bytes, those after the first `left_out`.
    #[inline(always)]
    fn put_inline<'b>(
        &mut self,
        begin: u32,
        units: u32,
        len: u64,
        mut left_out: usize,
        bytes: impl Iterator<Item = &'b [u8]>,
    ) -> Result<u32, Refused> {
        let end = self.inline_units(units, len)?;
        if len == 0 {
            return Ok(end);
        }
        let mut at = self.put_inline_head(begin, units, len as u32);
        let mut left = len as usize;
        for mut bytes in bytes {
            if left_out > 0 {
                let cut = left_out.min(bytes.len());
                left_out -= cut;
                bytes = &bytes[cut..];
            }
            // All of them, unless `bytes` has changed since its length was determined.
            bytes = &bytes[..bytes.len().min(left)];
            self.units.put_bytes(at, bytes);
            (at, left) = (at.wrapping_add(bytes.len()), left - bytes.len());
        }
        Ok(end)
    }

    /// Number of units of a request with `len` bytes after its first `units`, if there is room for them.
    #[inline(always)]
    pub(super) fn inline_units(&self, units: u32, len: u64) -> Result<u32, Refused> {
        // Zero bytes need no segment.
        let more =
            if len == 0 { 0 } else { len.saturating_add((INLINE_HEAD + UNIT - 1) as u64) / UNIT as u64 };
        let units = u64::from(units) + more;
        if units > self.most_units.into() { Err(Refused::TooLarge) } else { Ok(units as u32) }
    }

    /// Writes the length of the bytes after the first `units` of a request, and returns where the bytes begin.
    #[inline(always)]
    pub(super) fn put_inline_head(&mut self, begin: u32, units: u32, len: u32) -> usize {
        let at = unit(begin).wrapping_add(units as usize).wrapping_mul(UNIT);
        self.units.put(at / INLINE_HEAD, U32::from(len | INLINE_SEG));
        at.wrapping_add(INLINE_HEAD)
    }
}
