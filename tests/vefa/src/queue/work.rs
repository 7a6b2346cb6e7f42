//! Send requests in the slots of a send queue (`efa_io_tx_wqe`, of 7.3 with slots of 128 bytes).

use crate::bytes::Bytes as _;
use crate::limits::{Limits, caps};

/// The status of a request (`efa_io_comp_status`).
pub(crate) mod status {
    pub(crate) const OK: u8 = 0;
    pub(crate) const FLUSHED: u8 = 1;
    pub(crate) const INTERNAL: u8 = 2;
    pub(crate) const UNSUPPORTED: u8 = 3;
    pub(crate) const BAD_ADDRESS_HANDLE: u8 = 4;
    pub(crate) const BAD_LOCAL_KEY: u8 = 5;
    pub(crate) const BAD_LENGTH: u8 = 6;
    pub(crate) const REMOTE_ADDRESS: u8 = 7;
    pub(crate) const REMOTE_ABORT: u8 = 8;
    pub(crate) const BAD_DESTINATION: u8 = 9;
    pub(crate) const NO_RECEIVE: u8 = 10;
    pub(crate) const REMOTE_LENGTH: u8 = 11;
    pub(crate) const UNRESPONSIVE: u8 = 13;
    pub(crate) const UNKNOWN_PEER: u8 = 14;
    pub(crate) const UNREACHABLE: u8 = 15;
}

/// The operation of a request (`efa_io_send_op_type`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Operation {
    Send = 0,
    Read = 1,
    Write = 2,
}

/// A range of memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Piece {
    pub(crate) length: u32,
    pub(crate) key: u32,
    pub(crate) address: u64,
}

impl Piece {
    pub(super) fn at(slot: &[u8], at: usize) -> Self {
        Self { length: slot.u32(at), key: slot.u32(at + 4), address: slot.u64(at + 8) }
    }
}

/// The source of the data.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Source {
    Inline(Vec<u8>),
    Pieces(Vec<Piece>),
}

impl Source {
    pub(crate) fn len(&self) -> u64 {
        match self {
            Self::Inline(bytes) => bytes.len() as u64,
            Self::Pieces(pieces) => pieces.iter().map(|piece| u64::from(piece.length)).sum(),
        }
    }
}

/// A request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Work {
    pub(crate) id: u64,
    pub(crate) wants_completion: bool,
    pub(crate) operation: Operation,
    pub(crate) destination_qp: u16,
    pub(crate) address: u16,
    pub(crate) qkey: u32,
    pub(crate) immediate: Option<u32>,
    pub(crate) source: Source,
    /// For reads and writes.
    pub(crate) remote: Piece,
}

const META: u8 = 1 << 7;
const META_EXTENSION: u8 = 1 << 6;
const INLINE: u8 = 1 << 5;
const IMMEDIATE: u8 = 1 << 4;
const ALONE: u8 = 1 << 2 | 1 << 3;
const DATA: usize = 32;
const RDMA_DATA: usize = 48;
const PIECE: usize = 16;

impl Work {
    /// Parses a slot: the request, and the status with which it ends immediately if it cannot be executed. `None` if the slot is from
    /// another round or contains no request.
    pub(crate) fn parse(
        slot: &[u8],
        phase: u8,
        is_reliable: bool,
        limits: &Limits,
    ) -> Option<(Self, Result<(), u8>)> {
        let (control, flags, length) = (slot.u8(2), slot.u8(3), slot.u16(6));
        if control & (META | META_EXTENSION) != META || flags & 1 != phase || flags & ALONE != ALONE {
            return None;
        }
        let operation = match control & 0xf {
            0 => Operation::Send,
            1 => Operation::Read,
            2 => Operation::Write,
            _ => return None,
        };
        let is_send = operation == Operation::Send;
        let at = if is_send { DATA } else { RDMA_DATA };
        let is_inline = control & INLINE != 0;
        let source = if is_inline {
            let bytes = slot.get(at..).and_then(|data| data.get(..usize::from(length))).unwrap_or_default();
            Source::Inline(bytes.to_vec())
        } else {
            let room = slot.len().saturating_sub(at) / PIECE;
            let mask = |piece: Piece| Piece { key: piece.key & 0xff_ffff, ..piece };
            Source::Pieces(
                (0..room.min(length.into())).map(|i| mask(Piece::at(slot, at + i * PIECE))).collect(),
            )
        };
        let work = Self {
            id: u64::from(slot.u16(0)) | slot.u64(24) >> 16 << 16,
            wants_completion: flags & 1 << 4 != 0,
            operation,
            destination_qp: slot.u16(4),
            address: slot.u16(12),
            qkey: slot.u32(16),
            immediate: (control & IMMEDIATE != 0).then(|| slot.u32(8)),
            source,
            remote: if is_send { Piece { length: 0, key: 0, address: 0 } } else { Piece::at(slot, DATA) },
        };
        let checked = work.check(slot.len(), length, is_reliable, limits);
        Some((work, checked))
    }

