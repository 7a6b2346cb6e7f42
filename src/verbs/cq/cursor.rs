//! Taking completions for bindings: into types of the caller, and one by one.

use std::cell::Cell;
use std::sync::Arc;

use uverbs_abi::write::Wc;

use super::CompletionQueue;
use crate::completion_counter::Registry;
use crate::driver::completion::{Extended, Missed, Place};
use crate::driver::cq::{Completions, with_ring};
use crate::driver::cursor::{Cursor, Shown};
use crate::driver::provider::Provider;
use crate::driver::ring::Opening;
use crate::driver::seam::{CompletionRing, OwnRing};

impl CompletionQueue {
    /// Takes completions into `places` by the short path of the queue's driver, as many as are available and fit, and returns their number.
    /// `None`, with nothing taken, if the first completion must not be taken on this path: call [`CompletionQueue::poll_places`] then.
    #[inline(always)]
    pub fn poll_fast<P: Provider, T: Place>(&mut self, places: &mut [T]) -> Option<usize> {
        let Self { ring, taking, .. } = self;
        P::poll_fast(ring, places, || taking.is_open())
    }

    /// Takes completions into at most [`Provider::FEW`] places by the short path of the queue's driver, and returns their number. `None` as
    /// for [`CompletionQueue::poll_fast`]; it may also return `None`, with nothing taken, if there are several completions.
    #[inline(always)]
    pub fn poll_few_fast<P: Provider, T: Place>(&mut self, places: &mut [T]) -> Option<usize> {
        let Self { ring, taking, .. } = self;
        P::poll_few_fast(ring, places, || taking.is_open())
    }

    /// Takes completions into `places`, as many as are available and fit, and returns their number. Flags are the kernel's
    /// ([`WcFlags`](crate::WcFlags)). Completion counters of their queue pairs count them at this point.
    pub fn poll_places<T: Place>(&mut self, places: &mut [T]) -> usize {
        let Self { ring, taking, .. } = self;
        // The gate is read after the check for completions: counters are bound before any request of their queue pair can complete.
        let taken = with_ring!(&mut ring.0, ring => ring.poll(places, || taking.is_open()));
        if taken > 0 || taking.is_open() { taken } else { self.poll_counting(places) }
    }

    /// Takes completions into `places` if the gate is closed: queue pairs may have counters, or there was no memory for the gate's word.
    /// Counters count each completion.
    #[cold]
    #[inline(never)]
    fn poll_counting<T: Place>(&mut self, places: &mut [T]) -> usize {
        let Self { ring, taking, .. } = self;
        let mut count = 0;
        for place in places {
            let mut completion = [Extended::default()];
            if with_ring!(&mut ring.0, ring => ring.poll(&mut completion, || taking.is_here())) == 0 {
                break;
            }
            taking.count_one(&completion[0]);
            place.put(&completion[0]);
            count += 1;
        }
        count
    }

    /// Moves a cursor to the first completion of a poll, by the shortest path.
    ///
    /// # Errors
    /// Why no completion was taken.
    #[inline(always)]
    pub fn first_fast<C: Cursor>(&mut self, cursor: &mut C) -> Result<Shown, Missed> {
        let Self { ring, taking, .. } = self;
        cursor.first_fast(ring, || taking.is_open())
    }

    /// Moves a cursor to the next completion of a poll, by the shortest path.
    ///
    /// # Errors
    /// Why no completion was taken.
    #[inline(always)]
    pub fn next_fast<C: Cursor>(&mut self, cursor: &mut C) -> Result<Shown, Missed> {
        let Self { ring, taking, .. } = self;
        cursor.next_fast(ring, || taking.is_open())
    }

    /// Searches the other rings, after [`Missed::Elsewhere`]. If it succeeds, the short path may find a completion there.
    ///
    /// # Errors
    /// Why it would not find one. This is never [`Missed::Elsewhere`].
    #[inline]
    pub fn search<C: Cursor>(&mut self) -> Result<(), Missed> {
        C::search(&mut self.ring)
    }

    /// Moves a cursor to the first completion of a poll, by a path that takes every completion. Completion counters of its queue pair count
    /// it. `None` if there is none, and in a child of `fork`.
    pub fn first<C: Cursor>(&mut self, cursor: &mut C) -> Option<Shown> {
        self.counted(|ring, may_take| cursor.first(ring, may_take).map(|shown| (shown, cursor.extended())))
    }

    /// Moves a cursor to the next completion of a poll, by a path that takes every completion; see [`CompletionQueue::first`].
    pub fn next<C: Cursor>(&mut self, cursor: &mut C) -> Option<Shown> {
        self.counted(|ring, may_take| cursor.next(ring, may_take).map(|shown| (shown, cursor.extended())))
    }

    /// Takes a completion, and counts it if it has to be counted.
    #[inline(always)]
    fn counted(
        &mut self,
        take: impl FnOnce(&mut Completions, &dyn Fn() -> bool) -> Option<(Shown, Extended)>,
    ) -> Option<Shown> {
        let Self { ring, taking, .. } = self;
        // Asked after the search for a completion, as everywhere.
        let counts = Cell::new(true);
        let may_take = || {
            counts.set(!taking.is_open());
            taking.is_here()
        };
        let (shown, completion) = take(ring, &may_take)?;
        if counts.get() {
            taking.count_one(&completion);
        }
        Some(shown)
    }

    /// Gives back the entries of all completions that a cursor has passed. Returns false, with nothing done, in a child of `fork`, and if the
    /// cursor shows that no poll was begun.
    #[inline(always)]
    pub fn end<C: Cursor>(&mut self, cursor: &mut C) -> bool {
        let Self { ring, taking, .. } = self;
        cursor.end(ring, || taking.is_here())
    }

    /// The ring, if the device allows programs to use its rings directly. A program that does so must not take completions here.
    pub fn hand_over(&mut self) -> Option<OwnRing> {
        self.ring.hand_over()
    }

    /// Whether this process owns the queue. A child of `fork` does not.
    pub fn is_here(&self) -> bool {
        self.taking.is_here()
    }

    pub(crate) fn opening(&self) -> Option<(Opening<Wc>, Arc<Registry>)> {
        Some((self.ring.window()?, self.shared.registry().clone()))
    }

    /// Whether the device has written no completion.
    pub fn is_empty(&self) -> bool {
        self.ring.is_empty()
    }

    /// Removes the completions of the queue pair with this number, which was reset, because the reset has discarded their requests.
    /// The userspace drivers of adapters do so too (mlx5_modify_qp, providers/mlx5/verbs.c, rdma-core 44). rxe leaves the
    /// completions in the queue (rxe_qp_reset, rxe_qp.c, Linux 6.1).
    pub fn forget(&mut self, qp_num: u32) {
        if self.is_here() {
            self.ring.forget(qp_num);
        }
    }
}
