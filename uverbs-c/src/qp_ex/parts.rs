//! Of queues whose requests are written part for part: an operation is in its slot from its beginning, and each call that follows writes
//! its part, in any order, as one that comes again does elsewhere.

use uverbs::Remote;
use uverbs::abi::types::qp_type;
use uverbs::raw::{Opcode, SendQueue};

use super::begun::{Stage, finish};
use crate::abi::{self, Function};
use crate::answer::Answer;
use crate::post::Sending;
use crate::qp::Qp;

/// Datagrams are sends; what else reliable ones can be, the queue says.
pub(super) fn choose(part: &mut abi::QpEx) {
    part.wr_send = send as Function;
    part.wr_send_imm = send_imm as Function;
    if part.qp_base.qp_type == u32::from(qp_type::DRIVER) {
        part.wr_rdma_read = rdma_read as Function;
        part.wr_rdma_write = rdma_write as Function;
        part.wr_rdma_write_imm = rdma_write_imm as Function;
    }
}

/// An operation begins.
fn begin(qp: &Qp, opcode: Opcode<'_>) {
    qp.sends.held(|sending, _| {
        if !finish(qp, sending) {
            return;
        }
        let Sending { queue, begun, .. } = sending;
        begun.begin(qp, Stage::Written);
        let (wr_id, flags) = (begun.wr_id, begun.flags);
        let answer = queue.get_mut().and_then(|queue| Ok(queue.begin(wr_id, flags, &opcode)?));
        begun.note(answer);
    });
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
