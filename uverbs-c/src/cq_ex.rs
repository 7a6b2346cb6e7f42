//! The extended interface of completion queues: one completion at a time, read field by field.

use std::cell::Cell;
use std::ffi::c_int;
use std::sync::atomic::Ordering;

use nix::libc;
use uverbs::CompletionQueue;
use uverbs::raw::{Extended, Place, Raised};

use crate::abi::{self, CqInitAttrEx, Function, PollCqAttr};
use crate::answer::{Answer, EINVAL, EOPNOTSUPP, or_null};
use crate::boundary::Pointer;
use crate::context::Context;
use crate::cq::{CONDITION, Cq, MUTEX, Wanted, flags, make};

/// The part that C knows. Every function is there, since the header calls them without a look.
pub(crate) fn part(context: Pointer, wanted: &Wanted) -> abi::CqEx {
    abi::CqEx {
        context,
        channel: wanted.channel,
        cq_context: wanted.cq_context,
        handle: 0,
        cqe: Cell::new(0),
        mutex: MUTEX,
        cond: CONDITION,
        comp_events_completed: 0,
        async_events_completed: 0,
        comp_mask: 0,
        status: Cell::new(0),
        wr_id: Cell::new(0),
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
        read_flow_tag: read_imm_data as Function,
        read_tm_info: fill_nothing as Function,
        read_completion_wallclock_ns: read_nothing as Function,
    }
}

/// `IBV_WC_STANDARD_FLAGS`: what every completion has.
const STANDARD: u64 = 0x7f;
/// `IBV_CQ_INIT_ATTR_MASK_FLAGS` and `IBV_CREATE_CQ_ATTR_SINGLE_THREADED`.
const HAS_FLAGS: u32 = 1;
const SINGLE_THREADED: u32 = 1;

fn create(context: Option<&Context>, attr: Option<&CqInitAttrEx>) -> Answer<Box<Cq>> {
    let (context, attr) = (context.ok_or(EINVAL)?, attr.ok_or(EINVAL)?);
    let known = STANDARD | context.context.completion_fields().bits();
    let flags = if attr.comp_mask & HAS_FLAGS != 0 { attr.flags } else { 0 };
    if attr.wc_flags & !known != 0 || attr.comp_mask & !HAS_FLAGS != 0 || flags & !SINGLE_THREADED != 0 {
        return Err(EOPNOTSUPP);
    }
    let CqInitAttrEx { cqe, cq_context, channel, comp_vector, .. } = *attr;
    make(Some(context), &Wanted { cqe, cq_context, channel, comp_vector })
}

pub(crate) extern "C" fn create_cq_ex(
    context: Option<&Context>,
    attr: Option<&CqInitAttrEx>,
) -> Option<Box<Cq>> {
    or_null(create(context, attr))
}

/// Takes the next completion; ENOENT when there is none.
#[inline(always)]
fn next(cq: &Cq) -> c_int {
    match cq.queue.try_with(|queue| queue.get_mut().ok()?.short_next(&mut Current(cq))) {
        Some(true) => 0,
        Some(false) => libc::ENOENT,
        None => next_apart(cq),
    }
}

#[inline(never)]
fn next_apart(cq: &Cq) -> c_int {
    // In a child of `fork` there are none.
    let Ok(mut queue) = cq.queue.lock() else { return libc::ENOENT };
    let Ok(queue) = queue.get_mut() else { return libc::EINVAL };
    let Some(next) = queue.next_extended() else { return libc::ENOENT };
    Current(cq).put(&next);
    cq.current.set(next);
    0
}

/// The place of the completion that the interface is at.
struct Current<'a>(&'a Cq);

impl Place for Current<'_> {
    #[inline(always)]
    fn put(&mut self, raised: &impl Raised) {
        let wc = raised.wc();
        self.0.c.status.set(wc.status);
        self.0.c.wr_id.set(wc.wr_id);
        self.0.current.set(Extended { wc, ..Extended::default() });
    }
}

/// From here to the end of the poll other threads wait, as they do with libibverbs.
extern "C" fn start_poll(cq: &Cq, attr: Option<&PollCqAttr>) -> c_int {
    if attr.is_some_and(|attr| attr.comp_mask != 0) {
        return libc::EINVAL;
    }
    if cq.polling.swap(true, Ordering::Acquire) && !wait(cq) {
        return libc::ENOENT;
    }
    let answer = next(cq);
    if answer != 0 {
        // Then there is no end of the poll.
        cq.polling.store(false, Ordering::Release);
    }
    answer
}

/// Takes the place of who polls now; false in a child that cannot have it.
#[cold]
#[inline(never)]
fn wait(cq: &Cq) -> bool {
    while cq.queue.is_here() {
        std::thread::yield_now();
        if !cq.polling.swap(true, Ordering::Acquire) {
            return true;
        }
    }
    false
}

extern "C" fn next_poll(cq: &Cq) -> c_int {
    next(cq)
}

extern "C" fn end_poll(cq: &Cq) {
    if cq.queue.try_with(|queue| queue.get_mut().ok().map(CompletionQueue::release)).is_none() {
        release_apart(cq);
    }
    cq.polling.store(false, Ordering::Release);
}

#[inline(never)]
fn release_apart(cq: &Cq) {
    if let Ok(mut queue) = cq.queue.lock() {
        queue.get_mut().into_iter().for_each(CompletionQueue::release);
    }
}

macro_rules! readers {
    ($($name:ident: $($field:ident).+ as $type:ty;)*) => {
        $(extern "C" fn $name(cq: &Cq) -> $type {
            cq.current.get().$($field).+.into()
        })*
    };
}

readers! {
    read_opcode: wc.opcode as u32;
    read_vendor_err: wc.vendor_err as u32;
    read_byte_len: wc.byte_len as u32;
    read_imm_data: wc.ex as u32;
    read_qp_num: wc.qp_num as u32;
    read_src_qp: wc.src_qp as u32;
    read_slid: wc.slid as u32;
    read_sl: wc.sl as u8;
    read_dlid_path_bits: wc.dlid_path_bits as u8;
    read_completion_ts: timestamp as u64;
    read_cvlan: vlan as u16;
}

extern "C" fn read_wc_flags(cq: &Cq) -> u32 {
    flags(cq.current.get().wc.wc_flags)
}

/// What could not be asked for when the queue was made.
extern "C" fn read_nothing(_: &Cq) -> u64 {
    0
}

extern "C" fn fill_nothing(_: &Cq, _: Pointer) {}
