//! The extended interface of send queues: `wr_start`, an operation and its parts, ..., `wr_complete`.

use std::cell::Cell;
use std::ffi::c_int;

use uverbs::abi::rxe::{AtomicWr, RdmaWr, SendWr, Sge};
use uverbs::abi::types::{SendFlags, qp_type, wr_opcode};
use uverbs::raw::SendQueue;

use crate::abi::{self, DataBuf, Function, MwBindInfo, QpInitAttrEx};
use crate::answer::{Answer, Code, EINVAL, ENOMEM, EOPNOTSUPP};
use crate::boundary::Pointer;
use crate::cq::{CONDITION, MUTEX};
use crate::mw::Mw;
use crate::pd::{Ah, Pd};
use crate::post::{Sending, address, bind, flush, overlay, put};
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
    const LARGE: u64 = 1 << 10;
    const FLUSH: u64 = 1 << 11;
    const ATOMIC_WRITE: u64 = 1 << 12;
    match u8::try_from(type_) {
        Ok(qp_type::RC) => WRITE | SEND | READ | ATOMIC | LOCAL_INV | BIND | SEND_INV | FLUSH | ATOMIC_WRITE,
        Ok(qp_type::UC) => WRITE | SEND | BIND | SEND_INV,
        Ok(qp_type::UD) => SEND,
        Ok(qp_type::RAW_PACKET) => 1 << 2 | LARGE,
        _ => 0,
    }
}

/// What was begun with `wr_start`: one operation whose parts are still coming.
#[derive(Default)]
pub(crate) struct Batch {
    is_begun: bool,
    wr: SendWr,
    iova: u64,
    pieces: Vec<Sge>,
    /// Instead of pieces.
    bytes: Vec<u8>,
    has_bytes: bool,
    /// Of a large send: the header, and how many bytes stand behind it in each frame but the last.
    header: Vec<u8>,
    mss: u16,
    /// The first thing that went wrong.
    error: Option<Code>,
}

impl Batch {
    /// With room for as much as an operation may have.
    pub(crate) fn new(pieces: usize, bytes: usize) -> Self {
        // The bytes of an atomic write are in the request, and are eight.
        let (pieces, bytes) = (Vec::with_capacity(pieces), Vec::with_capacity(bytes.max(8)));
        Self { pieces, bytes, ..Self::default() }
    }

    /// The memory of the current operation, in the place of what was set before. There is room for as much as one may have.
    #[inline]
    fn set_pieces(&mut self, qp: &Qp, pieces: &[Sge]) -> Answer {
        self.pieces.clear();
        if pieces.len() > self.pieces.capacity() {
            return Err(too_many(qp));
        }
        self.pieces.extend_from_slice(pieces);
        Ok(())
    }

    #[inline]
    fn note(&mut self, answer: Answer) {
        if let Err(code) = answer {
            self.error.get_or_insert(code);
        }
    }

    /// A part of the current operation.
    #[inline]
    fn part(&mut self, set: impl FnOnce(&mut Self) -> Answer) {
        let answer = if self.is_begun { set(self) } else { Err(EINVAL) };
        self.note(answer);
    }
}

/// What an operation with too many parts is answered; libmlx5 says ENOMEM.
fn too_many(qp: &Qp) -> Code {
    if qp.is_raw_packet() { ENOMEM } else { EINVAL }
}

impl Sending {
    /// The last operation has all its parts now.
    #[inline]
    fn finish(&mut self, qp: &Qp) {
        if std::mem::take(&mut self.batch.is_begun) {
            let put = self.put_begun(qp);
            self.batch.note(put);
        }
    }

    #[inline]
    fn put_begun(&mut self, qp: &Qp) -> Answer {
        let Self { queue, scratch, batch, .. } = self;
        let queue = queue.get_mut()?;
        let Batch { wr, iova, pieces, bytes, has_bytes, header, mss, .. } = batch;
        if qp.is_raw_packet() && pieces.len() > queue.max_pieces() as usize {
            return Err(too_many(qp));
        }
        match (wr.opcode == wr_opcode::TSO, *has_bytes) {
            (false, true) => Ok(queue.put_inline(wr, *iova, bytes)?),
            (false, false) => put(queue, scratch, wr, *iova, pieces.iter().copied()),
            (true, false) => {
                Ok(queue.put_large(qp.qp.lock()?.get()?, wr, header, *mss, pieces.iter().copied())?)
            }
            // The data of a large send is never in the request.
            (true, true) => Err(EINVAL),
        }
    }
}

/// The next operation.
#[inline]
fn begin(qp: &Qp, opcode: u32, ex: u32, iova: u64, fill: impl FnOnce(&mut SendWr) -> Answer) {
    qp.sends.held(|sending| {
        sending.finish(qp);
        let batch = &mut sending.batch;
        let signaled = if qp.signal_all { SendFlags::SIGNALED.bits() } else { 0 };
        // Whether there is inline data is said by the call that sets it.
        let flags = qp.c.wr_flags.get() & !SendFlags::INLINE.bits() | signaled;
        // What only another operation has is left in it: nobody looks there.
        (batch.wr.wr_id, batch.wr.opcode) = (qp.c.wr_id.get(), opcode);
        (batch.wr.send_flags, batch.wr.ex) = (flags, ex);
        batch.iova = iova;
        batch.pieces.clear();
        (batch.is_begun, batch.has_bytes) = (true, false);
        // Everything else would be sent as a frame.
        let is_frame = matches!(opcode, wr_opcode::SEND | wr_opcode::TSO);
        let filled = if qp.is_raw_packet() && !is_frame { Err(EOPNOTSUPP) } else { fill(&mut batch.wr) };
        batch.note(filled);
    });
}

