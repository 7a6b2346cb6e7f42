//! Posting receives, all of them or none.

use nix::errno::Errno;

use super::queue::ReceiveQueue;
use super::{ReceiveRequest, Receiving, Slots, refused};
use crate::driver::request::Refused;
use crate::driver::rq::{Stored, with_receives};
use crate::driver::seam::{FillReceives, LowerReceive, ReceiveBatch};
use crate::kernel::error::{Error, Result, limit};
use crate::verbs::mr::Segment;

impl Receiving {
    /// Posts all requests, or none.
    // The error is created here, where the caller's type is needed: passing one through several functions costs more than passing a
    // number.
    #[inline(always)]
    pub(crate) fn post(&mut self, op: &'static str, requests: &[ReceiveRequest<'_>]) -> Result<()> {
        match self.put(requests) {
            Ok(()) => Ok(()),
            Err(why) => Err(self.queue.refused(op, requests, why)),
        }
    }

    #[inline(never)]
    fn put(&mut self, requests: &[ReceiveRequest<'_>]) -> Result<(), Refused> {
        with_receives!(&self.queue.receives.0, type R => match requests {
            [request] => self.put_one::<R>(request),
            _ => self.put_list::<R>(requests),
        })
    }
}

// A function for each driver and form: together they would keep more in memory. All of them have few arguments, and end in a call.
impl Receiving {
    #[inline(never)]
    fn put_one<R: Stored>(&mut self, request: &ReceiveRequest<'_>) -> Result<(), Refused> {
        if R::HAS_FAST
            && let [segment] = request.segments
            && let Some(ring) = self.queue.fast::<R>()
            && let Some(slot) = ring.post_fast(request.wr_id, segment.sge())
        {
            self.held.hold_one(slot, segment.region());
            return Ok(());
        }
        self.put_one_any::<R>(request)
    }

    /// Posts a request of any form.
    #[inline(never)]
    fn put_one_any<R: Stored>(&mut self, request: &ReceiveRequest<'_>) -> Result<(), Refused> {
        let held = self.held.slots();
        self.queue.fill::<R, _>(|ring, pieces| ring.post_one(pieces, One { request, held }))?
    }

    /// Posts all requests by the short path if each needs only the region that is held once for all slots, and by the path for any requests
    /// otherwise.
    #[inline(never)]
    fn put_list<R: Stored>(&mut self, requests: &[ReceiveRequest<'_>]) -> Result<(), Refused> {
        let held = &self.held;
        let plain = requests.iter().map(|request| match request.segments {
            [segment] if held.is_of_all(segment.region()) => Some((request.wr_id, segment.sge())),
            _ => None,
        });
        if R::HAS_FAST && self.queue.fast::<R>().is_some_and(|ring| ring.post_list_fast(plain)) {
            return Ok(());
        }
        self.put_list_any::<R>(requests)
    }

    #[inline(never)]
    fn put_list_any<R: Stored>(&mut self, requests: &[ReceiveRequest<'_>]) -> Result<(), Refused> {
        let held = self.held.slots();
        self.queue.fill::<R, _>(|ring, pieces| ring.post(pieces, All { requests, held }))?
    }
}

impl ReceiveQueue {
    /// The driver's queue, if requests may have a piece, and this process owns the queue.
    #[inline(always)]
    fn fast<R: Stored>(&mut self) -> Option<&mut R> {
        if self.access.pieces > 0 && self.access.origin.is_here() { R::of(&mut self.receives) } else { None }
    }

    /// Has `post` fill the ring of this driver, if this process owns it.
    #[inline(always)]
    fn fill<R: Stored, A>(&mut self, post: impl FnOnce(&mut R, u32) -> A) -> Result<A, Refused> {
        let ring = R::of(&mut self.receives).ok_or(Refused::Lost)?;
        self.access.fill(ring, post)
    }

    /// The error for requests of which none was posted.
    #[cold]
    #[inline(never)]
    fn refused(&self, op: &'static str, requests: &[ReceiveRequest<'_>], why: Refused) -> Error {
        let most = self.access.pieces as usize;
        let mut counts = requests.iter().map(|request| request.segments.len());
        match counts.find(|count| *count > most).filter(|_| why == Refused::TooLarge) {
            Some(given) => {
                let hint = limit("segments of a request", given, format_args!("at most {most}"));
                Error::refused(op, Errno::EINVAL, hint + "; nothing was posted")
            }
            None => refused(op, why),
        }
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

    #[inline]
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
                self.held.into_held().let_go(first, filled, batch.links());
                return Err(why);
            }
            // Not before `put`: if the ring is full, the next slot is that of a request that has not completed.
            self.held.hold(batch.slot_behind(slot), request.segments, None);
        }
        Ok(())
    }

    /// All are posted, or none.
    #[inline]
    fn is_kept(answer: &Self::Answer) -> bool {
        answer.is_ok()
    }
}
