//! Posting lists of requests.

use std::ffi::c_int;

use uverbs::Remote;
use uverbs::abi::types::{SendFlags, wr_opcode};
use uverbs::raw::{
    ADDRESSED, Batch, Binding, Data, FRAMES, Here, Lower, MESSAGES, Opcode, Refused, RequestKind, SendQueue,
    Sge, Short, Terms, ToAddress, ToSrq, Unseen,
};

use crate::abi::{MwBindInfo, SendWr};
use crate::answer::{Answer, Code, EINVAL, ENOMEM};
use crate::boundary::Pointer;
use crate::mr::Mr;
use crate::mw::Mw;
use crate::owned::Owned;
use crate::pd::Ah;
use crate::providers::rings::Rings;
use crate::qp::Qp;
use crate::qp_ex::{Begun, too_many};
use crate::request::{Bytes, Parts, Request, head};

/// The pieces of a request. EINVAL if there are more than `most`: the list is then not read.
#[inline(always)]
pub(crate) fn pieces<'a>(list: Pointer, count: c_int, most: u32) -> Answer<&'a [Sge]> {
    // A negative number is too large as well.
    let count = count as u32;
    if count > most {
        return Err(EINVAL);
    }
    list.array(count).ok_or(EINVAL)
}

type NoPieces = std::iter::Empty<Sge>;
type NoBytes = std::iter::Empty<&'static [u8]>;

/// A bind of a memory window to the key `rkey`.
pub(crate) fn bind(mw: Option<&Mw>, rkey: u32, info: &MwBindInfo) -> Answer<Opcode<'static>> {
    let (mr, mw) = (info.mr.get::<Mr>(), mw.ok_or(EINVAL)?);
    Ok(Opcode::Bind(Binding {
        addr: info.addr,
        length: info.length,
        lkey: mr.map_or(0, |mr| mr.c.lkey.get()),
        rkey: mw.c.rkey.get(),
        new_rkey: rkey,
        access: info.mw_access_flags,
        is_type_1: mw.is_type_1(),
    }))
}

/// The first and the second half of a word, in the order in which they are in memory.
pub(crate) fn halves(word: u64) -> (u32, u32) {
    let bytes = word.to_ne_bytes();
    let half = |at: usize| u32::from_ne_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]]);
    (half(0), half(4))
}

/// The forms of requests: of one piece; these, and inline bytes in one place; or any.
const ONE_PIECE: u8 = 0;
const SIMPLE: u8 = 1;
const ANY: u8 = 2;

/// Puts the requests of a list, up to the first that has another form, needs the general code, or is refused. This one is returned.
// The position is passed by value, so that it is never stored in memory.
#[inline(always)]
fn put_list<L: Lower, const KIND: u8, const FORM: u8>(
    qp: &Qp,
    batch: &mut Batch<'_, L>,
    mut at: Pointer,
) -> (Answer, Pointer) {
    while let Some(wr) = at.get::<SendWr>() {
        let put = if KIND == ADDRESSED {
            put_datagram::<L, FORM>(qp, batch, wr)
        } else {
            put_message::<L, FORM>(qp, batch, wr)
        };
        match put {
            Ok(true) => at = wr.next,
            Ok(false) => break,
            Err(code) => return (Err(code), at),
        }
    }
    (Ok(()), at)
}

/// Puts a send, write or read.
#[inline(always)]
fn put_message<L: Lower, const FORM: u8>(qp: &Qp, batch: &mut Batch<'_, L>, wr: &SendWr) -> Answer<bool> {
    let remote = || Remote { address: wr.wr[0], rkey: halves(wr.wr[1]).0 };
    match wr.opcode {
        wr_opcode::SEND => put::<L, FORM>(qp, batch, wr, &Opcode::Send),
        wr_opcode::RDMA_WRITE => put::<L, FORM>(qp, batch, wr, &Opcode::Write(remote())),
        wr_opcode::RDMA_READ => put::<L, FORM>(qp, batch, wr, &Opcode::Read(remote())),
        _ => Ok(false),
    }
}

