//! Requests that a program writes in the device's format, and completions that it reads in it.
//!
//! The queues keep the positions: they write a request to the next free place, know which number it has, and tell the device of it. Other
//! requests can therefore be posted before and after it, and a poll finds its completion.

use uverbs_abi::mlx5::wqe::Cqe64;

use super::receives::{self, Receives};
use super::sends::{MOST_UNITS, Sends, unit};
use super::{Completions, segments::UNIT};
use crate::driver::completion::Extended;
use crate::driver::request::Refused;

/// A part of a request.
pub(crate) type Unit = [u8; UNIT];

/// Units of a block.
const UNITS: u32 = unit(1) as u32;

/// The bits of the first word of a request that name its place, and so are not the program's.
const PLACE: u32 = 0x00ff_ff00;

impl Sends {
    /// The number of blocks of 64 bytes that are free.
    pub(crate) fn free_blocks(&self) -> u32 {
        if self.is_ready { self.track.sends.free(self.head) } else { 0 }
    }

    /// The counter of the next block.
    pub(crate) fn next_block(&self) -> u16 {
        self.head as u16
    }

    /// Writes a request, whose first unit is a control segment. Its place, its length and the number of the queue pair are written here.
    pub(crate) fn put_units(&mut self, wr_id: u64, request: &[Unit]) -> Result<(), Refused> {
        let units = request.len() as u32;
        let [[a, b, c, d, _, _, _, _, rest @ ..], segments @ ..] = request else {
            return Err(Refused::TooLarge);
        };
        if request.len() > MOST_UNITS as usize {
            return Err(Refused::TooLarge);
        }
        if !self.is_ready {
            return Err(Refused::NotReady);
        }
        let (begin, blocks) = (self.head, units.div_ceil(UNITS));
        if self.free_blocks() < blocks {
            return Err(Refused::Full);
        }
        let first = u32::from_be_bytes([*a, *b, *c, *d]) & !PLACE | (begin & 0xffff) << 8;
        let second = self.number | units;
        self.told = (u64::from(first) << 32 | u64::from(second)).to_be_bytes();
        let at = unit(begin);
        self.units.put(at, [u64::from_ne_bytes(self.told), u64::from_ne_bytes(*rest)]);
        for (more, segment) in segments.iter().enumerate() {
            self.units.put(at.wrapping_add(more + 1), *segment);
        }
        // Data cannot be added to it, and no place after it is known to be free.
        (self.begun, self.head) = (None, begin.wrapping_add(blocks));
        self.limit = self.head;
        self.track.sends.post(begin, self.head, wr_id);
        Ok(())
    }
}

impl Receives {
    /// Writes a request of at most as many units as a place has, each of which describes a piece of memory.
    pub(crate) fn put_units(&mut self, wr_id: u64, request: &[Unit]) -> Result<(), Refused> {
        self.writing().put_units(wr_id, request)
    }
}

impl receives::Writing<'_> {
    fn put_units(&mut self, wr_id: u64, request: &[Unit]) -> Result<(), Refused> {
        self.put_as(wr_id, |mut units, first, most| {
            if request.len() > most as usize {
                return Err(Refused::TooLarge);
            }
            for (more, segment) in request.iter().enumerate() {
                units.put(first.wrapping_add(more), *segment);
            }
            if request.len() < most as usize {
                units.put(first.wrapping_add(request.len()), receives::END);
            }
            Ok(())
        })
    }
}

impl Completions {
    /// Takes the next completion, with its entry.
    pub(crate) fn take_entry(&mut self, may_take: impl Fn() -> bool) -> Option<(Extended, Cqe64)> {
        let taken = self.next_other(&may_take);
        // Without a completion, entries that belong to no queue pair are given back.
        let taken = match taken {
            Ok(said) => Some((said, self.ring.entry(self.position.wrapping_sub(1)).read())),
            Err(true) if may_take() => None,
            Err(_) => return None,
        };
        self.release();
        taken
    }
}
