//! The shortest paths for receive queues that the device reads itself, in its own format of blocks. Contexts of devices with such queues
//! use these functions. Each calls the general function for what it does not handle itself.

use std::ffi::c_int;

use uverbs::raw::ReceiveQueue;

use crate::boundary::Pointer;
use crate::post::{self, PlainReceives};
use crate::qp::Qp;
use crate::srq::{self, Srq};

pub(crate) extern "C" fn post_recv(qp: &Qp, list: Pointer, bad: Option<&mut Pointer>) -> c_int {
    post::post_recv_by(qp, list, bad, ReceiveQueue::post_in_blocks)
}

pub(crate) extern "C" fn post_srq_recv(srq: &Srq, list: Pointer, bad: Option<&mut Pointer>) -> c_int {
    match srq.queue.try_with(|queue| queue.get_mut().ok()?.queue_mut().post_listed(PlainReceives(list))) {
        Some(at) if at.is_null() => 0,
        at => srq::post_srq_recv(srq, at.unwrap_or(list), bad),
    }
}
