//! Requests and completions as the device reads and writes them.
//!
//! Source: gdma.h and wr.c of providers/mana, rdma-core 65. All numbers are little-endian.

use std::borrow::Borrow;

use uverbs_abi::types::SendFlags;

use crate::driver::request::{Opcode, Refused, Sge};
use crate::driver::ring::units::{Units, Writing};

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

/// The place of a request in its ring. All of its parts have the size of a piece.
struct Wqe<'a> {
    ring: Writing<'a>,
    first: usize,
}

/// What was written: the number of pieces, that of their bytes, and the size of the request in bytes.
struct Written {
    pieces: usize,
    bytes: u64,
    size: usize,
}

impl<'a> Wqe<'a> {
    /// At a position in units.
    fn new(ring: &'a mut Units, at: u32) -> Self {
        Self { ring: ring.writing(), first: (at as usize).wrapping_mul(UNIT / PIECE) }
    }

    /// Puts words at a byte.
    fn put(&mut self, at: usize, words: [u32; 4]) {
        self.ring.put(self.first.wrapping_add(at / PIECE), words.map(u32::to_le));
    }

    /// Puts pieces from byte `at` on. No pieces are one of no bytes. The rest of the last unit is cleared.
    fn pieces(
        &mut self,
        at: usize,
        pieces: impl ExactSizeIterator<Item: Borrow<Sge>>,
    ) -> Result<Written, Refused> {
        let count = pieces.len();
        let mut written = Written { pieces: 0, bytes: 0, size: at };
        for piece in pieces {
            if written.pieces == count || written.size + PIECE > LARGEST {
                return Err(Refused::TooLarge);
            }
            let Sge { addr, length, lkey } = *piece.borrow();
            self.put(written.size, [addr as u32, (addr >> 32) as u32, lkey, length]);
            written.pieces += 1;
            written.bytes += u64::from(length);
            written.size += PIECE;
        }
        if written.pieces == 0 {
            self.put(at, [1, 0, 0, 0]);
            (written.pieces, written.size) = (1, at + PIECE);
        }
        if !written.size.is_multiple_of(UNIT) {
            self.put(written.size, [0; 4]);
            written.size += PIECE;
        }
        Ok(written)
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

/// Writes a send to its ring, at a position in units, and returns its size in units and the length of its message. A read has its pieces in
/// a request of its own: see [`answer`]. What was written before a refusal is at a place that is not published.
pub(super) fn send(
    (ring, at): (&mut Units, u32),
    send: &Send<'_>,
    pieces: impl ExactSizeIterator<Item: Borrow<Sge>>,
    read: u64,
) -> Result<(u32, u32), Refused> {
    let (kind, checks, remote, immediate) = match send.opcode {
        Opcode::Send => (SEND, true, None, None),
        Opcode::SendImmediate(immediate) => (SEND_IMMEDIATE, true, None, Some(immediate)),
        Opcode::Write(remote) => (WRITE, false, Some(remote), None),
        Opcode::WriteImmediate(remote, immediate) => (WRITE_IMMEDIATE, true, Some(remote), Some(immediate)),
        Opcode::Read(remote) => (READ, false, Some(remote), None),
        _ => return Err(Refused::Lacks),
    };
    // Immediate data is in network byte order here, and a number there.
    let immediate = immediate.map_or(0, u32::from_be);
    let mut wqe = Wqe::new(ring, at);
    let is_large = kind == WRITE_IMMEDIATE;
    let first = HEADER + LARGE + if is_large { PIECE } else { 0 };
    let Written { pieces, bytes, size } = wqe.pieces(first, pieces)?;
    let len = u32::try_from(bytes + read).ok().filter(|len| u64::from(*len) <= LONGEST);
    let len = len.ok_or(Refused::TooLarge)?;
    // What fills the last unit is named as pieces too.
    let all = (size - first) / PIECE;
    let words = (LARGE / 4) as u32 + u32::from(is_large);
    let what = all as u32 | words << 8 | send.mtu << 16 | if checks { CHECKS } else { 0 };
    let flag = |flag: SendFlags, bit| if send.flags.contains(flag) { bit } else { 0 };
    let flags = flag(SendFlags::FENCE, FENCE)
        | flag(SendFlags::SIGNALED, SIGNALED)
        | flag(SendFlags::SOLICITED, SOLICITED);
    let kind = kind | flags | (send.psn & PSN) << 8;
    wqe.put(0, [(all - pieces) as u32, what, kind, send.number & PSN]);
    match remote {
        Some(remote) => {
            wqe.put(PIECE, [(remote.address >> 32) as u32, remote.address as u32, remote.rkey, len]);
        }
        None => wqe.put(PIECE, [immediate, 0, 0, 0]),
    }
    if is_large {
        wqe.put(HEADER + LARGE, [immediate, 0, 0, 0]);
    }
    Ok((size as u32 / UNIT as u32, len))
}

/// Writes a receive to its ring, at a position in units, and returns its size in units and the number of its bytes.
pub(super) fn receive(
    to: (&mut Units, u32),
    pieces: impl ExactSizeIterator<Item: Borrow<Sge>>,
) -> Result<(u32, u64), Refused> {
    place(to, pieces, 0, 0)
}

/// The place for the answer to a read whose first packet has this number, likewise.
pub(super) fn answer(
    to: (&mut Units, u32),
    pieces: impl ExactSizeIterator<Item: Borrow<Sge>>,
    psn: u32,
) -> Result<(u32, u64), Refused> {
    place(to, pieces, CHECKS, psn & PSN)
}

fn place(
    (ring, at): (&mut Units, u32),
    pieces: impl ExactSizeIterator<Item: Borrow<Sge>>,
    flags: u32,
    oob: u32,
) -> Result<(u32, u64), Refused> {
    let mut wqe = Wqe::new(ring, at);
    let Written { pieces, bytes, size } = wqe.pieces(HEADER + SMALL, pieces)?;
    wqe.put(0, [0, pieces as u32 | (SMALL as u32 / 4) << 8 | flags, oob, 0]);
    Ok((size as u32 / UNIT as u32, bytes))
}
