//! For queues whose requests are written part by part: an operation is in its slot as soon as it is begun, and each later call writes its
//! part there, in any order. Other queues write only a part that is set again in this way.

use std::ffi::c_int;

use uverbs::Remote;
use uverbs::abi::types::{SendFlags, qp_type};
use uverbs::raw::{ADDRESSED, Data, Here, Opcode, SendQueue, Sge};

use super::begun::{NoBytes, NoPieces, Stage, finish};
use super::data::{
    one, set_inline_data as set_inline_data_of_any, set_sge as set_sge_of_any, wr_set_inline_data_list,
    wr_set_sge_list,
};
use super::{complete as complete_any, nothing_held, set_address_again};
use crate::abi::{self, DataBuf, Function};
use crate::answer::Answer;
use crate::boundary::Pointer;
use crate::pd::Ah;
use crate::post::{Sending, address};
use crate::providers::rings::Rings;
use crate::qp::Qp;
use crate::request::Parts;

/// Every queue pair of datagrams can send. The queue itself refuses the other operations of reliable datagrams that it does not support.
pub(super) fn choose<R: Rings>(part: &mut abi::QpEx) {
    part.wr_complete = complete::<R> as Function;
    part.wr_send = send::<R> as Function;
    part.wr_send_imm = send_imm::<R> as Function;
    part.wr_set_ud_addr = set_ud_addr::<R> as Function;
    (part.wr_set_sge, part.wr_set_inline_data) = (set_sge::<R> as Function, set_inline_data::<R> as Function);
    part.wr_set_sge_list = set_sge_list::<R> as Function;
    part.wr_set_inline_data_list = set_inline_data_list::<R> as Function;
    if part.qp_base.qp_type == u32::from(qp_type::DRIVER) {
        part.wr_rdma_read = rdma_read::<R> as Function;
        part.wr_rdma_write = rdma_write::<R> as Function;
        part.wr_rdma_write_imm = rdma_write_imm::<R> as Function;
    }
}

/// Begins an operation.
// Each operation has its own type, so that there is a function for each, which ends with a call of the longer one and keeps no values for
// it.
#[inline(always)]
fn begin<R: Rings>(qp: &Qp, opcode: impl Fn() -> Opcode<'static>) {
    // The result of the check for the first operation holds for the whole batch.
    let may_begin = is_short(qp) || may_be_short::<R>(qp);
    let is_begun = may_begin
        && qp.sends.within(|Sending { queue, begun, .. }| {
            let Some(mut batch) =
                queue.get_mut().ok().and_then(|queue| queue.one::<R, false, ADDRESSED>(None))
            else {
                return false;
            };
            let flags = qp.flags(qp.c.wr_flags.get() & !SendFlags::INLINE.bits());
            let is_begun = batch.begin(qp.c.wr_id.get(), flags, &opcode()).is_ok();
            if is_begun {
                begun.stage = Stage::Short;
            }
            is_begun
        });
    if !is_begun {
        begin_other(qp, opcode);
    }
}

/// Whether an operation was begun whose parts are written by the shortest path. They are written to a copy of the ring, which is this
/// process's own memory. So the process is not checked again until they are shown to the device.
#[inline(always)]
fn is_short(qp: &Qp) -> bool {
    qp.sends.within(|sending| sending.begun.stage == Stage::Short)
}

/// Whether the first operation may take that path.
#[inline(always)]
fn may_be_short<R: Rings>(qp: &Qp) -> bool {
    let may = qp.sends.held(|Sending { queue, begun, .. }, here| {
        begun.stage <= Stage::Written
            && queue.get_mut().is_ok_and(|queue| queue.one::<R, false, ADDRESSED>(Some(here)).is_some())
    });
    may == Some(true)
}

#[cold]
#[inline(never)]
fn begin_other(qp: &Qp, opcode: impl Fn() -> Opcode<'static>) {
    begin_at_length(qp, opcode());
}

/// One function for all operations with immediate data.
#[inline(never)]
fn begin_with_immediate<R: Rings>(qp: &Qp, opcode: Opcode<'static>) {
    begin::<R>(qp, || opcode);
}

/// Begins an operation after any other. Notes the error if it cannot begin.
#[cold]
#[inline(never)]
fn begin_at_length(qp: &Qp, opcode: Opcode<'static>) {
    qp.sends.held(|sending, _| {
        if sending.begun.stage > Stage::Written && !finish(qp, sending) {
            return;
        }
        let Sending { queue, begun, .. } = sending;
        begun.begin(qp, Stage::Written);
        let (wr_id, flags) = (begun.wr_id, begun.flags);
        let answer = queue.get_mut().and_then(|queue| Ok(queue.begin(wr_id, flags, &opcode)?));
        begun.note(answer);
    });
}

