//! Work queues: rings of requests of several units of 32 bytes, which may go on at the beginning.

use vpci::bytes::Bytes as _;
use vpci::{Fault, Memory};

use crate::region::Pages;

const UNIT: u32 = 32;
/// Maximum size of a request in bytes.
const LARGEST: usize = 512;
/// Number of words out of band of a request that has 16 bytes more before its pieces.
pub(crate) const OVERSIZED: u32 = 7;

/// A range of memory (`struct gdma_sge`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Piece {
    pub(crate) address: u64,
    pub(crate) key: u32,
    pub(crate) len: u32,
}

/// A request.
#[derive(Clone, Debug)]
pub(crate) struct Wqe {
    /// Position of its first byte, counted on after the end of the ring.
    pub(crate) at: u32,
    /// Size in bytes.
    pub(crate) size: u32,
    /// Number of words out of band.
    pub(crate) words: u32,
    /// The first piece is a part of what is out of band.
    pub(crate) has_address: bool,
    /// The packets' maximum number of bytes.
    pub(crate) unit: u32,
    pub(crate) checks: bool,
    pub(crate) oob: [u8; 24],
    /// The 16 bytes more of one with [`OVERSIZED`].
    pub(crate) more: [u8; 16],
    /// Its pieces, without those that only fill its last unit.
    pub(crate) pieces: Vec<Piece>,
}

impl Wqe {
    /// Number of bytes of its pieces.
    pub(crate) fn len(&self) -> u64 {
        self.pieces.iter().map(|piece| u64::from(piece.len)).sum()
    }

    fn parse(at: u32, bytes: &[u8]) -> Option<Self> {
        let (first, second) = (bytes.u32(0), bytes.u32(4));
        let words = second >> 8 & 7;
        let (oob, more) = match words {
            OVERSIZED => (24, 16),
            2 | 6 => (words as usize * 4, 0),
            _ => return None,
        };
        let begin = 8 + oob + more;
        let count = (second & 0xff) as usize;
        let size = (begin + count * 16).next_multiple_of(UNIT as usize);
        let real = count.checked_sub((first & 0x1f) as usize)?;
        let body = bytes.get(..size)?;
        let piece = |i: usize| {
            let at = begin + i * 16;
            Piece { address: body.u64(at), key: body.u32(at + 8), len: body.u32(at + 12) }
        };
        // The pieces of a sender fill its last unit, since it names them all.
        Some(Self {
            at,
            size: size as u32,
            words,
            has_address: second >> 11 & 1 == 1,
            unit: second >> 16 & 0x3fff,
            checks: second >> 30 & 1 == 1,
            oob: body.get(8..8 + oob).unwrap_or_default().array(0),
            more: body.array(8 + oob),
            pieces: (0..real).map(piece).collect(),
        })
    }
}

/// A work queue.
#[derive(Debug, Default)]
pub(crate) struct Wq {
    pages: Pages,
    /// Size of the ring in bytes.
    size: u32,
    /// Positions in bytes, counted on after the end of the ring: of what the device takes next, and of what the driver writes next.
    consumer: u32,
    producer: u32,
    pub(crate) doorbell: u32,
}

impl Wq {
    pub(crate) fn new(pages: Pages, size: u32, doorbell: u32) -> Self {
        Self { pages, size, consumer: 0, producer: 0, doorbell }
    }

    pub(crate) fn reset(&mut self) {
        (self.consumer, self.producer) = (0, 0);
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.consumer == self.producer
    }

    pub(crate) fn set_producer(&mut self, position: u32) {
        self.producer = position;
    }

    /// Whether so many units can lie between two requests of the ring. Positions have 27 bits.
    pub(crate) fn may_be_ahead(&self, units: u32) -> bool {
        units & 0x7ff_ffff < self.size / UNIT
    }

    /// The bytes behind the ring.
    pub(crate) fn behind<const N: usize>(&self, memory: &Memory) -> Result<[u8; N], Fault> {
        let mut bytes = [0; N];
        self.pages.read(memory, self.size.into(), &mut bytes)?;
        Ok(bytes)
    }

    /// Takes the oldest request.
    ///
    /// # Errors
    /// What is wrong with it: a text for the tests.
    pub(crate) fn take(&mut self, memory: &Memory) -> Result<Option<Wqe>, String> {
        let left = self.producer.wrapping_sub(self.consumer);
        if left == 0 {
            return Ok(None);
        }
        if left > self.size || !left.is_multiple_of(UNIT) {
            self.consumer = self.producer;
            return Err(format!("a doorbell is {left} bytes ahead in a ring of {}", self.size));
        }
        let mut bytes = [0; LARGEST];
        let len = LARGEST.min(left as usize);
        let read: Result<(), Fault> =
            self.pages.read_ring(memory, self.size.into(), self.consumer, &mut bytes[..len]);
        read.map_err(|fault| fault.to_string())?;
        match Wqe::parse(self.consumer, &bytes[..len]) {
            Some(wqe) => {
                self.consumer = self.consumer.wrapping_add(wqe.size);
                Ok(Some(wqe))
            }
            None => {
                self.consumer = self.producer;
                Err(format!("no request: {:08x} {:08x}", bytes.u32(0), bytes.u32(4)))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use vpci::bytes::BytesMut as _;

    use super::*;

    fn ring() -> (Memory, Wq) {
        let memory = Memory::zeroed(&[(0x1000, 4096)]);
        (memory, Wq::new(Pages::one(0x1000), 4096, 1))
    }

    #[test]
    fn requests_go_on_at_the_beginning_of_the_ring() {
        let (memory, mut wq) = ring();
        for round in 0..200_u32 {
            // Three pieces, of which the last one fills the unit: 96 bytes, which do not divide the ring.
            let mut wqe = [0; 96];
            wqe.put_u32(0, 1);
            wqe.put_u32(4, 4 | 6 << 8 | 1024 << 16 | 1 << 30);
            wqe.put_u32(8, round);
            (0..3).for_each(|i| wqe.put_u32(32 + i * 16 + 12, 10));
            let at = round.wrapping_mul(96);
            for (i, byte) in wqe.iter().enumerate() {
                memory.write(0x1000 + u64::from((at + i as u32) % 4096), &[*byte]).unwrap();
            }
            wq.set_producer(at.wrapping_add(96));
            let found = wq.take(&memory).unwrap().unwrap();
            assert_eq!((found.at, found.size, found.len(), found.unit), (at, 96, 30, 1024));
            assert_eq!((found.oob.u32(0), found.pieces.len(), found.checks), (round, 3, true));
            assert!(wq.is_empty() && wq.take(&memory).unwrap().is_none());
        }
    }

    #[test]
    fn nonsense_is_told() {
        let (memory, mut wq) = ring();
        for position in [4128, 33, u32::MAX] {
            wq.set_producer(position);
            assert!(wq.take(&memory).is_err(), "{position}");
            wq.reset();
        }
        // Zeros are no request, and neither is one that is longer than what was written.
        for word in [0, 7 << 8, 255 | 2 << 8] {
            memory.write(0x1004, &u32::to_le_bytes(word)).unwrap();
            wq.set_producer(32);
            assert!(wq.take(&memory).is_err(), "{word:#x}");
            wq.reset();
        }
    }
}
