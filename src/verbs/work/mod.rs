//! Work queues: the memory that posted requests need, and the receive queue that a queue pair owns or shares.

mod held;
mod post;
mod queue;

use nix::errno::Errno;

pub(crate) use self::held::{Held, Kept, Slots};
#[cfg_attr(not(feature = "raw"), expect(unreachable_pub))]
pub use self::queue::ReceiveQueue;
use crate::driver::request::Refused;
use crate::driver::rq::Receives;
use crate::driver::seam::Late;
use crate::kernel::error::{Error, Result};
use crate::kernel::process::elsewhere;
use crate::verbs::mr::Segment;

/// A receive request: memory for a message or frame, which fills `segments` in their order.
#[derive(Clone, Copy, Debug)]
#[doc(alias = "ibv_recv_wr")]
pub struct ReceiveRequest<'a> {
    wr_id: u64,
    segments: &'a [Segment<'a>],
}

impl<'a> ReceiveRequest<'a> {
    /// A receive into `segments`; the completion contains `wr_id`.
    pub fn new(wr_id: u64, segments: &'a [Segment<'a>]) -> Self {
        Self { wr_id, segments }
    }
}

/// The error for a request that cannot be put into a queue.
#[cold]
#[inline(never)]
pub(crate) fn refused(op: &'static str, why: Refused) -> Error {
    let (errno, hint) = match why {
        Refused::Full => (
            Errno::ENOMEM,
            "the queue has no room for all of these; nothing was posted: poll completions first, or create a deeper queue",
        ),
        Refused::TooLarge => {
            (Errno::EINVAL, "the device has no such request of so many bytes in total; nothing was posted")
        }
        Refused::NotReady => (Errno::EINVAL, NOT_READY),
        Refused::Elsewhere => return elsewhere(op),
        Refused::Lost => {
            let what = "the ring was lost in a resize; resize again, or destroy the queue";
            return Error::malformed(op, what);
        }
        Refused::NotBegun => (Errno::EINVAL, "a part of a request was set before the request was begun"),
        Refused::Unsignaled => {
            let hint = "mark each request as signaled: the device completes every request, or completion counters are bound, which count only signaled ones; nothing was posted";
            (Errno::EINVAL, hint)
        }
        Refused::Lacks => (Errno::EOPNOTSUPP, "the device has no such requests; nothing was posted"),
    };
    Error::refused(op, errno, hint)
}

/// The hint for a request that is refused because of the state of its queue pair.
pub(crate) const NOT_READY: &str =
    "the queue pair is not ready to send: connect it, or move it to RTS, first";

/// A receive queue, and the memory that the request in each slot needs. It is released when the slot is used again.
#[derive(Debug)]
pub(crate) struct Receiving {
    pub(crate) queue: ReceiveQueue,
    held: Held,
}

impl Receiving {
    pub(crate) fn new(op: &'static str, queue: ReceiveQueue) -> Result<Self> {
        let held = Held::new(op, queue.receives.slots())?;
        Ok(Self { queue, held })
    }

    /// Posts a receive without memory. False if there is no slot for it.
    pub(crate) fn post_empty(&mut self, wr_id: u64) -> bool {
        self.post("", &[ReceiveRequest::new(wr_id, &[])]).is_ok()
    }

    /// Whether all that was posted has completed, if this is known without an extra request.
    pub(crate) fn is_idle(&self) -> Option<bool> {
        self.queue.receives.is_idle()
    }

    /// Continues in another ring, to whose first slots the device has moved the requests that it had not taken yet.
    ///
    /// # Errors
    /// [`Exhausted`](crate::ErrorKind::Exhausted) if there is not enough memory. Nothing has changed here.
    pub(crate) fn move_to(&mut self, op: &'static str, receives: Receives) -> Result<()> {
        let new = Self::new(op, self.queue.with(receives))?;
        let moved = new.queue.receives.next_slot() as usize;
        self.held.move_to(new.held, self.queue.receives.next_slot() as usize, moved);
        self.queue = new.queue;
        Ok(())
    }

    /// The ring that the device now uses could not be mapped: nothing can be posted until the queue moves to another ring.
    pub(crate) fn lose(&mut self) {
        self.queue.receives.lose();
    }

    /// In the error state: removes the requests that the device does not read any more and has not flushed.
    pub(crate) fn take_late(&mut self, each: impl FnMut(Late)) {
        self.queue.receives.take_late(each);
    }

    /// The queue pair has entered a state.
    pub(crate) fn enter(&mut self, state: u8) {
        self.queue.receives.enter(state);
    }

    /// Releases the memory of all requests: everything that was posted has ended.
    pub(crate) fn let_go(&mut self) {
        self.held.let_all_go();
    }

    /// Takes over the memory that the posted requests need.
    pub(crate) fn take_held(&mut self) -> Held {
        std::mem::take(&mut self.held)
    }
}
