//! For queues whose completions have another format: each is read from its entry, which is given back at the end of the poll.

use std::ffi::c_int;

use nix::libc;
use uverbs::CompletionQueue;
use uverbs::raw::Unread;

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
fn show(cq: &Cq, current: &Unread) {
    cq.c.status.set(current.status);
    cq.c.wr_id.set(current.wr_id);
}

extern "C" fn start_poll(cq: &Cq, attr: Option<&PollCqAttr>) -> c_int {
    if is_unknown(attr) {
        return libc::EINVAL;
    }
    // Other threads wait from here to the end of the poll.
    match cq.queue.try_keep_with(|queue| take(cq, queue)) {
        Some(Ok(())) => 0,
        Some(Err(false)) => start_apart(cq),
        Some(Err(true)) => nothing(cq),
        None => start_late(cq),
    }
}

/// If another thread holds the queue.
#[cold]
#[inline(never)]
fn start_late(cq: &Cq) -> c_int {
    if cq.queue.keep() { start_apart(cq) } else { libc::ENOENT }
}

#[inline(never)]
fn start_apart(cq: &Cq) -> c_int {
    if next_apart(cq) == 0 { 0 } else { nothing(cq) }
}

/// No `end_poll` follows.
#[inline(always)]
fn nothing(cq: &Cq) -> c_int {
    cq.queue.give_back();
    libc::ENOENT
}

extern "C" fn next_poll(cq: &Cq) -> c_int {
    match next(cq) {
        Some(Ok(())) => 0,
        Some(Err(false)) => next_apart(cq),
        Some(Err(true)) | None => libc::ENOENT,
    }
}

/// Reads the next completion by the shortest path; see [`CompletionQueue::short_unread`].
#[inline(always)]
fn next(cq: &Cq) -> Option<Result<(), bool>> {
    cq.queue.kept(|queue| take(cq, queue))
}

#[inline(always)]
fn take(cq: &Cq, queue: &mut CompletionQueue) -> Result<(), bool> {
    cq.current.with(|current| queue.short_unread(current).map(|()| show(cq, current)))
}

/// A child of `fork` finds none.
#[inline(never)]
fn next_apart(cq: &Cq) -> c_int {
    let taken = cq
        .queue
        .kept(|queue| cq.current.with(|current| queue.next_unread(current).then(|| show(cq, current))));
    if taken.flatten().is_some() { 0 } else { libc::ENOENT }
}

extern "C" fn end_poll(cq: &Cq) {
    if cq.queue.kept(CompletionQueue::release) == Some(true) {
        cq.queue.give_back();
    }
}

macro_rules! readers {
    ($($name:ident as $type:ty: $read:expr;)*) => {
        $(extern "C" fn $name(cq: &Cq) -> $type {
            cq.current.with(|current| $read(current))
        })*
    };
}

readers! {
    read_opcode as u32: Unread::opcode;
    read_vendor_err as u32: Unread::vendor_error;
    read_byte_len as u32: Unread::byte_len;
    read_imm_data as u32: Unread::immediate;
    read_qp_num as u32: |current: &Unread| current.qp_num;
    read_wc_flags as u32: |current: &Unread| flags(current.flags());
    read_completion_ts as u64: Unread::timestamp;
    read_cvlan as u16: Unread::vlan;
    read_src_qp as u32: Unread::source_qp;
    read_slid as u32: |current: &Unread| current.source_lid().into();
    read_sl as u8: Unread::service_level;
    read_dlid_path_bits as u8: Unread::path_bits;
}
