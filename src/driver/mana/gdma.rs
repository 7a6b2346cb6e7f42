//! Requests and completions as the device reads and writes them.
//!
//! Source: gdma.h and wr.c of providers/mana, rdma-core 65. All numbers are little-endian.

use std::borrow::Borrow;

use uverbs_abi::types::SendFlags;

use crate::driver::request::{Opcode, Refused, Sge};

/// The unit of the size of requests, in bytes; positions in a ring are counted in it, with 27 bits.
pub(super) const UNIT: usize = 32;
pub(super) const POSITION: u32 = (1 << 27) - 1;
/// Size in bytes of the header of a request, of what follows it out of band in a send and in a receive, and of a piece.
const HEADER: usize = 8;
const LARGE: usize = 24;
const SMALL: usize = 8;
const PIECE: usize = 16;
/// Maximum size in bytes of a request (`GDMA_MAX_SQE_SIZE`, include/net/mana/gdma.h, Linux 7.3).
pub(super) const LARGEST: usize = 512;

/// The numbers of packets have 24 bits.
pub(super) const PSN: u32 = 0xff_ffff;

/// How far packet `psn` is after `from`; negative if it is before.
pub(super) fn distance(from: u32, psn: u32) -> i32 {
    ((psn.wrapping_sub(from) << 8) as i32) >> 8
}

// The kinds of requests (`enum wqe_opcode_types`).
const SEND: u32 = 2;
const SEND_IMMEDIATE: u32 = 3;
const WRITE: u32 = 5;
const WRITE_IMMEDIATE: u32 = 6;
const READ: u32 = 7;

/// The request needs a receive at the peer, and is numbered among those that do; or it is the place of an answer.
const CHECKS: u32 = 1 << 30;
const FENCE: u32 = 1 << 5;
const SIGNALED: u32 = 1 << 6;
const SOLICITED: u32 = 1 << 7;

/// The kinds of completions.
pub(super) mod kind {
    pub(in crate::driver::mana) const SEND: u8 = 3;
    pub(in crate::driver::mana) const SEND_IMMEDIATE: u8 = 4;
    pub(in crate::driver::mana) const WRITE_IMMEDIATE: u8 = 6;
    pub(in crate::driver::mana) const ARMED: u8 = 7;
    pub(in crate::driver::mana) const ERROR: u8 = 34;
}

/// The size of a send with this many pieces in bytes.
pub(super) const fn send_size(pieces: usize) -> usize {
    // A send without pieces has one of no bytes, and a write with immediate data has that in the place of one.
    let pieces = if pieces == 0 { 1 } else { pieces };
    (HEADER + LARGE + pieces * PIECE).next_multiple_of(UNIT)
}

/// The size of a receive with this many pieces in bytes.
pub(super) const fn receive_size(pieces: usize) -> usize {
    let pieces = if pieces == 0 { 1 } else { pieces };
    (HEADER + SMALL + pieces * PIECE).next_multiple_of(UNIT)
}

/// A request that is written: its bytes, and how many there are.
pub(super) struct Wqe {
    bytes: [u8; LARGEST],
    size: usize,
}

impl Wqe {
    fn new() -> Self {
        Self { bytes: [0; LARGEST], size: 0 }
    }

    pub(super) fn bytes(&self) -> &[u8] {
        &self.bytes[..self.size]
    }

    /// Its size in units.
    pub(super) fn units(&self) -> u32 {
        (self.size / UNIT) as u32
    }

    fn put(&mut self, at: usize, bytes: &[u8]) {
        if let Some(place) = self.bytes.get_mut(at..at + bytes.len()) {
            place.copy_from_slice(bytes);
        }
    }

    fn word(&mut self, at: usize, value: u32) {
        self.put(at, &value.to_le_bytes());
    }

    /// Puts pieces from `at` on, and returns their number and that of their bytes. No pieces are one of no bytes.
    fn pieces(
        &mut self,
        at: usize,
        pieces: impl ExactSizeIterator<Item: Borrow<Sge>>,
    ) -> Result<(usize, u64), Refused> {
        let count = pieces.len();
        let (mut written, mut len) = (0, 0_u64);
        for piece in pieces {
            if written == count || at + (written + 1) * PIECE > LARGEST {
                return Err(Refused::TooLarge);
            }
            let Sge { addr, length, lkey } = *piece.borrow();
            self.piece(at + written * PIECE, addr, lkey, length);
            written += 1;
            len += u64::from(length);
        }
        if written == 0 {
            self.piece(at, 1, 0, 0);
            written = 1;
        }
        Ok((written, len))
    }