#[inline(always)]
fn put_datagram<L: Lower, const FORM: u8>(qp: &Qp, batch: &mut Batch<'_, L>, wr: &SendWr) -> Answer<bool> {
    let immediate = match wr.opcode {
        wr_opcode::SEND => None,
        wr_opcode::SEND_WITH_IMM => Some(wr.imm_data),
        _ => return Ok(false),
    };
    let [ah, to, ..] = wr.wr;
    let (qp_num, qkey) = halves(to);
    let ah = address(Pointer::from_word(ah).get())?;
    put::<L, FORM>(qp, batch, wr, &ToAddress { ah, qp_num, qkey, immediate })
}

#[inline(always)]
fn put<L: Lower, const FORM: u8>(
    qp: &Qp,
    batch: &mut Batch<'_, L>,
    wr: &SendWr,
    opcode: &impl Terms,
) -> Answer<bool> {
    let flags = qp.flags(wr.send_flags);
    let is_inline = flags.contains(SendFlags::INLINE);
    if FORM != ANY {
        let Some(piece) = wr.sg_list.get::<Sge>().filter(|_| wr.num_sge == 1) else { return Ok(false) };
        let put = if !is_inline {
            let data = Data::<_, NoBytes>::Pieces(std::slice::from_ref(piece).iter());
            batch.put(wr.wr_id, flags, opcode, None, &data)
        } else if FORM == SIMPLE
            && let Some(bytes) = Pointer::from_word(piece.addr).some_items(piece.length as usize)
        {
            batch.put(wr.wr_id, flags, opcode, None, &Data::<NoPieces, _>::Inline(std::iter::once(bytes)))
        } else {
            return Ok(false);
        };
        return Ok(put.is_ok());
    }
    let pieces = pieces(wr.sg_list, wr.num_sge, batch.max_pieces())?;
    if !is_inline {
        let data = Data::<_, NoBytes>::Pieces(pieces.iter());
        batch.put(wr.wr_id, flags, opcode, None, &data)?;
        return Ok(true);
    }
    if let [piece] = pieces {
        let bytes = Pointer::from_word(piece.addr).some_items(piece.length as usize);
        let Some(bytes) = bytes else { return Ok(false) };
        batch.put(wr.wr_id, flags, opcode, None, &Data::<NoPieces, _>::Inline(std::iter::once(bytes)))?;
        return Ok(true);
    }
    let Some(parts) = Parts::of(pieces) else { return Ok(false) };
    batch.put(wr.wr_id, flags, opcode, None, &Data::<NoPieces, _>::Inline(parts))?;
    Ok(true)
}

impl<'a> Request<'a> {
    /// A request of a list, with any operation.
    fn of(qp: &Qp, queue: &SendQueue, wr: &'a SendWr) -> Answer<Self> {
        use wr_opcode::*;
        let wants_head = queue.wants_head();
        let pieces = pieces(wr.sg_list, wr.num_sge, queue.max_pieces())?;
        let [first, second, third, fourth] = wr.wr;
        let (key, is_datagram) = (wr.imm_data, qp.is_datagram());
        let length = || pieces.iter().map(|piece| u64::from(piece.length)).sum::<u64>();
        let remote = Remote { address: first, rkey: halves(second).0 };
        let at_eight = || {
            let is_good = length() >= 8 && first.is_multiple_of(8);
            let remote = Remote { address: first, rkey: halves(fourth).0 };
            if is_good { Ok(remote) } else { Err(EINVAL) }
        };
        let opcode = match wr.opcode {
            SEND if !is_datagram => Opcode::Send,
            TSO if qp.is_raw_packet() => checked_large(qp, wants_head, wr, pieces)?,
            // Any other operation would be sent as a frame.
            _ if qp.is_raw_packet() => return Err(EINVAL),
            SEND | SEND_WITH_IMM if is_datagram => {
                let (qp_num, qkey) = halves(second);
                let ah = address(Pointer::from_word(first).get())?;
                let immediate = (wr.opcode == SEND_WITH_IMM).then_some(wr.imm_data);
                ToAddress { ah, qp_num, qkey, immediate }.into()
            }
            SEND_WITH_IMM => Opcode::SendImmediate(key),
            SEND_WITH_INV => Opcode::SendInvalidate(key),
            LOCAL_INV => Opcode::LocalInvalidate(key),
            _ if is_datagram => return Err(EINVAL),
            RDMA_WRITE => Opcode::Write(remote),
            RDMA_WRITE_WITH_IMM => Opcode::WriteImmediate(remote, key),
            RDMA_READ => Opcode::Read(remote),
            ATOMIC_WRITE => Opcode::AtomicWrite(remote),
            ATOMIC_CMP_AND_SWP => Opcode::CompareSwap { remote: at_eight()?, compare: second, swap: third },
            ATOMIC_FETCH_AND_ADD => Opcode::FetchAdd { remote: at_eight()?, add: second },
            BIND_MW if length() == 0 => {
                let [mw, rkey] = wr.bind_mw;
                bind(Pointer::from_word(mw).get(), halves(rkey).0, &wr.bind_info)?
            }
            _ => return Err(EINVAL),
        };
        let flags = qp.flags(wr.send_flags);
        let head = if wants_head && opcode == Opcode::Send { Some(head(pieces)?) } else { None };
        // Zero for a request that names no queue.
        let srq = if qp.is_initiator() { halves(wr.qp_type).0 } else { 0 };
        let operation = Some(ToSrq(opcode, srq));
        let is_inline = flags.contains(SendFlags::INLINE);
        let data = if is_inline { Data::Inline(Bytes::new(pieces)?) } else { Data::Pieces(pieces.iter()) };
        Ok(Self { wr_id: wr.wr_id, flags, operation, head, data })
    }
}

