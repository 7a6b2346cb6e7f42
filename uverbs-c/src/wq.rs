//! Receive work queues, and tables of them.

use std::cell::Cell;
use std::ffi::c_int;

use uverbs::{IndirectionTable, WorkQueue, WorkQueueState};

use crate::abi::{self, Function, RwqIndTableInitAttr, WqAttr, WqInitAttr};
use crate::answer::{Answer, Code, EINVAL, EOPNOTSUPP, or_null, returned};
use crate::boundary::{Given, Lock, Pointer};
use crate::channel::Acknowledged;
use crate::context::Context;
use crate::cq::{CONDITION, Cq, MUTEX};
use crate::owned::{Owned, end, end_shared};
use crate::pd::Pd;
use crate::receive::post_receives;

#[repr(C)]
pub(crate) struct Wq {
    pub(crate) c: abi::Wq,
    pub(crate) queue: Lock<Owned<WorkQueue>>,
    pub(crate) events: Acknowledged,
}

/// `IBV_WQT_RQ`, `IBV_WQ_INIT_ATTR_FLAGS` and `IBV_WQ_FLAGS_CVLAN_STRIPPING`.
const RECEIVES: u32 = 0;
const HAS_FLAGS: u32 = 1;
const STRIPS_VLAN: u32 = 1;

pub(crate) fn create(context: Option<&Context>, attr: Option<&mut WqInitAttr>) -> Answer<Box<Wq>> {
    let (context, attr) = (context.ok_or(EINVAL)?, attr.ok_or(EINVAL)?);
    let flags = if attr.comp_mask & HAS_FLAGS != 0 { attr.create_flags } else { 0 };
    if attr.comp_mask & !HAS_FLAGS != 0 || flags & !STRIPS_VLAN != 0 || attr.wq_type != RECEIVES {
        return Err(EOPNOTSUPP);
    }
    let pd = attr.pd.get::<Pd>().ok_or(EINVAL)?;
    let cq = attr.cq.get::<Cq>().ok_or(EINVAL)?;
    let mut wq = Box::new(Wq {
        c: abi::Wq {
            context: Pointer::to(context),
            wq_context: attr.wq_context,
            pd: attr.pd,
            cq: attr.cq,
            wq_num: 0,
            handle: 0,
            state: Cell::new(0),
            wq_type: attr.wq_type,
            post_recv: post_wq_recv as Function,
            mutex: MUTEX,
            cond: CONDITION,
            events_completed: 0,
            comp_mask: 0,
        },
        queue: Lock::default(),
        events: Acknowledged::default(),
    });
    let cookie = Pointer::cookie(&*wq);
    let builder = pd.pd.get()?.work_queue_on(&cq.object).depth(attr.max_wr).segments(attr.max_sge);
    let builder = if flags & STRIPS_VLAN != 0 { builder.strip_vlan() } else { builder };
    let queue = builder.cookie(cookie).create()?;
    (attr.max_wr, attr.max_sge) = (queue.capacity(), queue.segments());
    (wq.c.handle, wq.c.wq_num) = (queue.handle(), queue.number());
    wq.queue = Lock::new(Owned::new(queue));
    Ok(wq)
}

pub(crate) extern "C" fn create_wq(
    context: Option<&Context>,
    attr: Option<&mut WqInitAttr>,
) -> Option<Box<Wq>> {
    or_null(create(context, attr))
}

/// `enum ibv_wq_attr_mask`: the new state, and the current state as the caller assumes it.
const STATE: u32 = 1;
const CURRENT: u32 = 2;

