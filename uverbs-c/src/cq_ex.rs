//! The extended interface of completion queues: one completion at a time, read field by field.
//!
//! The queue's lock is held from the start of a poll to its end, as it is by libibverbs' drivers.

use std::cell::Cell;
use std::ffi::c_int;

use nix::libc;
use uverbs::CompletionQueue;
use uverbs::raw::{Cursor, DriverCq, Fields, Missed, Shown};

use crate::abi::{self, CqInitAttrEx, Function, PollCqAttr};
use crate::answer::{Answer, EINVAL, EOPNOTSUPP, or_null};
use crate::boundary::Pointer;
use crate::context::Context;
use crate::cq::{CONDITION, Cq, MUTEX, Wanted, flags, make, progress};
use crate::domain::used_parent;
use crate::providers::rings::{CursorOf, Rings, Walk};

/// The part that C accesses. Every function is set, because the header calls them without a check for null.
pub(crate) fn part<R: Rings>(context: Pointer, wanted: &Wanted) -> abi::CqEx {
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
        start_poll: start_poll::<R> as Function,
        next_poll: next_poll::<R> as Function,
        end_poll: end_poll::<R> as Function,
        read_opcode: read_opcode::<R> as Function,
        read_vendor_err: read_vendor_err::<R> as Function,
        read_byte_len: read_byte_len::<R> as Function,
        read_imm_data: read_imm_data::<R> as Function,
        read_qp_num: read_qp_num::<R> as Function,
        read_src_qp: read_src_qp::<R> as Function,
        read_wc_flags: read_wc_flags::<R> as Function,
        read_slid: read_slid::<R> as Function,
        read_sl: read_sl::<R> as Function,
        read_dlid_path_bits: read_dlid_path_bits::<R> as Function,
        read_completion_ts: read_completion_ts::<R> as Function,
        read_cvlan: read_cvlan::<R> as Function,
        read_flow_tag: read_imm_data::<R> as Function,
        read_tm_info: fill_nothing as Function,
        read_completion_wallclock_ns: read_nothing as Function,
    }
}

/// `IBV_WC_STANDARD_FLAGS`: the fields of every completion.
const STANDARD: u64 = 0x7f;
/// `IBV_CQ_INIT_ATTR_MASK_FLAGS` and `IBV_CREATE_CQ_ATTR_SINGLE_THREADED`.
const HAS_FLAGS: u32 = 1;
const SINGLE_THREADED: u32 = 1;

/// `IBV_CQ_INIT_ATTR_MASK_PD`.
const HAS_DOMAIN: u32 = 2;

/// Creates a queue, with options of the driver.
pub(crate) fn create(
    context: Option<&Context>,
    attr: Option<&CqInitAttrEx>,
    driver: DriverCq,
) -> Answer<Box<Cq>> {
    let (context, attr) = (context.ok_or(EINVAL)?, attr.ok_or(EINVAL)?);
    let of_domain = if context.context.has_parent_domains() { HAS_DOMAIN } else { 0 };
    let known = STANDARD | context.context.completion_fields().bits();
    let flags = if attr.comp_mask & HAS_FLAGS != 0 { attr.flags } else { 0 };
    if attr.wc_flags & !known != 0
        || attr.comp_mask & !(HAS_FLAGS | of_domain) != 0
        || flags & !SINGLE_THREADED != 0
    {
        return Err(EOPNOTSUPP);
    }
    let has_domain = attr.comp_mask & HAS_DOMAIN != 0;
    let domain = has_domain.then(|| used_parent(attr.parent_domain)).transpose()?;
    let CqInitAttrEx { cqe, cq_context, channel, comp_vector, .. } = *attr;
    let wanted = Wanted { cqe, cq_context, channel, comp_vector, driver, domain };
    make(Some(context), wanted)
}

pub(crate) extern "C" fn create_cq_ex(
    context: Option<&Context>,
    attr: Option<&CqInitAttrEx>,
) -> Option<Box<Cq>> {
    or_null(create(context, attr, DriverCq::default()))
}

/// Stores the fields that the program reads without a call.
#[inline(always)]
fn show(cq: &Cq, (wr_id, status): Shown) -> c_int {
    cq.c.wr_id.set(wr_id);
    cq.c.status.set(status);
    0
}

extern "C" fn start_poll<R: Rings>(cq: &Cq, attr: Option<&PollCqAttr>) -> c_int {
    if attr.is_some_and(|attr| attr.comp_mask != 0) {
        return refused();
    }
    // Other threads wait from here to the end of the poll.
    match cq.queue.try_keep_with(|queue| R::Walk::cursor(cq).with(|cursor| queue.first_fast(cursor))) {
        Some(Ok(shown)) => show(cq, shown),
        Some(Err(Missed::Nothing)) => nothing(cq),
        Some(Err(Missed::Elsewhere)) => start_elsewhere::<R>(cq),
        Some(Err(Missed::Other)) => start_at_length::<R>(cq),
        None => start_late::<R>(cq),
    }
}

