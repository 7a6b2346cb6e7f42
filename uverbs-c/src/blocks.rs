//! The shortest paths for queues that the device reads itself, in its own format of blocks. Each leaves to the general function what it does
//! not handle itself.

use uverbs::Remote;
use uverbs::abi::types::{SendFlags, wr_opcode};
use uverbs::raw::{Here, Opcode, Plain, RequestKind, SendQueue, Sge, ToAddress};

use crate::abi::SendWr;
use crate::boundary::Pointer;
use crate::post::{address, halves};
use crate::qp::Qp;

const DATAGRAMS: u8 = RequestKind::Addressed as u8;

/// Puts the first requests of a list, each of one piece: sends, writes and reads, or datagrams. Moves `at` behind them.
#[inline(always)]
pub(crate) fn put_plain<const KIND: u8>(qp: &Qp, queue: &mut SendQueue, here: Here, at: &mut Pointer) {
    let is_plain = |wr: &SendWr| wr.num_sge == 1 && wr.send_flags & SendFlags::INLINE.bits() == 0;
    if !at.get::<SendWr>().is_some_and(is_plain) {
        return;
    }
    queue.fill_plain::<KIND>(here, |batch| {
        while let Some(wr) = at.get::<SendWr>() {
            if !put(qp, batch, wr) {
                break;
            }
            *at = wr.next;
        }
    });
}

#[inline(always)]
fn put<const KIND: u8>(qp: &Qp, batch: &mut Plain<'_, KIND>, wr: &SendWr) -> bool {
    let flags = qp.flags(wr.send_flags);
    let Some(piece) = wr.sg_list.get::<Sge>().filter(|_| wr.num_sge == 1) else { return false };
    if flags.contains(SendFlags::INLINE) {
        return false;
    }
    let [first, second, ..] = wr.wr;
    if KIND == DATAGRAMS {
        let Ok(ah) = address(Pointer::from_word(first).get()) else { return false };
        let (qp_num, qkey) = halves(second);
        let immediate = match wr.opcode {
            wr_opcode::SEND => None,
            wr_opcode::SEND_WITH_IMM => Some(wr.imm_data),
            _ => return false,
        };
        return batch.put_if_free(wr.wr_id, flags, &ToAddress { ah, qp_num, qkey, immediate }, piece);
    }
    let remote = || Remote { address: first, rkey: halves(second).0 };
    match wr.opcode {
        wr_opcode::SEND => batch.put_if_free(wr.wr_id, flags, &Opcode::Send, piece),
        wr_opcode::RDMA_WRITE => batch.put_if_free(wr.wr_id, flags, &Opcode::Write(remote()), piece),
        wr_opcode::RDMA_READ => batch.put_if_free(wr.wr_id, flags, &Opcode::Read(remote()), piece),
        _ => false,
    }
}
