//! The part of a completion queue that bindings use without a lock.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use uverbs_abi::write::{CqModeration, DestroyCqResp};

use super::{CompletionQueue, CompletionQueueCore};
use crate::device::object;
use crate::kernel::error::Result;

impl CompletionQueue {
    /// The part of the queue that can be used while another thread polls it.
    pub fn object(&self) -> CompletionObject {
        CompletionObject(self.shared.clone())
    }
}

/// One event in `events_read`. Devices use the lowest two bits of the number of events, and need them in the highest bits of a
/// word.
const EVENT: u32 = 1 << 30;

/// A completion queue without the part that polls. Queue pairs are created with it, and events are requested from it. It takes no
/// lock, so it may be used in the middle of a poll.
#[derive(Clone, Debug)]
pub struct CompletionObject(Arc<CompletionQueueCore>);

impl CompletionObject {
    pub(crate) fn shared(&self) -> &Arc<CompletionQueueCore> {
        &self.0
    }

    /// The kernel's handle of the queue.
    pub fn handle(&self) -> u32 {
        self.0.id()
    }

    /// Changes the moderation according to the bits of `attr_mask`, which the kernel checks.
    ///
    /// # Errors
    /// As [`CompletionQueue::moderate`].
    pub fn modify(&self, attr_mask: u32, attr: CqModeration) -> Result<()> {
        self.0.change(attr_mask, attr)
    }

    /// Requests one event at the next completion, or at the next solicited one, as [`CompletionQueue::notify`] does, also while another
    /// thread polls. The caller must report each event that it reads by [`CompletionObject::event_read`]; otherwise some devices send no
    /// more events.
    ///
    /// # Errors
    /// As [`CompletionQueue::notify`].
    pub fn notify(&self, solicited_only: bool) -> Result<()> {
        if self.arm(solicited_only) { Ok(()) } else { self.0.notify_apart(solicited_only, true) }
    }

    /// Requests an event by a doorbell, as [`notify`](Self::notify) does first. Returns false, with nothing done, if the driver has
    /// no doorbell for this, and in a child of `fork`: call `notify` then, which also sends commands and returns errors.
    #[inline(always)]
    pub fn arm(&self, solicited_only: bool) -> bool {
        self.0.side().arm_behind(self.0.events_read.load(Ordering::Relaxed), solicited_only)
    }

    /// Reports that an event of the queue was read from its channel. A caller that requests events by this object must report each event
    /// that it reads.
    #[inline(always)]
    pub fn event_read(&self) {
        self.0.events_read.fetch_add(EVENT, Ordering::Relaxed);
        self.0.side().tell();
    }

    /// Destroys the queue and returns how many of its events were read. A caller that has returned these events with pointers to
    /// the queue can then wait until the last of them was acknowledged. The part that polls is dropped afterwards.
    ///
    /// # Errors
    /// [`Busy`](crate::ErrorKind::Busy) while a queue pair still uses it; those of the kernel.
    pub fn destroy_reporting(&self) -> Result<DestroyCqResp> {
        // This object, and the part that polls.
        if Arc::strong_count(&self.0) > 2 {
            let by = "a queue pair, a work queue or a shared receive queue still uses the completion queue";
            return Err(object::shared("cq.destroy", by));
        }
        self.0.object.release_before_drop()
    }
}