/// The part of an address handle that datagrams carry.
#[inline(always)]
pub(crate) fn address(ah: Option<&Ah>) -> Answer<&uverbs::raw::Address> {
    Ok(ah.ok_or(EINVAL)?.ah.get()?.driver_address())
}

/// A send queue, and the requests that were begun with `wr_start`.
#[derive(Default)]
pub(crate) struct Sending {
    pub(crate) queue: Owned<SendQueue>,
    pub(crate) begun: Begun,
    /// The operations that completion counters count: `enum ibv_qp_attach_comp_cntr_op`.
    pub(crate) counted: u32,
}

impl Sending {
    pub(crate) fn new(queue: SendQueue) -> Self {
        Self { queue: Owned::new(queue), begun: Begun::default(), counted: 0 }
    }
}

/// The additional data of a large send: the header, and the number of bytes after it in each frame except the last.
fn large(wr: &SendWr) -> Answer<(&[u8], u16)> {
    let [header, sizes] = wr.bind_mw;
    let [a, b, c, d, ..] = sizes.to_ne_bytes();
    let (length, mss) = (u16::from_ne_bytes([a, b]), u16::from_ne_bytes([c, d]));
    Ok((Pointer::from_word(header).array(length.into()).ok_or(EINVAL)?, mss))
}

/// The errno for a request of a list that is not posted.
impl From<Refused> for Code {
    fn from(refused: Refused) -> Self {
        match refused {
            Refused::Full => ENOMEM,
            Refused::TooLarge
            | Refused::NotReady
            | Refused::NotBegun
            | Refused::Lacks
            | Refused::Unsignaled => EINVAL,
            Refused::Elsewhere | Refused::Lost => Code::new(nix::libc::EIO),
        }
    }
}

/// Posts a list of sends to a queue pair.
pub(crate) type Post = fn(&Qp, Pointer, Option<&mut Pointer>) -> c_int;

/// The function for a queue.
pub(crate) fn choose<R: Rings>(qp: &Qp, queue: &SendQueue) -> Post {
    match qp.kind() {
        // These need a check before they are posted: frames whose first bytes are in the request itself, and requests for a shared
        // receive queue of the peer.
        _ if queue.wants_head() || qp.is_initiator() => post_any::<R>,
        RequestKind::Frames => post_usual::<R, FRAMES>,
        RequestKind::Messages => post_usual::<R, MESSAGES>,
        RequestKind::Addressed => post_usual::<R, ADDRESSED>,
    }
}

