//! Additional access to send queues for bindings: the paths of one driver, requests in parts, and rings that programs use themselves.

use uverbs_abi::types::SendFlags;

use super::batch::{Batch, FillSends};
use super::{SEND, SendQueue, Unseen};
use crate::driver::provider::Provider;
use crate::driver::request::{Opcode, Refused};
use crate::driver::seam::{Lower, OwnRing};
use crate::kernel::process::Here;

impl SendQueue {
    /// Borrows the queue by the path of its driver for one request of this kind, a [`RequestKind`](crate::raw::RequestKind), or for one of
    /// its parts. `here` is the result of a check of the process. Returns `None` if it is not the process that owns the queue, for a queue
    /// of another driver or kind, and if counters are bound: use [`SendQueue::step`] then. Unless it `LOOKS` at what the device has done,
    /// only slots that are known to be free are used; a request that is refused has done nothing, and another path may do it.
    ///
    /// Without `here` nothing of this is checked: for the steps of a request that was begun in this way, if no other code could use the
    /// queue in between.
    #[inline(always)]
    pub fn one<P: Provider, const LOOKS: bool, const KIND: u8>(
        &mut self,
        here: Option<Here>,
    ) -> Option<Batch<'_, impl Lower>> {
        let Self { origin, sends, pieces, inline, bound, .. } = self;
        let lower = P::one::<LOOKS, KIND>(sends)?;
        let may = here.is_none_or(|here| origin.is(here) && bound.is_none());
        may.then_some(Batch { lower, pieces: *pieces, inline: *inline, counting: None })
    }

    /// Borrows the queue by the path of its driver for several requests of this kind. `here` is the result of a check of the process.
    /// Returns `None` as [`SendQueue::one`] does.
    #[inline(always)]
    pub fn several<P: Provider, const KIND: u8>(&mut self, here: Here) -> Option<Batch<'_, impl Lower>> {
        let Self { origin, sends, pieces, inline, bound, .. } = self;
        let lower = P::batch::<KIND>(sends)?;
        let may = origin.is(here) && bound.is_none();
        may.then_some(Batch { lower, pieces: *pieces, inline: *inline, counting: None })
    }

    /// Borrows the queue by a shorter path of the driver, for the requests of [`Provider::SHORT`] and as long as slots are known to be
    /// free. What was put stays, whatever happens to the requests after it. Returns `None` as [`SendQueue::one`] does, and if this path
    /// cannot be taken now.
    #[inline(always)]
    pub fn short<P: Provider, const KIND: u8>(&mut self, here: Here) -> Option<Batch<'_, impl Lower>> {
        let Self { origin, sends, pieces: pieces @ 1.., inline, bound: None, .. } = self else { return None };
        let lower = if origin.is(here) { P::short::<KIND>(sends) } else { None };
        Some(Batch { lower: lower?, pieces: *pieces, inline: *inline, counting: None })
    }

    /// Shows the device every request that was put. `here` is the result of a check of the process.
    ///
    /// # Errors
    /// As [`SendQueue::publish`]; if `here` is not the process that owns the queue, that for a child of `fork`. A failure is returned as a
    /// small value, which must be passed to [`SendQueue::unseen`].
    #[inline(always)]
    pub fn publish_here<P: Provider>(&mut self, here: Here) -> Result<(), Unseen> {
        if !self.origin.is(here) {
            return Err(Unseen::ELSEWHERE);
        }
        if self.bound.is_some() {
            self.show_counters();
        }
        let must_notify = P::publish::<false>(&mut self.sends);
        if must_notify { self.context.ring(SEND, &mut self.doorbell, here) } else { Ok(()) }
    }

    /// Shows the device every request that was put, without a check, if a request was begun by [`SendQueue::one`] with one, and the device
    /// needs no command.
    #[inline]
    pub fn publish_begun<P: Provider>(&mut self) {
        P::publish::<false>(&mut self.sends);
    }

    /// Shows the device what was put by [`SendQueue::short`], with nothing put before. `here` is what that got.
    ///
    /// # Errors
    /// As [`SendQueue::publish_here`].
    #[inline(always)]
    pub fn publish_short<P: Provider>(&mut self, here: Here) -> Result<(), Unseen> {
        let must_notify = P::publish::<true>(&mut self.sends);
        if must_notify { self.context.ring(SEND, &mut self.doorbell, here) } else { Ok(()) }
    }

    /// Begins a request. Its data, and its address if `opcode` contains none, are set afterwards.
    ///
    /// # Errors
    /// Those of [`Batch::begin`] and [`SendQueue::step`].
    pub fn begin(&mut self, wr_id: u64, flags: SendFlags, opcode: &Opcode<'_>) -> Result<(), Refused> {
        self.step(Begin { wr_id, flags, opcode })
    }

    /// Sets the processing hints of the request that was begun last, in the numbers of its driver.
    ///
    /// # Errors
    /// [`Refused::NotBegun`]; [`Refused::Lacks`] for devices without hints; [`Refused::Elsewhere`] in a child of `fork`.
    pub fn set_hints(&mut self, hints: u8) -> Result<(), Refused> {
        if self.origin.is_here() { self.sends.set_hints(hints) } else { Err(Refused::Elsewhere) }
    }

    /// The ring, if the device allows programs to use its rings directly. A program that does so must not post here.
    pub fn hand_over(&mut self) -> Option<OwnRing> {
        self.sends.hand_over()
    }
}

/// The first part of a request.
struct Begin<'a> {
    wr_id: u64,
    flags: SendFlags,
    opcode: &'a Opcode<'a>,
}

impl FillSends for Begin<'_> {
    type Error = Refused;

    fn fill<L: Lower>(self, batch: &mut Batch<'_, L>) -> Result<(), Refused> {
        batch.begin(self.wr_id, self.flags, self.opcode)
    }
}
