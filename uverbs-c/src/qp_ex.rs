//! The extended interface of send queues: `wr_start`, an operation and its parts, ..., `wr_complete`.

use std::cell::Cell;
use std::ffi::c_int;
use std::sync::atomic::Ordering;

use uverbs::abi::rxe::{AtomicWr, RdmaWr, SendWr, Sge};
use uverbs::abi::types::{SendFlags, qp_type, wr_opcode};
use zerocopy::FromZeros;

use crate::abi::{self, DataBuf, Function, MwBindInfo, QpInitAttrEx};
use crate::answer::{Answer, Code, EINVAL, EOPNOTSUPP};
use crate::boundary::Pointer;
use crate::cq::{CONDITION, MUTEX};
use crate::mw::Mw;
use crate::owned::lock;
use crate::pd::{Ah, Pd};
use crate::post::{address, bind, flush, overlay};
use crate::qp::Qp;

/// The part that C knows. Every function is there, since the header calls them without a look.
pub(crate) fn part(pd: &Pd, init: &QpInitAttrEx) -> abi::QpEx {
    abi::QpEx {
        qp_base: abi::Qp {
            context: pd.c.context,
            qp_context: init.qp_context,
            pd: Pointer::to(pd),
            send_cq: init.send_cq,
            recv_cq: init.recv_cq,
            srq: init.srq,
            handle: 0,
            qp_num: 0,
            state: Cell::new(0),
            qp_type: init.qp_type,
            mutex: MUTEX,
            cond: CONDITION,
            events_completed: 0,
        },
        comp_mask: 0,
        wr_id: Cell::new(0),
        wr_flags: Cell::new(0),
        wr_atomic_cmp_swp: wr_atomic_cmp_swp as Function,
        wr_atomic_fetch_add: wr_atomic_fetch_add as Function,
        wr_bind_mw: wr_bind_mw as Function,
        wr_local_inv: wr_local_inv as Function,
        wr_rdma_read: wr_rdma_read as Function,
        wr_rdma_write: wr_rdma_write as Function,
        wr_rdma_write_imm: wr_rdma_write_imm as Function,
        wr_send: wr_send as Function,
        wr_send_imm: wr_send_imm as Function,
        wr_send_inv: wr_send_inv as Function,
        wr_send_tso: wr_send_tso as Function,
        wr_set_ud_addr: wr_set_ud_addr as Function,
        wr_set_xrc_srqn: wr_unsupported as Function,
        wr_set_inline_data: wr_set_inline_data as Function,
        wr_set_inline_data_list: wr_set_inline_data_list as Function,
        wr_set_sge: wr_set_sge as Function,
        wr_set_sge_list: wr_set_sge_list as Function,
        wr_start: wr_start as Function,
        wr_complete: wr_complete as Function,
        wr_abort: wr_abort as Function,
        wr_atomic_write: wr_atomic_write as Function,
        wr_flush: wr_flush as Function,
    }
}

/// `enum ibv_qp_create_send_ops_flags`: the operations that queue pairs of a type have.
pub(crate) fn supported(type_: u32) -> u64 {
    const WRITE: u64 = 1 << 0 | 1 << 1;
    const SEND: u64 = 1 << 2 | 1 << 3;
    const READ: u64 = 1 << 4;
    const ATOMIC: u64 = 1 << 5 | 1 << 6;
    const LOCAL_INV: u64 = 1 << 7;
    const BIND: u64 = 1 << 8;
    const SEND_INV: u64 = 1 << 9;
    const TSO: u64 = 1 << 10;
    const FLUSH: u64 = 1 << 11;
    const ATOMIC_WRITE: u64 = 1 << 12;
    match u8::try_from(type_) {
        Ok(qp_type::RC) => WRITE | SEND | READ | ATOMIC | LOCAL_INV | BIND | SEND_INV | FLUSH | ATOMIC_WRITE,
        Ok(qp_type::UC) => WRITE | SEND | BIND | SEND_INV,
        Ok(qp_type::UD) => SEND,
        Ok(qp_type::RAW_PACKET) => 1 << 2 | TSO,
        _ => 0,
    }
}

/// What was begun with `wr_start`.
#[derive(Default)]
pub(crate) struct Batch {
    current: Option<Request>,
    /// The first thing that went wrong.
    error: Option<Code>,
}

/// An operation whose parts are still coming.
struct Request {
    wr: SendWr,
    iova: u64,
    pieces: Vec<Sge>,
    inline: Option<Vec<u8>>,
    /// Of a large send: its header, and how it is cut.
    large: Option<(Vec<u8>, u16)>,
}

impl Batch {
    fn note(&mut self, answer: Answer) {
        if let Err(code) = answer {
            self.error.get_or_insert(code);
        }
    }

