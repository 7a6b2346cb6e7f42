//! For queues whose completions name the sender: each is copied completely, and its entry is given back at the end of the poll.

use std::ffi::c_int;

use nix::libc;
use uverbs::CompletionQueue;
use uverbs::abi::types::wc_status;
use uverbs::raw::{Told, Untold};

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
    read_sl: read_nothing as Function,
    read_dlid_path_bits: read_nothing as Function,
    read_completion_ts: super::read_nothing as Function,
    read_cvlan: super::read_nothing as Function,
};

extern "C" fn start_poll(cq: &Cq, attr: Option<&PollCqAttr>) -> c_int {
    if is_unknown(attr) {
        return libc::EINVAL;
    }
    // Other threads wait from here to the end of the poll.
    if !cq.queue.keep() {
        return libc::ENOENT;
    }
    poll(cq, true)
}

extern "C" fn next_poll(cq: &Cq) -> c_int {
    poll(cq, false)
}

/// Stores the fields that the program reads without a call.
#[inline(always)]
fn show(cq: &Cq, status: u32, wr_id: u64) -> c_int {
    cq.c.status.set(status);
    cq.c.wr_id.set(wr_id);
    0
}

#[inline(never)]
fn poll(cq: &Cq, is_start: bool) -> c_int {
    match cq.queue.kept(|queue| cq.told.with(|told| queue.short_told(told))) {
        Some(Ok(wr_id)) => show(cq, wc_status::SUCCESS, wr_id),
        Some(Err(Untold::Elsewhere)) => poll_elsewhere(cq, is_start),
        Some(Err(Untold::Other)) => poll_apart(cq, is_start),
        Some(Err(Untold::Nothing)) | None => none(cq, is_start),
    }
}

/// Polls the other rings, if the ring of the previous completion has no further one.
#[inline(never)]
fn poll_elsewhere(cq: &Cq, is_start: bool) -> c_int {
    match cq.queue.kept(CompletionQueue::look_elsewhere) {
        Some(Ok(())) => poll(cq, is_start),
        Some(Err(Untold::Other)) => poll_apart(cq, is_start),
        Some(Err(_)) | None => none(cq, is_start),
    }
}

/// A child of `fork` finds none.
#[cold]
#[inline(never)]
fn poll_apart(cq: &Cq, is_start: bool) -> c_int {
    let shown = cq.queue.kept(|queue| {
        cq.told.with(|told| queue.next_told(told).then(|| show(cq, told.status(), told.wr_id())))
    });
    shown.flatten().unwrap_or_else(|| none(cq, is_start))
}

#[inline(always)]
fn none(cq: &Cq, is_start: bool) -> c_int {
    // No `end_poll` follows.
    if is_start {
        cq.queue.give_back();
    }
    libc::ENOENT
}

extern "C" fn end_poll(cq: &Cq) {
    if cq.queue.kept(CompletionQueue::release_told) == Some(true) {
        cq.queue.give_back();
    }
}

macro_rules! readers {
    ($($name:ident: $read:expr;)*) => {
        $(extern "C" fn $name(cq: &Cq) -> u32 {
            cq.told.with(|told| $read(told))
        })*
    };
}

readers! {
    read_opcode: Told::opcode;
    read_vendor_err: Told::vendor_error;
    read_byte_len: Told::byte_len;
    read_imm_data: Told::immediate;
    read_qp_num: Told::qp_num;
    read_src_qp: Told::source_qp;
    read_wc_flags: |told: &Told| flags(told.flags());
    read_slid: |told: &Told| u32::from(told.source());
}

extern "C" fn read_nothing(_: &Cq) -> u8 {
    0
}
