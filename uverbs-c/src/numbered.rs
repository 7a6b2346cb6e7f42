//! The shortest paths for queues of datagrams that complete in any order. Contexts of devices with such queues use these functions. Each
//! calls the general function for what it does not handle itself.

use std::ffi::c_int;

use uverbs::raw::{Batch, FillSends, Lower};

use crate::answer::{Answer, Code};
use crate::boundary::Pointer;
use crate::post::{self, List};
use crate::qp::Qp;
use crate::request::gathered;

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
    let posted = qp.sends.try_with(|sending| {
        let queue = sending.queue.get_mut().ok()?;
        queue.post_numbered(List { qp, at: &mut at, gather: gathered })
    });
    if at.is_null() && posted.is_some() { 0 } else { post::post_send(qp, at, bad) }
}
