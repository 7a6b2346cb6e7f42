//! Rings and numbers of objects, for programs that access them directly (`mlx5dv_init_obj`).
//!
//! A ring that was handed over belongs to the program: afterwards the library accesses it only if the program posts or polls by a call.

use std::cell::Cell;
use std::ffi::c_int;

use uverbs::raw::OwnRing;

use super::known;
use crate::answer::{Answer, Code, EINVAL, EOPNOTSUPP};
use crate::boundary::Pointer;
use crate::context::Context;
use crate::cq::Cq;
use crate::pd::{Ah, Pd};
use crate::qp::Qp;
use crate::srq::Srq;
use crate::wq::Wq;

/// `enum mlx5dv_obj_type`: the position of the pair of the object and its description in `struct mlx5dv_obj`.
#[derive(Clone, Copy)]
#[repr(u64)]
enum Kind {
    Qp = 0,
    Cq = 1,
    Srq = 2,
    Rwq = 3,
    Ah = 5,
    Pd = 6,
}

/// One of the pairs.
#[repr(C)]
struct Pair {
    object: Pointer,
    out: Pointer,
}

/// A ring of a queue pair: `struct { void *buf; uint32_t wqe_cnt; uint32_t stride; }`.
#[repr(C)]
struct Ring {
    buf: Cell<u64>,
    wqe_cnt: Cell<u32>,
    stride: Cell<u32>,
}

impl Ring {
    fn fill(&self, ring: &OwnRing) {
        self.buf.set(ring.address);
        self.wqe_cnt.set(ring.entries);
        self.stride.set(ring.entry_size);
    }
}

/// The beginning of `struct mlx5dv_qp`, which every version has. The fields behind it are filled for those who ask for them.
#[repr(C)]
struct QpOut {
    dbrec: Cell<u64>,
    sq: Ring,
    rq: Ring,
    register: Cell<u64>,
    register_size: Cell<u32>,
    comp_mask: Cell<u64>,
}

#[repr(C)]
struct QpOffset(Cell<u64>);

#[repr(C)]
struct QpNumbers {
    tirn: Cell<u32>,
    tisn: Cell<u32>,
    rqn: Cell<u32>,
    sqn: Cell<u32>,
}

/// `enum mlx5dv_qp_comp_mask`, and where these fields are.
mod qp_mask {
    pub(super) const OFFSET: u64 = 1 << 0;
    pub(super) const OFFSET_AT: u64 = 64;
    pub(super) const NUMBERS: u64 = 1 << 1;
    pub(super) const NUMBERS_AT: u64 = 72;
}

/// `struct mlx5dv_cq`.
#[repr(C)]
struct CqOut {
    buf: Cell<u64>,
    dbrec: Cell<u64>,
    cqe_cnt: Cell<u32>,
    cqe_size: Cell<u32>,
    page: Cell<u64>,
    number: Cell<u32>,
    comp_mask: Cell<u64>,
}

/// Where the doorbell of a completion queue is in its page.
const CQ_DOORBELL: u64 = 0x20;

/// The beginning of `struct mlx5dv_srq`.
#[repr(C)]
struct SrqOut {
    buf: Cell<u64>,
    dbrec: Cell<u64>,
    stride: Cell<u32>,
    head: Cell<u32>,
    tail: Cell<u32>,
    comp_mask: Cell<u64>,
}

/// `MLX5DV_SRQ_MASK_SRQN`, and where the number is.
const SRQ_NUMBER: u64 = 1 << 0;
const SRQ_NUMBER_AT: u64 = 40;

/// `struct mlx5dv_rwq`.
#[repr(C)]
struct RwqOut {
    buf: Cell<u64>,
    dbrec: Cell<u64>,
    wqe_cnt: Cell<u32>,
    stride: Cell<u32>,
    comp_mask: Cell<u64>,
}

/// `struct mlx5dv_ah`.
#[repr(C)]
struct AhOut {
    av: Cell<u64>,
    comp_mask: Cell<u64>,
}

/// `struct mlx5dv_pd`.
#[repr(C)]
struct PdOut {
    pdn: Cell<u32>,
    comp_mask: Cell<u64>,
}

/// The field `at` bytes behind the beginning of a structure of the caller.
fn behind<'a, T>(out: Pointer, at: u64) -> Option<&'a T> {
    Pointer::from_word(out.word() + at).get()
}

fn fill_qp(qp: &Qp, place: Pointer) -> Answer {
    let out = place.get::<QpOut>().ok_or(EINVAL)?;
    // A queue pair over a table has no queues.
    let sends = qp.sends.lock()?.queue.get_mut().ok().and_then(|queue| queue.hand_over()).ok_or(EINVAL)?;
    let receives = qp.receives.lock()?.as_mut().and_then(|queue| queue.hand_over()).unwrap_or_default();
    // The record of receives is the word before that of sends.
    out.dbrec.set(sends.record - size_of::<u32>() as u64);
    out.sq.fill(&sends);
    out.rq.fill(&receives);
    out.register.set(sends.doorbell);
    // The page does not combine writes: only doorbells are written to it.
    out.register_size.set(0);
    let asked = out.comp_mask.get();
    let mut told = 0;
    if asked & qp_mask::OFFSET != 0 {
        behind::<QpOffset>(place, qp_mask::OFFSET_AT).ok_or(EINVAL)?.0.set(sends.page_offset);
        told |= qp_mask::OFFSET;
    }
    let ([sqn, tisn], [rqn, tirn]) = (sends.numbers, receives.numbers);
    if asked & qp_mask::NUMBERS != 0 && (sqn, rqn) != (0, 0) {
        let numbers = behind::<QpNumbers>(place, qp_mask::NUMBERS_AT).ok_or(EINVAL)?;
        numbers.tirn.set(tirn);
        numbers.tisn.set(tisn);
        numbers.rqn.set(rqn);
        numbers.sqn.set(sqn);
        told |= qp_mask::NUMBERS;
    }
    out.comp_mask.set(told);
    Ok(())
}

