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
use crate::owned::{Owned, lock};
use crate::pd::Ah;
use crate::qp::Qp;

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
#[inline]
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

/// The request in the form of the library, and the remote address if it has one.
fn translated(qp: &Qp, wr: &SendWr, length: u64) -> Answer<(Wr, u64)> {
    use wr_opcode::*;
    let signaled = if qp.signal_all { SendFlags::SIGNALED.bits() } else { 0 };
    let mut to = Wr {
        wr_id: wr.wr_id,
        opcode: wr.opcode,
        send_flags: wr.send_flags | signaled,
        ex: wr.imm_data,
        ..Wr::new_zeroed()
    };
    let [first, second, third, fourth] = wr.wr;
    let is_datagram = qp.c.qp_base.qp_type == u32::from(qp_type::UD);
    match wr.opcode {
        SEND | SEND_WITH_IMM if is_datagram => {
            let (qpn, qkey) = halves(second);
            address(&mut to, Pointer::from_word(first).get(), qpn, qkey)?;
        }
        SEND | SEND_WITH_IMM | SEND_WITH_INV | LOCAL_INV => {}
        TSO if qp.c.qp_base.qp_type == u32::from(qp_type::RAW_PACKET) => {}
        RDMA_WRITE | RDMA_WRITE_WITH_IMM | RDMA_READ | ATOMIC_WRITE if !is_datagram => {
            overlay(&mut to, &RdmaWr { remote_addr: first, rkey: halves(second).0, reserved: 0 });
            return Ok((to, first));
        }
        ATOMIC_CMP_AND_SWP | ATOMIC_FETCH_AND_ADD if !is_datagram => {
            if length < 8 || !first.is_multiple_of(8) {
                return Err(EINVAL);
            }
            let rkey = halves(fourth).0;
            overlay(
                &mut to,
                &AtomicWr { remote_addr: first, compare_add: second, swap: third, rkey, reserved: 0 },
            );
            return Ok((to, first));
        }
        BIND_MW if !is_datagram && length == 0 => {
            let [mw, rkey] = wr.bind_mw;
            bind(&mut to, Pointer::from_word(mw).get(), halves(rkey).0, &wr.bind_info)?;
        }
        _ => return Err(EINVAL),
    }
    Ok((to, 0))
}

/// What is special about a large send: the header, and how many bytes stand behind it in each frame but the last.
fn large(wr: &SendWr) -> Answer<(&[u8], u16)> {
    let [header, sizes] = wr.bind_mw;
    let sizes = halves(sizes).0;
    let (length, mss) = (sizes & 0xffff, sizes >> 16);
    let header = Pointer::from_word(header).items::<u8>(length as usize);
    // Nothing to be cut, or nothing before it.
    if header.is_empty() { Err(EINVAL) } else { Ok((header, mss as u16)) }
}

/// A request for flushing remote memory.
pub(crate) fn flush(wr: &mut Wr, rkey: u32, remote_addr: u64, length: u32, type_: u8, level: u8) {
    overlay(wr, &FlushWr { remote_addr, length, rkey, type_, level, ..FlushWr::new_zeroed() });
}

/// The send queue of a queue pair, and room to put inline data together.
#[derive(Default)]
pub(crate) struct Sending {
    pub(crate) queue: Owned<SendQueue>,
    pub(crate) scratch: Vec<u8>,
    /// The operations that completion counters count: `enum ibv_qp_attach_comp_cntr_op`.
    pub(crate) counted: u32,
}

impl Sending {
    /// Fills the next slot with a large send.
    pub(crate) fn put_large(
        &mut self,
        qp: &Qp,
        wr: Wr,
        (header, mss): (&[u8], u16),
        pieces: impl ExactSizeIterator<Item = Sge> + Clone,
    ) -> Answer {
        Ok(self.queue.get_mut()?.put_large(qp.qp.get()?, wr, header, mss, pieces)?)
    }

    /// Fills the next slot.
    pub(crate) fn put(
        &mut self,
        wr: Wr,
        iova: u64,
        pieces: impl ExactSizeIterator<Item = Sge> + Clone,
    ) -> Answer {
        let queue = self.queue.get_mut()?;
        self.scratch.clear();
        let is_inline = wr.send_flags & SendFlags::INLINE.bits() != 0;
        let wanted = if is_inline { usize::MAX } else { queue.inline_header() };
        if wanted > 0 {
            // Before anything is copied.
            let length: u64 = pieces.clone().map(|piece| u64::from(piece.length)).sum();
            if is_inline && length > u64::from(queue.max_inline()) {
                return Err(EINVAL);
            }
            for piece in pieces.clone() {
                let most = (wanted - self.scratch.len()).min(piece.length as usize);
                self.scratch.extend_from_slice(Pointer::from_word(piece.addr).items(most));
            }
        }
        if is_inline {
            return Ok(queue.put_inline(wr, iova, &self.scratch)?);
        }
        if self.scratch.len() < wanted {
            return Err(EINVAL);
        }
        Ok(queue.put(wr, iova, &self.scratch, pieces)?)
    }
}

fn post(qp: Option<&Qp>, list: Pointer, bad: Option<&mut Pointer>) -> Answer {
    let qp = qp.ok_or(EINVAL)?;
    let put = |sending: &mut &mut Sending, wr: &SendWr| {
        // Before any of them is looked at.
        let most = sending.queue.get()?.max_pieces();
        if u32::try_from(wr.num_sge).is_ok_and(|count| count > most) {
            return Err(EINVAL);
        }
        let pieces = pieces(wr.sg_list, wr.num_sge)?;
        let length = pieces.clone().map(|piece| u64::from(piece.length)).sum();
        let (to, iova) = translated(qp, wr, length)?;
        match wr.opcode {
            wr_opcode::TSO => sending.put_large(qp, to, large(wr)?, pieces),
            _ => sending.put(to, iova, pieces),
        }
    };
    let mut sending = lock(&qp.sends);
    post_list(&mut *sending, list, bad, put, |sending| Ok(sending.queue.get_mut()?.publish(qp.qp.get()?)?))
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
        let mut queue = lock(&qp.receives);
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
