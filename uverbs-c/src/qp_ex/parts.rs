//! Of queues whose requests are written part for part, in any order: each call writes its part at once.

use uverbs::Remote;
use uverbs::abi::types::{SendFlags, qp_type};
use uverbs::raw::{Data, Opcode, SendQueue, Sge};

use super::begun::{NoBytes, NoPieces, Stage};
use super::fail;
use crate::abi::{self, DataBuf, Function};
use crate::answer::{Answer, EINVAL};
use crate::boundary::Pointer;
use crate::pd::Ah;
use crate::post::{Sending, address};
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
    part.wr_set_ud_addr = set_ud_addr as Function;
    part.wr_set_sge = set_sge as Function;
    part.wr_set_sge_list = set_sge_list as Function;
    part.wr_set_inline_data = set_inline_data as Function;
    part.wr_set_inline_data_list = set_inline_data_list as Function;
}

/// Writes a part, unless something has gone wrong before.
pub(crate) fn write(qp: &Qp, part: impl FnOnce(&mut SendQueue) -> Answer) {
    qp.sends.held(|sending, _| {
        let Sending { queue, begun, .. } = sending;
        if begun.stage != Stage::Failed {
            let answer = queue.get_mut().and_then(part);
            begun.note(answer);
        }
    });
}

fn begin(qp: &Qp, opcode: Opcode<'_>) {
    // The program says by the call that sets the data whether that is inline.
    let flags = qp.flags(qp.c.wr_flags.get()).difference(SendFlags::INLINE);
    write(qp, |queue| Ok(queue.in_parts()?.begin(qp.c.wr_id.get(), flags, &opcode)?));
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

extern "C" fn set_ud_addr(qp: &Qp, ah: Option<&Ah>, qp_num: u32, qkey: u32) {
    write(qp, |queue| Ok(queue.in_parts()?.set_address(address(ah)?, qp_num, qkey)?));
}

fn set_pieces(qp: &Qp, pieces: &[Sge]) {
    let data = Data::<_, NoBytes>::Pieces(pieces.iter());
    write(qp, |queue| Ok(queue.in_parts()?.set_data(SendFlags::empty(), None, &data)?));
}

extern "C" fn set_sge(qp: &Qp, lkey: u32, addr: u64, length: u32) {
    set_pieces(qp, &[Sge { addr, length, lkey }]);
}

extern "C" fn set_sge_list(qp: &Qp, count: usize, list: Pointer) {
    let most = qp.sends.held(|sending, _| sending.queue.get().map_or(0, SendQueue::max_pieces));
    // The count of the list is the caller's: nothing of it is looked at before.
    let pieces = (count <= most.unwrap_or(0) as usize).then(|| list.items::<Sge>(count)).flatten();
    match pieces {
        Some(pieces) => set_pieces(qp, pieces),
        None => fail(qp, EINVAL),
    }
}

fn set_bytes<'a>(qp: &Qp, bytes: impl Iterator<Item = Option<&'a [u8]>> + Clone) {
    if bytes.clone().any(|bytes| bytes.is_none()) {
        return fail(qp, EINVAL);
    }
    let data = Data::<NoPieces, _>::Inline(bytes.flatten());
    write(qp, |queue| Ok(queue.in_parts()?.set_data(SendFlags::INLINE, None, &data)?));
}

/// The bytes are copied at once: the caller may change them before `wr_complete`.
extern "C" fn set_inline_data(qp: &Qp, addr: Pointer, length: usize) {
    set_bytes(qp, std::iter::once(addr.items(length)));
}

extern "C" fn set_inline_data_list(qp: &Qp, count: usize, list: Pointer) {
    if list.is_null() && count > 0 {
        return fail(qp, EINVAL);
    }
    let places = (0..count).map_while(|i| list.item::<DataBuf>(i));
    set_bytes(qp, places.map(|place| place.addr.items(place.length)));
}
