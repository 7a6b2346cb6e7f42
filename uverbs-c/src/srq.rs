//! Shared receive queues.

use std::ffi::c_int;
use std::mem::MaybeUninit;

use uverbs::SharedReceiveQueue;

use crate::abi::{self, SrqAttr, SrqInitAttr, SrqInitAttrEx};
use crate::answer::{Answer, Code, EINVAL, EOPNOTSUPP, or_null, returned};
use crate::boundary::{Given, Lock, Pointer};
use crate::channel::Acknowledged;
use crate::context::Context;
use crate::cq::{CONDITION, MUTEX};
use crate::owned::{Owned, end_shared};
use crate::pd::Pd;
use crate::post::post_receives;

#[repr(C)]
pub(crate) struct Srq {
    pub(crate) c: abi::Srq,
    pub(crate) queue: Lock<Owned<SharedReceiveQueue>>,
    pub(crate) events: Acknowledged,
}

fn create(pd: Option<&Pd>, srq_context: Pointer, attr: &mut SrqAttr) -> Answer<Box<Srq>> {
    let pd = pd.ok_or(EINVAL)?;
    let mut srq = Box::new(Srq {
        c: abi::Srq {
            context: pd.c.context,
            srq_context,
            pd: Pointer::to(pd),
            handle: 0,
            mutex: MUTEX,
            cond: CONDITION,
            events_completed: 0,
        },
        queue: Lock::default(),
        events: Acknowledged::default(),
    });
    let cookie = Pointer::cookie(&*srq);
    let builder = pd.pd.get()?.srq(attr.max_wr).segments(attr.max_sge).cookie(cookie);
    let queue = builder.limit(attr.srq_limit).create()?;
    (attr.max_wr, attr.max_sge) = (queue.capacity(), queue.segments());
    srq.c.handle = queue.handle();
    srq.queue = Lock::new(Owned::new(queue));
    Ok(srq)
}

pub(crate) extern "C" fn create_srq(pd: Option<&Pd>, attr: Option<&mut SrqInitAttr>) -> Option<Box<Srq>> {
    or_null(attr.ok_or(EINVAL).and_then(|attr| create(pd, attr.srq_context, &mut attr.attr)))
}

/// `enum ibv_srq_init_attr_mask` and `IBV_SRQT_BASIC`.
const HAS_TYPE: u32 = 1;
const HAS_PD: u32 = 2;
const BASIC: u32 = 0;

pub(crate) extern "C" fn create_srq_ex(
    _context: Option<&Context>,
    attr: Option<&mut SrqInitAttrEx>,
) -> Option<Box<Srq>> {
    let make = || {
        let attr = attr.ok_or(EINVAL)?;
        let is_basic = attr.comp_mask & HAS_TYPE == 0 || attr.srq_type == BASIC;
        if attr.comp_mask & !(HAS_TYPE | HAS_PD) != 0 || !is_basic {
            return Err(EOPNOTSUPP);
        }
        create(attr.pd.get(), attr.srq_context, &mut attr.attr)
    };
    or_null(make())
}

/// `enum ibv_srq_attr_mask`.
const MAX_WR: u32 = 1;
const LIMIT: u32 = 2;

pub(crate) extern "C" fn modify_srq(srq: Option<&Srq>, attr: Option<&SrqAttr>, mask: c_int) -> c_int {
    let modify = || {
        let (srq, attr) = (srq.ok_or(EINVAL)?, attr.ok_or(EINVAL)?);
        let mut queue = srq.queue.lock()?;
        let queue = queue.get_mut()?;
        if mask as u32 & !(MAX_WR | LIMIT) != 0 {
            return Err(EINVAL);
        }
        if mask as u32 & MAX_WR != 0 {
            queue.resize(attr.max_wr)?;
        }
        if mask as u32 & LIMIT != 0 {
            queue.arm(attr.srq_limit)?;
        }
        Ok(())
    };
    returned(modify())
}

pub(crate) extern "C" fn query_srq(srq: Option<&Srq>, attr: Option<&mut MaybeUninit<SrqAttr>>) -> c_int {
    let query = || {
        let answer = srq.ok_or(EINVAL)?.queue.lock()?.get()?.query()?;
        let (max_wr, max_sge, srq_limit) = (answer.max_wr, answer.max_sge, answer.srq_limit);
        attr.ok_or(EINVAL)?.write(SrqAttr { max_wr, max_sge, srq_limit });
        Ok(())
    };
    returned(query())
}

pub(crate) extern "C" fn destroy_srq(srq: Given<Srq>) -> c_int {
    let destroyed = end_shared(srq, |srq| {
        let read = srq.queue.lock()?.destroy(SharedReceiveQueue::destroy_reporting)?;
        srq.events.wait_for(read);
        Ok(())
    });
    returned(destroyed)
}

pub(crate) extern "C" fn post_srq_recv(srq: Option<&Srq>, list: Pointer, bad: Option<&mut Pointer>) -> c_int {
    let post = || {
        let mut queue = srq.ok_or(EINVAL)?.queue.lock()?;
        let queue = queue.get_mut()?;
        // Its ring may be lost.
        post_receives(queue.queue_mut().ok_or(Code::new(nix::libc::EIO))?, list, bad)
    };
    // The data path leaves `errno` alone.
    post().map_or_else(Code::get, |()| 0)
}
