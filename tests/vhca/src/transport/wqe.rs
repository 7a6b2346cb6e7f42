//! Requests in a send queue, as the device reads them.
//!
//! Layouts: `struct mlx5_wqe_ctrl_seg` and others in the kernel's `include/linux/mlx5/qp.h`.

use super::path::VECTOR;
use super::qp::{Kind, Qp};
use crate::bits::Bits;
use crate::ifc::context::qpc;
use crate::queue::{Segment, Syndrome};
use uverbs::raw::roce::{Atomic, Remote};
use vpci::{Fault, Memory};

mod opcode {
    pub(super) const NOP: u8 = 0x00;
    pub(super) const SEND_INVALIDATE: u8 = 0x01;
    pub(super) const WRITE: u8 = 0x08;
    pub(super) const WRITE_IMMEDIATE: u8 = 0x09;
    pub(super) const SEND: u8 = 0x0a;
    pub(super) const SEND_IMMEDIATE: u8 = 0x0b;
    pub(super) const READ: u8 = 0x10;
    pub(super) const COMPARE_SWAP: u8 = 0x11;
    pub(super) const FETCH_ADD: u8 = 0x12;
    pub(super) const LOCAL_INVALIDATE: u8 = 0x1b;
    pub(super) const UMR: u8 = 0x25;
}

const COMPLETION: u8 = 0x08;
const SOLICITED: u8 = 0x02;
const FENCE: u8 = 0xe0;

/// The operation of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Operation {
    Nop,
    Send,
    SendImmediate(u32),
    SendInvalidate(u32),
    Write(Remote),
    WriteImmediate(Remote, u32),
    Read(Remote),
    CompareSwap(Atomic),
    FetchAdd(Atomic),
    /// Changes a memory key.
    Keys(u32),
    LocalInvalidate(u32),
}

/// A request, with the part after its control segment.
#[derive(Clone, Debug)]
pub(super) struct Wqe {
    /// The index of its first block.
    pub(super) counter: u16,
    pub(super) opcode: u8,
    pub(super) wants_completion: bool,
    pub(super) is_solicited: bool,
    pub(super) is_fenced: bool,
    pub(super) body: Result<Body, Syndrome>,
}

#[derive(Clone, Debug)]
pub(super) struct Body {
    pub(super) operation: Operation,
    /// The peer's shared queue, for XRC.
    pub(super) srq: u32,
    /// The address of a datagram.
    pub(super) address: Option<[u8; VECTOR]>,
    /// Data segments; or the whole request, if it changes a key.
    pub(super) data: Vec<u8>,
}

fn word(bytes: &[u8], at: usize) -> u32 {
    bytes.get(at..).and_then(|rest| rest.first_chunk()).map_or(0, |word| u32::from_be_bytes(*word))
}

fn wide(bytes: &[u8], at: usize) -> u64 {
    u64::from(word(bytes, at)) << 32 | u64::from(word(bytes, at + 4))
}

impl Wqe {
    /// Takes the next request from the queue of a queue pair, if the doorbell announces one.
    ///
    /// # Errors
    /// If the ring or its doorbell is not in the guest's memory.
    pub(super) fn take(qp: &mut Qp, memory: &Memory) -> Result<Option<Self>, Fault> {
        let Some(ring) = &qp.sends else { return Ok(None) };
        // The second word of the doorbell record belongs to the sender.
        let producer = memory.word(ring.doorbell.wrapping_add(4))? as u16;
        let counter = qp.requester.consumer;
        let left = producer.wrapping_sub(counter);
        if left == 0 {
            return Ok(None);
        }
        let mut control = [0; 16];
        ring.read(memory, counter, &mut control)?;
        let mut bytes = vec![0; usize::from(control[7] & 0x3f) * 16];
        ring.read(memory, counter, &mut bytes)?;
        let blocks = bytes.len().div_ceil(64).max(1) as u16;
        // If a request extends beyond what the doorbell announced, the queue stops there.
        qp.requester.consumer = counter.wrapping_add(blocks.min(left));
        let is_sound = blocks <= left
            && bytes.len() >= 16
            && u16::from_be_bytes([control[1], control[2]]) == counter
            && word(&control, 4) >> 8 == qp.number
            && (!qp.context.is(qpc::wq_signature) || bytes.iter().fold(0, |all, byte| all ^ byte) == 0xff);
        let body = if is_sound { Body::parse(&bytes, qp.kind) } else { Err(Syndrome::Operation) };
        Ok(Some(Self {
            counter,
            opcode: control[3],
            wants_completion: control[11] & COMPLETION != 0,
            is_solicited: control[11] & SOLICITED != 0,
            is_fenced: control[11] & FENCE != 0,
            body,
        }))
    }
}

