//! Completions of queue pairs.

use super::Around;
use super::qp::Qp;
use crate::bits::Bits;
use crate::ifc::context::qpc;
use crate::port::LinkLayer;
use crate::queue::{CompletionEntry, Opcode, Syndrome};
use crate::transport::route::Route;
use uverbs::raw::roce::Packet;

// Offsets in a completion: `struct mlx5_cqe64` in the kernel's `include/linux/mlx5/device.h`.
const SLID: usize = 0x16;
const FLAGS_AND_REMOTE: usize = 0x18;
const IMMEDIATE: usize = 0x24;
const BYTES: usize = 0x2c;
const OPCODE_AND_NUMBER: usize = 0x38;

/// Number of bytes of data that may be put into completions, from the code in the queue pair's context.
fn inline_bytes(code: u32, entry: u64) -> u32 {
    match code {
        0x01 | 0x11 => 32,
        0x02 | 0x22 if entry == 128 => 64,
        0x02 | 0x22 => 32,
        _ => 0,
    }
}

/// Number of bytes of a response that fit into the completion of its request.
pub(super) fn requester_inline(qp: &Qp, around: &Around<'_>) -> u32 {
    let entry = around.entry_size(qp.context.num(qpc::cqn_snd));
    inline_bytes(qp.context.num(qpc::cs_req), entry)
}

/// Number of bytes of a message that fit into the completion of its receive.
pub(super) fn responder_inline(qp: &Qp, around: &Around<'_>) -> u32 {
    let entry = around.entry_size(qp.context.num(qpc::cqn_rcv));
    inline_bytes(qp.context.num(qpc::cs_res), entry)
}

fn entry(qp: &Qp, opcode: Opcode, counter: u16, wqe_opcode: u8) -> CompletionEntry {
    let mut entry = CompletionEntry::new(opcode, qp.context.num(qpc::user_index), counter);
    entry.word(OPCODE_AND_NUMBER, u32::from(wqe_opcode) << 24 | qp.number);
    entry
}

/// A request is done. `answer` contains the number of returned bytes, and those that are in the completion.
pub(super) fn requester(
    qp: &Qp,
    counter: u16,
    opcode: u8,
    answer: Option<(u32, Vec<u8>)>,
) -> CompletionEntry {
    let mut entry = entry(qp, Opcode::Requester, counter, opcode);
    if let Some((len, inline)) = answer {
        entry.word(BYTES, len);
        entry.put_inline(&inline);
    }
    entry
}

pub(super) fn requester_error(qp: &Qp, counter: u16, opcode: u8, syndrome: Syndrome) -> CompletionEntry {
    entry(qp, Opcode::RequesterError, counter, opcode).error(syndrome)
}

pub(super) fn responder_error(qp: &Qp, counter: u16, syndrome: Syndrome) -> CompletionEntry {
    entry(qp, Opcode::ResponderError, counter, 0).error(syndrome)
}

/// A message has arrived.
pub(super) fn responder(
    qp: &Qp,
    opcode: Opcode,
    counter: u16,
    len: u32,
    packet: &Packet,
    route: &Route,
    link: LinkLayer,
) -> CompletionEntry {
    let mut entry = entry(qp, opcode, counter, 0);
    let from = if qp.kind.is_datagram() { packet.from } else { qp.context.num(qpc::remote_qpn) };
    let flags = match link {
        LinkLayer::InfiniBand => u32::from(route.has_grh) << 4 | u32::from(route.service_level),
        // With a header of the network layer, and its type.
        _ => 1 << 4 | if is_ipv4(&route.sgid) { 2 } else { 1 },
    };
    entry.bytes[SLID..SLID + 2].copy_from_slice(&route.slid.to_be_bytes());
    entry.word(FLAGS_AND_REMOTE, flags << 24 | from);
    entry.word(IMMEDIATE, packet.immediate);
    entry.word(BYTES, len);
    if packet.solicited { entry.solicited() } else { entry }
}

/// Whether an address is an IPv4 address.
pub(super) fn is_ipv4(gid: &[u8; 16]) -> bool {
    gid[..12] == [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff]
}