/// A part of the current operation.
#[inline]
fn with(qp: &Qp, set: impl FnOnce(&mut Batch) -> Answer) {
    qp.sends.held(|sending| sending.batch.part(set));
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
    // In a child that cannot have it nothing is held from here on.
    let _ = qp.sends.begin();
    qp.sends.held(|sending| {
        sending.batch.is_begun = false;
        sending.batch.error = None;
    });
}

/// Shows the device all operations, or none if one of them was bad.
fn complete(qp: &Qp, sending: &mut Sending) -> Answer {
    sending.finish(qp);
    let queue = sending.queue.get_mut()?;
    if let Some(code) = sending.batch.error {
        queue.rewind();
        return Err(code);
    }
    Ok(queue.publish(qp.qp.lock()?.get()?)?)
}

extern "C" fn wr_complete(qp: &Qp) -> c_int {
    let answer = qp.sends.held(|sending| complete(qp, sending));
    qp.sends.end();
    let none = if qp.sends.is_here() { EINVAL } else { Code(nix::libc::EIO) };
    answer.unwrap_or(Err(none)).map_or_else(|code| code.0, |()| 0)
}

extern "C" fn wr_abort(qp: &Qp) {
    qp.sends.held(|sending| sending.queue.get_mut().map(SendQueue::rewind));
    qp.sends.end();
}

extern "C" fn wr_send(qp: &Qp) {
    begin(qp, wr_opcode::SEND, 0, 0, |_| Ok(()));
}

/// The header is copied at once.
extern "C" fn wr_send_tso(qp: &Qp, header: Pointer, length: u16, mss: u16) {
    if !qp.is_raw_packet() {
        return wr_unsupported(qp);
    }
    begin(qp, wr_opcode::TSO, 0, 0, |_| Ok(()));
    with(qp, |batch| {
        batch.header.clear();
        batch.header.try_reserve(length.into())?;
        batch.header.extend_from_slice(header.items(length.into()));
        batch.mss = mss;
        Ok(())
    });
}

extern "C" fn wr_send_imm(qp: &Qp, immediate: u32) {
    begin(qp, wr_opcode::SEND_WITH_IMM, immediate, 0, |_| Ok(()));
}

extern "C" fn wr_send_inv(qp: &Qp, key: u32) {
    begin(qp, wr_opcode::SEND_WITH_INV, key, 0, |_| Ok(()));
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
    with(qp, |batch| batch.set_bytes(8, std::iter::once((bytes, 8))));
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
    with(qp, |batch| address(&mut batch.wr, ah, remote_qpn, remote_qkey));
}

extern "C" fn wr_set_sge(qp: &Qp, lkey: u32, addr: u64, length: u32) {
    with(qp, |batch| {
        if length > 0 {
            batch.set_pieces(qp, &[Sge { addr, length, lkey }])?;
        }
        Ok(())
    });
}

extern "C" fn wr_set_sge_list(qp: &Qp, count: usize, list: Pointer) {
    with(qp, |batch| {
        if count > batch.pieces.capacity() {
            return Err(too_many(qp));
        }
        batch.set_pieces(qp, list.items(count))
    });
}

extern "C" fn wr_set_inline_data(qp: &Qp, addr: Pointer, length: usize) {
    set_inline(qp, std::iter::once((addr, length)));
}

extern "C" fn wr_set_inline_data_list(qp: &Qp, count: usize, list: Pointer) {
    let places = (0..count).filter_map(|i| list.item::<DataBuf>(i)).map(|place| (place.addr, place.length));
    set_inline(qp, places);
}

impl Batch {
    /// The bytes are copied at once: the caller may change them before `wr_complete`.
    #[inline]
    fn set_bytes(&mut self, most: usize, places: impl Iterator<Item = (Pointer, usize)> + Clone) -> Answer {
        let length = places.clone().try_fold(0_usize, |sum, (_, length)| sum.checked_add(length));
        if length.is_none_or(|length| length > most) {
            return Err(EINVAL);
        }
        self.has_bytes = true;
        self.bytes.clear();
        places.for_each(|(addr, length)| self.bytes.extend_from_slice(addr.items(length)));
        Ok(())
    }
}

#[inline]
fn set_inline(qp: &Qp, places: impl Iterator<Item = (Pointer, usize)> + Clone) {
    qp.sends.held(|sending| {
        let most = sending.queue.get().map_or(0, |queue| queue.max_inline() as usize);
        sending.batch.part(|batch| {
            batch.set_bytes(most, places).map_err(|_| too_many(qp))?;
            batch.wr.send_flags |= SendFlags::INLINE.bits();
            Ok(())
        });
    });
}

/// Operations that no queue pair was made for.
extern "C" fn wr_unsupported(qp: &Qp) {
    qp.sends.held(|sending| sending.batch.note(Err(EOPNOTSUPP)));
}