    /// The last operation has all its parts now.
    fn finish(&mut self, qp: &Qp) {
        let Some(Request { wr, iova, pieces, inline, large }) = self.current.take() else { return };
        let mut sending = lock(&qp.sends);
        let pieces = pieces.into_iter();
        let put = match (inline, large) {
            (None, Some((header, mss))) => sending.put_large(qp, wr, (&header, mss), pieces),
            // The data of a large send is never in the request.
            (Some(_), Some(_)) => Err(EINVAL),
            (Some(bytes), None) => {
                sending.queue.get_mut().and_then(|queue| Ok(queue.put_inline(wr, iova, &bytes)?))
            }
            (None, None) => sending.put(wr, iova, pieces),
        };
        self.note(put);
    }

    /// A part of the current operation.
    fn part(&mut self, set: impl FnOnce(&mut Request) -> Answer) {
        let answer = self.current.as_mut().ok_or(EINVAL).and_then(set);
        self.note(answer);
    }
}

/// The next operation.
fn begin(qp: &Qp, opcode: u32, ex: u32, iova: u64, fill: impl FnOnce(&mut SendWr) -> Answer) {
    let mut batch = lock(&qp.batch);
    batch.finish(qp);
    let signaled = if qp.signal_all { SendFlags::SIGNALED.bits() } else { 0 };
    let mut wr = SendWr {
        wr_id: qp.c.wr_id.get(),
        opcode,
        // Whether there is inline data is said by the call that sets it.
        send_flags: qp.c.wr_flags.get() & !SendFlags::INLINE.bits() | signaled,
        ex,
        ..SendWr::new_zeroed()
    };
    batch.note(fill(&mut wr));
    batch.current = Some(Request { wr, iova, pieces: Vec::new(), inline: None, large: None });
}

fn rdma(qp: &Qp, opcode: u32, ex: u32, rkey: u32, remote_addr: u64) {
    begin(qp, opcode, ex, remote_addr, |wr| {
        overlay(wr, &RdmaWr { remote_addr, rkey, reserved: 0 });
        Ok(())
    });
}

fn atomic(qp: &Qp, opcode: u32, rkey: u32, remote_addr: u64, compare_add: u64, swap: u64) {
    begin(qp, opcode, 0, remote_addr, |wr| {
        overlay(wr, &AtomicWr { remote_addr, compare_add, swap, rkey, reserved: 0 });
        if remote_addr.is_multiple_of(8) { Ok(()) } else { Err(EINVAL) }
    });
}

/// From here to the end other threads wait, as they do with libibverbs.
extern "C" fn wr_start(qp: &Qp) {
    while qp.posting.swap(true, Ordering::Acquire) {
        std::thread::yield_now();
    }
    *lock(&qp.batch) = Batch::default();
}

extern "C" fn wr_complete(qp: &Qp) -> c_int {
    let error = {
        let mut batch = lock(&qp.batch);
        batch.finish(qp);
        batch.error.take()
    };
    let mut sending = lock(&qp.sends);
    let publish = || match (sending.queue.get_mut()?, error) {
        (queue, Some(code)) => {
            queue.rewind();
            Err(code)
        }
        (queue, None) => Ok(queue.publish(qp.qp.get()?)?),
    };
    let mut publish = publish;
    let answer: Answer = publish();
    drop(sending);
    qp.posting.store(false, Ordering::Release);
    answer.map_or_else(|code| code.0, |()| 0)
}

extern "C" fn wr_abort(qp: &Qp) {
    *lock(&qp.batch) = Batch::default();
    if let Ok(queue) = lock(&qp.sends).queue.get_mut() {
        queue.rewind();
    }
    qp.posting.store(false, Ordering::Release);
}

extern "C" fn wr_send(qp: &Qp) {
    begin(qp, wr_opcode::SEND, 0, 0, |_| Ok(()));
}

extern "C" fn wr_send_imm(qp: &Qp, immediate: u32) {
    begin(qp, wr_opcode::SEND_WITH_IMM, immediate, 0, |_| Ok(()));
}

extern "C" fn wr_send_inv(qp: &Qp, key: u32) {
    begin(qp, wr_opcode::SEND_WITH_INV, key, 0, |_| Ok(()));
}

/// The header is copied at once, as inline data is.
extern "C" fn wr_send_tso(qp: &Qp, header: Pointer, length: u16, mss: u16) {
    let is_cut = qp.c.qp_base.qp_type == u32::from(qp_type::RAW_PACKET);
    begin(qp, wr_opcode::TSO, 0, 0, |_| if is_cut { Ok(()) } else { Err(EOPNOTSUPP) });
    lock(&qp.batch).part(|request| {
        request.large = Some((header.items(length.into()).to_vec(), mss));
        Ok(())
    });
}

