//! Work queues: the memory that posted requests need, and the receive queue that a queue pair owns or shares.

mod held;
mod short;

use std::borrow::Borrow;

use nix::errno::Errno;

pub(crate) use self::held::{Held, Kept, Slots};
use crate::driver::receives::Receives;
use crate::driver::request::{Refused, Sge};
#[cfg(feature = "raw")]
use crate::driver::seam::OwnRing;
use crate::driver::seam::{Late, LowerReceive, WithReceives};
use crate::kernel::error::{Error, Result, limit};
use crate::kernel::process::{Origin, elsewhere};
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

/// A receive queue. The safe interface and bindings both post to it. A request names memory by address and key, and its caller must
/// keep that memory until the request has completed.
#[derive(Debug)]
pub struct ReceiveQueue {
    receives: Receives,
    /// Checked before each batch: the slots of a shared ring may contain the parent's requests.
    origin: Origin,
    /// Maximum number of pieces of a request.
    pieces: u32,
}

impl ReceiveQueue {
    pub(crate) fn new(origin: Origin, receives: Receives, pieces: u32) -> Self {
        Self { receives, origin, pieces }
    }

    /// The error for requests of which none was posted.
    #[cold]
    #[inline(never)]
    fn refused(&self, op: &'static str, requests: &[ReceiveRequest<'_>], why: Refused) -> Error {
        let most = self.pieces as usize;
        let mut counts = requests.iter().map(|request| request.segments.len());
        match counts.find(|count| *count > most).filter(|_| why == Refused::TooLarge) {
            Some(given) => {
                let hint = limit("segments of a request", given, format_args!("at most {most}"));
                Error::refused(op, Errno::EINVAL, hint + "; nothing was posted")
            }
            None => refused(op, why),
        }
    }

    /// Number of requests that the queue can hold.
    pub fn capacity(&self) -> u32 {
        self.receives.capacity()
    }

    /// Maximum number of pieces of memory of a request.
    #[inline]
    pub fn max_pieces(&self) -> u32 {
        self.pieces
    }

    /// The ring, if the device allows programs to use its rings directly. A program that does so must not post here.
    #[cfg(feature = "raw")]
    pub fn own_ring(&self) -> Option<OwnRing> {
        self.receives.own_ring()
    }

    /// Posts one request.
    ///
    /// # Errors
    /// Those of [`ReceiveBatch::put`] and [`ReceiveQueue::post`].
    #[cfg(feature = "raw")]
    pub fn post_one(&mut self, wr_id: u64, pieces: &[Sge]) -> Result<(), Refused> {
        self.step(Pieces { wr_id, pieces })?
    }

    /// Posts a batch of requests, which `how` fills.
    ///
    /// # Errors
    /// [`Refused::Elsewhere`] in a child of `fork`; `how` is not called then.
    #[inline(always)]
    pub fn post<F: FillReceives>(&mut self, how: F) -> Result<F::Answer, Refused> {
        if !self.origin.is_here() {
            return Err(Refused::Elsewhere);
        }
        let pieces = self.pieces;
        let halfway = Halfway(self);
        let answer = halfway.0.receives.post(Filling { pieces, how });
        std::mem::forget(halfway);
        Ok(answer)
    }

    /// The same for a queue whose slots have a flag each. If a request cannot be posted, those before it are posted, whatever
    /// [`FillReceives::is_kept`] returns. Returns `None`, with nothing done, for other queues, for a queue that accepts no
    /// requests, and in a child of `fork`.
    #[cfg(feature = "raw")]
    #[inline(always)]
    pub fn post_flagged<F: FillReceives>(&mut self, how: F) -> Option<F::Answer> {
        let Self { receives, origin, pieces } = self;
        receives.post_flagged(Filling { pieces: *pieces, how }, || origin.is_here())
    }

    /// As [`ReceiveQueue::post`], for a queue whose slots have a flag each. It is slower than [`ReceiveQueue::post_flagged`], but
    /// each refused request has its reason, also in a queue that accepts none. Returns `None`, with nothing done, for other queues,
    /// and in a child of `fork`.
    #[cfg(feature = "raw")]
    #[cold]
    pub fn post_flagged_at_length<F: FillReceives>(&mut self, how: F) -> Option<F::Answer> {
        let Self { receives, origin, pieces } = self;
        if origin.is_here() {
            receives.post_flagged_at_length(Filling { pieces: *pieces, how })
        } else {
            None
        }
    }

    /// As [`ReceiveQueue::post_flagged`], for a queue whose requests complete in any order. Returns `None`, with nothing done, for
    /// other queues, and in a child of `fork`.
    #[cfg(feature = "raw")]
    #[inline(always)]
    pub fn post_numbered<F: FillReceives>(&mut self, how: F) -> Option<F::Answer> {
        self.post_kept(how, Receives::post_numbered)
    }

    /// As [`ReceiveQueue::post`], for a queue pair's queue that the device reads itself. Returns `None`, with nothing done, for
    /// other queues, and in a child of `fork`.
    #[cfg(feature = "raw")]
    #[inline(always)]
    pub fn post_in_blocks<F: FillReceives>(&mut self, how: F) -> Option<F::Answer> {
        self.post_kept(how, Receives::post_in_blocks)
    }

    /// The same for a shared queue that the device reads itself.
    #[cfg(feature = "raw")]
    #[inline(always)]
    pub fn post_listed<F: FillReceives>(&mut self, how: F) -> Option<F::Answer> {
        self.post_kept(how, Receives::post_listed)
    }

    #[cfg(feature = "raw")]
    #[inline(always)]
    fn post_kept<F: FillReceives>(
        &mut self,
        how: F,
        way: impl FnOnce(&mut Receives, Filling<F>) -> Option<F::Answer>,
    ) -> Option<F::Answer> {
        let Self { receives, origin, pieces } = self;
        origin.ask()?;
        way(receives, Filling { pieces: *pieces, how })
    }

    /// As [`ReceiveQueue::post`], for one request.
    ///
    /// # Errors
    /// As [`ReceiveQueue::post`].
    #[inline(always)]
    pub fn step<F: FillReceives>(&mut self, how: F) -> Result<F::Answer, Refused> {
        if !self.origin.is_here() {
            return Err(Refused::Elsewhere);
        }
        let pieces = self.pieces;
        let halfway = Halfway(self);
        let answer = halfway.0.receives.step(Filling { pieces, how });
        std::mem::forget(halfway);
        Ok(answer)
    }

    /// The queue pair has entered a state.
    pub(crate) fn enter(&mut self, state: u8) {
        self.receives.enter(state);
    }
}

