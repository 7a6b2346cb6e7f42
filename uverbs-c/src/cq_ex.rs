//! The extended interface of completion queues: one completion at a time, read field by field.
//!
//! The queue's lock is held from the start of a poll to its end, as it is by libibverbs' drivers.

mod in_place;
mod taken;
mod told;

use std::cell::Cell;

use uverbs::CompletionQueue;

use crate::abi::{self, CqInitAttrEx, Function, PollCqAttr};
use crate::answer::{Answer, EINVAL, EOPNOTSUPP, or_null};
use crate::boundary::Pointer;
use crate::context::Context;
use crate::cq::{CONDITION, Cq, MUTEX, Wanted, make};
use crate::domain::used_parent;

/// The part that C accesses. Every function is set, because the header calls them without a check for null.
pub(crate) fn part(
    context: Pointer,
    wanted: &Wanted,
    queue: &CompletionQueue,
    is_in_place: bool,
) -> abi::CqEx {
    let functions = match (is_in_place, queue.is_told()) {
        (true, _) => in_place::FUNCTIONS,
        (false, true) => told::FUNCTIONS,
        (false, false) => taken::FUNCTIONS,
    };
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
        start_poll: functions.start_poll,
        next_poll: functions.next_poll,
        end_poll: functions.end_poll,
        read_opcode: functions.read_opcode,
        read_vendor_err: functions.read_vendor_err,
        read_byte_len: functions.read_byte_len,
        read_imm_data: functions.read_imm_data,
        read_qp_num: functions.read_qp_num,
        read_src_qp: functions.read_src_qp,
        read_wc_flags: functions.read_wc_flags,
        read_slid: functions.read_slid,
        read_sl: functions.read_sl,
        read_dlid_path_bits: functions.read_dlid_path_bits,
        read_completion_ts: functions.read_completion_ts,
        read_cvlan: functions.read_cvlan,
        read_flow_tag: functions.read_imm_data,
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

/// Creates a queue, with flags of the driver.
pub(crate) fn create(
    context: Option<&Context>,
    attr: Option<&CqInitAttrEx>,
    driver_flags: u8,
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
    let wanted = Wanted { cqe, cq_context, channel, comp_vector, flags: driver_flags, domain };
    make(Some(context), wanted)
}

pub(crate) extern "C" fn create_cq_ex(
    context: Option<&Context>,
    attr: Option<&CqInitAttrEx>,
) -> Option<Box<Cq>> {
    or_null(create(context, attr, 0))
}

/// The functions that depend on the format of the queue's completions. They are chosen when the queue is created.
struct Functions {
    start_poll: Function,
    next_poll: Function,
    end_poll: Function,
    read_opcode: Function,
    read_vendor_err: Function,
    read_byte_len: Function,
    read_imm_data: Function,
    read_qp_num: Function,
    read_src_qp: Function,
    read_wc_flags: Function,
    read_slid: Function,
    read_sl: Function,
    read_dlid_path_bits: Function,
    read_completion_ts: Function,
    read_cvlan: Function,
}

fn is_unknown(attr: Option<&PollCqAttr>) -> bool {
    attr.is_some_and(|attr| attr.comp_mask != 0)
}

/// Fields with which no queue can be created.
extern "C" fn read_nothing(_: &Cq) -> u64 {
    0
}

extern "C" fn fill_nothing(_: &Cq, _: Pointer) {}
