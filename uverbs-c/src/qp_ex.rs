//! The extended interface of send queues: `wr_start`, an operation and its parts, ..., `wr_complete`.

use std::borrow::Borrow;
use std::cell::Cell;
use std::ffi::c_int;

use uverbs::Remote;
use uverbs::abi::types::{SendFlags, qp_type};
use uverbs::raw::{Batch, Data, FillSends, FrameHead, Lower, Opcode, Refused, SendQueue, Sge};

use crate::abi::{self, DataBuf, Function, MwBindInfo, QpInitAttrEx};
use crate::answer::{Answer, Code, EINVAL, ENOMEM, EOPNOTSUPP};
use crate::boundary::Pointer;
use crate::cq::{CONDITION, MUTEX};
use crate::mw::Mw;
use crate::owned::Owned;
use crate::pd::{Ah, Pd};
use crate::post::{Sending, address, bind, head, head_of};
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

/// What is to be known between `wr_start` and `wr_complete`. The requests themselves are in their slots.
#[derive(Default)]
pub(crate) struct Begun {
    /// The flags of the request that was begun last.
    flags: SendFlags,
    /// What it still needs.
    needs: Needs,
    /// Its header and how much stands behind it in each frame, if it is a large send.
    large: Option<(usize, u16)>,
    /// The first thing that went wrong.
    error: Option<Code>,
}

/// Parts that a request is nothing without.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
enum Needs {
    #[default]
    Nothing,
    Data,
    Address,
}

impl Begun {
    #[inline(always)]
    fn fail(&mut self, code: Code) {
        self.error.get_or_insert(code);
    }

    #[inline(always)]
    fn note(&mut self, answer: Answer) {
        if let Err(code) = answer {
            self.fail(code);
        }
    }

    /// The request that was begun last has all its parts now.
    #[inline(always)]
    fn finish(&mut self) {
        if std::mem::take(&mut self.needs) != Needs::Nothing {
            self.fail(EINVAL);
        }
    }
}

/// What an operation with too many parts is answered; libmlx5 says ENOMEM.
fn too_many(qp: &Qp) -> Code {
    if qp.is_raw_packet() { ENOMEM } else { EINVAL }
}

/// The next operation.
struct Next {
    wr_id: u64,
    flags: SendFlags,
    opcode: Answer<Opcode<'static>>,
}

impl FillSends for Next {
    type Answer = Answer;

    #[inline(always)]
    fn fill<L: Lower>(self, batch: &mut Batch<'_, L>) -> Answer {
        Ok(batch.begin(self.wr_id, self.flags, &self.opcode?)?)
    }
}

#[inline(always)]
fn begin(qp: &Qp, needs: Needs, opcode: impl FnOnce() -> Answer<Opcode<'static>>) {
    qp.sends.held(|sending| {
        let Sending { queue, begun, .. } = sending;
        begun.finish();
        // Whether there is inline data is said by the call that sets it.
        let flags = qp.flags(qp.c.wr_flags.get() & !SendFlags::INLINE.bits());
        (begun.flags, begun.needs, begun.large) = (flags, needs, None);
        let wr_id = qp.c.wr_id.get();
        if let Some(mut step) = queue.get_mut().ok().and_then(SendQueue::short_step) {
            let answer = opcode().and_then(|opcode| Ok(step.begin(wr_id, flags, &opcode)?));
            return begun.note(answer);
        }
        begin_apart(queue, begun, Next { wr_id, flags, opcode: opcode() });
    });
}

#[inline(never)]
fn begin_apart(queue: &mut Owned<SendQueue>, begun: &mut Begun, next: Next) {
    let answer = queue.get_mut().and_then(|queue| queue.step(next)?);
    begun.note(answer);
}

/// The next operation, of those that queue pairs for raw packets have not: everything would be sent as a frame.
#[inline(always)]
fn message(qp: &Qp, opcode: impl FnOnce() -> Answer<Opcode<'static>>) {
    begin(qp, Needs::Nothing, || if qp.is_raw_packet() { Err(EOPNOTSUPP) } else { opcode() });
}

/// A datagram, whose address comes later.
#[inline(never)]
fn datagram(qp: &Qp, immediate: Option<u32>) {
    begin(qp, Needs::Address, || Ok(Opcode::Datagram { ah: 0, qp_num: 0, qkey: 0, immediate }));
}

/// The data of the current operation, in the place of what was set before.
struct Set<'a, P, B, H> {
    qp: &'a Qp,
    flags: SendFlags,
    head: Option<H>,
    data: Data<P, B>,
}

