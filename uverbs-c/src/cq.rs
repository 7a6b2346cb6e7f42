//! Completion queues.

use std::cell::Cell;
use std::ffi::c_int;

use nix::libc;
use uverbs::CompletionQueue;
use uverbs::WcFlags;
use uverbs::abi::write::Wc;
use uverbs::raw::{CompletionObject, DriverCq, InPlace, Place, Provider, Raised, Told, Unread};

use crate::abi::{self, Function, ModifyCqAttr};
use crate::answer::{Answer, EINVAL, or_null, returned};
use crate::boundary::{self, Beside, Given, Lock, Places, Pointer, Room};
use crate::channel::{Acknowledged, Channel};
use crate::context::Context;
use crate::cq_ex;
use crate::domain::Uses;
use crate::owned::end_shared;
use crate::providers::CqPart;
use crate::providers::rings::with_rings;

#[repr(C)]
pub(crate) struct Cq {
    pub(crate) c: abi::CqEx,
    /// Locked by the thread that polls; in the extended interface from the start of a poll to its end.
    pub(crate) queue: Lock<CompletionQueue>,
    /// The position of such a poll: one of these, by the driver ([`Walk::cursor`](crate::providers::rings::Walk::cursor)).
    pub(crate) in_place: Beside<InPlace>,
    pub(crate) unread: Beside<Unread>,
    pub(crate) told: Beside<Told>,
    /// Whether completions do not show that they are from before a reset.
    forgets: bool,
    /// The part that needs no lock.
    pub(crate) object: CompletionObject,
    /// Acknowledged events of the channel, and asynchronous ones.
    pub(crate) completions: Acknowledged,
    pub(crate) events: Acknowledged,
    pub(crate) own: CqPart,
    /// The page of its doorbell, for programs that read it by the address of this field.
    pub(crate) page: Cell<u64>,
    _domain: Option<Uses>,
}

/// The properties of a new completion queue.
pub(crate) struct Wanted {
    pub(crate) cqe: u32,
    pub(crate) cq_context: Pointer,
    pub(crate) channel: Pointer,
    pub(crate) comp_vector: u32,
    pub(crate) driver: DriverCq,
    pub(crate) domain: Option<Uses>,
}

pub(crate) fn make(context: Option<&Context>, wanted: Wanted) -> Answer<Box<Cq>> {
    let context = context.ok_or(EINVAL)?;
    let place = Box::<Cq>::new_uninit();
    let cookie = Pointer::cookie(&*place);
    let channel = wanted.channel.get::<Channel>();
    let builder = context.context.cq(wanted.cqe).vector(wanted.comp_vector).cookie(cookie);
    let mut builder = builder.driver(wanted.driver);
    if let Some(channel) = channel {
        builder = builder.channel(&channel.channel);
    }
    let queue = builder.create()?;
    if let Some(channel) = channel {
        channel.keep();
    }
    let object = queue.object();
    let in_place = boundary::in_place(&queue);
    let forgets = in_place.is_some();
    let mut c = with_rings!(context.context, R => cq_ex::part::<R>(Pointer::to(context), &wanted));
    if context.context.is_driven_by_polls() {
        c.start_poll = with_rings!(context.context, R => cq_ex::start_poll_on_wire::<R> as Function);
    }
    c.handle = object.handle();
    c.cqe.set(queue.capacity() as c_int);
    let cq = Cq {
        c,
        queue: Lock::new(queue),
        in_place: Beside::new(in_place.unwrap_or_default()),
        unread: Beside::new(Unread::default()),
        told: Beside::new(Told::default()),
        forgets,
        object,
        completions: Acknowledged::default(),
        events: Acknowledged::default(),
        own: CqPart::new(Pointer::from_word(cookie)),
        page: Cell::new(0),
        _domain: wanted.domain,
    };
    Ok(Box::write(place, cq))
}

pub(crate) extern "C" fn create_cq(
    context: Option<&Context>,
    cqe: c_int,
    cq_context: Pointer,
    channel: Pointer,
    comp_vector: c_int,
) -> Option<Box<Cq>> {
    // A negative number is too large as well.
    let (cqe, comp_vector) = (cqe as u32, comp_vector as u32);
    or_null(make(
        context,
        Wanted { cqe, cq_context, channel, comp_vector, driver: DriverCq::default(), domain: None },
    ))
}

/// With the arguments of a driver's function.
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
        let resized = queue.resize(cqe as u32);
        // It may have another ring now, even after an error.
        if let Some(in_place) = boundary::in_place(&queue) {
            cq.in_place.with(|place| *place = in_place);
        }
        resized?;
        cq.c.cqe.set(queue.capacity() as c_int);
        Ok(())
    };
    returned(resize())
}

pub(crate) extern "C" fn modify_cq(cq: Option<&Cq>, attr: Option<&ModifyCqAttr>) -> c_int {
    let modify = || {
        let (cq, attr) = (cq.ok_or(EINVAL)?, attr.ok_or(EINVAL)?);
        Ok(cq.object.modify(attr.attr_mask, attr.moderate)?)
    };
    returned(modify())
}