/// Posts a list by code for the form of its first request.
fn post_usual<R: Rings, const KIND: u8>(qp: &Qp, list: Pointer, bad: Option<&mut Pointer>) -> c_int {
    let is_inline = |wr: &SendWr| wr.send_flags & SendFlags::INLINE.bits() != 0;
    match (R::SHORT, list.get::<SendWr>()) {
        (Short::Everything, _) => post_form::<R, KIND, ANY, true>(qp, list, bad),
        (Short::OnePiece, Some(wr)) if wr.num_sge == 1 && !is_inline(wr) => {
            post_form::<R, KIND, ONE_PIECE, true>(qp, list, bad)
        }
        (Short::Simple, Some(wr)) if wr.num_sge == 1 => post_form::<R, KIND, SIMPLE, true>(qp, list, bad),
        (Short::Simple, _) => post_form::<R, KIND, ANY, true>(qp, list, bad),
        // No path is shorter for several, but the one for one request.
        (Short::Nothing, Some(wr)) if wr.next.is_null() => {
            if wr.num_sge == 1 {
                post_form::<R, KIND, SIMPLE, true>(qp, list, bad)
            } else {
                post_form::<R, KIND, ANY, true>(qp, list, bad)
            }
        }
        (_, Some(wr)) if wr.num_sge == 1 => post_form::<R, KIND, SIMPLE, false>(qp, list, bad),
        _ => post_form::<R, KIND, ANY, false>(qp, list, bad),
    }
}

/// Posts a list up to the first request of another form, by the shorter path of the driver `R` if it has one for this form. What is not put
/// here, the other functions put, or say why not.
#[inline(never)]
fn post_form<R: Rings, const KIND: u8, const FORM: u8, const IS_SHORT: bool>(
    qp: &Qp,
    list: Pointer,
    bad: Option<&mut Pointer>,
) -> c_int {
    let posted = qp.sends.try_with(|sending: &mut Sending| {
        let queue = sending.queue.get_mut().ok()?;
        let here = queue.here()?;
        let (_, at) = if IS_SHORT {
            put_list::<_, KIND, FORM>(qp, &mut queue.short::<R, KIND>(here)?, list)
        } else {
            put_list::<_, KIND, FORM>(qp, &mut queue.several::<R, KIND>(here)?, list)
        };
        if !at.is_null() {
            return Some(post_rest::<R, KIND>(qp, queue, here, list, at));
        }
        let shown = if IS_SHORT { queue.publish_short::<R>(here) } else { queue.publish_here::<R>(here) };
        Some(shown.map_err(|why| (unseen(queue, why), list)))
    });
    match posted {
        Some(Ok(())) => 0,
        Some(Err((code, at))) => plain(told(Err(code), at, bad)),
        None => post_several::<R, KIND>(qp, list, bad),
    }
}

/// Posts a list by the path of the driver `R` for several requests, and the others by the general code.
#[inline(never)]
fn post_several<R: Rings, const KIND: u8>(qp: &Qp, list: Pointer, bad: Option<&mut Pointer>) -> c_int {
    plain(post(qp, list, bad, |queue, here| post_rest::<R, KIND>(qp, queue, here, list, list)))
}

/// Posts the requests of a list from `at` on, after those before it were put. The error comes with the first request that is not posted.
#[inline(never)]
fn post_rest<R: Rings, const KIND: u8>(
    qp: &Qp,
    queue: &mut SendQueue,
    here: Here,
    list: Pointer,
    at: Pointer,
) -> Result<(), (Code, Pointer)> {
    let (put, at) = match queue.several::<R, KIND>(here) {
        Some(mut batch) => put_list::<_, KIND, ANY>(qp, &mut batch, at),
        None => (Ok(()), at),
    };
    post_others::<R>(qp, queue, here, list, at, put)
}

pub(crate) fn post_any<R: Rings>(qp: &Qp, list: Pointer, bad: Option<&mut Pointer>) -> c_int {
    plain(post(qp, list, bad, |queue, here| post_others::<R>(qp, queue, here, list, list, Ok(()))))
}

/// Posts the requests of a list by this function, while no other thread posts.
#[inline(always)]
fn post(
    qp: &Qp,
    list: Pointer,
    bad: Option<&mut Pointer>,
    post: impl FnOnce(&mut SendQueue, Here) -> Result<(), (Code, Pointer)>,
) -> Answer {
    let mut sending = qp.sends.lock()?;
    let queue = sending.queue.get_mut()?;
    let posted = match queue.here() {
        Some(here) => post(queue, here),
        None => Err((Refused::Elsewhere.into(), list)),
    };
    posted.map_err(|(code, at)| {
        if let Some(bad) = bad {
            *bad = at;
        }
        code
    })
}

