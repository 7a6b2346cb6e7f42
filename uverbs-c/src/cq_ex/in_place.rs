//! For queues whose completions have the kernel's format: they are read in the ring, and their slots are given back at the end of the poll,
//! and when the poll looks for further completions.

use std::ffi::c_int;
use std::mem::offset_of;

use nix::libc;
use uverbs::CompletionQueue;
use uverbs::abi::write::Wc;
use uverbs::raw::InPlace;

use super::{Functions, is_unknown};
use crate::abi::{Function, PollCqAttr};
use crate::cq::{Cq, flags};

pub(super) const FUNCTIONS: Functions = Functions {
    start_poll: start_poll as Function,
    next_poll: next_poll as Function,
    end_poll: end_poll as Function,
    read_opcode: read_opcode as Function,
    read_vendor_err: read_vendor_err as Function,
    read_byte_len: read_byte_len as Function,
    read_imm_data: read_imm_data as Function,
    read_qp_num: read_qp_num as Function,
    read_src_qp: read_src_qp as Function,
    read_wc_flags: read_wc_flags as Function,
    read_slid: read_slid as Function,
    read_sl: read_sl as Function,
    read_dlid_path_bits: read_dlid_path_bits as Function,
    read_completion_ts: read_completion_ts as Function,
    read_cvlan: read_cvlan as Function,
};

/// Stores the fields that the program reads without a call.
#[inline(always)]
fn show(cq: &Cq, in_place: &InPlace) -> c_int {
    cq.c.wr_id.set(in_place.field::<{ offset_of!(Wc, wr_id) }, u64>());
    cq.c.status.set(in_place.field::<{ offset_of!(Wc, status) }, u32>());
    0
}

extern "C" fn start_poll(cq: &Cq, attr: Option<&PollCqAttr>) -> c_int {
    if is_unknown(attr) {
        return refused();
    }
    // Other threads wait from here to the end of the poll.
    if cq.queue.try_keep() { start(cq) } else { start_late(cq) }
}

#[cold]
#[inline(never)]
extern "C" fn refused() -> c_int {
    libc::EINVAL
}

/// If another thread holds the queue.
#[cold]
#[inline(never)]
fn start_late(cq: &Cq) -> c_int {
    if cq.queue.keep() { start(cq) } else { libc::ENOENT }
}

#[inline(always)]
fn start(cq: &Cq) -> c_int {
    cq.in_place.with(|in_place| {
        if in_place.begin() {
            show(cq, in_place)
        } else if in_place.is_closed() {
            start_apart(cq, in_place)
        } else {
            // No `end_poll` follows.
            cq.queue.give_back();
            libc::ENOENT
        }
    })
}

#[cold]
#[inline(never)]
fn start_apart(cq: &Cq, in_place: &mut InPlace) -> c_int {
    let is_there = cq.queue.kept(|queue| queue.is_here() && in_place.begin_all() && count(queue, in_place));
    if is_there == Some(true) {
        return show(cq, in_place);
    }
    cq.queue.give_back();
    libc::ENOENT
}

fn count(queue: &mut CompletionQueue, in_place: &InPlace) -> bool {
    !in_place.is_closed() || queue.count(&in_place.extended())
}

extern "C" fn next_poll(cq: &Cq) -> c_int {
    cq.in_place
        .with(|in_place| if in_place.advance() { show(cq, in_place) } else { next_apart(cq, in_place) })
}

/// Checks whether further completions have arrived. A child of `fork` finds none.
#[inline(never)]
fn next_apart(cq: &Cq, in_place: &mut InPlace) -> c_int {
    let is_there = cq.queue.kept(|queue| queue.is_here() && in_place.advance_all() && count(queue, in_place));
    if is_there == Some(true) { show(cq, in_place) } else { libc::ENOENT }
}

extern "C" fn end_poll(cq: &Cq) {
    cq.in_place.with(|in_place| {
        if in_place.end() {
            cq.queue.give_back();
        } else {
            end_apart(cq, in_place);
        }
    });
}

/// A child of `fork` gives back no slots, because its parent would lose their completions. Without a start there is nothing to end.
#[cold]
#[inline(never)]
fn end_apart(cq: &Cq, in_place: &mut InPlace) {
    if cq.queue.kept(|queue| queue.is_here() && in_place.end_all()) == Some(true) {
        cq.queue.give_back();
    }
}

macro_rules! readers {
    ($($name:ident: $field:ident: $type:ty;)*) => {
        $(extern "C" fn $name(cq: &Cq) -> $type {
            cq.in_place.with(|in_place| in_place.field::<{ offset_of!(Wc, $field) }, $type>())
        })*
    };
}

readers! {
    read_opcode: opcode: u32;
    read_vendor_err: vendor_err: u32;
    read_byte_len: byte_len: u32;
    read_imm_data: ex: u32;
    read_qp_num: qp_num: u32;
    read_src_qp: src_qp: u32;
    read_sl: sl: u8;
    read_dlid_path_bits: dlid_path_bits: u8;
}

extern "C" fn read_wc_flags(cq: &Cq) -> u32 {
    flags(cq.in_place.with(|in_place| in_place.field::<{ offset_of!(Wc, wc_flags) }, u32>()))
}

extern "C" fn read_slid(cq: &Cq) -> u32 {
    cq.in_place.with(|in_place| in_place.field::<{ offset_of!(Wc, slid) }, u16>()).into()
}

/// The kernel's layout has no field for it.
extern "C" fn read_completion_ts(_: &Cq) -> u64 {
    0
}

/// As for the timestamp, the kernel's layout has no field for it.
extern "C" fn read_cvlan(_: &Cq) -> u16 {
    0
}
