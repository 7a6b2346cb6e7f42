//! The data of the request that was begun last.

use uverbs::raw::{Data, SendQueue, Sge};

use super::begun::{ANY, Given, NoBytes, NoPieces, put, set_data};
use super::{fail, too_many};
use crate::abi::DataBuf;
use crate::answer::EINVAL;
use crate::boundary::Pointer;
use crate::providers::rings::Rings;
use crate::qp::Qp;
use crate::request::{Buffers, Parts};

#[inline(always)]
pub(super) fn one(lkey: u32, addr: u64, length: u32) -> Data<std::iter::Once<Sge>, NoBytes> {
    Data::Pieces(std::iter::once(Sge { addr, length, lkey }))
}

// Each path ends with a call of the next longer one with the same arguments, so that none has to keep them.

/// The functions that set the data of the operation that was begun last.
pub(crate) struct Setters {
    sge: extern "C" fn(&Qp, u32, u64, u32),
    inline: extern "C" fn(&Qp, Pointer, usize),
    sge_list: extern "C" fn(&Qp, usize, Pointer),
    inline_list: extern "C" fn(&Qp, usize, Pointer),
}

impl Setters {
    /// For all requests, without a short path.
    pub(crate) const ANY: &'static Self = &Self {
        sge: set_sge,
        inline: set_inline_data,
        sge_list: wr_set_sge_list,
        inline_list: wr_set_inline_data_list,
    };

    #[inline(always)]
    pub(super) const fn of<R: Rings, const KIND: u8, const OF: u8>() -> &'static Self {
        const {
            &Self {
                sge: wr_set_sge::<R, KIND, OF>,
                inline: wr_set_inline_data::<R, KIND, OF>,
                sge_list: wr_set_sge_list_by::<R, KIND, OF>,
                inline_list: wr_set_inline_data_list_by::<R, KIND, OF>,
            }
        }
    }
}

pub(super) extern "C" fn wr_set_sge_list_as_begun(qp: &Qp, count: usize, list: Pointer) {
    (qp.setters.get().sge_list)(qp, count, list);
}

pub(super) extern "C" fn wr_set_inline_data_list_as_begun(qp: &Qp, count: usize, list: Pointer) {
    (qp.setters.get().inline_list)(qp, count, list);
}

pub(super) extern "C" fn wr_set_sge_as_begun(qp: &Qp, lkey: u32, addr: u64, length: u32) {
    (qp.setters.get().sge)(qp, lkey, addr, length);
}

pub(super) extern "C" fn wr_set_inline_data_as_begun(qp: &Qp, addr: Pointer, length: usize) {
    (qp.setters.get().inline)(qp, addr, length);
}

pub(super) extern "C" fn wr_set_sge<R: Rings, const KIND: u8, const OF: u8>(
    qp: &Qp,
    lkey: u32,
    addr: u64,
    length: u32,
) {
    if length == 0 || !put::<R, KIND, OF, false, _, _>(qp, &one(lkey, addr, length)) {
        set_sge_of_other::<R, KIND>(qp, lkey, addr, length);
    }
}

#[inline(never)]
fn set_sge_of_other<R: Rings, const KIND: u8>(qp: &Qp, lkey: u32, addr: u64, length: u32) {
    if length == 0 || !put::<R, KIND, ANY, true, _, _>(qp, &one(lkey, addr, length)) {
        set_sge(qp, lkey, addr, length);
    }
}

#[cold]
#[inline(never)]
pub(super) extern "C" fn set_sge(qp: &Qp, lkey: u32, addr: u64, length: u32) {
    let piece = [Sge { addr, length, lkey }];
    // A piece without bytes is no piece.
    let pieces = if length == 0 { &[] } else { piece.as_slice() };
    set_data(qp, Given::Pieces(pieces));
}

/// Longer lists take the longer path. The queue compares the count with its own limit before it reads a piece.
const FEW: usize = 4;

#[inline(always)]
fn put_list<R: Rings, const KIND: u8, const OF: u8, const LOOKS: bool>(
    qp: &Qp,
    count: usize,
    list: Pointer,
) -> bool {
    matches!(count, 1..=FEW)
        && list.items::<Sge>(count).is_some_and(|pieces| {
            put::<R, KIND, OF, LOOKS, _, _>(qp, &Data::<_, NoBytes>::Pieces(pieces.iter()))
        })
}