/// It takes no lock: a poll that was begun and never ended must not prevent the queue from being destroyed.
pub(crate) extern "C" fn destroy_cq(cq: Given<Cq>) -> c_int {
    let destroyed = end_shared(cq, |cq| {
        let read = cq.object.destroy_reporting()?;
        if let Some(channel) = cq.c.channel.get::<Channel>() {
            channel.let_go();
        }
        cq.completions.wait_for(read.comp_events_reported);
        cq.events.wait_for(read.async_events_reported);
        Ok(())
    });
    returned(destroyed)
}

impl Cq {
    /// Removes the completions of a queue pair that was reset. Not in the middle of a poll of the extended interface, which may be one of
    /// this thread: libraries for rxe do not do this at all.
    pub(crate) fn forget(&self, qp_num: u32) -> Answer {
        if !self.forgets {
            return Ok(());
        }
        if let Some(mut queue) = self.queue.lock_unless_kept()? {
            queue.forget(qp_num);
        }
        Ok(())
    }
}

/// Two flags of completions have other bits in libibverbs than in the kernel. The others are the same.
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

    #[inline(always)]
    fn put_plain(&mut self, raised: &impl Raised) -> bool {
        let is_plain = raised.flags() <= 0b11;
        if is_plain {
            raised.copy_wc(&mut self.0);
        }
        is_plain
    }

    #[inline(always)]
    fn put_among(&mut self, raised: &impl Raised) {
        raised.copy_wc(&mut self.0);
        if raised.flags() > 0b11 {
            translate(self, raised);
        }
    }
}

#[cold]
fn translate(room: &mut Room<Wc>, raised: &impl Raised) {
    let wc = raised.wc();
    room.write(Wc { wc_flags: flags(wc.wc_flags), ..wc });
}

/// Returns the number of completions. The function in the header has already dereferenced `cq`, so it is not null.
pub(crate) extern "C" fn poll_cq<P: Provider>(cq: &Cq, count: c_int, places: Places<'_, Wc>) -> c_int {
    let wanted = usize::try_from(count).unwrap_or(0);
    if wanted == 0 || wanted > P::FEW || places.is_null() {
        poll_many::<P>(cq, wanted, places)
    } else if wanted == P::FEW {
        poll_most_of_few::<P>(cq, places)
    } else {
        poll_few::<P>(cq, wanted, places)
    }
}

// A function of its own, with the number as a constant, so that the path to `poll_many` saves no registers for it.
#[inline(never)]
fn poll_most_of_few<P: Provider>(cq: &Cq, places: Places<'_, Wc>) -> c_int {
    poll_few::<P>(cq, P::FEW, places)
}

/// Most polls find one completion or none, even if the program asks for several.
fn poll_few<P: Provider>(cq: &Cq, wanted: usize, mut places: Places<'_, Wc>) -> c_int {
    let few = cq.queue.try_with(|queue| queue.poll_few_fast::<P, _>(places.get(wanted)));
    few.map_or_else(|| poll_many::<P>(cq, wanted, places), |count| count as c_int)
}

#[inline(never)]
fn poll_many<P: Provider>(cq: &Cq, wanted: usize, mut places: Places<'_, Wc>) -> c_int {
    let many = cq.queue.try_with(|queue| queue.poll_fast::<P, _>(places.get(wanted)));
    many.map_or_else(|| poll_at_length(cq, wanted, places), |count| count as c_int)
}

#[inline(never)]
fn poll_at_length(cq: &Cq, wanted: usize, mut places: Places<'_, Wc>) -> c_int {
    // A child of `fork` finds none.
    let Ok(mut queue) = cq.queue.lock() else { return 0 };
    queue.poll_places(places.get(wanted)) as c_int
}

/// For devices on a wire: a poll that finds nothing handles what has arrived, and looks again.
pub(crate) extern "C" fn poll_cq_on_wire(cq: &Cq, count: c_int, mut places: Places<'_, Wc>) -> c_int {
    let wanted = usize::try_from(count).unwrap_or(0);
    let found = find(cq, places.get(wanted));
    if found == 0 && wanted > 0 && progress(cq) { find(cq, places.get(wanted)) } else { found }
}

fn find(cq: &Cq, places: &mut [Room<Wc>]) -> c_int {
    // A child of `fork` finds none.
    cq.queue.lock().map_or(0, |mut queue| queue.poll_places(places) as c_int)
}

/// Handles what has arrived for a device on a wire. True if there was something.
pub(crate) fn progress(cq: &Cq) -> bool {
    cq.c.context.get::<Context>().is_some_and(|context| context.context.progress())
}

pub(crate) extern "C" fn req_notify_cq(cq: &Cq, solicited_only: c_int) -> c_int {
    if cq.object.arm(solicited_only != 0) { 0 } else { notify(cq, solicited_only) }
}

/// For queues without a doorbell. A separate function, because an error needs a large stack frame.
#[inline(never)]
fn notify(cq: &Cq, solicited_only: c_int) -> c_int {
    let notify = || Ok(cq.object.notify(solicited_only != 0)?);
    returned(notify())
}

/// A mutex and a condition variable that only old programs would use.
pub(crate) const MUTEX: libc::pthread_mutex_t = libc::PTHREAD_MUTEX_INITIALIZER;
pub(crate) const CONDITION: libc::pthread_cond_t = libc::PTHREAD_COND_INITIALIZER;
