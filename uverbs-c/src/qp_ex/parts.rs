//! Of queues whose requests are written part for part: an operation is in its slot from its beginning, and each call that follows writes
//! its part, in any order, as one that comes again does elsewhere.

use uverbs::Remote;
use uverbs::abi::types::{SendFlags, qp_type};
use uverbs::raw::{Data, Opcode, Refused, SendQueue};

use super::begun::{NoPieces, Stage, finish, too_many};
use super::data::{one, set_inline_data as set_inline_data_of_any, set_sge as set_sge_of_any};
use super::set_address_again;
use super::way::{Numbered, Way};
use crate::abi::{self, Function};
use crate::answer::{Answer, Code};
use crate::boundary::Pointer;
use crate::pd::Ah;
use crate::post::{Sending, address};
use crate::qp::Qp;

/// Datagrams are sends; what else reliable ones can be, the queue says.
pub(super) fn choose(part: &mut abi::QpEx) {
    part.wr_send = send as Function;
    part.wr_send_imm = send_imm as Function;
    part.wr_set_ud_addr = set_ud_addr as Function;
    (part.wr_set_sge, part.wr_set_inline_data) = (set_sge as Function, set_inline_data as Function);
    if part.qp_base.qp_type == u32::from(qp_type::DRIVER) {
        part.wr_rdma_read = rdma_read as Function;
        part.wr_rdma_write = rdma_write as Function;
        part.wr_rdma_write_imm = rdma_write_imm as Function;
    }
}

/// An operation begins.
#[inline(always)]
fn begin(qp: &Qp, opcode: Opcode<'_>) {
    qp.sends.held(|sending, here| {
        if sending.begun.stage > Stage::Written && !finish(qp, sending) {
            return;
        }
        let Sending { queue, begun, .. } = sending;
        begun.begin(qp, Stage::Written);
        let (wr_id, flags) = (begun.wr_id, begun.flags);
        let answer = queue.get_mut().and_then(|queue| {
            let begun = Numbered::batch(queue, here).map(|mut batch| batch.begin(wr_id, flags, &opcode));
            Ok(begun.unwrap_or_else(|| queue.begin(wr_id, flags, &opcode))?)
        });
        begun.note(answer);
    });
}

/// Writes a part of the operation that was begun last; false, and nothing done, where that is not so simple.
macro_rules! written {
    ($qp:expr, |$batch:ident, $flags:ident| $write:expr) => {
        $qp.sends.held(|sending, here| {
            let Sending { queue, begun, .. } = sending;
            let Ok(queue) = queue.get_mut() else { return false };
            let $flags = begun.flags;
            let batch = if begun.stage == Stage::Written { Numbered::batch(queue, here) } else { None };
            let Some(mut $batch) = batch else { return false };
            if let Err(refused) = $write {
                begun.fail(if refused == Refused::TooLarge { too_many($qp) } else { Code::from(refused) });
            }
            true
        }) == Some(true)
    };
}

extern "C" fn set_sge(qp: &Qp, lkey: u32, addr: u64, length: u32) {
    let data = one(lkey, addr, length);
    if length == 0 || !written!(qp, |batch, flags| batch.set_data(flags, None, &data)) {
        set_sge_of_any(qp, lkey, addr, length);
    }
}

extern "C" fn set_inline_data(qp: &Qp, addr: Pointer, length: usize) {
    let data = addr.some_items(length).map(|bytes| Data::<NoPieces, _>::Inline(std::iter::once(bytes)));
    let is_set = data.is_some_and(|data| {
        written!(qp, |batch, flags| batch.set_data(flags | SendFlags::INLINE, None, &data))
    });
    if !is_set {
        set_inline_data_of_any(qp, addr, length);
    }
}

extern "C" fn set_ud_addr(qp: &Qp, ah: Option<&Ah>, qp_num: u32, qkey: u32) {
    let is_set =
        address(ah).is_ok_and(|to| written!(qp, |batch, _flags| batch.set_address(to, qp_num, qkey)));
    if !is_set {
        set_address_again(qp, ah, qp_num, qkey);
    }
}

/// Writes a part that only a driver has, unless something has gone wrong before.
pub(crate) fn write(qp: &Qp, part: impl FnOnce(&mut SendQueue) -> Answer) {
    qp.sends.held(|sending, _| {
        let Sending { queue, begun, .. } = sending;
        if begun.stage != Stage::Failed {
            let answer = queue.get_mut().and_then(part);
            begun.note(answer);
        }
    });
}

extern "C" fn send(qp: &Qp) {
    begin(qp, Opcode::Send);
}

extern "C" fn send_imm(qp: &Qp, immediate: u32) {
    begin(qp, Opcode::SendImmediate(immediate));
}

extern "C" fn rdma_read(qp: &Qp, rkey: u32, address: u64) {
    begin(qp, Opcode::Read(Remote { address, rkey }));
}

extern "C" fn rdma_write(qp: &Qp, rkey: u32, address: u64) {
    begin(qp, Opcode::Write(Remote { address, rkey }));
}

extern "C" fn rdma_write_imm(qp: &Qp, rkey: u32, address: u64, immediate: u32) {
    begin(qp, Opcode::WriteImmediate(Remote { address, rkey }, immediate));
}
