//! Taking completions.

use std::sync::Arc;

use super::CompletionQueue;
use crate::completion_counter::{Registry, Tally};
use crate::driver::completion::Completion;
#[cfg(feature = "raw")]
use crate::driver::completion::Extended;
use crate::driver::cq::{Stored, with_ring};
use crate::driver::seam::CompletionRing;
use crate::kernel::process::{Origin, Passage};

/// Whether completions may be taken, and the count of those that were.
#[derive(Debug)]
pub(crate) struct Taking {
    /// The process that owns the queue.
    origin: Origin,
    /// The queue pairs whose operations are counted; the shared part of the queue has the same registry.
    registry: Arc<Registry>,
    tally: Tally,
    /// The word of the registry's gate.
    passage: Passage,
}

impl Taking {
    pub(super) fn new(origin: Origin, registry: &Arc<Registry>) -> Self {
        Self { origin, registry: registry.clone(), tally: Tally::default(), passage: registry.passage() }
    }

    #[inline]
    pub(super) fn is_here(&self) -> bool {
        self.origin.is_here()
    }

    /// Whether this process owns the queue and no completion has to be counted.
    #[inline]
    pub(super) fn is_open(&self) -> bool {
        self.passage.is_open()
    }

    pub(super) fn count(&mut self, completions: &[Completion]) {
        self.tally.count(&self.registry, completions);
    }

    #[cfg(feature = "raw")]
    pub(super) fn count_one(&mut self, completion: &Extended) {
        self.tally.count_extended(&self.registry, completion);
    }
}

impl CompletionQueue {
    /// Whether the queue is of this driver.
    pub(crate) fn is_of<R: Stored>(&mut self) -> bool {
        R::of(&mut self.ring).is_some()
    }

    /// Takes one completion by `take` from a queue of this driver, and counts it. `take` is told whether it may take one. `None` if there
    /// is none, and for a queue of another driver.
    pub(crate) fn take_by<R: Stored, T>(
        &mut self,
        take: impl FnOnce(&mut R, &dyn Fn() -> bool) -> Option<(Completion, T)>,
    ) -> Option<(Completion, T)> {
        let Self { ring, taking, .. } = self;
        let (completion, more) = take(R::of(ring)?, &|| taking.is_here())?;
        taking.count(&[completion]);
        Some((completion, more))
    }

    /// Takes completions from the queue into `completions`, as many as are available and fit, and returns their number. Never
    /// blocks.
    ///
    /// [`CompletionCounter`](crate::CompletionCounter)s of their queue pairs count them at this point.
    ///
    /// In a child of `fork` the queue appears empty, because the completions belong to the parent.
    #[doc(alias = "ibv_poll_cq")]
    #[doc(alias = "rdma_get_send_comp")]
    #[doc(alias = "rdma_get_recv_comp")]
    #[doc(alias = "ibv_start_poll")]
    #[doc(alias = "ibv_next_poll")]
    #[doc(alias = "ibv_end_poll")]
    #[inline]
    pub fn poll(&mut self, completions: &mut [Completion]) -> usize {
        let Self { ring, taking, .. } = self;
        with_ring!(&mut ring.0, ring => match completions {
            [place] => poll_one(ring.by_ref(), place, taking),
            _ => poll_many(ring.by_ref(), completions, taking),
        })
    }
}

// A function for each length and each driver, so that none has to save registers for another one.

#[inline(never)]
fn poll_one<R: CompletionRing>(ring: &mut R, place: &mut Completion, taking: &mut Taking) -> usize {
    match ring.poll_one_fast(place, || taking.is_open()) {
        Some(count) => count,
        None => poll_counted(ring, std::slice::from_mut(place), taking),
    }
}

#[inline(never)]
fn poll_many<R: CompletionRing>(ring: &mut R, places: &mut [Completion], taking: &mut Taking) -> usize {
    match ring.poll_fast(places, || taking.is_open()) {
        Some(count) => count,
        None => poll_counted(ring, places, taking),
    }
}

/// For every completion, with the count for completion counters.
#[inline(never)]
fn poll_counted<R: CompletionRing>(ring: &mut R, places: &mut [Completion], taking: &mut Taking) -> usize {
    let count = ring.poll(places, || taking.is_here());
    taking.count(&places[..count]);
    count
}
