//! Taking completions straight into the places that want them, which bindings do.

use super::CompletionQueue;
use crate::driver::completion::{Extended, Place};

impl CompletionQueue {
    /// The next completion by the shortest way, put into its place; false if there is none. The device gets its place back by
    /// [`CompletionQueue::release`]. None where there is no such way: then [`CompletionQueue::next_extended`] tells.
    #[inline(always)]
    pub fn short_next<T: Place>(&mut self, place: &mut T) -> Option<bool> {
        let (origin, registry) = (self.origin, &self.registry);
        // Asked behind the look at what there is: a queue pair is bound before anything of it can complete.
        self.ring.short_next(place, || origin.is_here() && registry.is_idle())
    }

    /// The next completion, if there is one. The device gets its place back by [`CompletionQueue::release`].
    /// Completion counters of its queue pair count it now.
    #[inline(always)]
    pub fn next_extended(&mut self) -> Option<Extended> {
        let Self { ring, origin, registry, tally, .. } = self;
        if !origin.is_here() {
            return None;
        }
        let extended = ring.next()?;
        tally.count_extended(registry, &extended);
        Some(extended)
    }

    /// Gives the places of all completions that were taken back to the device.
    #[inline(always)]
    pub fn release(&mut self) {
        if self.origin.is_here() {
            self.ring.release();
        }
    }

    /// Whether the device has written no completion.
    #[inline(always)]
    pub fn is_empty(&self) -> bool {
        self.ring.is_empty()
    }

    /// Takes completions by the shortest way. None, and none is taken, where there is no such way: then
    /// [`CompletionQueue::poll_places`] tells.
    #[inline(always)]
    pub fn short_poll<T: Place>(&mut self, places: &mut [T]) -> Option<usize> {
        let (origin, registry) = (self.origin, &self.registry);
        // Asked behind the look at what there is: a queue pair is bound before anything of it can complete.
        self.ring.short_poll(places, || origin.is_here() && registry.is_idle())
    }

    /// Takes completions, as many as there are places. Says how many. Flags are the
    /// kernel's ([`WcFlags`](crate::WcFlags)). Completion counters of their queue pairs count them now.
    #[inline(always)]
    pub fn poll_places<T: Place>(&mut self, places: &mut [T]) -> usize {
        let (origin, registry) = (self.origin, &self.registry);
        // Asked behind the look at what there is: a queue pair is bound before anything of it can complete.
        let taken = self.ring.poll(places, || origin.is_here() && registry.is_idle());
        if taken > 0 || registry.is_idle() { taken } else { self.poll_counting(places) }
    }

    /// The same where queue pairs may have counters.
    #[cold]
    #[inline(never)]
    fn poll_counting<T: Place>(&mut self, places: &mut [T]) -> usize {
        let Self { ring, origin, registry, tally, .. } = self;
        let mut count = 0;
        for place in places {
            let mut completion = [Extended::default()];
            if ring.poll(&mut completion, || origin.is_here()) == 0 {
                break;
            }
            tally.count_extended(registry, &completion[0]);
            place.put(&completion[0]);
            count += 1;
        }
        count
    }

    /// Takes out the completions of the queue pair with this number, which was reset, as drivers of cards do (mlx5_modify_qp,
    /// providers/mlx5/verbs.c, rdma-core 44): they tell of requests that the program counts as forgotten. rxe leaves them
    /// (rxe_qp_reset, rxe_qp.c, Linux 6.1).
    pub fn forget(&mut self, qp_num: u32) {
        if self.origin.is_here() {
            self.ring.forget(qp_num);
        }
    }
}