/// A batch that is being filled. If a panic stops this, it is discarded, so that it is not published with the next batch.
struct Halfway<'a>(&'a mut ReceiveQueue);

impl Drop for Halfway<'_> {
    fn drop(&mut self) {
        self.0.receives.rewind();
    }
}

/// Fills a batch of receives, for any driver.
pub trait FillReceives {
    /// The result.
    type Answer;

    /// Fills slots.
    fn fill<L: LowerReceive>(self, batch: &mut ReceiveBatch<L>) -> Self::Answer;

    /// Whether the filled requests are posted. Otherwise they are discarded.
    fn is_kept(answer: &Self::Answer) -> bool;
}

/// A batch of requests that is written into the slots of a receive queue.
#[derive(Debug)]
pub struct ReceiveBatch<L> {
    lower: L,
    pieces: u32,
}

impl<L: LowerReceive> ReceiveBatch<L> {
    /// The slot that is filled next.
    #[inline(always)]
    pub fn next_slot(&self) -> u32 {
        self.lower.next_slot()
    }

    /// The slot of the next request; zero if the queue reports it only afterwards: see [`LowerReceive::last_slot`].
    #[inline(always)]
    fn slot_before(&self) -> u32 {
        if L::IS_IN_ORDER { self.lower.next_slot() } else { 0 }
    }

    /// The slot of the last request. `before` is what `slot_before` returned before it was filled.
    #[inline(always)]
    fn slot_behind(&self, before: u32) -> u32 {
        if L::IS_IN_ORDER { before } else { self.lower.last_slot() }
    }

    /// Maximum number of pieces of memory of a request.
    #[inline(always)]
    pub fn max_pieces(&self) -> u32 {
        self.pieces
    }

    /// Fills the next slot.
    ///
    /// # Errors
    /// [`Refused::Full`] and [`Refused::TooLarge`]; nothing is filled then.
    #[inline(always)]
    pub fn put<P>(&mut self, wr_id: u64, pieces: P) -> Result<(), Refused>
    where
        P: ExactSizeIterator<Item: Borrow<Sge>>,
    {
        if pieces.len() > self.pieces as usize {
            return Err(Refused::TooLarge);
        }
        self.lower.put(wr_id, pieces)
    }
}