pub(super) extern "C" fn wr_set_sge_list_by<R: Rings, const KIND: u8, const OF: u8>(
    qp: &Qp,
    count: usize,
    list: Pointer,
) {
    if !put_list::<R, KIND, OF, false>(qp, count, list) {
        set_sge_list_of_other::<R, KIND>(qp, count, list);
    }
}

#[inline(never)]
fn set_sge_list_of_other<R: Rings, const KIND: u8>(qp: &Qp, count: usize, list: Pointer) {
    if !put_list::<R, KIND, ANY, true>(qp, count, list) {
        wr_set_sge_list(qp, count, list);
    }
}

#[inline(never)]
pub(super) extern "C" fn wr_set_sge_list(qp: &Qp, count: usize, list: Pointer) {
    let most = qp.sends.held(|sending, _| sending.queue.get().map_or(0, SendQueue::max_pieces));
    // The list is not read before its count, which is the caller's, is checked.
    if count > most.unwrap_or(0) as usize {
        return fail(qp, too_many(qp));
    }
    let Some(pieces) = list.items::<Sge>(count) else { return fail(qp, EINVAL) };
    set_data(qp, Given::Pieces(pieces));
}

/// The bytes are copied immediately: the caller may change them before `wr_complete`.
pub(super) extern "C" fn wr_set_inline_data<R: Rings, const KIND: u8, const OF: u8>(
    qp: &Qp,
    addr: Pointer,
    length: usize,
) {
    let data = addr.some_items(length).map(|bytes| Data::<NoPieces, _>::Inline(std::iter::once(bytes)));
    if !data.is_some_and(|data| put::<R, KIND, OF, false, _, _>(qp, &data)) {
        set_inline_of_other::<R, KIND>(qp, addr, length);
    }
}

#[inline(never)]
fn set_inline_of_other<R: Rings, const KIND: u8>(qp: &Qp, addr: Pointer, length: usize) {
    let data = addr.some_items(length).map(|bytes| Data::<NoPieces, _>::Inline(std::iter::once(bytes)));
    if !data.is_some_and(|data| put::<R, KIND, ANY, true, _, _>(qp, &data)) {
        set_inline_data(qp, addr, length);
    }
}

#[cold]
#[inline(never)]
pub(super) extern "C" fn set_inline_data(qp: &Qp, addr: Pointer, length: usize) {
    wr_set_inline_data_list(qp, 1, Pointer::to(&DataBuf { addr, length }));
}

pub(super) extern "C" fn wr_set_inline_data_list_by<R: Rings, const KIND: u8, const OF: u8>(
    qp: &Qp,
    count: usize,
    list: Pointer,
) {
    if !put_parts::<R, KIND, OF, false>(qp, count, list) {
        set_inline_list_of_other::<R, KIND>(qp, count, list);
    }
}

#[inline(always)]
fn put_parts<R: Rings, const KIND: u8, const OF: u8, const LOOKS: bool>(
    qp: &Qp,
    count: usize,
    list: Pointer,
) -> bool {
    let parts = list.some_items::<DataBuf>(count).and_then(Parts::of);
    parts.is_some_and(|parts| put::<R, KIND, OF, LOOKS, _, _>(qp, &Data::<NoPieces, _>::Inline(parts)))
}

#[inline(never)]
fn set_inline_list_of_other<R: Rings, const KIND: u8>(qp: &Qp, count: usize, list: Pointer) {
    if !put_parts::<R, KIND, ANY, true>(qp, count, list) {
        wr_set_inline_data_list(qp, count, list);
    }
}

/// As with one buffer, the bytes are copied immediately.
#[inline(never)]
pub(super) extern "C" fn wr_set_inline_data_list(qp: &Qp, count: usize, list: Pointer) {
    if list.is_null() && count > 0 {
        return fail(qp, EINVAL);
    }
    let mut places = (0..count).map_while(|i| list.item::<DataBuf>(i));
    // All pointers and lengths are checked before any byte is copied.
    match places.find(|place| place.addr.items::<u8>(place.length).is_none()) {
        Some(place) => fail(qp, if place.addr.is_null() { EINVAL } else { too_many(qp) }),
        None => set_data(qp, Given::Bytes(&Buffers::new(list, count))),
    }
}
