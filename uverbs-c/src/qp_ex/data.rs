//! The data of the request that was begun last.

use uverbs::raw::{Data, SendQueue, Sge};

use super::begun::{ANY, DATAGRAMS, MESSAGES, NoBytes, NoPieces, SENDS, Way, put, set_data};
use super::{fail, too_many};
use crate::abi::DataBuf;
use crate::answer::{Answer, EINVAL};
use crate::boundary::Pointer;
use crate::post::{head, head_of};
use crate::qp::Qp;

#[inline(always)]
fn one(lkey: u32, addr: u64, length: u32) -> Data<std::iter::Once<Sge>, NoBytes> {
    Data::Pieces(std::iter::once(Sge { addr, length, lkey }))
}

// Each way ends in the next longer one with the same arguments, so that none has to keep them.

pub(super) extern "C" fn wr_set_sge<W: Way>(qp: &Qp, lkey: u32, addr: u64, length: u32) {
    let is_put = length > 0
        && if W::IS_ONE {
            put::<W, MESSAGES, false, _, _>(qp, &one(lkey, addr, length))
        } else {
            put::<W, SENDS, false, _, _>(qp, &one(lkey, addr, length))
        };
    if !is_put {
        set_sge_of_message::<W>(qp, lkey, addr, length);
    }
}

#[inline(never)]
fn set_sge_of_message<W: Way>(qp: &Qp, lkey: u32, addr: u64, length: u32) {
    if W::IS_ONE || length == 0 || !put::<W, MESSAGES, false, _, _>(qp, &one(lkey, addr, length)) {
        set_sge_of_other::<W>(qp, lkey, addr, length);
    }
}

pub(super) extern "C" fn wr_set_sge_of_datagram<W: Way>(qp: &Qp, lkey: u32, addr: u64, length: u32) {
    if length == 0 || !put::<W, DATAGRAMS, false, _, _>(qp, &one(lkey, addr, length)) {
        set_sge_of_other::<W>(qp, lkey, addr, length);
    }
}

#[inline(never)]
fn set_sge_of_other<W: Way>(qp: &Qp, lkey: u32, addr: u64, length: u32) {
    if length == 0 || !put::<W, ANY, true, _, _>(qp, &one(lkey, addr, length)) {
        set_sge(qp, lkey, addr, length);
    }
}

#[cold]
#[inline(never)]
fn set_sge(qp: &Qp, lkey: u32, addr: u64, length: u32) {
    let piece = [Sge { addr, length, lkey }];
    // Nothing is no piece.
    let pieces = if length == 0 { &[] } else { piece.as_slice() };
    set_data(qp, false, Data::<_, NoBytes>::Pieces(pieces.iter()), || head(pieces));
}

pub(super) extern "C" fn wr_set_sge_list(qp: &Qp, count: usize, list: Pointer) {
    let most = qp.sends.held(|sending, _| sending.queue.get().map_or(0, SendQueue::max_pieces));
    // The count of the list is the caller's: nothing of it is looked at before.
    if count > most.unwrap_or(0) as usize {
        return fail(qp, too_many(qp));
    }
    let Some(pieces) = list.items::<Sge>(count) else { return fail(qp, EINVAL) };
    set_data(qp, false, Data::<_, NoBytes>::Pieces(pieces.iter()), || head(pieces));
}

/// The bytes are copied at once: the caller may change them before `wr_complete`.
pub(super) extern "C" fn wr_set_inline_data<W: Way>(qp: &Qp, addr: Pointer, length: usize) {
    let data = addr.some_items(length).map(|bytes| Data::<NoPieces, _>::Inline(std::iter::once(bytes)));
    if !data.is_some_and(|data| put::<W, SENDS, false, _, _>(qp, &data)) {
        set_inline_of_other::<W>(qp, addr, length);
    }
}

#[inline(never)]
fn set_inline_of_other<W: Way>(qp: &Qp, addr: Pointer, length: usize) {
    let data = addr.some_items(length).map(|bytes| Data::<NoPieces, _>::Inline(std::iter::once(bytes)));
    if !data.is_some_and(|data| put::<W, ANY, true, _, _>(qp, &data)) {
        set_inline_data(qp, addr, length);
    }
}

#[cold]
#[inline(never)]
fn set_inline_data(qp: &Qp, addr: Pointer, length: usize) {
    match bytes(qp, addr, length) {
        Ok(bytes) => set_inline(qp, std::iter::once(bytes)),
        Err(code) => fail(qp, code),
    }
}

/// The bytes that stand there, if they can.
fn bytes(qp: &Qp, addr: Pointer, length: usize) -> Answer<&'static [u8]> {
    addr.items(length).ok_or_else(|| if addr.is_null() { EINVAL } else { too_many(qp) })
}

pub(super) extern "C" fn wr_set_inline_data_list(qp: &Qp, count: usize, list: Pointer) {
    if list.is_null() && count > 0 {
        return fail(qp, EINVAL);
    }
    let places = (0..count).map_while(|i| list.item::<DataBuf>(i));
    let bytes = places.map(|place| bytes(qp, place.addr, place.length));
    match bytes.clone().try_for_each(|bytes| bytes.map(drop)) {
        Ok(()) => set_inline(qp, bytes.flatten()),
        Err(code) => fail(qp, code),
    }
}

#[inline(always)]
fn set_inline<'a>(qp: &Qp, bytes: impl Iterator<Item = &'a [u8]> + Clone) {
    let first = bytes.clone();
    set_data(qp, true, Data::<NoPieces, _>::Inline(bytes), || head_of(first.flatten()));
}