/// Puts the requests from `at` on, each by itself, if those before it were `put`, and shows the device all that were put.
#[inline(always)]
fn post_others<R: Rings>(
    qp: &Qp,
    queue: &mut SendQueue,
    here: Here,
    list: Pointer,
    mut at: Pointer,
    put: Answer,
) -> Result<(), (Code, Pointer)> {
    // Usually no other request follows.
    let put = if at.is_null() || put.is_err() { put } else { post_each(qp, queue, &mut at) };
    // If this fails, the device has seen none of the requests.
    queue.publish_here::<R>(here).map_err(|why| (unseen(queue, why), list))?;
    put.map_err(|code| (not_posted(qp, queue, at, code), at))
}

/// Requests of any kind.
#[inline(never)]
fn post_each(qp: &Qp, queue: &mut SendQueue, at: &mut Pointer) -> Answer {
    while let Some(wr) = at.get::<SendWr>() {
        Request::of(qp, queue, wr)?.put(queue)?;
        *at = wr.next;
    }
    Ok(())
}

/// The errno for a request that is not posted. Too much data for any request is checked before everything except the operation.
#[cold]
#[inline(never)]
fn not_posted(qp: &Qp, queue: &SendQueue, at: Pointer, code: Code) -> Code {
    let Some(wr) = at.get::<SendWr>().filter(|_| qp.is_like_libmlx5 && code == EINVAL) else { return code };
    let too_many_pieces = wr.num_sge as u32 > queue.max_pieces();
    let is_inline = wr.send_flags & SendFlags::INLINE.bits() != 0;
    let is_too_large = || {
        let pieces = pieces(wr.sg_list, wr.num_sge, queue.max_pieces()).unwrap_or_default();
        let bytes = pieces.iter().map(|piece| u64::from(piece.length)).sum::<u64>();
        is_inline && bytes > queue.max_inline().into()
    };
    let is_known = wr.opcode <= wr_opcode::TSO;
    if is_known && (too_many_pieces || is_too_large()) { too_many(qp) } else { code }
}

/// The device was not notified of the requests in the queue.
#[cold]
#[inline(never)]
pub(crate) fn unseen(queue: &mut SendQueue, why: Unseen) -> Code {
    queue.unseen(why).into()
}

/// A large send that the device and this queue pair support.
#[cold]
#[inline(never)]
fn checked_large<'a>(qp: &Qp, wants_head: bool, wr: &'a SendWr, pieces: &[Sge]) -> Answer<Opcode<'a>> {
    let (header, mss) = large(wr)?;
    let bytes = pieces.iter().map(|piece| u64::from(piece.length)).sum();
    qp.qp.lock()?.get()?.check_large(wants_head, header.len(), mss, bytes).map_err(no_large)?;
    Ok(Opcode::Large { header, mss })
}

/// The errno for a large send that is not posted. On a device that cannot segment, no queue pair has room for a header.
#[cold]
pub(crate) fn no_large(error: uverbs::Error) -> Code {
    if error.kind() == uverbs::ErrorKind::Unsupported { EINVAL } else { error.into() }
}

/// Stores the first request that was not posted, if not all of the list was.
#[inline(always)]
pub(crate) fn told(answer: Answer, at: Pointer, bad: Option<&mut Pointer>) -> Answer {
    if answer.is_err()
        && let Some(bad) = bad
    {
        *bad = at;
    }
    answer
}

/// The data path does not set `errno`.
pub(crate) fn plain(answer: Answer) -> c_int {
    answer.map_or_else(Code::get, |()| 0)
}

/// The function in the header has already dereferenced `qp`, so it is not null.
pub(crate) extern "C" fn post_send<R: Rings>(qp: &Qp, list: Pointer, bad: Option<&mut Pointer>) -> c_int {
    match R::ONLY {
        Some(RequestKind::Messages) => post_usual::<R, MESSAGES>(qp, list, bad),
        Some(RequestKind::Addressed) => post_usual::<R, ADDRESSED>(qp, list, bad),
        Some(RequestKind::Frames) | None => (qp.post)(qp, list, bad),
    }
}
