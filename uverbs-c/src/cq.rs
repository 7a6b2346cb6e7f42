//! Completion queues.

use std::cell::Cell;
use std::ffi::c_int;
use std::sync::atomic::AtomicBool;

use nix::libc;
use uverbs::CompletionQueue;
use uverbs::WcFlags;
use uverbs::abi::write::Wc;
use uverbs::raw::{Extended, Place, Raised};

use crate::abi::{self, ModifyCqAttr};
use crate::answer::{Answer, EINVAL, or_null, returned};
use crate::boundary::{Given, Lock, Places, Pointer, Room};
use crate::channel::{Acknowledged, Channel};
use crate::context::Context;
use crate::cq_ex;
use crate::owned::{Owned, end_shared};

#[repr(C)]
pub(crate) struct Cq {
    pub(crate) c: abi::CqEx,
    pub(crate) queue: Lock<Owned<CompletionQueue>>,
    /// Events on the channel, and asynchronous ones, that were acknowledged.
    pub(crate) completions: Acknowledged,
    pub(crate) events: Acknowledged,
    /// The completion that the extended interface is at, and whether somebody is at one.
    pub(crate) current: Cell<Extended>,
    pub(crate) polling: AtomicBool,
}

/// What a completion queue is made from.
pub(crate) struct Wanted {
    pub(crate) cqe: u32,
    pub(crate) cq_context: Pointer,
    pub(crate) channel: Pointer,
    pub(crate) comp_vector: u32,
}

pub(crate) fn make(context: Option<&Context>, wanted: &Wanted) -> Answer<Box<Cq>> {
    let context = context.ok_or(EINVAL)?;
    let mut cq = Box::new(Cq {
        c: cq_ex::part(Pointer::to(context), wanted),
        queue: Lock::default(),
        completions: Acknowledged::default(),
        events: Acknowledged::default(),
        current: Cell::default(),
        polling: AtomicBool::new(false),
    });
    let cookie = Pointer::cookie(&*cq);
    let channel = wanted.channel.get::<Channel>();
    let mut builder = context.context.cq(wanted.cqe).vector(wanted.comp_vector).cookie(cookie);
    if let Some(channel) = channel {
        builder = builder.channel(&channel.channel);
    }
    let queue = builder.create()?;
    if let Some(channel) = channel {
        channel.keep();
    }
    cq.c.handle = queue.handle();
    cq.c.cqe.set(queue.capacity() as c_int);
    cq.queue = Lock::new(Owned::new(queue));
    Ok(cq)
}

pub(crate) extern "C" fn create_cq(
    context: Option<&Context>,
    cqe: c_int,
    cq_context: Pointer,
    channel: Pointer,
    comp_vector: c_int,
) -> Option<Box<Cq>> {
    // What is below zero is too much as well.
    let (cqe, comp_vector) = (cqe as u32, comp_vector as u32);
    or_null(make(context, &Wanted { cqe, cq_context, channel, comp_vector }))
}

/// As a driver's function is called.
pub(crate) extern "C" fn create_plain_cq(
    context: Option<&Context>,
    cqe: c_int,
    channel: Pointer,
    comp_vector: c_int,
) -> Option<Box<Cq>> {
    create_cq(context, cqe, Pointer::NULL, channel, comp_vector)
}

pub(crate) extern "C" fn resize_cq(cq: Option<&Cq>, cqe: c_int) -> c_int {
    let resize = || {
        let cq = cq.ok_or(EINVAL)?;
        let mut queue = cq.queue.lock()?;
        let queue = queue.get_mut()?;
        queue.resize(cqe as u32)?;
        cq.c.cqe.set(queue.capacity() as c_int);
        Ok(())
    };
    returned(resize())
}

pub(crate) extern "C" fn modify_cq(cq: Option<&Cq>, attr: Option<&ModifyCqAttr>) -> c_int {
    let modify = || {
        let (cq, attr) = (cq.ok_or(EINVAL)?, attr.ok_or(EINVAL)?);
        Ok(cq.queue.lock()?.get()?.modify(attr.attr_mask, attr.moderate)?)
    };
    returned(modify())
}

pub(crate) extern "C" fn destroy_cq(cq: Given<Cq>) -> c_int {
    let destroyed = end_shared(cq, |cq| {
        let read = cq.queue.lock()?.destroy(CompletionQueue::destroy_reporting)?;
        if let Some(channel) = cq.c.channel.get::<Channel>() {
            channel.let_go();
        }
        cq.completions.wait_for(read.comp_events_reported);
        cq.events.wait_for(read.async_events_reported);
        Ok(())
    });
    returned(destroyed)
}

/// Two flags of completions have other bits in libibverbs than in the kernel. Others are the kernel's own.
#[inline(always)]
pub(crate) fn flags(flags: u32) -> u32 {
    const INVALIDATE: u32 = WcFlags::WITH_INVALIDATE.bits();
    const CHECKSUM: u32 = WcFlags::IP_CSUM_OK.bits();
    flags & 0b11 | (flags & INVALIDATE) << 1 | (flags & CHECKSUM) >> 1
}

impl Place for Room<Wc> {
    #[inline(always)]
    fn put(&mut self, raised: &impl Raised) {
        raised.copy_wc(&mut self.0);
        let kernels = raised.flags();
        if kernels > 0b11 {
            self.0.write(Wc { wc_flags: flags(kernels), ..raised.wc() });
        }
    }
}

/// The number of completions, or -1.
pub(crate) extern "C" fn poll_cq(cq: Option<&Cq>, count: c_int, mut places: Places<Wc>) -> c_int {
    let Some(cq) = cq else { return -1 };
    let short = cq.queue.try_with(|queue| {
        let queue = queue.get_mut().ok()?;
        if let (1, [place]) = (count, places.get(1)) {
            let is_taken = queue.short_next(place)?;
            if is_taken {
                queue.release();
            }
            return Some(c_int::from(is_taken));
        }
        // An empty queue is polled most often.
        if queue.is_empty() { Some(0) } else { poll_short(queue, count, places) }
    });
    short.unwrap_or_else(|| poll_many(cq, count, places))
}

#[inline(never)]
fn poll_short(queue: &mut CompletionQueue, count: c_int, mut places: Places<Wc>) -> Option<c_int> {
    queue.short_poll(places.get(usize::try_from(count).unwrap_or(0))).map(|count| count as c_int)
}

#[inline(never)]
fn poll_many(cq: &Cq, count: c_int, mut places: Places<Wc>) -> c_int {
    // In a child of `fork` there are none.
    let Ok(mut queue) = cq.queue.lock() else { return 0 };
    let Ok(queue) = queue.get_mut() else { return -1 };
    queue.poll_places(places.get(usize::try_from(count).unwrap_or(0))) as c_int
}

pub(crate) extern "C" fn req_notify_cq(cq: Option<&Cq>, solicited_only: c_int) -> c_int {
    let notify = || Ok(cq.ok_or(EINVAL)?.queue.lock()?.get()?.notify(solicited_only != 0)?);
    returned(notify())
}

/// A mutex and a condition that only old programs would use.
pub(crate) const MUTEX: libc::pthread_mutex_t = libc::PTHREAD_MUTEX_INITIALIZER;
pub(crate) const CONDITION: libc::pthread_cond_t = libc::PTHREAD_COND_INITIALIZER;