/// How a program finds the page of a completion queue's doorbell.
#[derive(Clone, Copy)]
enum Page {
    Itself,
    /// In a variable, as in the oldest version of the call.
    InVariable,
}

fn fill_cq(cq: &Cq, place: Pointer, how: Page) -> Answer {
    let out = place.get::<CqOut>().ok_or(EINVAL)?;
    let ring = cq.queue.lock()?.hand_over().ok_or(EOPNOTSUPP)?;
    let [number, _] = ring.numbers;
    out.buf.set(ring.address);
    out.dbrec.set(ring.record);
    out.cqe_cnt.set(ring.entries);
    out.cqe_size.set(ring.entry_size);
    let page = ring.doorbell - CQ_DOORBELL;
    cq.page.set(page);
    out.page.set(match how {
        Page::Itself => page,
        Page::InVariable => Pointer::to(&cq.page).word(),
    });
    out.number.set(number);
    out.comp_mask.set(0);
    Ok(())
}

fn fill_srq(srq: &Srq, place: Pointer) -> Answer {
    let out = place.get::<SrqOut>().ok_or(EINVAL)?;
    let mut queue = srq.queue.lock()?;
    let queue = queue.get_mut()?;
    let ring = queue.queue_mut().hand_over().ok_or(EOPNOTSUPP)?;
    let [head, tail] = ring.list;
    out.buf.set(ring.address);
    out.dbrec.set(ring.record);
    out.stride.set(ring.entry_size);
    out.head.set(head);
    out.tail.set(tail);
    let number = queue.device_number().filter(|_| out.comp_mask.get() & SRQ_NUMBER != 0);
    if let Some(number) = number {
        behind::<Cell<u32>>(place, SRQ_NUMBER_AT).ok_or(EINVAL)?.set(number);
    }
    out.comp_mask.set(if number.is_some() { SRQ_NUMBER } else { 0 });
    Ok(())
}

fn fill_rwq(wq: &Wq, place: Pointer) -> Answer {
    let out = place.get::<RwqOut>().ok_or(EINVAL)?;
    let ring = wq.queue.lock()?.get_mut()?.queue_mut().hand_over().ok_or(EOPNOTSUPP)?;
    out.buf.set(ring.address);
    out.dbrec.set(ring.record);
    out.wqe_cnt.set(ring.entries);
    out.stride.set(ring.entry_size);
    out.comp_mask.set(0);
    Ok(())
}

fn fill_ah(ah: &Ah, place: Pointer) -> Answer {
    let out = place.get::<AhOut>().ok_or(EINVAL)?;
    out.av.set(Pointer::to(&ah.vector).word());
    out.comp_mask.set(0);
    Ok(())
}

fn fill_pd(pd: &Pd, place: Pointer) -> Answer {
    let out = place.get::<PdOut>().ok_or(EINVAL)?;
    out.pdn.set(pd.pd.get()?.number());
    out.comp_mask.set(0);
    Ok(())
}

/// Fills the description of each kind that is asked for.
fn fill(pairs: Pointer, kinds: u64, page: Page) -> Answer {
    const ALL: [Kind; 6] = [Kind::Qp, Kind::Cq, Kind::Srq, Kind::Rwq, Kind::Ah, Kind::Pd];
    let supported = ALL.iter().fold(0, |all, kind| all | 1 << *kind as u64);
    if kinds == 0 || pairs.is_null() {
        return Err(EINVAL);
    }
    if kinds & !supported != 0 {
        return Err(EOPNOTSUPP);
    }
    let wanted = || ALL.into_iter().filter(|kind| kinds & 1 << *kind as u64 != 0);
    for kind in wanted() {
        let Pair { object, out } = pairs.item::<Pair>(kind as usize).ok_or(EINVAL)?;
        // The first field of each object is its context.
        known(object.get::<Pointer>().filter(|_| !out.is_null()).ok_or(EINVAL)?.get::<Context>())?;
    }
    for kind in wanted() {
        let Pair { object, out } = pairs.item::<Pair>(kind as usize).ok_or(EINVAL)?;
        match kind {
            Kind::Qp => fill_qp(object.get().ok_or(EINVAL)?, *out)?,
            Kind::Cq => fill_cq(object.get().ok_or(EINVAL)?, *out, page)?,
            Kind::Srq => fill_srq(object.get().ok_or(EINVAL)?, *out)?,
            Kind::Rwq => fill_rwq(object.get().ok_or(EINVAL)?, *out)?,
            Kind::Ah => fill_ah(object.get().ok_or(EINVAL)?, *out)?,
            Kind::Pd => fill_pd(object.get().ok_or(EINVAL)?, *out)?,
        }
    }
    Ok(())
}

/// Returns the errno and does not set it, as libmlx5.
pub(crate) extern "C" fn init_obj(pairs: Pointer, kinds: u64) -> c_int {
    fill(pairs, kinds, Page::Itself).map_or_else(Code::get, |()| 0)
}

/// The oldest version of the call.
pub(crate) extern "C" fn init_obj_0(pairs: Pointer, kinds: u64) -> c_int {
    fill(pairs, kinds, Page::InVariable).map_or_else(Code::get, |()| 0)
}
