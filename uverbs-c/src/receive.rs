//! Posting lists of receives.

use std::ffi::c_int;

use uverbs::abi::types::qp_state;
use uverbs::raw::{FillReceives, LowerReceive, ReceiveBatch, ReceiveQueue, Refused, Sge};

use crate::abi::RecvWr;
use crate::answer::{Answer, Code, EINVAL, ENOMEM};
use crate::boundary::Pointer;
use crate::post::{pieces, plain, told};
use crate::providers::rings::Rings;
use crate::qp::Qp;
use crate::srq::Srq;

/// The errno for receives that are posted in a child of `fork`. A bad request takes precedence, as with libibverbs.
#[cold]
#[inline(never)]
fn not_here(why: Refused, count: Option<c_int>, most: u32) -> Code {
    if count.is_some_and(|count| count as u32 > most) { EINVAL } else { why.into() }
}

/// A list of receives.
pub(crate) struct ReceiveList(pub(crate) Pointer);

impl ReceiveList {
    #[inline(always)]
    pub(crate) fn put<L: LowerReceive>(batch: &mut ReceiveBatch<L>, wr: &RecvWr) -> Answer {
        let pieces = pieces(wr.sg_list, wr.num_sge, batch.max_pieces())?;
        Ok(batch.put(wr.wr_id, pieces.iter())?)
    }
}

impl FillReceives for ReceiveList {
    /// The result, and the first request that is not posted.
    type Answer = (Answer, Pointer);

    // The position is passed by value, so that it is never stored in memory.
    #[inline(always)]
    fn fill<L: LowerReceive>(self, batch: &mut ReceiveBatch<L>) -> Self::Answer {
        let mut at = self.0;
        while let Some(wr) = at.get::<RecvWr>() {
            let put = Self::put(batch, wr);
            if put.is_err() {
                return (put, at);
            }
            at = wr.next;
        }
        (Ok(()), at)
    }

    /// If one cannot be posted, those before it are.
    #[inline(always)]
    fn is_kept(_: &Self::Answer) -> bool {
        true
    }
}

/// A list of receives of one piece each, up to the first that has another number or is not posted.
pub(crate) struct PlainReceives(pub(crate) Pointer);

impl FillReceives for PlainReceives {
    /// The first request that is not posted.
    type Answer = Pointer;

    #[inline(always)]
    fn fill<L: LowerReceive>(self, batch: &mut ReceiveBatch<L>) -> Pointer {
        let mut at = self.0;
        while let Some(wr) = at.get::<RecvWr>() {
            let Some(piece) = wr.sg_list.get::<Sge>().filter(|_| wr.num_sge == 1) else { break };
            if batch.put(wr.wr_id, std::slice::from_ref(piece).iter()).is_err() {
                break;
            }
            at = wr.next;
        }
        at
    }

    /// Those before it are posted.
    #[inline(always)]
    fn is_kept(_: &Pointer) -> bool {
        true
    }
}

/// Posts the receives of a list up to the first that cannot be posted, which is returned.
pub(crate) fn post_receives(queue: &mut ReceiveQueue, list: Pointer, bad: Option<&mut Pointer>) -> Answer {
    let most = queue.max_pieces();
    let (answer, at) = queue.post(ReceiveList(list)).unwrap_or_else(|why| {
        let count = list.get::<RecvWr>().map(|wr| wr.num_sge);
        (Err(not_here(why, count, most)), list)
    });
    told(answer, at, bad)
}

/// Whether a queue pair accepts receives. The states of some are changed by others than this library, so that it does not know them.
#[inline(always)]
fn accepts<R: Rings>(qp: &Qp) -> bool {
    !R::KNOWS_STATES || qp.c.qp_base.state.get() != u32::from(qp_state::RESET)
}

/// Posts receives of one piece each by the short path of the driver. From the first request on that this path does not handle, continues as
/// for any queue. The function in the header has already dereferenced `qp`, so it is not null.
pub(crate) extern "C" fn post_recv<R: Rings>(qp: &Qp, list: Pointer, bad: Option<&mut Pointer>) -> c_int {
    let posted = qp.receives.try_with(|queue| {
        let queue = queue.as_mut()?;
        if accepts::<R>(qp) { queue.post_fast::<R, _>(PlainReceives(list)) } else { None }
    });
    match posted {
        Some(at) if at.is_null() => 0,
        at => plain(post_recv_any::<R>(qp, at.unwrap_or(list), bad)),
    }
}

#[cold]
#[inline(never)]
fn post_recv_any<R: Rings>(qp: &Qp, list: Pointer, bad: Option<&mut Pointer>) -> Answer {
    let mut queue = qp.receives.lock()?;
    // A queue pair with a shared queue has no own one.
    match queue.as_mut() {
        Some(queue) if accepts::<R>(qp) => post_receives(queue, list, bad),
        queue => {
            if let Some(bad) = bad {
                *bad = list;
            }
            // libmlx5 reports a missing queue as full.
            let is_full = queue.is_none() && qp.is_like_libmlx5;
            Err(if is_full { ENOMEM } else { EINVAL })
        }
    }
}

/// Posts receives of one piece each to a shared queue by the short path of the driver; see [`post_recv`].
pub(crate) extern "C" fn post_srq_recv<R: Rings>(
    srq: &Srq,
    list: Pointer,
    bad: Option<&mut Pointer>,
) -> c_int {
    let posted = srq
        .queue
        .try_with(|queue| queue.get_mut().ok()?.queue_mut().post_shared_fast::<R, _>(PlainReceives(list)));
    match posted {
        Some(at) if at.is_null() => 0,
        at => plain(post_srq_recv_any(srq, at.unwrap_or(list), bad)),
    }
}

#[cold]
#[inline(never)]
fn post_srq_recv_any(srq: &Srq, list: Pointer, bad: Option<&mut Pointer>) -> Answer {
    let mut queue = srq.queue.lock()?;
    post_receives(queue.get_mut()?.queue_mut(), list, bad)
}