impl<'b, P, B, H> FillSends for Set<'_, P, B, H>
where
    P: ExactSizeIterator<Item: Borrow<Sge>> + Clone,
    B: Iterator<Item = &'b [u8]> + Clone,
    H: FnOnce() -> Answer<FrameHead>,
{
    type Answer = Answer;

    #[inline(always)]
    fn fill<L: Lower>(self, batch: &mut Batch<'_, L>) -> Answer {
        let head = match self.head {
            Some(head) => Some(head()?),
            None => None,
        };
        batch.set_data(self.flags, head, &self.data).map_err(|refused| why(self.qp, refused))
    }
}

#[inline(always)]
fn set_data<'b, P, B>(qp: &Qp, is_inline: bool, data: Data<P, B>, head: impl FnOnce() -> Answer<FrameHead>)
where
    P: ExactSizeIterator<Item: Borrow<Sge>> + Clone,
    B: Iterator<Item = &'b [u8]> + Clone,
{
    qp.sends.held(|sending| {
        let Sending { queue, begun, .. } = sending;
        let flags = if is_inline { begun.flags | SendFlags::INLINE } else { begun.flags };
        // By that way go no frames.
        if let Some(mut step) = queue.get_mut().ok().and_then(SendQueue::short_step) {
            if let Err(refused) = step.set_data(flags, None, &data) {
                begun.fail(why(qp, refused));
            }
            return;
        }
        set_data_apart(qp, queue, begun, Set { qp, flags, head: Some(head), data });
    });
}

fn why(qp: &Qp, refused: Refused) -> Code {
    if refused == Refused::TooLarge { too_many(qp) } else { refused.into() }
}

#[inline(never)]
fn set_data_apart<'b, P, B, H>(
    qp: &Qp,
    queue: &mut Owned<SendQueue>,
    begun: &mut Begun,
    mut set: Set<'_, P, B, H>,
) where
    P: ExactSizeIterator<Item: Borrow<Sge>> + Clone,
    B: Iterator<Item = &'b [u8]> + Clone,
    H: FnOnce() -> Answer<FrameHead>,
{
    let run = || {
        let queue = queue.get_mut()?;
        if let Some(large) = begun.large {
            check_large(qp, queue, large, set.flags.contains(SendFlags::INLINE), &set.data)?;
            begun.needs = Needs::Nothing;
        }
        if begun.large.is_some() || !queue.wants_head() {
            set.head = None;
        }
        queue.step(set)?
    };
    let answer = run();
    begun.note(answer);
}

/// Refuses a large send that the device or the queue pair cannot take. Its data is never in the request.
#[cold]
#[inline(never)]
fn check_large<'b, P, B>(
    qp: &Qp,
    queue: &SendQueue,
    (header, mss): (usize, u16),
    is_inline: bool,
    data: &Data<P, B>,
) -> Answer
where
    P: ExactSizeIterator<Item: Borrow<Sge>> + Clone,
    B: Iterator<Item = &'b [u8]> + Clone,
{
    if is_inline {
        return Err(EINVAL);
    }
    Ok(qp.qp.lock()?.get()?.check_large(queue.wants_head(), header, mss, data.len())?)
}

/// From here to the end other threads wait, as they do with libibverbs.
extern "C" fn wr_start(qp: &Qp) {
    // In a child that cannot have it nothing is held from here on.
    let _ = qp.sends.begin();
    qp.sends.held(|sending| {
        sending.begun.needs = Needs::Nothing;
        sending.begun.error = None;
    });
}

/// Shows the device all operations, or none if one of them was bad.
#[inline(always)]
fn complete(sending: &mut Sending) -> Answer {
    sending.begun.finish();
    let queue = sending.queue.get_mut()?;
    if let Some(code) = sending.begun.error {
        queue.rewind();
        return Err(code);
    }
    Ok(queue.publish()?)
}

extern "C" fn wr_complete(qp: &Qp) -> c_int {
    let answer = qp.sends.held(complete);
    qp.sends.end();
    let none = if qp.sends.is_here() { EINVAL } else { Code(nix::libc::EIO) };
    answer.unwrap_or(Err(none)).map_or_else(|code| code.0, |()| 0)
}

extern "C" fn wr_abort(qp: &Qp) {
    qp.sends.held(|sending| sending.queue.get_mut().map(SendQueue::rewind));
    qp.sends.end();
}

extern "C" fn wr_send(qp: &Qp) {
    if qp.is_datagram() {
        return datagram(qp, None);
    }
    begin(qp, Needs::Nothing, || Ok(Opcode::Send));
}

/// The header is copied at once.
extern "C" fn wr_send_tso(qp: &Qp, header: Pointer, length: u16, mss: u16) {
    if !qp.is_raw_packet() {
        return wr_unsupported(qp);
    }
    begin(qp, Needs::Data, || Ok(Opcode::Large { header: header.items(length.into()), mss }));
    qp.sends.held(|sending| sending.begun.large = Some((length.into(), mss)));
}

