//! Receives of one piece each, in queues whose driver has a short path for them.

use super::{ReceiveQueue, ReceiveRequest, Receiving};
use crate::driver::receives::{Receives, with_short};
use crate::driver::request::Refused;
use crate::driver::seam::ShortReceives;

impl Receiving {
    #[inline(never)]
    pub(super) fn put_one(&mut self, request: &ReceiveRequest<'_>) -> Result<(), Refused> {
        with_short!(&self.queue.receives, one_by(self, request), else self.one_at_length(request))
    }

    #[inline(never)]
    pub(super) fn put_all(&mut self, requests: &[ReceiveRequest<'_>]) -> Result<(), Refused> {
        with_short!(&self.queue.receives, all_by(self, requests), else self.all_at_length(requests))
    }
}

// A function for each driver: together they would keep more in memory.

#[inline(never)]
fn one_by<R: ShortReceives>(
    receiving: &mut Receiving,
    request: &ReceiveRequest<'_>,
    way: impl FnOnce(&mut Receives) -> Option<&mut R>,
) -> Result<(), Refused> {
    let Receiving { queue, held } = receiving;
    if let [segment] = request.segments
        && let Some(queue) = queue.short(way)
        && let Some(slot) = queue.post_one(request.wr_id, segment.sge())
    {
        held.hold_one(slot, segment.region());
        return Ok(());
    }
    receiving.one_at_length(request)
}

/// Posts all requests by the short path if each needs only the region that is held once for all slots, and by the path for all requests
/// otherwise.
#[inline(never)]
fn all_by<R: ShortReceives>(
    receiving: &mut Receiving,
    requests: &[ReceiveRequest<'_>],
    way: impl FnOnce(&mut Receives) -> Option<&mut R>,
) -> Result<(), Refused> {
    let Receiving { queue, held } = receiving;
    let plain = requests.iter().map(|request| match request.segments {
        [segment] if held.is_of_all(segment.region()) => Some((request.wr_id, segment.sge())),
        _ => None,
    });
    if queue.short(way).is_some_and(|queue| queue.post_all(plain)) {
        return Ok(());
    }
    receiving.all_at_length(requests)
}

impl ReceiveQueue {
    /// The driver's queue, if requests may have a piece and this process owns the queue.
    #[inline(always)]
    fn short<R>(&mut self, way: impl FnOnce(&mut Receives) -> Option<&mut R>) -> Option<&mut R> {
        if self.pieces == 0 || !self.origin.is_here() { None } else { way(&mut self.receives) }
    }
}