pub(crate) extern "C" fn modify_wq(wq: Option<&Wq>, attr: Option<&WqAttr>) -> c_int {
    let modify = || {
        let (wq, attr) = (wq.ok_or(EINVAL)?, attr.ok_or(EINVAL)?);
        if attr.attr_mask & !(STATE | CURRENT) != 0 {
            return Err(EOPNOTSUPP);
        }
        if attr.attr_mask & CURRENT != 0 && attr.curr_wq_state != wq.c.state.get() {
            return Err(EINVAL);
        }
        if attr.attr_mask & STATE != 0 {
            let state = match attr.wq_state {
                0 => WorkQueueState::Reset,
                1 => WorkQueueState::Ready,
                2 => WorkQueueState::Error,
                _ => return Err(EINVAL),
            };
            wq.queue.lock()?.get_mut()?.modify(state)?;
            wq.c.state.set(attr.wq_state);
        }
        Ok(())
    };
    returned(modify())
}

pub(crate) extern "C" fn destroy_wq(wq: Given<Wq>) -> c_int {
    let destroyed = end_shared(wq, |wq| {
        let read = wq.queue.lock()?.destroy(WorkQueue::destroy_reporting)?;
        wq.events.wait_for(read);
        Ok(())
    });
    returned(destroyed)
}

extern "C" fn post_wq_recv(wq: &Wq, list: Pointer, bad: Option<&mut Pointer>) -> c_int {
    let post = || {
        let mut queue = wq.queue.lock()?;
        post_receives(queue.get_mut()?.queue_mut(), list, bad)
    };
    post().map_or_else(Code::get, |()| 0)
}

#[repr(C)]
pub(crate) struct Table {
    pub(crate) c: abi::RwqIndTable,
    pub(crate) table: Owned<IndirectionTable>,
}

/// Collects all items. ENOMEM if there is not enough memory for the number that the caller gave.
fn collected<T>(items: impl ExactSizeIterator<Item = Answer<T>>) -> Answer<Vec<T>> {
    let mut all = Vec::new();
    all.try_reserve_exact(items.len())?;
    for item in items {
        all.push(item?);
    }
    Ok(all)
}

fn create_table(context: Option<&Context>, attr: Option<&RwqIndTableInitAttr>) -> Answer<Box<Table>> {
    let (context, attr) = (context.ok_or(EINVAL)?, attr.ok_or(EINVAL)?);
    if attr.comp_mask != 0 {
        return Err(EOPNOTSUPP);
    }
    let count = 1_usize.checked_shl(attr.log_ind_tbl_size).filter(|_| attr.log_ind_tbl_size < 16);
    let queues = (0..count.ok_or(EINVAL)?)
        .map(|i| attr.ind_tbl.item::<Pointer>(i).and_then(|queue| queue.get::<Wq>()).ok_or(EINVAL));
    let queues = collected(queues)?;
    let table = {
        // A queue may be in the table more than once, but is locked once; always in the same order.
        let mut each = collected(queues.iter().copied().map(Ok))?;
        // There is room for all. Each is inserted at its place: there are few, and a sort is 5 kB of code.
        each.clear();
        for &queue in &queues {
            let place = each.binary_search_by_key(&std::ptr::from_ref(queue), |one| std::ptr::from_ref(*one));
            place.err().into_iter().for_each(|place| each.insert(place, queue));
        }
        let locked = collected(each.iter().map(|queue| queue.queue.lock()))?;
        let place = |queue: &Wq| each.iter().position(|one| std::ptr::eq(*one, queue));
        let queues =
            queues.iter().map(|queue| place(queue).and_then(|at| locked.get(at)).ok_or(EINVAL)?.get());
        context.context.create_indirection_table(&collected(queues)?)?
    };
    let c = abi::RwqIndTable {
        context: Pointer::to(context),
        ind_tbl_handle: table.handle() as c_int,
        ind_tbl_num: table.number() as c_int,
        comp_mask: 0,
    };
    Ok(Box::new(Table { c, table: Owned::new(table) }))
}

pub(crate) extern "C" fn create_rwq_ind_table(
    context: Option<&Context>,
    attr: Option<&RwqIndTableInitAttr>,
) -> Option<Box<Table>> {
    or_null(create_table(context, attr))
}

pub(crate) extern "C" fn destroy_rwq_ind_table(table: Option<Box<Table>>) -> c_int {
    returned(end(table, |table| table.table.destroy(IndirectionTable::destroy)))
}
