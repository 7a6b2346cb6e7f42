//! A receive queue, by address and key. The safe interface and bindings both post to it.

use crate::driver::request::Refused;
use crate::driver::rq::Receives;
use crate::driver::seam::ReceiveRing;
#[cfg(feature = "raw")]
use crate::driver::{
    provider::Provider,
    request::Sge,
    rq::with_receives,
    seam::{FillReceives, LowerReceive, OwnRing, ReceiveBatch},
};
use crate::kernel::process::Origin;

/// A receive queue. The safe interface and bindings both post to it. A request names memory by address and key, and its caller must
/// keep that memory until the request has completed.
#[derive(Debug)]
pub struct ReceiveQueue {
    pub(in crate::verbs) receives: Receives,
    pub(super) access: Access,
}

/// Who may post, and requests of what size.
#[derive(Clone, Copy, Debug)]
pub(super) struct Access {
    /// Checked before each batch: the slots of a shared ring may contain the parent's requests.
    pub(super) origin: Origin,
    /// Maximum number of pieces of a request.
    pub(super) pieces: u32,
}

impl ReceiveQueue {
    pub(crate) fn new(origin: Origin, receives: Receives, pieces: u32) -> Self {
        Self { receives, access: Access { origin, pieces } }
    }

    /// A queue with other slots.
    pub(super) fn with(&self, receives: Receives) -> Self {
        Self { receives, access: self.access }
    }

    /// Number of requests that the queue can hold.
    pub fn capacity(&self) -> u32 {
        self.receives.capacity()
    }

    /// Maximum number of pieces of memory of a request.
    #[inline]
    pub fn max_pieces(&self) -> u32 {
        self.access.pieces
    }

    /// The queue pair has entered a state.
    #[cfg(feature = "raw")]
    pub(crate) fn enter(&mut self, state: u8) {
        self.receives.enter(state);
    }
}

/// Access for bindings.
#[cfg(feature = "raw")]
impl ReceiveQueue {
    /// The ring, if the device allows programs to use its rings directly. A program that does so must not post here.
    pub fn hand_over(&mut self) -> Option<OwnRing> {
        self.receives.hand_over()
    }

    /// Posts one request.
    ///
    /// # Errors
    /// Those of [`ReceiveBatch::put`] and [`ReceiveQueue::post`].
    pub fn post_one(&mut self, wr_id: u64, pieces: &[Sge]) -> Result<(), Refused> {
        self.post(Pieces { wr_id, pieces })?
    }

    /// Posts a batch of requests, which `how` fills.
    ///
    /// # Errors
    /// [`Refused::Elsewhere`] in a child of `fork`; `how` is not called then.
    #[inline(always)]
    pub fn post<F: FillReceives>(&mut self, how: F) -> Result<F::Answer, Refused> {
        let Self { receives, access } = self;
        with_receives!(&mut receives.0, ring => access.fill(ring.by_ref(), |ring, pieces| ring.post(pieces, how)))
    }

    /// Posts a batch by the short path of the queue's driver. If a request cannot be posted, those before it are posted, whatever
    /// [`FillReceives::is_kept`] returns. Returns `None`, with nothing done, for a queue of another driver, for a queue that accepts no
    /// requests, and in a child of `fork`: use [`ReceiveQueue::post`] then.
    #[inline(always)]
    pub fn post_fast<P: Provider, F: FillReceives>(&mut self, how: F) -> Option<F::Answer> {
        self.access.origin.ask()?;
        P::post_receives(&mut self.receives, self.access.pieces, how)
    }

    /// Posts a batch to a shared queue by the short path of the queue's driver; see [`ReceiveQueue::post_fast`].
    #[inline(always)]
    pub fn post_shared_fast<P: Provider, F: FillReceives>(&mut self, how: F) -> Option<F::Answer> {
        self.access.origin.ask()?;
        P::post_shared_receives(&mut self.receives, self.access.pieces, how)
    }
}

impl Access {
    /// Has `post` fill the ring, if this process owns it.
    #[inline(always)]
    pub(super) fn fill<R: ReceiveRing, A>(
        &self,
        ring: &mut R,
        post: impl FnOnce(&mut R, u32) -> A,
    ) -> Result<A, Refused> {
        if !self.origin.is_here() {
            return Err(Refused::Elsewhere);
        }
        let halfway = Halfway(ring);
        let answer = post(halfway.0, self.pieces);
        std::mem::forget(halfway);
        Ok(answer)
    }
}

/// A batch that is being filled. If a panic stops this, it is discarded, so that it is not published with the next batch.
struct Halfway<'a, R: ReceiveRing>(&'a mut R);

impl<R: ReceiveRing> Drop for Halfway<'_, R> {
    #[cold]
    fn drop(&mut self) {
        self.0.rewind();
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
