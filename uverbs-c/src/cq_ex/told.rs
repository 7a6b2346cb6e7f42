//! Of queues whose completions tell who has sent: each is taken whole, and its place is given back at the end of the poll.

use std::ffi::c_int;

use nix::libc;
use uverbs::CompletionQueue;
use uverbs::raw::Told;

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
    let answer = next_poll(cq);
    if answer != 0 {
        // Then there is no end of the poll.
        cq.queue.give_back();
    }
    answer
}

/// In a child of `fork` there is none.
extern "C" fn next_poll(cq: &Cq) -> c_int {
    let show = |told: &Told| {
        cq.c.status.set(told.wc.status);
        cq.c.wr_id.set(told.wc.wr_id);
    };
    let taken = cq.queue.kept(|queue| cq.told.with(|told| queue.next_told(told).then(|| show(told))));
    if taken.flatten().is_some() { 0 } else { libc::ENOENT }
}

extern "C" fn end_poll(cq: &Cq) {
    if cq.queue.kept(CompletionQueue::release) == Some(true) {
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
    read_opcode: |told: &Told| told.wc.opcode;
    read_vendor_err: |told: &Told| told.wc.vendor_err;
    read_byte_len: |told: &Told| told.wc.byte_len;
    read_imm_data: |told: &Told| told.wc.ex;
    read_qp_num: |told: &Told| told.wc.qp_num;
    read_src_qp: |told: &Told| told.wc.src_qp;
    read_wc_flags: |told: &Told| flags(told.wc.wc_flags);
    read_slid: |told: &Told| u32::from(told.wc.slid);
}

extern "C" fn read_nothing(_: &Cq) -> u8 {
    0
}
