//! The extended interface of send queues: `wr_start`, an operation and its parts, ..., `wr_complete`.

mod begun;
mod data;
mod parts;
#[cfg(test)]
pub(crate) mod tests;

use std::cell::Cell;
use std::ffi::c_int;

use uverbs::Remote;
use uverbs::abi::types::{SendFlags, qp_type};
use uverbs::raw::{
    ADDRESSED, Batch, Data, FRAMES, FillSends, Here, Lower, MESSAGES, Opcode, Refused, RequestKind,
    SendQueue, ToSrq, Written,
};

pub(crate) use self::begun::{Begun, too_many};
use self::begun::{
    DATAGRAMS, Given, MESSAGING, READS, SENDS, Stage, To, WRITES, begin_send, datagram, finish, message,
    remote, set_data,
};
pub(crate) use self::data::Setters;
use self::data::{
    wr_set_inline_data, wr_set_inline_data_as_begun, wr_set_inline_data_list,
    wr_set_inline_data_list_as_begun, wr_set_inline_data_list_by, wr_set_sge, wr_set_sge_as_begun,
    wr_set_sge_list, wr_set_sge_list_as_begun, wr_set_sge_list_by,
};
pub(crate) use self::parts::write as write_part;
use crate::abi::{self, DataBuf, Function, MwBindInfo, QpInitAttrEx};
use crate::answer::{Answer, Code, EINVAL, EOPNOTSUPP};
use crate::boundary::Pointer;
use crate::cq::{CONDITION, MUTEX};
use crate::mw::Mw;
use crate::pd::Ah;
use crate::post::{Sending, address, bind, unseen};
use crate::providers::rings::{NoRings, Rings};
use crate::qp::Qp;
use crate::request::{Buffers, Request};

