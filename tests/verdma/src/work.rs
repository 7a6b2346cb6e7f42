//! Requests in the slots of a queue.

use uverbs::raw::roce::{Atomic, Remote};
use vpci::Memory;
use vpci::transport::{Piece, Receive, Status, Work as Operation};

use crate::bytes::Bytes as _;
use crate::memory::SLOT;
use crate::qp::Work;

/// Operations of requests and completions, `enum erdma_opcode`.
pub(crate) mod opcode {
    pub(crate) const WRITE: u8 = 0;
    pub(crate) const READ: u8 = 1;
    pub(crate) const SEND: u8 = 2;
    pub(crate) const SEND_IMMEDIATE: u8 = 3;
    pub(crate) const RECEIVED: u8 = 4;
    pub(crate) const RECEIVED_WRITE: u8 = 5;
    pub(crate) const RECEIVED_INVALIDATE: u8 = 6;
    pub(crate) const WRITE_IMMEDIATE: u8 = 9;
    pub(crate) const RECEIVED_IMMEDIATE: u8 = 12;
    pub(crate) const SEND_INVALIDATE: u8 = 13;
    pub(crate) const COMPARE_SWAP: u8 = 17;
    pub(crate) const FETCH_ADD: u8 = 18;
}

/// Limits of a request.
const MOST_SLOTS: usize = 4;
const MOST_PIECES: usize = 6;
const MOST_INLINE: usize = 96;
const PIECE: usize = 16;

/// The data of a request.
#[derive(Clone, Debug)]
pub(crate) enum Source {
    Pieces(Vec<Piece>),
    Bytes(Vec<u8>),
}

/// Where a datagram goes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct To {
    pub(crate) ah: u32,
    pub(crate) qp: u32,
    pub(crate) qkey: u32,
}

/// A request of a send queue.
#[derive(Clone, Debug)]
pub(crate) struct Sqe {
    pub(crate) slot: u16,
    pub(crate) opcode: u8,
    pub(crate) is_signalled: bool,
    pub(crate) is_solicited: bool,
    pub(crate) is_fenced: bool,
    /// What it does; or why it cannot be done.
    pub(crate) body: Result<Body, Status>,
}

#[derive(Clone, Debug)]
pub(crate) struct Body {
    pub(crate) operation: Operation,
    pub(crate) source: Source,
    /// Where the answer goes.
    pub(crate) answer: Vec<Piece>,
    pub(crate) to: Option<To>,
}

fn piece(bytes: &[u8]) -> Piece {
    Piece { address: bytes.u64(0), len: bytes.u32(8), key: bytes.u32(12) }
}

impl Sqe {
    /// The next request of a queue, which is taken from it. The second value is what is wrong with its form.
    pub(crate) fn take(
        work: &mut Work,
        memory: &Memory,
        number: u32,
        is_datagram: bool,
    ) -> Option<(Self, Option<String>)> {
        if work.consumed == work.produced {
            return None;
        }
        let slot = work.consumed;
        let mut bytes = [0; MOST_SLOTS * SLOT as usize];
        let read = work.ring.read(memory, slot.into(), &mut bytes);
        let head = bytes.u64(0);
        let count = (head >> 52 & 7) as u16 + 1;
        work.consumed = slot.wrapping_add(count);
        let left = work.produced.wrapping_sub(slot);
        let mut wrong = None;
        if read.is_err() {
            wrong = Some("memory that is not there".to_owned());
        } else if count as usize > MOST_SLOTS || count > left {
            wrong = Some(format!("{count} slots of {left}"));
            work.consumed = work.produced;
        } else if (head >> 32) as u32 & 0xf_ffff != number {
            wrong = Some(format!("number {}", head >> 32 & 0xf_ffff));
        } else if head as u16 != slot.wrapping_add(count) {
            wrong = Some(format!("index {} instead of {}", head as u16, slot.wrapping_add(count)));
        }
        let body = match wrong {
            Some(_) => Err(Status::LocalOperation),
            None => body(&bytes, is_datagram).map_err(|what| {
                wrong = Some(what.to_owned());
                Status::LocalOperation
            }),
        };
        let bit = |bit: u32| head >> bit & 1 == 1;
        let sqe = Self {
            slot,
            opcode: (head >> 27 & 0x1f) as u8,
            is_signalled: bit(22),
            is_solicited: bit(23),
            is_fenced: bit(24),
            body,
        };
        Some((sqe, wrong))
    }

    /// Its name while it is under way.
    pub(crate) fn token(&self) -> u64 {
        u64::from(self.slot) | u64::from(self.opcode) << 16 | u64::from(self.is_signalled) << 24
    }
}

