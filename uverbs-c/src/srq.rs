//! Shared receive queues.

use std::ffi::c_int;
use std::mem::MaybeUninit;

use uverbs::SharedReceiveQueue;
use uverbs::abi::types::srq_type;

use crate::abi::{self, SrqAttr, SrqInitAttr, SrqInitAttrEx};
use crate::answer::{Answer, Code, EINVAL, EOPNOTSUPP, or_null, returned};
use crate::boundary::{Given, Lock, Pointer};
use crate::channel::Acknowledged;
use crate::context::Context;
use crate::cq::{CONDITION, Cq, MUTEX};
use crate::owned::{Owned, end_shared};
use crate::pd::Pd;
use crate::xrcd::Xrcd;

#[repr(C)]
pub(crate) struct Srq {
    pub(crate) c: abi::Srq,
    pub(crate) queue: Lock<Owned<SharedReceiveQueue>>,
    pub(crate) events: Acknowledged,
}

/// Creates a queue; with an XRC domain and a completion queue for its receives, a queue of extended connections.
fn create(
    pd: Option<&Pd>,
    srq_context: Pointer,
    attr: &mut SrqAttr,
    extended: Option<(&Xrcd, &Cq)>,
) -> Answer<Box<Srq>> {
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
    let of = pd.pd.get()?;
    let builder = match extended {
        Some((xrcd, cq)) => xrcd.xrcd.get()?.srq_on(of, &cq.object, attr.max_wr),
        None => of.srq(attr.max_wr),
    };
    let queue =
        builder.segments(attr.max_sge).cookie(cookie).limit_told(attr.srq_limit).or_empty().create()?;
    (attr.max_wr, attr.max_sge) = (queue.capacity(), queue.segments());
    srq.c.handle = queue.handle();
    srq.queue = Lock::new(Owned::new(queue));
    Ok(srq)
}

pub(crate) extern "C" fn create_srq(pd: Option<&Pd>, attr: Option<&mut SrqInitAttr>) -> Option<Box<Srq>> {
    or_null(attr.ok_or(EINVAL).and_then(|attr| create(pd, attr.srq_context, &mut attr.attr, None)))
}

/// `enum ibv_srq_init_attr_mask`.
const HAS_TYPE: u32 = 1 << 0;
const HAS_PD: u32 = 1 << 1;
const HAS_XRCD: u32 = 1 << 2;
const HAS_CQ: u32 = 1 << 3;
const HAS_TAGS: u32 = 1 << 4;
const KNOWN: u32 = HAS_TYPE | HAS_PD | HAS_XRCD | HAS_CQ | HAS_TAGS;

/// The order of `ibv_cmd_create_srq_ex` and `ibv_icmd_create_srq` (cmd_srq.c, rdma-core 65).
fn create_extended(context: Option<&Context>, attr: &mut SrqInitAttrEx) -> Answer<Box<Srq>> {
    let has = |bits: u32| attr.comp_mask & bits == bits;
    if attr.comp_mask & !KNOWN != 0 {
        return Err(EOPNOTSUPP);
    }
    if !has(HAS_PD) {
        return Err(EINVAL);
    }
    let type_ = if has(HAS_TYPE) { attr.srq_type } else { srq_type::BASIC };
    let pd = attr.pd.get();
    match type_ {
        srq_type::BASIC => create(pd, attr.srq_context, &mut attr.attr, None),
        srq_type::XRC if has(HAS_XRCD | HAS_CQ) => {
            context.ok_or(EINVAL)?.context.needs_xrc("srq.create")?;
            let extended = (attr.xrcd.get().ok_or(EINVAL)?, attr.cq.get().ok_or(EINVAL)?);
            create(pd, attr.srq_context, &mut attr.attr, Some(extended))
        }
        srq_type::TM if has(HAS_CQ | HAS_TAGS) && attr.tm_cap[0] != 0 => Err(EOPNOTSUPP),
        _ => Err(EINVAL),
    }
}

pub(crate) extern "C" fn create_srq_ex(
    context: Option<&Context>,
    attr: Option<&mut SrqInitAttrEx>,
) -> Option<Box<Srq>> {
    or_null(attr.ok_or(EINVAL).and_then(|attr| create_extended(context, attr)))
}

/// A queue without a domain has a number only on mlx5, as with libmlx5.
pub(crate) extern "C" fn get_srq_num(srq: Option<&Srq>, number: Option<&mut MaybeUninit<u32>>) -> c_int {
    let get = || {
        let queue = srq.ok_or(EINVAL)?.queue.lock()?;
        let found = queue.get()?.device_number().ok_or(EOPNOTSUPP)?;
        number.ok_or(EINVAL)?.write(found);
        Ok(())
    };
    // No command is sent: `errno` stays as it is.
    get().map_or_else(Code::get, |()| 0)
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