    fn check(&self, slot: usize, length: u16, is_reliable: bool, limits: &Limits) -> Result<(), u8> {
        let can = match self.operation {
            Operation::Send => true,
            Operation::Read => is_reliable && limits.has(caps::RDMA_READ) && self.immediate.is_none(),
            Operation::Write => is_reliable && limits.has(caps::RDMA_WRITE),
        };
        let is_send = self.operation == Operation::Send;
        let most = match &self.source {
            Source::Inline(_) if self.operation == Operation::Read => 0,
            Source::Inline(_) if slot > 64 => limits.inline_buf_size_ex,
            // A write has no room for data in a short slot.
            Source::Inline(_) => {
                if is_send {
                    limits.inline_buf_size as u16
                } else {
                    0
                }
            }
            Source::Pieces(_) => {
                if is_send {
                    limits.max_wr_send_sges
                } else {
                    limits.max_wr_rdma_sges
                }
            }
        };
        let have = match &self.source {
            Source::Inline(bytes) => bytes.len(),
            Source::Pieces(pieces) => pieces.len(),
        };
        if !can {
            return Err(status::UNSUPPORTED);
        }
        let longest = if is_send { limits.mtu } else { limits.max_rdma_size };
        let fits = length <= most && have == usize::from(length) && self.source.len() <= longest.into();
        if !fits || !is_send && self.source.len() != u64::from(self.remote.length) {
            return Err(status::BAD_LENGTH);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bytes::BytesMut as _;

    fn bytes(text: &str) -> Vec<u8> {
        let digits: Vec<_> = text.chars().filter_map(|c| c.to_digit(16)).map(|digit| digit as u8).collect();
        let mut bytes: Vec<_> = digits.as_chunks::<2>().0.iter().map(|[a, b]| a << 4 | b).collect();
        bytes.resize(64, 0);
        bytes
    }

    /// As libefa 65 writes it.
    const SEND: &str =
        "0004901c 080b0100 d2040000 01000000 11111111 00000000 00000000 00000000 00040000 01010000 00c07c02";
    const READ: &str = "0004811c 08410100 00000000 01000000 11111111 00000000 00000000 00000000 00040000 40020040 00c07b0c 00000000
        00040000 37010000 0090700c";

    fn parse(slot: &[u8]) -> Option<(Work, Result<(), u8>)> {
        Work::parse(slot, 0, true, &Limits::default())
    }

    #[test]
    fn slots_that_libefa_wrote_are_read() {
        let (send, checked) = parse(&bytes(SEND)).unwrap();
        let piece = Piece { length: 1024, key: 0x101, address: 0x27c_c000 };
        assert_eq!((checked, send.source), (Ok(()), Source::Pieces(vec![piece])));
        assert_eq!((send.id, send.destination_qp, send.address, send.qkey), (0x400, 0xb08, 1, 0x1111_1111));
        assert_eq!(
            (send.operation, send.immediate, send.wants_completion),
            (Operation::Send, Some(1234), true)
        );
        let (read, checked) = parse(&bytes(READ)).unwrap();
        assert_eq!(checked, Ok(()));
        assert_eq!(read.remote, Piece { length: 1024, key: 0x4000_0240, address: 0xc7b_c000 });
        assert_eq!(
            read.source,
            Source::Pieces(vec![Piece { length: 1024, key: 0x137, address: 0xc70_9000 }])
        );
    }

    #[test]
    fn ids_of_64_bits_have_their_upper_bits_elsewhere() {
        let mut slot = bytes(SEND);
        slot.put(26, &[1, 2, 3, 4, 5, 6]);
        assert_eq!(parse(&slot).unwrap().0.id, 0x0605_0403_0201_0400);
    }

    #[test]
    fn what_a_slot_may_not_say() {
        let with = |text, at, value| {
            let mut slot = bytes(text);
            slot.put_u8(at, value);
            parse(&slot).map(|(_, checked)| checked)
        };
        // Another round, no descriptor, not the only one, an unknown operation.
        assert_eq!(
            [with(SEND, 3, 0x1d), with(SEND, 2, 0x10), with(SEND, 3, 0x14), with(SEND, 2, 0x83)],
            [None; 4]
        );
        // Three segments; inline data that is longer than its room.
        assert_eq!([with(SEND, 6, 3), with(SEND, 6, 0xff)], [Some(Err(status::BAD_LENGTH)); 2]);
        let mut inline = bytes(SEND);
        (inline[2], inline[6]) = (0xa0, 33);
        assert_eq!(parse(&inline).unwrap().1, Err(status::BAD_LENGTH));
        inline[6] = 32;
        assert_eq!(parse(&inline).unwrap().1, Ok(()));
        // Different lengths on the two sides; inline data of a read; immediate data of a read.
        assert_eq!(with(READ, 32, 1), Some(Err(status::BAD_LENGTH)));
        assert_eq!(with(READ, 2, 0x91), Some(Err(status::UNSUPPORTED)));
        let limits = Limits { device_caps: 0, ..Limits::default() };
        let checked = |reliable, limits| Work::parse(&bytes(READ), 0, reliable, limits).unwrap().1;
        assert_eq!(
            [checked(false, &Limits::default()), checked(true, &limits)],
            [Err(status::UNSUPPORTED); 2]
        );
    }
}
