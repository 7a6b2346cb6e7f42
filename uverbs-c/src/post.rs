//! Posting lists of requests.

use std::ffi::c_int;

use uverbs::abi::rxe::{AtomicWr, FlushWr, MwWr, RdmaWr, SendWr as Wr, Sge, UdWr};
use uverbs::abi::types::{SendFlags, qp_state, qp_type, wr_opcode};
use uverbs::raw::{ReceiveQueue, SendQueue};
use zerocopy::{FromZeros, Immutable, IntoBytes};

use crate::abi::{MwBindInfo, RecvWr, SendWr};
use crate::answer::{Answer, Code, EINVAL};
use crate::boundary::Pointer;
use crate::mr::Mr;
use crate::mw::Mw;
use crate::owned::Owned;
use crate::pd::Ah;
use crate::qp::Qp;
use crate::qp_ex::Batch;

/// A request in a list.
pub(crate) trait Linked {
    fn next(&self) -> Pointer;
}

impl Linked for SendWr {
    fn next(&self) -> Pointer {
        self.next
    }
}

impl Linked for RecvWr {
    fn next(&self) -> Pointer {
        self.next
    }
}

/// Posts the requests of a list up to the first that cannot be, which is told.
#[inline(always)]
pub(crate) fn post_list<Q, T: Linked + 'static>(
    mut queue: Q,
    list: Pointer,
    bad: Option<&mut Pointer>,
    mut put: impl FnMut(&mut Q, &T) -> Answer,
    publish: impl FnOnce(&mut Q) -> Answer,
) -> Answer {
    let (mut at, mut answer) = (list, Ok(()));
    while let Some(wr) = at.get::<T>() {
        answer = put(&mut queue, wr);
        if answer.is_err() {
            break;
        }
        at = wr.next();
    }
    // Nobody has seen any of it if this fails.
    let published = publish(&mut queue).inspect_err(|_| at = list);
    if let (Some(bad), true) = (bad, published.is_err() || answer.is_err()) {
        *bad = at;
    }
    published.and(answer)
}

/// The memory of a request.
#[inline]
pub(crate) fn pieces<'a>(
    list: Pointer,
    count: c_int,
) -> Answer<impl ExactSizeIterator<Item = Sge> + Clone + 'a> {
    let count = usize::try_from(count).map_err(|_| EINVAL)?;
    let items = list.items::<Sge>(count);
    if items.len() < count { Err(EINVAL) } else { Ok(items.iter().copied()) }
}

/// Writes the part of a request that depends on the operation.
#[inline]
pub(crate) fn overlay(wr: &mut Wr, part: &(impl IntoBytes + Immutable)) {
    let bytes = part.as_bytes();
    wr.wr[..bytes.len()].copy_from_slice(bytes);
}

/// A datagram's address.
pub(crate) fn address(wr: &mut Wr, ah: Option<&Ah>, remote_qpn: u32, remote_qkey: u32) -> Answer {
    let ah_num = ah.ok_or(EINVAL)?.ah.get()?.driver_number();
    overlay(wr, &UdWr { remote_qpn, remote_qkey, ah_num, ..UdWr::new_zeroed() });
    Ok(())
}

/// A bind of a memory window to the key `rkey`.
pub(crate) fn bind(wr: &mut Wr, mw: Option<&Mw>, rkey: u32, info: &MwBindInfo) -> Answer {
    let mr = info.mr.get::<Mr>();
    let bound = MwWr {
        addr: info.addr,
        length: info.length,
        mr_lkey: mr.map_or(0, |mr| mr.c.lkey.get()),
        mw_rkey: mw.ok_or(EINVAL)?.c.rkey.get(),
        rkey,
        access: info.mw_access_flags,
    };
    overlay(wr, &bound);
    Ok(())
}

/// The low and the high half of a word, as C has them one behind the other.
fn halves(word: u64) -> (u32, u32) {
    let bytes = word.to_ne_bytes();
    let half = |at: usize| u32::from_ne_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]]);
    (half(0), half(4))
}