extern "C" fn wr_local_inv(qp: &Qp, key: u32) {
    begin(qp, wr_opcode::LOCAL_INV, key, 0, |_| Ok(()));
}

extern "C" fn wr_rdma_read(qp: &Qp, rkey: u32, remote_addr: u64) {
    rdma(qp, wr_opcode::RDMA_READ, 0, rkey, remote_addr);
}

extern "C" fn wr_rdma_write(qp: &Qp, rkey: u32, remote_addr: u64) {
    rdma(qp, wr_opcode::RDMA_WRITE, 0, rkey, remote_addr);
}

extern "C" fn wr_rdma_write_imm(qp: &Qp, rkey: u32, remote_addr: u64, immediate: u32) {
    rdma(qp, wr_opcode::RDMA_WRITE_WITH_IMM, immediate, rkey, remote_addr);
}

extern "C" fn wr_atomic_cmp_swp(qp: &Qp, rkey: u32, remote_addr: u64, compare: u64, swap: u64) {
    atomic(qp, wr_opcode::ATOMIC_CMP_AND_SWP, rkey, remote_addr, compare, swap);
}

extern "C" fn wr_atomic_fetch_add(qp: &Qp, rkey: u32, remote_addr: u64, add: u64) {
    atomic(qp, wr_opcode::ATOMIC_FETCH_AND_ADD, rkey, remote_addr, add, 0);
}

/// Eight bytes, which are in the request.
extern "C" fn wr_atomic_write(qp: &Qp, rkey: u32, remote_addr: u64, bytes: Pointer) {
    rdma(qp, wr_opcode::ATOMIC_WRITE, 0, rkey, remote_addr);
    lock(&qp.batch).part(|request| {
        request.inline = Some(bytes.items(8).to_vec());
        Ok(())
    });
}

extern "C" fn wr_flush(qp: &Qp, rkey: u32, remote_addr: u64, length: usize, type_: u8, level: u8) {
    begin(qp, wr_opcode::FLUSH, 0, remote_addr, |wr| {
        flush(wr, rkey, remote_addr, u32::try_from(length).map_err(|_| EINVAL)?, type_, level);
        Ok(())
    });
}

extern "C" fn wr_bind_mw(qp: &Qp, mw: Option<&Mw>, rkey: u32, info: Option<&MwBindInfo>) {
    begin(qp, wr_opcode::BIND_MW, 0, 0, |wr| bind(wr, mw, rkey, info.ok_or(EINVAL)?));
}

extern "C" fn wr_set_ud_addr(qp: &Qp, ah: Option<&Ah>, remote_qpn: u32, remote_qkey: u32) {
    lock(&qp.batch).part(|request| address(&mut request.wr, ah, remote_qpn, remote_qkey));
}

extern "C" fn wr_set_sge(qp: &Qp, lkey: u32, addr: u64, length: u32) {
    lock(&qp.batch).part(|request| {
        if length > 0 {
            request.pieces.push(Sge { addr, length, lkey });
        }
        Ok(())
    });
}

extern "C" fn wr_set_sge_list(qp: &Qp, count: usize, list: Pointer) {
    lock(&qp.batch).part(|request| {
        request.pieces.extend_from_slice(list.items(count));
        Ok(())
    });
}

extern "C" fn wr_set_inline_data(qp: &Qp, addr: Pointer, length: usize) {
    set_inline(qp, [(addr, length)].into_iter());
}

extern "C" fn wr_set_inline_data_list(qp: &Qp, count: usize, list: Pointer) {
    let places = (0..count).filter_map(|i| list.item::<DataBuf>(i)).map(|place| (place.addr, place.length));
    set_inline(qp, places);
}

/// The bytes are copied at once: the caller may change them before `wr_complete`.
fn set_inline(qp: &Qp, places: impl Iterator<Item = (Pointer, usize)> + Clone) {
    let most = lock(&qp.sends).queue.get().map_or(0, |queue| queue.max_inline() as usize);
    lock(&qp.batch).part(|request| {
        let length = places.clone().try_fold(0_usize, |sum, (_, length)| sum.checked_add(length));
        if length.is_none_or(|length| length > most) {
            return Err(EINVAL);
        }
        request.wr.send_flags |= SendFlags::INLINE.bits();
        request.inline = Some(places.flat_map(|(addr, length)| addr.items::<u8>(length)).copied().collect());
        Ok(())
    });
}

/// Operations that no queue pair was made for.
extern "C" fn wr_unsupported(qp: &Qp) {
    lock(&qp.batch).note(Err(EOPNOTSUPP));
}