extern "C" fn wr_send_imm(qp: &Qp, immediate: u32) {
    if qp.is_datagram() {
        return datagram(qp, Some(immediate));
    }
    message(qp, || Ok(Opcode::SendImmediate(immediate)));
}

extern "C" fn wr_send_inv(qp: &Qp, key: u32) {
    message(qp, || Ok(Opcode::SendInvalidate(key)));
}

extern "C" fn wr_local_inv(qp: &Qp, key: u32) {
    message(qp, || Ok(Opcode::LocalInvalidate(key)));
}

extern "C" fn wr_rdma_read(qp: &Qp, rkey: u32, address: u64) {
    message(qp, || Ok(Opcode::Read(Remote { address, rkey })));
}

extern "C" fn wr_rdma_write(qp: &Qp, rkey: u32, address: u64) {
    message(qp, || Ok(Opcode::Write(Remote { address, rkey })));
}

extern "C" fn wr_rdma_write_imm(qp: &Qp, rkey: u32, address: u64, immediate: u32) {
    message(qp, || Ok(Opcode::WriteImmediate(Remote { address, rkey }, immediate)));
}

/// The place of an atomic operation.
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

/// Eight bytes, which are in the request.
extern "C" fn wr_atomic_write(qp: &Qp, rkey: u32, address: u64, bytes: Pointer) {
    message(qp, || Ok(Opcode::AtomicWrite(Remote { address, rkey })));
    let bytes = std::iter::once(bytes.items::<u8>(8));
    // Without the flag: these bytes are the operation's own.
    set_data(qp, false, Data::<NoPieces, _>::Inline(bytes), || Err(EINVAL));
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
    ah: u32,
    qp_num: u32,
    qkey: u32,
}

impl FillSends for Address {
    type Answer = Answer;

    #[inline(always)]
    fn fill<L: Lower>(self, batch: &mut Batch<'_, L>) -> Answer {
        Ok(batch.set_address(self.ah, self.qp_num, self.qkey)?)
    }
}

extern "C" fn wr_set_ud_addr(qp: &Qp, ah: Option<&Ah>, qp_num: u32, qkey: u32) {
    qp.sends.held(|sending| {
        let Sending { queue, begun, .. } = sending;
        let mut set = || {
            if !qp.is_datagram() {
                return Err(EINVAL);
            }
            queue.get_mut()?.step(Address { ah: address(ah)?, qp_num, qkey })?
        };
        let answer = set();
        begun.needs = Needs::Nothing;
        begun.note(answer);
    });
}

type NoPieces = std::iter::Empty<Sge>;
type NoBytes = std::iter::Empty<&'static [u8]>;

extern "C" fn wr_set_sge(qp: &Qp, lkey: u32, addr: u64, length: u32) {
    let piece = Sge { addr, length, lkey };
    if length == 0 {
        return set_nothing(qp);
    }
    set_data(qp, false, Data::<_, NoBytes>::Pieces(std::iter::once(piece)), || head(&[piece]));
}

/// Nothing is no piece.
#[inline(never)]
fn set_nothing(qp: &Qp) {
    set_data(qp, false, Data::<NoPieces, NoBytes>::Pieces(std::iter::empty()), || head(&[]));
}

extern "C" fn wr_set_sge_list(qp: &Qp, count: usize, list: Pointer) {
    let most = qp.sends.held(|sending| sending.queue.get().map_or(0, SendQueue::max_pieces));
    // The count of the list is the caller's: nothing of it is looked at before.
    if count > most.unwrap_or(0) as usize {
        qp.sends.held(|sending| sending.begun.fail(too_many(qp)));
        return;
    }
    let pieces = list.items::<Sge>(count);
    set_data(qp, false, Data::<_, NoBytes>::Pieces(pieces.iter()), || head(pieces));
}

/// The bytes are copied at once: the caller may change them before `wr_complete`.
extern "C" fn wr_set_inline_data(qp: &Qp, addr: Pointer, length: usize) {
    set_inline(qp, std::iter::once(addr.items(length)));
}

extern "C" fn wr_set_inline_data_list(qp: &Qp, count: usize, list: Pointer) {
    let places = (0..count).filter_map(|i| list.item::<DataBuf>(i));
    set_inline(qp, places.map(|place| place.addr.items(place.length)));
}

#[inline(always)]
fn set_inline<'a>(qp: &Qp, bytes: impl Iterator<Item = &'a [u8]> + Clone) {
    let first = bytes.clone();
    set_data(qp, true, Data::<NoPieces, _>::Inline(bytes), || head_of(first.flatten()));
}

/// Operations that no queue pair was made for.
extern "C" fn wr_unsupported(qp: &Qp) {
    qp.sends.held(|sending| sending.begun.fail(EOPNOTSUPP));
}