/// The part that C accesses. Every function is set, because the header calls them without a check for null. Operations that queue pairs of
/// this type do not support have a function that refuses them.
pub(crate) fn part(context: Pointer, pd: Pointer, init: &QpInitAttrEx) -> abi::QpEx {
    let is_datagram = init.qp_type == u32::from(qp_type::UD);
    let is_initiator = init.qp_type == u32::from(qp_type::XRC_INI);
    let supported = supported(init.qp_type);
    let one_of = |operation: u64, function: Function| {
        if supported & operation != 0 { function } else { wr_unsupported as Function }
    };
    abi::QpEx {
        qp_base: abi::Qp {
            context,
            qp_context: init.qp_context,
            pd,
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
        wr_atomic_cmp_swp: one_of(ATOMIC, wr_atomic_cmp_swp as Function),
        wr_atomic_fetch_add: one_of(ATOMIC, wr_atomic_fetch_add as Function),
        wr_bind_mw: one_of(BIND, wr_bind_mw as Function),
        wr_local_inv: one_of(LOCAL_INV, wr_local_inv as Function),
        wr_rdma_read: one_of(READ, wr_rdma_read as Function),
        wr_rdma_write: one_of(WRITE, wr_rdma_write as Function),
        wr_rdma_write_imm: one_of(WRITE, wr_rdma_write_imm as Function),
        wr_send: one_of(SEND, if is_datagram { wr_send_datagram as Function } else { wr_send as Function }),
        wr_send_imm: one_of(
            SEND_IMM,
            if is_datagram { wr_send_datagram_imm as Function } else { wr_send_imm as Function },
        ),
        wr_send_inv: one_of(SEND_INV, wr_send_inv as Function),
        wr_send_tso: one_of(LARGE, wr_send_tso as Function),
        wr_set_ud_addr: wr_set_ud_addr as Function,
        wr_set_xrc_srqn: if is_initiator { wr_set_xrc_srqn as Function } else { wr_unsupported as Function },
        wr_set_inline_data: wr_set_inline_data_as_begun as Function,
        wr_set_inline_data_list: wr_set_inline_data_list as Function,
        wr_set_sge: wr_set_sge_as_begun as Function,
        wr_set_sge_list: wr_set_sge_list as Function,
        wr_start: wr_start as Function,
        wr_complete: wr_complete::<NoRings> as Function,
        wr_abort: wr_abort as Function,
        wr_atomic_write: one_of(ATOMIC_WRITE, wr_atomic_write as Function),
        wr_flush: one_of(FLUSH, wr_flush as Function),
    }
}

// `enum ibv_qp_create_send_ops_flags`.
pub(crate) const WRITE: u64 = 1 << 0 | 1 << 1;
pub(crate) const SEND: u64 = 1 << 2;
pub(crate) const SEND_IMM: u64 = 1 << 3;
pub(crate) const READ: u64 = 1 << 4;
const ATOMIC: u64 = 1 << 5 | 1 << 6;
const LOCAL_INV: u64 = 1 << 7;
const BIND: u64 = 1 << 8;
const SEND_INV: u64 = 1 << 9;
const LARGE: u64 = 1 << 10;
const FLUSH: u64 = 1 << 11;
const ATOMIC_WRITE: u64 = 1 << 12;
/// Operations that some drivers lack for queue pairs whose type supports them.
pub(crate) const LATE: u64 = FLUSH | ATOMIC_WRITE;

/// The operations that queue pairs of a type support.
pub(crate) fn supported(type_: u32) -> u64 {
    const MESSAGES: u64 = SEND | SEND_IMM;
    const ONE_SIDED: u64 = WRITE | MESSAGES | BIND | SEND_INV;
    match u8::try_from(type_) {
        Ok(qp_type::RC) => ONE_SIDED | READ | ATOMIC | LOCAL_INV | FLUSH | ATOMIC_WRITE,
        Ok(qp_type::XRC_INI) => ONE_SIDED | READ | ATOMIC | LOCAL_INV,
        Ok(qp_type::UC) => ONE_SIDED,
        Ok(qp_type::UD) => MESSAGES,
        Ok(qp_type::RAW_PACKET) => SEND | LARGE,
        _ => 0,
    }
}

/// Whether a device lacks one of these operations of the type. A device whose slots have flags has no extended operations, as with libsiw.
pub(crate) fn lacks(context: &uverbs::Context, operations: u64) -> bool {
    context.has_flagged_queues() || operations & LATE != 0 && !context.has_flushes()
}

/// Chooses the functions for the queue.
pub(crate) fn choose<R: Rings>(qp: &mut Qp) {
    let (is_datagram, kind) = (qp.is_datagram(), qp.kind());
    let supported = supported(qp.c.qp_base.qp_type);
    let part = &mut qp.c;
    part.wr_complete = wr_complete::<R> as Function;
    let setters = match (R::WRITTEN, kind) {
        (Written::AsBegun, _) if !is_datagram && supported & SEND != 0 => {
            part.wr_send = wr_send_as_begun::<R> as Function;
            if supported & WRITE != 0 {
                part.wr_rdma_write = wr_rdma_write_as_begun::<R> as Function;
            }
            if supported & READ != 0 {
                part.wr_rdma_read = wr_rdma_read_as_begun::<R> as Function;
            }
            [
                wr_set_inline_data_as_begun as Function,
                wr_set_sge_as_begun as Function,
                wr_set_inline_data_list_as_begun as Function,
                wr_set_sge_list_as_begun as Function,
            ]
        }
        (Written::AsBegun, _) => {
            part.wr_set_ud_addr = wr_set_ud_addr_by_number as Function;
            by::<R, ADDRESSED, DATAGRAMS, DATAGRAMS>()
        }
        (Written::Whole, RequestKind::Frames) => by::<R, FRAMES, SENDS, SENDS>(),
        (Written::Whole, RequestKind::Messages) => by::<R, MESSAGES, SENDS, MESSAGING>(),
        (Written::Whole, RequestKind::Addressed) if is_datagram => by::<R, ADDRESSED, DATAGRAMS, DATAGRAMS>(),
        (Written::Whole, RequestKind::Addressed) => by::<R, ADDRESSED, SENDS, MESSAGING>(),
        (Written::InParts, _) => return parts::choose::<R>(part),
        (Written::Never, _) => return,
    };
    [part.wr_set_inline_data, part.wr_set_sge, part.wr_set_inline_data_list, part.wr_set_sge_list] = setters;
}

/// The functions of a path, with the kinds of requests that most often have inline bytes and pieces.
fn by<R: Rings, const KIND: u8, const INLINE: u8, const SGE: u8>() -> [Function; 4] {
    [
        wr_set_inline_data::<R, KIND, INLINE> as Function,
        wr_set_sge::<R, KIND, SGE> as Function,
        wr_set_inline_data_list_by::<R, KIND, INLINE> as Function,
        wr_set_sge_list_by::<R, KIND, SGE> as Function,
    ]
}

/// From here to `wr_complete` or `wr_abort` other threads wait, as they do with libibverbs.
extern "C" fn wr_start(qp: &Qp) {
    // In a child of `fork` that cannot lock the queue, nothing is locked from here on.
    qp.sends.begin();
}

/// Shows the device all operations, or none if one of them was invalid.
extern "C" fn wr_complete<R: Rings>(qp: &Qp) -> c_int {
    qp.sends.end(|sending, here| complete::<R>(qp, sending, here)).unwrap_or_else(|| nothing_held(qp))
}

#[inline(always)]
fn complete<R: Rings>(qp: &Qp, sending: &mut Sending, here: Here) -> c_int {
    if sending.begun.stage > Stage::Written && !finish(qp, sending) {
        return give_up(sending);
    }
    let Sending { queue, begun, .. } = sending;
    begun.stage = Stage::Nothing;
    // A queue pair over a table has no queue.
    let Ok(queue) = queue.get_mut() else { return EINVAL.get() };
    match queue.publish_here::<R>(here) {
        Ok(()) => 0,
        Err(why) => unseen(queue, why).get(),
    }
}

#[cold]
#[inline(never)]
fn give_up(sending: &mut Sending) -> c_int {
    let Sending { queue, begun, .. } = sending;
    begun.stage = Stage::Nothing;
    queue
        .get_mut()
        .map_or(EINVAL, |queue| {
            queue.rewind();
            begun.error
        })
        .get()
}

#[cold]
#[inline(never)]
fn nothing_held(qp: &Qp) -> c_int {
    if qp.sends.is_here() { EINVAL.get() } else { nix::libc::EIO }
}

extern "C" fn wr_abort(qp: &Qp) {
    qp.sends.end(|sending, _| {
        sending.begun.stage = Stage::Nothing;
        sending.queue.get_mut().map(SendQueue::rewind)
    });
}

#[inline(always)]
extern "C" fn wr_send(qp: &Qp) {
    if !begin_send(qp) {
        wr_send_after(qp);
    }
}

// Each of these selects the shortest path for its data. For other operations, the path is found when the data is set.

extern "C" fn wr_send_as_begun<R: Rings>(qp: &Qp) {
    qp.setters.set(Setters::of::<R, MESSAGES, SENDS>());
    wr_send(qp);
}

extern "C" fn wr_rdma_write_as_begun<R: Rings>(qp: &Qp, rkey: u32, address: u64) {
    qp.setters.set(Setters::of::<R, MESSAGES, WRITES>());
    wr_rdma_write(qp, rkey, address);
}

extern "C" fn wr_rdma_read_as_begun<R: Rings>(qp: &Qp, rkey: u32, address: u64) {
    qp.setters.set(Setters::of::<R, MESSAGES, READS>());
    wr_rdma_read(qp, rkey, address);
}

/// Begins a send after an operation that is not written yet, and finishes that operation first.
#[cold]
#[inline(never)]
fn wr_send_after(qp: &Qp) {
    qp.sends.held(|sending, _| {
        if finish(qp, sending) {
            sending.begun.begin(qp, Stage::Send);
        }
    });
}

extern "C" fn wr_send_datagram(qp: &Qp) {
    datagram(qp, None);
}

extern "C" fn wr_send_datagram_imm(qp: &Qp, immediate: u32) {
    datagram(qp, Some(immediate));
}

/// The next operation, a large send.
struct Large {
    wr_id: u64,
    flags: SendFlags,
    header: &'static [u8],
    mss: u16,
}

impl FillSends for Large {
    type Error = Code;

    fn fill<L: Lower>(self, batch: &mut Batch<'_, L>) -> Answer {
        Ok(batch.begin(self.wr_id, self.flags, &Opcode::Large { header: self.header, mss: self.mss })?)
    }
}

/// The header is copied immediately.
extern "C" fn wr_send_tso(qp: &Qp, header: Pointer, length: u16, mss: u16) {
    qp.sends.held(|sending, _| {
        if !finish(qp, sending) {
            return;
        }
        let Some(header) = header.array(length.into()) else { return sending.begun.fail(EINVAL) };
        let Sending { queue, begun, .. } = sending;
        begun.begin(qp, Stage::Large);
        begun.large = (header.len(), mss);
        let large = Large { wr_id: begun.wr_id, flags: begun.flags, header, mss };
        let answer = queue.get_mut().and_then(|queue| queue.step(large));
        begun.note(answer);
    });
}

extern "C" fn wr_send_imm(qp: &Qp, immediate: u32) {
    message(qp, || Ok(Opcode::SendImmediate(immediate)));
}

extern "C" fn wr_send_inv(qp: &Qp, key: u32) {
    message(qp, || Ok(Opcode::SendInvalidate(key)));
}

extern "C" fn wr_local_inv(qp: &Qp, key: u32) {
    message(qp, || Ok(Opcode::LocalInvalidate(key)));
}

#[inline(always)]
extern "C" fn wr_rdma_read(qp: &Qp, rkey: u32, address: u64) {
    remote(qp, Stage::Read, Remote { address, rkey });
}

#[inline(always)]
extern "C" fn wr_rdma_write(qp: &Qp, rkey: u32, address: u64) {
    remote(qp, Stage::Write, Remote { address, rkey });
}

extern "C" fn wr_rdma_write_imm(qp: &Qp, rkey: u32, address: u64, immediate: u32) {
    message(qp, || Ok(Opcode::WriteImmediate(Remote { address, rkey }, immediate)));
}

/// The remote memory of an atomic operation. Its address must be a multiple of 8.
#[inline(always)]
fn at_eight(rkey: u32, address: u64) -> Answer<Remote> {
    if address.is_multiple_of(8) { Ok(Remote { address, rkey }) } else { Err(EINVAL) }
}

extern "C" fn wr_atomic_cmp_swp(qp: &Qp, rkey: u32, address: u64, compare: u64, swap: u64) {
    message(qp, || Ok(Opcode::CompareSwap { remote: at_eight(rkey, address)?, compare, swap }));
}

extern "C" fn wr_atomic_fetch_add(qp: &Qp, rkey: u32, address: u64, add: u64) {
    message(qp, || Ok(Opcode::FetchAdd { remote: at_eight(rkey, address)?, add }));
}

/// Writes eight bytes, which are in the request itself.
extern "C" fn wr_atomic_write(qp: &Qp, rkey: u32, address: u64, bytes: Pointer) {
    message(qp, || Ok(Opcode::AtomicWrite(Remote { address, rkey })));
    if bytes.is_null() {
        return fail(qp, EINVAL);
    }
    let bytes = DataBuf { addr: bytes, length: 8 };
    set_data(qp, Given::Own(&Buffers::new(Pointer::to(&bytes), 1)));
}

extern "C" fn wr_flush(qp: &Qp, rkey: u32, address: u64, length: usize, type_: u8, level: u8) {
    message(qp, || {
        let length = u32::try_from(length).map_err(|_| EINVAL)?;
        Ok(Opcode::Flush { remote: Remote { address, rkey }, length, type_, level })
    });
}

extern "C" fn wr_bind_mw(qp: &Qp, mw: Option<&Mw>, rkey: u32, info: Option<&MwBindInfo>) {
    message(qp, || bind(mw, rkey, info.ok_or(EINVAL)?));
}

/// The address of the current datagram.
struct Address {
    ah: uverbs::raw::Address,
    qp_num: u32,
    qkey: u32,
}

impl FillSends for Address {
    type Error = Code;

    #[inline(always)]
    fn fill<L: Lower>(self, batch: &mut Batch<'_, L>) -> Answer {
        Ok(batch.set_address(self.ah, self.qp_num, self.qkey)?)
    }
}

extern "C" fn wr_set_ud_addr(qp: &Qp, ah: Option<&Ah>, qp_num: u32, qkey: u32) {
    note_address(qp, ah, qp_num, qkey, |to, ah| to.ah = *ah);
}

/// Sets the address of a datagram in a queue in which only the number of the address handle is written.
extern "C" fn wr_set_ud_addr_by_number(qp: &Qp, ah: Option<&Ah>, qp_num: u32, qkey: u32) {
    note_address(qp, ah, qp_num, qkey, |to, ah| to.ah.number = ah.number);
}

#[inline(always)]
fn note_address(
    qp: &Qp,
    ah: Option<&Ah>,
    qp_num: u32,
    qkey: u32,
    note: impl FnOnce(&mut To, &uverbs::raw::Address),
) {
    let is_set = qp.sends.held(|sending, _| {
        let begun = &mut sending.begun;
        let Ok(ah) = address(ah) else { return false };
        let is_next = begun.stage == Stage::Datagram;
        if is_next {
            note(&mut begun.to, ah);
            (begun.to.qp_num, begun.to.qkey) = (qp_num, qkey);
            begun.stage = Stage::Addressed;
        }
        is_next
    });
    if is_set != Some(true) {
        set_address_again(qp, ah, qp_num, qkey);
    }
}

/// Sets the address of a datagram if data or another address was set before, or if something is wrong.
#[cold]
#[inline(never)]
fn set_address_again(qp: &Qp, ah: Option<&Ah>, qp_num: u32, qkey: u32) {
    qp.sends.held(|sending, _| {
        let Sending { queue, begun, .. } = sending;
        if begun.stage == Stage::Failed {
            return;
        }
        let mut set = || {
            if !qp.is_datagram() {
                return Err(EINVAL);
            }
            let ah = address(ah)?;
            if begun.stage == Stage::Addressed {
                begun.to = To { ah: *ah, qp_num, qkey };
                return Ok(());
            }
            queue.get_mut()?.step(Address { ah: *ah, qp_num, qkey })?;
            begun.stage = Stage::Written;
            Ok(())
        };
        let answer = set();
        begun.note(answer);
    });
}

/// The shared receive queue of the peer for the current operation.
struct SetSrq(u32);

impl FillSends for SetSrq {
    type Error = Refused;

    fn fill<L: Lower>(self, batch: &mut Batch<'_, L>) -> Result<(), Refused> {
        batch.set_srq(self.0)
    }
}

/// If the operation is not written yet, it is written without its data, which may be set before or after this call.
extern "C" fn wr_set_xrc_srqn(qp: &Qp, srq: u32) {
    qp.sends.held(|sending, _| {
        let Sending { queue, begun, .. } = sending;
        let Ok(queue) = queue.get_mut() else { return begun.fail(EINVAL) };
        let set = match begun.stage {
            Stage::Failed => return,
            Stage::Send | Stage::Write | Stage::Read | Stage::Other => {
                let operation = Some(ToSrq(begun.operation(begun.stage), srq));
                let data = Data::Pieces([].iter());
                Request { wr_id: begun.wr_id, flags: begun.flags, operation, head: None, data }.put(queue)
            }
            Stage::Written => queue.step(SetSrq(srq)),
            _ => return begun.fail(EINVAL),
        };
        begun.stage = Stage::Written;
        begun.note(set.map_err(Code::from));
    });
}

/// An operation that queue pairs of this type do not support.
extern "C" fn wr_unsupported(qp: &Qp) {
    fail(qp, EOPNOTSUPP);
}

/// Nothing of the batch will be posted.
#[cold]
#[inline(never)]
fn fail(qp: &Qp, code: Code) {
    qp.sends.held(|sending, _| sending.begun.fail(code));
}