/// What a request of every operation has.
#[inline(always)]
fn head(qp: &Qp, wr: &SendWr, to: &mut Wr) {
    let signaled = if qp.signal_all { SendFlags::SIGNALED.bits() } else { 0 };
    (to.wr_id, to.opcode) = (wr.wr_id, wr.opcode);
    (to.send_flags, to.ex) = (wr.send_flags | signaled, wr.imm_data);
}

/// Puts the request into the form of the library, and tells the remote address if it has one.
#[inline(always)]
fn translate(qp: &Qp, wr: &SendWr, to: &mut Wr, length: impl Fn() -> u64) -> Answer<u64> {
    use wr_opcode::*;
    head(qp, wr, to);
    let [first, second, third, fourth] = wr.wr;
    let is_datagram = qp.c.qp_base.qp_type == u32::from(qp_type::UD);
    match wr.opcode {
        // Everything else would be sent as a frame.
        opcode if qp.is_raw_packet() && opcode != SEND => return Err(EINVAL),
        SEND | SEND_WITH_IMM if is_datagram => {
            let (qpn, qkey) = halves(second);
            address(to, Pointer::from_word(first).get(), qpn, qkey)?;
        }
        SEND | SEND_WITH_IMM | SEND_WITH_INV | LOCAL_INV => {}
        RDMA_WRITE | RDMA_WRITE_WITH_IMM | RDMA_READ | ATOMIC_WRITE if !is_datagram => {
            overlay(to, &RdmaWr { remote_addr: first, rkey: halves(second).0, reserved: 0 });
            return Ok(first);
        }
        ATOMIC_CMP_AND_SWP | ATOMIC_FETCH_AND_ADD if !is_datagram => {
            if length() < 8 || !first.is_multiple_of(8) {
                return Err(EINVAL);
            }
            let rkey = halves(fourth).0;
            overlay(
                to,
                &AtomicWr { remote_addr: first, compare_add: second, swap: third, rkey, reserved: 0 },
            );
            return Ok(first);
        }
        BIND_MW if !is_datagram && length() == 0 => {
            let [mw, rkey] = wr.bind_mw;
            bind(to, Pointer::from_word(mw).get(), halves(rkey).0, &wr.bind_info)?;
        }
        _ => return Err(EINVAL),
    }
    Ok(0)
}

/// A request for flushing remote memory.
pub(crate) fn flush(wr: &mut Wr, rkey: u32, remote_addr: u64, length: u32, type_: u8, level: u8) {
    overlay(wr, &FlushWr { remote_addr, length, rkey, type_, level, ..FlushWr::new_zeroed() });
}

/// A send queue, room to put bytes together, and what was begun with `wr_start`. Nothing is allocated once it is made.
#[derive(Default)]
pub(crate) struct Sending {
    pub(crate) queue: Owned<SendQueue>,
    pub(crate) scratch: Vec<u8>,
    pub(crate) batch: Batch,
    /// The operations that completion counters count: `enum ibv_qp_attach_comp_cntr_op`.
    pub(crate) counted: u32,
}

impl Sending {
    pub(crate) fn new(queue: SendQueue) -> Self {
        let bytes = queue.inline_header().max(queue.max_inline() as usize);
        let batch = Batch::new(queue.max_pieces() as usize, queue.max_inline() as usize);
        let scratch = Vec::with_capacity(bytes);
        Self { queue: Owned::new(queue), scratch, batch, counted: 0 }
    }
}

/// Fills the next slot.
#[inline(always)]
pub(crate) fn put(
    queue: &mut SendQueue,
    scratch: &mut Vec<u8>,
    wr: &Wr,
    iova: u64,
    pieces: impl ExactSizeIterator<Item = Sge> + Clone,
) -> Answer {
    if wr.send_flags & SendFlags::INLINE.bits() != 0 {
        return put_inline(queue, scratch, wr, iova, pieces);
    }
    let wanted = queue.inline_header();
    if wanted > 0 {
        gather(scratch, wanted, pieces.clone());
        if scratch.len() < wanted {
            return Err(EINVAL);
        }
        return Ok(queue.put(wr, iova, scratch, pieces)?);
    }
    Ok(queue.put(wr, iova, &[], pieces)?)
}