    fn piece(&mut self, at: usize, address: u64, key: u32, len: u32) {
        self.put(at, &address.to_le_bytes());
        self.word(at + 8, key);
        self.word(at + 12, len);
    }
}

/// What a send needs beside its pieces.
#[derive(Clone, Copy, Debug)]
pub(super) struct Send<'a> {
    pub(super) flags: SendFlags,
    pub(super) opcode: Opcode<'a>,
    pub(super) psn: u32,
    /// The number of the send.
    pub(super) number: u32,
    /// Bytes of a full packet.
    pub(super) mtu: u32,
}

/// The longest message in bytes: its packets have to have numbers that can be compared.
const LONGEST: u64 = 1 << 30;

/// A send, and the length of its message. A read has its pieces in a request of its own: see [`answer`].
pub(super) fn send(
    send: &Send<'_>,
    pieces: impl ExactSizeIterator<Item: Borrow<Sge>>,
    read: u64,
) -> Result<(Wqe, u32), Refused> {
    let (kind, checks, remote, immediate) = match send.opcode {
        Opcode::Send => (SEND, true, None, None),
        Opcode::SendImmediate(immediate) => (SEND_IMMEDIATE, true, None, Some(immediate)),
        Opcode::Write(remote) => (WRITE, false, Some(remote), None),
        Opcode::WriteImmediate(remote, immediate) => (WRITE_IMMEDIATE, true, Some(remote), Some(immediate)),
        Opcode::Read(remote) => (READ, false, Some(remote), None),
        _ => return Err(Refused::Lacks),
    };
    // Immediate data is in network byte order here, and a number there.
    let immediate = immediate.map(u32::from_be);
    let mut wqe = Wqe::new();
    let is_large = kind == WRITE_IMMEDIATE;
    let first = HEADER + LARGE + if is_large { PIECE } else { 0 };
    let (count, mut len) = wqe.pieces(first, pieces)?;
    len += read;
    let len = u32::try_from(len).ok().filter(|len| u64::from(*len) <= LONGEST).ok_or(Refused::TooLarge)?;
    wqe.size = (first + count * PIECE).next_multiple_of(UNIT);
    if wqe.size > LARGEST {
        return Err(Refused::TooLarge);
    }
    // What fills the last unit is named as pieces too.
    let all = (wqe.size - first) / PIECE;
    let words = (LARGE / 4) as u32 + u32::from(is_large);
    wqe.word(0, (all - count) as u32);
    wqe.word(4, all as u32 | words << 8 | send.mtu << 16 | if checks { CHECKS } else { 0 });
    let flag = |flag: SendFlags, bit| if send.flags.contains(flag) { bit } else { 0 };
    let flags = flag(SendFlags::FENCE, FENCE)
        | flag(SendFlags::SIGNALED, SIGNALED)
        | flag(SendFlags::SOLICITED, SOLICITED);
    wqe.word(8, kind | flags | (send.psn & PSN) << 8);
    wqe.word(12, send.number & PSN);
    match (remote, immediate) {
        (Some(remote), immediate) => {
            wqe.word(16, (remote.address >> 32) as u32);
            wqe.word(20, remote.address as u32);
            wqe.word(24, remote.rkey);
            wqe.word(28, len);
            if let Some(immediate) = immediate {
                wqe.word(HEADER + LARGE, immediate);
            }
        }
        (None, immediate) => wqe.word(16, immediate.unwrap_or(0)),
    }
    Ok((wqe, len))
}

/// A receive, and the number of its bytes.
pub(super) fn receive(pieces: impl ExactSizeIterator<Item: Borrow<Sge>>) -> Result<(Wqe, u64), Refused> {
    place(pieces, 0, 0)
}

/// The place for the answer to a read whose first packet has this number, and the number of its bytes.
pub(super) fn answer(
    pieces: impl ExactSizeIterator<Item: Borrow<Sge>>,
    psn: u32,
) -> Result<(Wqe, u64), Refused> {
    place(pieces, CHECKS, psn & PSN)
}

fn place(
    pieces: impl ExactSizeIterator<Item: Borrow<Sge>>,
    flags: u32,
    oob: u32,
) -> Result<(Wqe, u64), Refused> {
    let mut wqe = Wqe::new();
    let first = HEADER + SMALL;
    let (count, len) = wqe.pieces(first, pieces)?;
    wqe.size = receive_size(count);
    if wqe.size > LARGEST {
        return Err(Refused::TooLarge);
    }
    wqe.word(4, count as u32 | (SMALL as u32 / 4) << 8 | flags);
    wqe.word(8, oob);
    Ok((wqe, len))
}
