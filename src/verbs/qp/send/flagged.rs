//! Access to a queue that is neither a ring of slots nor of blocks, and to one whose requests complete in any order or whose slots have a
//! flag each.

use std::ops::Range;

use super::batch::{Batch, Counting, FillSends};
use super::{Halfway, SEND, SendQueue, Unseen};
use crate::driver::queues::{AtOnce, Looking, Plain};
use crate::driver::request::Refused;
use crate::driver::seam::Published;
#[cfg(feature = "raw")]
use crate::kernel::process::Here;

impl SendQueue {
    /// A batch or a step of one request in a queue that is neither a ring of slots nor of blocks.
    ///
    /// # Errors
    /// As [`SendQueue::slots_batch`].
    #[cold]
    #[inline(never)]
    pub(super) fn apart<F: FillSends>(&mut self, how: F) -> Result<(), F::Error> {
        self.apart_at_once(how)
    }

    /// The same without a call, for callers that know that it is neither.
    #[inline(always)]
    pub(in crate::verbs::qp) fn apart_at_once<F: FillSends>(&mut self, how: F) -> Result<(), F::Error> {
        self.filled(how, |sends, filling| sends.apart(filling).unwrap_or_else(|| Err(Refused::Lacks.into())))
    }

    /// Posts a batch of requests that complete in any order up to the first that `how` does not put, and shows it to the device. Returns
    /// `None`, with nothing done, for queues of other kinds, if counters are bound, if requests wait that were not published, and in a
    /// child of `fork`: use [`SendQueue::batch`] then.
    #[inline(always)]
    pub fn post_numbered<F: FillSends>(&mut self, how: F) -> Option<Result<(), F::Error>> {
        let Self { origin, sends, pieces, inline, bound: None, .. } = self else { return None };
        let sends = sends.numbered_alone()?;
        origin.ask()?;
        let mut batch = Batch { lower: sends.straight()?, pieces: *pieces, inline: *inline, counting: None };
        let filled = how.fill(&mut batch);
        // No request waits in the copy of the ring.
        sends.tell();
        Some(filled)
    }

    /// Posts `count` requests that complete in any order by `look` and `put`: see [`Sends::post_at_once`](crate::driver::queues::Sends).
    /// Returns zero, without calling either, where [`SendQueue::post_numbered`] does nothing.
    #[inline(always)]
    pub(in crate::verbs::qp) fn post_at_once(
        &mut self,
        count: usize,
        look: impl FnOnce(Looking) -> bool,
        put: impl FnMut(&mut AtOnce<'_>, Range<usize>) -> bool,
    ) -> usize {
        let Self { origin, sends, pieces: 1.., inline, bound: None, .. } = self else { return 0 };
        let Some(sends) = sends.numbered_alone().filter(|_| origin.is_here()) else { return 0 };
        sends.post_at_once(count, *inline, look, put)
    }

    /// Posts `count` requests of one piece each in blocks, which `fill` puts. Returns false, with none posted, if `fill` does, for
    /// queues of other kinds, if counters are bound, and in a child of `fork`.
    #[inline(always)]
    pub(in crate::verbs::qp) fn post_plain<const KIND: u8>(
        &mut self,
        count: usize,
        fill: impl FnOnce(&mut Plain<'_, KIND>) -> bool,
    ) -> bool {
        let Self { origin, sends, pieces: 1.., bound: None, .. } = self else { return false };
        let Some(sends) = sends.blocks_alone() else { return false };
        origin.is_here() && sends.post_plain(count, fill)
    }

    /// Has `fill` put requests of one piece each in blocks: those of its kind, as long as there are slots that are known to be free. They
    /// are published with the others. Does nothing for queues of other kinds and if counters are bound.
    #[cfg(feature = "raw")]
    #[inline(always)]
    pub fn fill_plain<const KIND: u8>(&mut self, here: Here, fill: impl FnOnce(&mut Plain<'_, KIND>)) {
        let Self { origin, sends, pieces: 1.., bound: None, .. } = self else { return };
        let Some(sends) = sends.blocks_alone() else { return };
        if origin.is(here) {
            sends.fill_plain(fill);
        }
    }

    /// Posts a complete batch by the shortest path and shows it to the device. Returns `None`, with nothing done, if `how` stops,
    /// for a queue whose slots have no flags, if counters are bound, and in a child of `fork`. If counters are bound, use
    /// [`SendQueue::post_flagged_at_length`].
    ///
    /// # Errors
    /// As [`SendQueue::try_publish`].
    #[inline(always)]
    pub fn post_flagged<F: FillSends>(&mut self, how: F) -> Option<Result<(), Unseen>> {
        if self.bound.is_some() { None } else { self.fill_flagged::<false, F>(how) }
    }

    /// The same, also if counters are bound.
    ///
    /// # Errors
    /// As [`SendQueue::try_publish`].
    #[cfg(feature = "raw")]
    #[cold]
    #[inline(never)]
    pub fn post_flagged_at_length<F: FillSends>(&mut self, how: F) -> Option<Result<(), Unseen>> {
        self.fill_flagged::<true, F>(how)
    }

    #[inline(always)]
    fn fill_flagged<const COUNTS: bool, F: FillSends>(&mut self, how: F) -> Option<Result<(), Unseen>> {
        let here = self.origin.ask()?;
        self.sends.flagged_alone()?;
        // What is put is discarded if this function returns early.
        let halfway = Halfway(self);
        let Self { sends, pieces, inline, begun, bound, .. } = &mut *halfway.0;
        let lower = sends.flagged_alone()?.writing();
        let counting = bound.as_mut().filter(|_| COUNTS).map(|bound| Counting { begun, bound });
        how.fill(&mut Batch { lower, pieces: *pieces, inline: *inline, counting }).ok()?;
        if COUNTS {
            halfway.0.show_counters();
        }
        let published = halfway.0.sends.flagged_alone()?.publish();
        std::mem::forget(halfway);
        Some(match published {
            Published::Nothing | Published::Told => Ok(()),
            Published::Shown => self.context.ring(SEND, &mut self.doorbell, here),
        })
    }
}
