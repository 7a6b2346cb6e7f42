//! Receives of one piece each, in queues whose driver has a short path for them.

use super::{ReceiveQueue, ReceiveRequest, Receiving};
use crate::driver::receives::{Receives, ShortWay};
use crate::driver::request::Refused;
use crate::driver::seam::ShortReceives;

impl Receiving {
    #[inline(never)]
    pub(super) fn put_one(&mut self, request: &ReceiveRequest<'_>) -> Result<(), Refused> {
        match self.queue.receives.short_way() {
            ShortWay::AtLength => self.one_at_length(request),
            ShortWay::Listed => self.one_listed(request),
            ShortWay::Numbered => self.one_numbered(request),
            ShortWay::Flagged => self.one_flagged(request),
        }
    }

    #[inline(never)]
    pub(super) fn put_all(&mut self, requests: &[ReceiveRequest<'_>]) -> Result<(), Refused> {
        match self.queue.receives.short_way() {
            ShortWay::AtLength => self.all_at_length(requests),
            ShortWay::Listed => self.all_listed(requests),
            ShortWay::Numbered => self.all_numbered(requests),
            ShortWay::Flagged => self.all_flagged(requests),
        }
    }

    // A separate function for each: together they would keep more in memory.

    #[inline(never)]
    fn one_listed(&mut self, request: &ReceiveRequest<'_>) -> Result<(), Refused> {
        self.one_by(request, Receives::listed_alone)
    }

    #[inline(never)]
    fn one_numbered(&mut self, request: &ReceiveRequest<'_>) -> Result<(), Refused> {
        self.one_by(request, Receives::numbered_alone)
    }

    #[inline(never)]
    fn one_flagged(&mut self, request: &ReceiveRequest<'_>) -> Result<(), Refused> {
        self.one_by(request, Receives::flagged_alone)
    }

    #[inline(never)]
    fn all_listed(&mut self, requests: &[ReceiveRequest<'_>]) -> Result<(), Refused> {
        self.all_by(requests, Receives::listed_alone)
    }

    #[inline(never)]
    fn all_numbered(&mut self, requests: &[ReceiveRequest<'_>]) -> Result<(), Refused> {
        self.all_by(requests, Receives::numbered_alone)
    }

    #[inline(never)]
    fn all_flagged(&mut self, requests: &[ReceiveRequest<'_>]) -> Result<(), Refused> {
        self.all_by(requests, Receives::flagged_alone)
    }

    #[inline(always)]
    fn one_by<R: ShortReceives>(
        &mut self,
        request: &ReceiveRequest<'_>,
        way: impl FnOnce(&mut Receives) -> Option<&mut R>,
    ) -> Result<(), Refused> {
        if let [segment] = request.segments
            && let Some(queue) = self.queue.short(way)
            && let Some(slot) = queue.post_one(request.wr_id, segment.sge())
        {
            self.held.hold_one(slot, segment.region());
            return Ok(());
        }
        self.one_at_length(request)
    }

    /// Posts all requests by the short path if each needs only the region that is held once for all slots, and by the path for all requests
    /// otherwise.
    #[inline(always)]
    fn all_by<R: ShortReceives>(
        &mut self,
        requests: &[ReceiveRequest<'_>],
        way: impl FnOnce(&mut Receives) -> Option<&mut R>,
    ) -> Result<(), Refused> {
        let Self { queue, held } = self;
        let plain = requests.iter().map(|request| match request.segments {
            [segment] if held.is_of_all(segment.region()) => Some((request.wr_id, segment.sge())),
            _ => None,
        });
        if queue.short(way).is_some_and(|queue| queue.post_all(plain)) {
            return Ok(());
        }
        self.all_at_length(requests)
    }
}

impl ReceiveQueue {
    /// The driver's queue, if requests may have a piece and this process owns the queue.
    #[inline(always)]
    fn short<R>(&mut self, way: impl FnOnce(&mut Receives) -> Option<&mut R>) -> Option<&mut R> {
        if self.pieces == 0 || !self.origin.is_here() { None } else { way(&mut self.receives) }
    }
}