/// Fills the next slot with bytes that stand where the pieces say.
#[inline(always)]
fn put_inline(
    queue: &mut SendQueue,
    scratch: &mut Vec<u8>,
    wr: &Wr,
    iova: u64,
    mut pieces: impl ExactSizeIterator<Item = Sge> + Clone,
) -> Answer {
    // Before anything is copied.
    let length: u64 = pieces.clone().map(|piece| u64::from(piece.length)).sum();
    if length > u64::from(queue.max_inline()) {
        return Err(EINVAL);
    }
    let bytes = match pieces.next() {
        // From there straight into the slot.
        Some(piece) if pieces.len() == 0 => Pointer::from_word(piece.addr).items(length as usize),
        first => {
            gather(scratch, length as usize, first.into_iter().chain(pieces));
            scratch
        }
    };
    Ok(queue.put_inline(wr, iova, bytes)?)
}

/// Puts together the first bytes of what stands where the pieces say, as many as are wanted.
#[inline(never)]
fn gather(scratch: &mut Vec<u8>, wanted: usize, pieces: impl Iterator<Item = Sge>) {
    scratch.clear();
    for piece in pieces {
        let most = (wanted - scratch.len()).min(piece.length as usize);
        scratch.extend_from_slice(Pointer::from_word(piece.addr).items(most));
    }
}

/// What is special about a large send: the header, and how many bytes stand behind it in each frame but the last.
fn large(wr: &SendWr) -> (&[u8], u16) {
    let [header, sizes] = wr.bind_mw;
    let [a, b, c, d, ..] = sizes.to_ne_bytes();
    let (length, mss) = (u16::from_ne_bytes([a, b]), u16::from_ne_bytes([c, d]));
    (Pointer::from_word(header).items(length.into()), mss)
}

fn post(qp: Option<&Qp>, list: Pointer, bad: Option<&mut Pointer>) -> Answer {
    let qp = qp.ok_or(EINVAL)?;
    let mut sending = qp.sends.lock()?;
    let Sending { queue, scratch, .. } = &mut *sending;
    // What only another operation has is left in it: nobody looks there.
    let mut to = Wr::new_zeroed();
    let put = |queue: &mut &mut Owned<SendQueue>, wr: &SendWr| {
        let queue = queue.get_mut()?;
        // Before any of them is looked at.
        if u32::try_from(wr.num_sge).is_ok_and(|count| count > queue.max_pieces()) {
            return Err(EINVAL);
        }
        let pieces = pieces(wr.sg_list, wr.num_sge)?;
        if wr.opcode == wr_opcode::TSO && qp.is_raw_packet() {
            head(qp, wr, &mut to);
            let (header, mss) = large(wr);
            return Ok(queue.put_large(qp.qp.lock()?.get()?, &to, header, mss, pieces)?);
        }
        let length = || pieces.clone().map(|piece| u64::from(piece.length)).sum();
        let iova = translate(qp, wr, &mut to, length)?;
        put(queue, scratch, &to, iova, pieces)
    };
    post_list(queue, list, bad, put, |queue| Ok(queue.get_mut()?.publish(qp.qp.lock()?.get()?)?))
}

/// The data path leaves `errno` alone.
fn plain(answer: Answer) -> c_int {
    answer.map_or_else(|Code(code)| code, |()| 0)
}

pub(crate) extern "C" fn post_send(qp: Option<&Qp>, list: Pointer, bad: Option<&mut Pointer>) -> c_int {
    plain(post(qp, list, bad))
}

pub(crate) extern "C" fn post_recv(qp: Option<&Qp>, list: Pointer, bad: Option<&mut Pointer>) -> c_int {
    let post = || {
        let qp = qp.ok_or(EINVAL)?;
        if qp.c.qp_base.state.get() == u32::from(qp_state::RESET) {
            return Err(EINVAL);
        }
        let mut queue = qp.receives.lock()?;
        // A queue pair on a shared queue has none.
        let queue = queue.as_mut().ok_or(EINVAL)?;
        let put = |queue: &mut &mut ReceiveQueue, wr: &RecvWr| {
            Ok(queue.put(wr.wr_id, pieces(wr.sg_list, wr.num_sge)?)?)
        };
        post_list(queue, list, bad, put, |queue| {
            queue.publish();
            Ok(())
        })
    };
    plain(post())
}