struct Filling<F> {
    pieces: u32,
    how: F,
}

impl<F: FillReceives> WithReceives for Filling<F> {
    type Answer = F::Answer;

    #[inline(always)]
    fn with<L: LowerReceive>(self, lower: L) -> F::Answer {
        self.how.fill(&mut ReceiveBatch { lower, pieces: self.pieces })
    }

    #[inline(always)]
    fn is_kept(answer: &F::Answer) -> bool {
        F::is_kept(answer)
    }
}

/// A batch of one receive.
#[cfg(feature = "raw")]
struct Pieces<'a> {
    wr_id: u64,
    pieces: &'a [Sge],
}

#[cfg(feature = "raw")]
impl FillReceives for Pieces<'_> {
    type Answer = Result<(), Refused>;

    fn fill<L: LowerReceive>(self, batch: &mut ReceiveBatch<L>) -> Self::Answer {
        batch.put(self.wr_id, self.pieces.iter())
    }

    fn is_kept(answer: &Self::Answer) -> bool {
        answer.is_ok()
    }
}

/// A receive and the memory that it needs.
struct One<'a> {
    request: &'a ReceiveRequest<'a>,
    held: Slots<'a>,
}

impl FillReceives for One<'_> {
    type Answer = Result<(), Refused>;

    #[inline(always)]
    fn fill<L: LowerReceive>(mut self, batch: &mut ReceiveBatch<L>) -> Self::Answer {
        let (slot, ReceiveRequest { wr_id, segments }) = (batch.slot_before(), self.request);
        batch.put(*wr_id, segments.iter().map(Segment::sge))?;
        self.held.hold(batch.slot_behind(slot), segments, None);
        Ok(())
    }

    #[inline(always)]
    fn is_kept(answer: &Self::Answer) -> bool {
        answer.is_ok()
    }
}

/// Receives and the memory that each of them needs.
struct All<'a> {
    requests: &'a [ReceiveRequest<'a>],
    held: Slots<'a>,
}

impl FillReceives for All<'_> {
    type Answer = Result<(), Refused>;

    #[inline(always)]
    fn fill<L: LowerReceive>(mut self, batch: &mut ReceiveBatch<L>) -> Self::Answer {
        let first = batch.next_slot();
        let mut rest = self.requests.iter();
        while let Some(request) = rest.next() {
            let slot = batch.slot_before();
            if let Err(why) = batch.put(request.wr_id, request.segments.iter().map(Segment::sge)) {
                let filled = self.requests.len() - 1 - rest.len();
                self.held.into_held().let_go(first, filled, batch.lower.links());
                return Err(why);
            }
            // Not before `put`: if the ring is full, the next slot is that of a request that has not completed.
            self.held.hold(batch.slot_behind(slot), request.segments, None);
        }
        Ok(())
    }

    /// All are posted, or none.
    #[inline(always)]
    fn is_kept(answer: &Self::Answer) -> bool {
        answer.is_ok()
    }
}

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

    /// Posts all requests, or none.
    // The error is created here, where the caller's type is needed: passing one through several functions costs more than passing a
    // number.
    #[inline(always)]
    pub(crate) fn post(&mut self, op: &'static str, requests: &[ReceiveRequest<'_>]) -> Result<()> {
        let posted = match requests {
            [request] => self.put_one(request),
            _ => self.put_all(requests),
        };
        match posted {
            Ok(()) => Ok(()),
            Err(why) => Err(self.queue.refused(op, requests, why)),
        }
    }

    /// Posts requests of any form to any queue, all of them or none.
    #[inline(never)]
    fn all_at_length(&mut self, requests: &[ReceiveRequest<'_>]) -> Result<(), Refused> {
        let Self { queue, held } = self;
        queue.post(All { requests, held: held.slots() })?
    }

    /// The same for one request, without a loop.
    #[inline(never)]
    fn one_at_length(&mut self, request: &ReceiveRequest<'_>) -> Result<(), Refused> {
        let Self { queue, held } = self;
        queue.step(One { request, held: held.slots() })?
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
        let mut new = Self::new(op, ReceiveQueue { receives, ..self.queue })?;
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
        self.queue.enter(state);
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
