//! Events: completion channels, and the numbers of events that were read and acknowledged.

use std::ffi::{c_int, c_uint};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::sync::atomic::{AtomicI32, Ordering};
use std::sync::{Condvar, Mutex, PoisonError};

use nix::libc;
use uverbs::CompletionChannel;
use uverbs::abi::types::event_type;
pub(crate) use uverbs::abi::write::AsyncEventDesc as AsyncEvent;
use uverbs::abi::write::CompEventDesc;
use uverbs::raw::Origin;
use zerocopy::{FromBytes, IntoBytes};

use crate::abi;
use crate::answer::{Answer, Code, EBUSY, EINVAL, minus_one, or_null, returned};
use crate::boundary::Pointer;
use crate::context::Context;
use crate::cq::Cq;
use crate::qp::Qp;
use crate::srq::Srq;
use crate::wq::Wq;

/// The number of events of an object that the program has acknowledged.
pub(crate) struct Acknowledged {
    /// A child of `fork` does not take a lock that its parent created.
    origin: Origin,
    count: Mutex<u32>,
    more: Condvar,
}

impl Default for Acknowledged {
    fn default() -> Self {
        Self { origin: Origin::here(), count: Mutex::default(), more: Condvar::new() }
    }
}

impl Acknowledged {
    pub(crate) fn add(&self, count: u32) {
        if !self.origin.is_here() {
            return;
        }
        let mut sum = self.count.lock().unwrap_or_else(PoisonError::into_inner);
        *sum = sum.wrapping_add(count);
        self.more.notify_all();
    }

    /// Waits until as many events are acknowledged as were read. If the device was removed, and in a child of `fork`, the number of events
    /// that were read is not known: then it does not wait.
    pub(crate) fn wait_for(&self, read: u32) {
        if !self.origin.is_here() {
            return;
        }
        let sum = self.count.lock().unwrap_or_else(PoisonError::into_inner);
        // Both counts wrap around.
        let is_behind = |sum: &mut u32| read.wrapping_sub(*sum).cast_signed() > 0;
        let _sum = self.more.wait_while(sum, is_behind).unwrap_or_else(PoisonError::into_inner);
    }
}

/// Reads one record of an event file. Waits for it if the file is a blocking one.
pub(crate) fn read_record<T: FromBytes + IntoBytes>(file: BorrowedFd<'_>) -> Answer<T> {
    let mut record = T::new_zeroed();
    read_into(file, record.as_mut_bytes())?;
    Ok(record)
}

#[inline(always)]
fn read_into(file: BorrowedFd<'_>, record: &mut [u8]) -> Answer {
    let wanted = record.len();
    let read = nix::unistd::read(file, record)?;
    // A truncated record, or the end of the file.
    if read == wanted { Ok(()) } else { Err(Code::new(libc::EIO)) }
}

#[repr(C)]
pub(crate) struct Channel {
    c: abi::CompChannel,
    pub(crate) channel: CompletionChannel,
    /// Events belong to the process that created the channel.
    origin: Origin,
}

impl Channel {
    /// Counts a completion queue that reports to this channel.
    pub(crate) fn keep(&self) {
        self.c.refcnt.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn let_go(&self) {
        self.c.refcnt.fetch_sub(1, Ordering::Relaxed);
    }
}

fn create(context: Option<&Context>) -> Answer<Box<Channel>> {
    let context = context.ok_or(EINVAL)?;
    let channel = context.context.create_comp_channel()?;
    let fd = channel.as_fd().as_raw_fd();
    let c = abi::CompChannel { context: Pointer::to(context), fd, refcnt: AtomicI32::new(0) };
    Ok(Box::new(Channel { c, channel, origin: Origin::here() }))
}

pub(crate) extern "C" fn create_comp_channel(context: Option<&Context>) -> Option<Box<Channel>> {
    or_null(create(context))
}

pub(crate) extern "C" fn destroy_comp_channel(channel: Option<Box<Channel>>) -> c_int {
    let Some(channel) = channel else { return returned(Err(EINVAL)) };
    if channel.c.refcnt.load(Ordering::Relaxed) != 0 {
        std::mem::forget(channel);
        return returned(Err(EBUSY));
    }
    0
}

pub(crate) extern "C" fn get_cq_event(
    channel: Option<&Channel>,
    cq: Option<&mut u64>,
    cq_context: Option<&mut Pointer>,
) -> c_int {
    let (Some(channel), Some(cq), Some(cq_context)) = (channel, cq, cq_context) else {
        return failed(EINVAL);
    };
    // The cookie of an event is an address in the process that created the queue.
    if !channel.origin.is_here() {
        return failed(Code::new(libc::EIO));
    }
    // The record is the cookie, so it is read directly into the caller's variable.
    const { assert!(size_of::<CompEventDesc>() == size_of::<u64>()) }
    if let Err(code) = read_into(channel.channel.as_fd(), cq.as_mut_bytes()) {
        return failed(code);
    }
    let cq: &Cq = Pointer::of_event(*cq);
    cq.object.event_read();
    *cq_context = cq.c.cq_context;
    0
}

#[cold]
#[inline(never)]
fn failed(code: Code) -> c_int {
    minus_one(Err(code))
}

pub(crate) extern "C" fn ack_cq_events(cq: Option<&Cq>, count: c_uint) {
    if let Some(cq) = cq {
        cq.completions.add(count);
    }
}

pub(crate) extern "C" fn ack_async_event(event: Option<&AsyncEvent>) {
    use event_type::*;
    let Some(event) = event else { return };
    let object = Pointer::from_word(event.element);
    let account = match event.event_type {
        CQ_ERR => object.get::<Cq>().map(|cq| &cq.events),
        QP_FATAL | QP_REQ_ERR | QP_ACCESS_ERR | COMM_EST | SQ_DRAINED | PATH_MIG | PATH_MIG_ERR
        | QP_LAST_WQE_REACHED => object.get::<Qp>().map(|qp| &qp.events),
        SRQ_ERR | SRQ_LIMIT_REACHED => object.get::<Srq>().map(|srq| &srq.events),
        WQ_FATAL => object.get::<Wq>().map(|wq| &wq.events),
        _ => None,
    };
    if let Some(account) = account {
        account.add(1);
    }
}