impl Body {
    fn parse(bytes: &[u8], kind: Kind) -> Result<Self, Syndrome> {
        let (control, mut rest) = bytes.split_at(16);
        let immediate = word(control, 12);
        let mut srq = 0;
        let mut address = None;
        let changes_keys = matches!(control[3], opcode::UMR | opcode::LOCAL_INVALIDATE | opcode::NOP);
        match kind {
            Kind::Xrc if !changes_keys => {
                let (segment, behind) = rest.split_at_checked(16).ok_or(Syndrome::Operation)?;
                (srq, rest) = (word(segment, 0) & 0xff_ffff, behind);
            }
            Kind::Ud | Kind::Management(_) if !changes_keys => {
                let (vector, behind) = rest.split_first_chunk().ok_or(Syndrome::Operation)?;
                (address, rest) = (Some(*vector), behind);
            }
            _ => {}
        }
        let mut part = |len: usize| {
            let (part, behind) = rest.split_at_checked(len).ok_or(Syndrome::Operation)?;
            rest = behind;
            Ok(part)
        };
        let mut remote = || {
            let segment = part(16)?;
            Ok(Remote { address: wide(segment, 0), key: word(segment, 8), len: 0 })
        };
        let operation = match control[3] {
            opcode::NOP => Operation::Nop,
            opcode::SEND => Operation::Send,
            opcode::SEND_IMMEDIATE => Operation::SendImmediate(immediate),
            opcode::SEND_INVALIDATE => Operation::SendInvalidate(immediate),
            opcode::WRITE => Operation::Write(remote()?),
            opcode::WRITE_IMMEDIATE => Operation::WriteImmediate(remote()?, immediate),
            opcode::READ => Operation::Read(remote()?),
            opcode::COMPARE_SWAP | opcode::FETCH_ADD => {
                let Remote { address, key, .. } = remote()?;
                let segment = part(16)?;
                let atomic = Atomic { address, key, operand: wide(segment, 0), compare: wide(segment, 8) };
                if control[3] == opcode::FETCH_ADD {
                    Operation::FetchAdd(atomic)
                } else {
                    Operation::CompareSwap(atomic)
                }
            }
            opcode::UMR => Operation::Keys(immediate),
            opcode::LOCAL_INVALIDATE => Operation::LocalInvalidate(immediate),
            _ => return Err(Syndrome::Operation),
        };
        let fits = match operation {
            Operation::Nop => true,
            Operation::Send | Operation::SendImmediate(_) => kind != Kind::Keys,
            Operation::Write(_) | Operation::WriteImmediate(..) => {
                matches!(kind, Kind::Rc | Kind::Uc | Kind::Xrc)
            }
            Operation::SendInvalidate(_)
            | Operation::Read(_)
            | Operation::CompareSwap(_)
            | Operation::FetchAdd(_) => matches!(kind, Kind::Rc | Kind::Xrc),
            Operation::Keys(_) | Operation::LocalInvalidate(_) => {
                matches!(kind, Kind::Rc | Kind::Uc | Kind::Xrc | Kind::Keys)
            }
        };
        if !fits {
            return Err(Syndrome::Operation);
        }
        Ok(Self { operation, srq, address, data: rest.to_vec() })
    }
}

/// A part of the data: bytes in the request itself, or a segment.
pub(super) enum Piece<'a> {
    Bytes(&'a [u8]),
    Segment(Segment),
}

/// The pieces of data of a request.
pub(super) fn pieces(mut data: &[u8]) -> impl Iterator<Item = Result<Piece<'_>, Syndrome>> {
    std::iter::from_fn(move || {
        let (first, behind) = data.split_first_chunk::<{ Segment::SIZE }>()?;
        let segment = Segment::parse(first);
        if segment.len & 0x8000_0000 == 0 {
            data = behind;
            // A length of zero means the maximum.
            let len = if segment.len == 0 { 1 << 31 } else { segment.len };
            return Some(Ok(Piece::Segment(Segment { len, ..segment })));
        }
        let end = 4 + (segment.len & 0x3ff) as usize;
        let bytes = data.get(4..end);
        data = data.get(end.next_multiple_of(16)..).unwrap_or_default();
        Some(bytes.map(Piece::Bytes).ok_or(Syndrome::Operation))
    })
}