fn body(bytes: &[u8], is_datagram: bool) -> Result<Body, &'static str> {
    let head = bytes.u64(0);
    let (len, count, is_inline) = (bytes.u32(12), (head >> 56) as usize, head >> 25 & 1 == 1);
    let slots = (head >> 52 & 7) as usize + 1;
    let immediate = u32::from_be_bytes(bytes.array(8));
    let remote = Remote {
        address: u64::from(bytes.u32(20)) | u64::from(bytes.u32(24)) << 32,
        key: bytes.u32(16),
        len,
    };
    let data = |from: usize| -> Result<Source, &'static str> {
        let size = if is_inline { count } else { count * PIECE };
        let limit = if is_inline { MOST_INLINE } else { MOST_PIECES * PIECE };
        if size > limit || (from + size).div_ceil(SLOT as usize) != slots {
            return Err("data that is not of its size");
        }
        let data = &bytes[from..from + size];
        let (source, sum) = if is_inline {
            (Source::Bytes(data.to_vec()), count as u64)
        } else {
            let pieces: Vec<_> = data.chunks(PIECE).map(piece).collect();
            let sum = pieces.iter().map(|piece| u64::from(piece.len)).sum();
            (Source::Pieces(pieces), sum)
        };
        if sum == u64::from(len) { Ok(source) } else { Err("a length that is not that of its data") }
    };
    let simple = |operation, source| Body { operation, source, answer: Vec::new(), to: None };
    let no_data = || Source::Bytes(Vec::new());
    let opcode = (head >> 27 & 0x1f) as u8;
    if is_datagram {
        let immediate = match opcode {
            opcode::SEND => None,
            opcode::SEND_IMMEDIATE => Some(immediate),
            _ => return Err("an operation that datagrams have not"),
        };
        let to = To { qkey: bytes.u32(16), qp: bytes.u32(20), ah: bytes.u32(24) };
        return Ok(Body { to: Some(to), ..simple(Operation::Send(immediate), data(32)?) });
    }
    Ok(match opcode {
        opcode::SEND => simple(Operation::Send(None), data(16)?),
        opcode::SEND_IMMEDIATE => simple(Operation::Send(Some(immediate)), data(16)?),
        opcode::SEND_INVALIDATE => simple(Operation::SendInvalidate(bytes.u32(8)), data(16)?),
        opcode::WRITE => simple(Operation::Write(remote, None), data(32)?),
        opcode::WRITE_IMMEDIATE => simple(Operation::Write(remote, Some(immediate)), data(32)?),
        opcode::READ => {
            let from = piece(&bytes[32..]);
            if from.len != len || is_inline {
                return Err("a read of two lengths");
            }
            let answer = vec![Piece { address: remote.address, len, key: remote.key }];
            let remote = Remote { address: from.address, key: from.key, len };
            Body { answer, ..simple(Operation::Read(remote), no_data()) }
        }
        opcode::COMPARE_SWAP | opcode::FETCH_ADD => {
            let (from, to) = (piece(&bytes[32..]), piece(&bytes[48..]));
            let atomic = Atomic {
                address: from.address,
                key: from.key,
                operand: bytes.u64(16),
                compare: bytes.u64(24),
            };
            if to.len != 8 || is_inline {
                return Err("an atomic operation that is not of eight bytes");
            }
            let operation = match opcode {
                opcode::COMPARE_SWAP => Operation::CompareSwap(atomic),
                _ => Operation::FetchAdd(atomic),
            };
            Body { answer: vec![to], ..simple(operation, no_data()) }
        }
        _ => return Err("an unknown operation"),
    })
}

/// The next receive of a queue, which is taken from it. The second value is what is wrong with its form.
pub(crate) fn take_receive(
    work: &mut Work,
    memory: &Memory,
    number: u32,
) -> Option<(Receive, Option<String>)> {
    if work.consumed == work.produced {
        return None;
    }
    let slot = work.consumed;
    let mut bytes = [0; SLOT as usize];
    let read = work.ring.read(memory, slot.into(), &mut bytes);
    work.consumed = slot.wrapping_add(1);
    let wrong = if read.is_err() {
        Some("memory that is not there".to_owned())
    } else if bytes.u16(0) != work.consumed || bytes.u32(4) != number {
        Some(format!("receive {} of queue pair {}", bytes.u16(0), bytes.u32(4)))
    } else {
        None
    };
    let to = Piece { address: bytes.u64(16), len: bytes.u32(24), key: bytes.u32(28) };
    let to = if to.len == 0 { Vec::new() } else { vec![to] };
    Some((Receive { token: slot.into(), to }, wrong))
}
