//! The shortest paths for queues of datagrams that complete in any order. Contexts of devices with such queues use these functions. Each
//! calls the general function for what it does not handle itself.

use std::ffi::c_int;

use uverbs::abi::write::Wc;
use uverbs::raw::{Batch, FillSends, Lower, ReceiveQueue};

use crate::answer::{Answer, Code};
use crate::boundary::{Places, Pointer};
use crate::cq::{self, Cq};
use crate::post::{self, List};
use crate::qp::Qp;

pub(crate) extern "C" fn poll_cq(cq: &Cq, count: c_int, mut places: Places<'_, Wc>) -> c_int {
    if count != 1 {
        return poll_many(cq, count, places);
    }
    // A separate path for one completion, because it is shorter.
    match cq.queue.try_with(|queue| queue.short_one_numbered(places.first()?)) {
        Some(taken) => taken as c_int,
        None => cq::poll_cq(cq, count, places),
    }
}

#[inline(never)]
fn poll_many(cq: &Cq, count: c_int, mut places: Places<'_, Wc>) -> c_int {
    let wanted = usize::try_from(count).unwrap_or(0);
    match cq.queue.try_with(|queue| queue.short_poll_numbered(places.get(wanted))) {
        Some(taken) => taken as c_int,
        None => cq::poll_cq(cq, count, places),
    }
}

impl FillSends for List<'_> {
    type Error = Code;

    #[inline(always)]
    fn fill<L: Lower>(self, batch: &mut Batch<'_, L>) -> Answer {
        self.put_datagrams(batch)
    }
}

/// Requests that are not datagrams, and lists that cannot be posted, are left to the general function.
pub(crate) extern "C" fn post_send(qp: &Qp, list: Pointer, bad: Option<&mut Pointer>) -> c_int {
    let mut at = list;
    let posted =
        qp.sends.try_with(|sending| sending.queue.get_mut().ok()?.post_numbered(List { qp, at: &mut at }));
    if at.is_null() && posted.is_some() { 0 } else { post::post_send(qp, at, bad) }
}

pub(crate) extern "C" fn post_recv(qp: &Qp, list: Pointer, bad: Option<&mut Pointer>) -> c_int {
    post::post_recv_by(qp, list, bad, ReceiveQueue::post_numbered)
}