/// For devices on a wire, as `poll_cq_on_wire`.
pub(crate) extern "C" fn start_poll_on_wire<R: Rings>(cq: &Cq, attr: Option<&PollCqAttr>) -> c_int {
    let started = start_poll::<R>(cq, attr);
    if started == libc::ENOENT && progress(cq) { start_poll::<R>(cq, attr) } else { started }
}

#[cold]
#[inline(never)]
extern "C" fn refused() -> c_int {
    libc::EINVAL
}

/// If another thread holds the queue.
#[cold]
#[inline(never)]
fn start_late<R: Rings>(cq: &Cq) -> c_int {
    if cq.queue.keep() { start_at_length::<R>(cq) } else { libc::ENOENT }
}

#[inline(never)]
fn start_elsewhere<R: Rings>(cq: &Cq) -> c_int {
    if next_elsewhere::<R>(cq) == 0 { 0 } else { nothing(cq) }
}

#[inline(never)]
fn start_at_length<R: Rings>(cq: &Cq) -> c_int {
    let first = cq.queue.kept(|queue| R::Walk::cursor(cq).with(|cursor| queue.first(cursor)));
    first.flatten().map_or_else(|| nothing(cq), |shown| show(cq, shown))
}

/// No `end_poll` follows.
#[inline(always)]
fn nothing(cq: &Cq) -> c_int {
    cq.queue.give_back();
    libc::ENOENT
}

extern "C" fn next_poll<R: Rings>(cq: &Cq) -> c_int {
    let next = |queue: &mut CompletionQueue| R::Walk::cursor(cq).with(|cursor| queue.next_fast(cursor));
    let next = if CursorOf::<R>::SHOWS_BEGIN { Some(cq.queue.within(next)) } else { cq.queue.kept(next) };
    match next {
        Some(Ok(shown)) => show(cq, shown),
        Some(Err(Missed::Elsewhere)) => next_elsewhere::<R>(cq),
        Some(Err(Missed::Other)) => next_at_length::<R>(cq),
        Some(Err(Missed::Nothing)) | None => libc::ENOENT,
    }
}

/// Searches the other rings of the queue, if the ring of the previous completion has no further one.
#[inline(never)]
fn next_elsewhere<R: Rings>(cq: &Cq) -> c_int {
    match cq.queue.kept(|queue| queue.search::<CursorOf<R>>()) {
        Some(Ok(())) => next_poll::<R>(cq),
        Some(Err(Missed::Nothing)) | None => libc::ENOENT,
        Some(Err(_)) => next_at_length::<R>(cq),
    }
}

/// A child of `fork` finds none.
#[inline(never)]
fn next_at_length<R: Rings>(cq: &Cq) -> c_int {
    let next = cq.queue.kept(|queue| R::Walk::cursor(cq).with(|cursor| queue.next(cursor)));
    next.flatten().map_or(libc::ENOENT, |shown| show(cq, shown))
}

/// A child of `fork` gives back no entries, because its parent would lose their completions.
extern "C" fn end_poll<R: Rings>(cq: &Cq) {
    let end = |queue: &mut CompletionQueue| R::Walk::cursor(cq).with(|cursor| queue.end(cursor));
    let is_ended =
        if CursorOf::<R>::SHOWS_BEGIN { cq.queue.within(end) } else { cq.queue.kept(end) == Some(true) };
    if is_ended {
        cq.queue.give_back();
    }
}

macro_rules! readers {
    ($($name:ident as $type:ty: $read:expr;)*) => {
        $(extern "C" fn $name<R: Rings>(cq: &Cq) -> $type {
            R::Walk::cursor(cq).with(|cursor| $read(&*cursor))
        })*
    };
}

readers! {
    read_opcode as u32: Fields::opcode;
    read_vendor_err as u32: Fields::vendor_error;
    read_byte_len as u32: Fields::byte_len;
    read_imm_data as u32: Fields::immediate;
    read_qp_num as u32: Fields::qp_num;
    read_src_qp as u32: Fields::source_qp;
    read_wc_flags as u32: |cursor: &CursorOf<R>| flags(cursor.flags());
    read_slid as u32: |cursor: &CursorOf<R>| u32::from(cursor.source_lid());
    read_sl as u8: Fields::service_level;
    read_dlid_path_bits as u8: Fields::path_bits;
    read_completion_ts as u64: Fields::timestamp;
    read_cvlan as u16: Fields::vlan;
}

/// Fields with which no queue can be created.
extern "C" fn read_nothing(_: &Cq) -> u64 {
    0
}

extern "C" fn fill_nothing(_: &Cq, _: Pointer) {}