/// Writes a part of the operation that was begun last. False, with nothing done, if this needs the longer path.
macro_rules! written {
    ($qp:expr, |$batch:ident| $write:expr) => {
        is_short($qp)
            && $qp.sends.within(|Sending { queue, .. }| {
                let Some(mut $batch) =
                    queue.get_mut().ok().and_then(|queue| queue.one::<R, false, ADDRESSED>(None))
                else {
                    return false;
                };
                $write.is_ok()
            })
    };
}

/// Shows the device all operations, or none if one of them was invalid.
extern "C" fn complete<R: Rings>(qp: &Qp) -> c_int {
    let complete = |sending: &mut Sending, here| {
        let Sending { queue, begun, .. } = sending;
        match queue.get_mut() {
            Ok(queue) if begun.stage == Stage::Short => {
                begun.stage = Stage::Nothing;
                queue.publish_begun::<R>();
                0
            }
            _ => complete_at_length::<R>(qp, sending, here),
        }
    };
    qp.sends.end(complete).unwrap_or_else(|| nothing_held(qp))
}

#[inline(never)]
fn complete_at_length<R: Rings>(qp: &Qp, sending: &mut Sending, here: Here) -> c_int {
    complete_any::<R>(qp, sending, here)
}

extern "C" fn set_sge<R: Rings>(qp: &Qp, lkey: u32, addr: u64, length: u32) {
    let data = one(lkey, addr, length);
    if length == 0 || !written!(qp, |batch| batch.set_data(SendFlags::SIGNALED, None, &data)) {
        set_sge_of_any(qp, lkey, addr, length);
    }
}

extern "C" fn set_inline_data<R: Rings>(qp: &Qp, addr: Pointer, length: usize) {
    let data = addr.some_items(length).map(|bytes| Data::<NoPieces, _>::Inline(std::iter::once(bytes)));
    let is_set =
        data.is_some_and(|data| written!(qp, |batch| batch.set_data(SendFlags::INLINE, None, &data)));
    if !is_set {
        set_inline_data_of_any(qp, addr, length);
    }
}

/// Longer lists take the longer path. The queue compares the count with its own limit before it reads a piece.
const FEW: usize = 2;

extern "C" fn set_sge_list<R: Rings>(qp: &Qp, count: usize, list: Pointer) {
    let pieces = if matches!(count, 1..=FEW) { list.items::<Sge>(count) } else { None };
    let is_set = pieces.is_some_and(|pieces| {
        let data = Data::<_, NoBytes>::Pieces(pieces.iter());
        written!(qp, |batch| batch.set_data(SendFlags::SIGNALED, None, &data))
    });
    if !is_set {
        wr_set_sge_list(qp, count, list);
    }
}

extern "C" fn set_inline_data_list<R: Rings>(qp: &Qp, count: usize, list: Pointer) {
    let parts = list.some_items::<DataBuf>(count).and_then(Parts::of);
    let is_set = parts.is_some_and(|parts| {
        let data = Data::<NoPieces, _>::Inline(parts);
        written!(qp, |batch| batch.set_data(SendFlags::INLINE, None, &data))
    });
    if !is_set {
        wr_set_inline_data_list(qp, count, list);
    }
}

extern "C" fn set_ud_addr<R: Rings>(qp: &Qp, ah: Option<&Ah>, qp_num: u32, qkey: u32) {
    let is_set = address(ah).is_ok_and(|to| written!(qp, |batch| batch.set_address(*to, qp_num, qkey)));
    if !is_set {
        set_address_again(qp, ah, qp_num, qkey);
    }
}

/// Writes a part that only one driver has, unless the batch has already failed.
pub(crate) fn write(qp: &Qp, part: impl FnOnce(&mut SendQueue) -> Answer) {
    qp.sends.held(|sending, _| {
        let Sending { queue, begun, .. } = sending;
        if begun.stage != Stage::Failed {
            let answer = queue.get_mut().and_then(part);
            begun.note(answer);
        }
    });
}

extern "C" fn send<R: Rings>(qp: &Qp) {
    begin::<R>(qp, || Opcode::Send);
}

extern "C" fn send_imm<R: Rings>(qp: &Qp, immediate: u32) {
    begin_with_immediate::<R>(qp, Opcode::SendImmediate(immediate));
}

extern "C" fn rdma_read<R: Rings>(qp: &Qp, rkey: u32, address: u64) {
    begin::<R>(qp, || Opcode::Read(Remote { address, rkey }));
}

extern "C" fn rdma_write<R: Rings>(qp: &Qp, rkey: u32, address: u64) {
    begin::<R>(qp, || Opcode::Write(Remote { address, rkey }));
}

extern "C" fn rdma_write_imm<R: Rings>(qp: &Qp, rkey: u32, address: u64, immediate: u32) {
    begin_with_immediate::<R>(qp, Opcode::WriteImmediate(Remote { address, rkey }, immediate));
}
