//! Taking completions directly into types of the caller, for bindings.

use std::cell::Cell;
use std::sync::Arc;

use uverbs_abi::write::Wc;

use super::CompletionQueue;
use crate::completion_counter::Registry;
use crate::driver::bound::{Told, Untold};
use crate::driver::completion::{Extended, Place};
use crate::driver::queues::Unread;
use crate::driver::ring::Opening;
use crate::driver::seam::OwnRing;

impl CompletionQueue {
    /// Takes the next completion of a device that writes completions itself, stores it in `place`, and gives its slot back. Returns
    /// false if there is none. Returns `None`, with nothing taken, if the completion must not be taken on this path, and for other
    /// devices: call [`CompletionQueue::poll_places`] then.
    #[inline(always)]
    pub fn short_one<T: Place>(&mut self, place: &mut T) -> Option<bool> {
        let passage = self.passage;
        self.ring.one_in_blocks(place, || passage.is_open())
    }

    /// Takes the next completion of a queue without [`InPlace`](crate::raw::InPlace) by a short path, and stores it in `place` in
    /// the device's format. [`CompletionQueue::release`] gives its slot back.
    ///
    /// # Errors
    /// Whether the queue is empty. If it is not, there may be a completion that this path does not take: call
    /// [`CompletionQueue::next_unread`].
    #[inline(always)]
    pub fn short_unread(&mut self, place: &mut Unread) -> Result<(), bool> {
        let passage = self.passage;
        self.ring.short_unread(|| passage.is_open(), place)
    }

    /// The same by the full path: completion counters of its queue pair count the completion. Returns false if there is none, and
    /// in a child of `fork`.
    pub fn next_unread(&mut self, place: &mut Unread) -> bool {
        let Self { ring, origin, registry, tally, .. } = self;
        let is_there = ring.next_unread(|| origin.is_here(), place);
        if is_there {
            tally.count_extended(registry, &place.extended());
        }
        is_there
    }

    /// Whether the completions are taken one by one with [`CompletionQueue::next_told`], and neither with
    /// [`CompletionQueue::next_unread`] nor with [`InPlace`](crate::raw::InPlace).
    pub fn is_told(&self) -> bool {
        self.ring.is_told()
    }

    /// As [`CompletionQueue::short_unread`], with the sender, for a queue that uses [`CompletionQueue::next_told`]. Returns the
    /// number that was given with the request. The place gets everything except that number and the status, which is success.
    ///
    /// # Errors
    /// Why no completion was taken.
    #[inline(always)]
    pub fn short_told(&mut self, place: &mut Told) -> Result<u64, Untold> {
        let Self { ring, passage, .. } = self;
        ring.short_told(|| passage.is_open(), place)
    }

    /// Searches the other rings. Call it after [`Untold::Elsewhere`].
    ///
    /// # Errors
    /// Why [`CompletionQueue::short_told`] finds no completion there either. This is never [`Untold::Elsewhere`].
    #[inline(always)]
    pub fn look_elsewhere(&mut self) -> Result<(), Untold> {
        self.ring.look_elsewhere()
    }

    /// As [`CompletionQueue::release`], for a queue that uses [`CompletionQueue::next_told`].
    #[inline(always)]
    pub fn release_told(&mut self) -> bool {
        let is_here = self.origin.is_here();
        if is_here {
            self.ring.release_told();
        }
        is_here
    }

    /// As [`CompletionQueue::next_unread`], with the sender, for a queue of which [`CompletionQueue::is_told`] is true.
    #[inline(never)]
    pub fn next_told(&mut self, place: &mut Told) -> bool {
        let Self { ring, origin, registry, tally, passage, .. } = self;
        // Checked after the search for a completion, as everywhere.
        let counts = Cell::new(true);
        let may_take = || {
            counts.set(!passage.is_open());
            origin.is_here()
        };
        let is_there = ring.next_told(may_take, place).is_ok();
        if is_there && counts.get() {
            tally.count_extended(registry, &Extended { wc: place.wc(), ..Extended::default() });
        }
        is_there
    }

    /// The ring, if the device allows programs to use its rings directly. A program that does so must not take completions here.
    pub fn own_ring(&self) -> Option<OwnRing> {
        self.ring.own_ring()
    }

    /// Counts a completion that was taken with [`InPlace`](crate::raw::InPlace) while its short path was closed. Returns false,
    /// with nothing done, in a child of `fork`.
    pub fn count(&mut self, extended: &Extended) -> bool {
        let is_here = self.origin.is_here();
        if is_here {
            self.tally.count_extended(&self.registry, extended);
        }
        is_here
    }

    /// Whether this process owns the queue. A child of `fork` does not.
    pub fn is_here(&self) -> bool {
        self.origin.is_here()
    }

    pub(crate) fn opening(&self) -> Option<(Opening<Wc>, Arc<Registry>)> {
        Some((self.ring.window()?, self.registry.clone()))
    }

    /// Gives the slots of all completions that [`CompletionQueue::short_unread`] and [`CompletionQueue::next_unread`] took back to
    /// the device. Returns false, with nothing done, in a child of `fork`.
    #[inline(always)]
    pub fn release(&mut self) -> bool {
        let is_here = self.origin.is_here();
        if is_here {
            self.ring.release();
        }
        is_here
    }

    /// Whether the device has written no completion.
    #[inline(always)]
    pub fn is_empty(&self) -> bool {
        self.ring.is_empty()
    }

    /// As [`CompletionQueue::short_one`], for several completions. Returns their number; `None`, with nothing taken, if there are
    /// only completions that must not be taken on this path, and for other devices.
    #[inline(always)]
    pub fn short_poll<T: Place>(&mut self, places: &mut [T]) -> Option<usize> {
        let passage = self.passage;
        self.ring.short_poll_in_blocks(places, || passage.is_open())
    }

    /// The same for a queue whose completions have a flag each.
    #[inline(always)]
    pub fn short_poll_flagged<T: Place>(&mut self, places: &mut [T]) -> Option<usize> {
        let passage = self.passage;
        self.ring.short_poll_flagged(places, || passage.is_open())
    }

    /// The same for a queue whose requests are datagrams and complete in any order.
    #[inline(always)]
    pub fn short_poll_numbered<T: Place>(&mut self, places: &mut [T]) -> Option<usize> {
        let passage = self.passage;
        self.ring.short_poll_numbered(places, || passage.is_open())
    }

    /// The same for one completion, by the shortest path.
    #[inline(always)]
    pub fn short_one_numbered<T: Place>(&mut self, place: &mut T) -> Option<usize> {
        let passage = self.passage;
        self.ring.short_one_numbered(place, || passage.is_open())
    }

    /// As [`CompletionQueue::short_poll`], for a queue with [`InPlace`](crate::raw::InPlace).
    #[inline(always)]
    pub fn short_poll_in_place<T: Place>(&mut self, places: &mut [T]) -> Option<usize> {
        let passage = self.passage;
        self.ring.short_poll_in_place(places, || passage.is_open())
    }

    /// The same for one or two completions. Returns `None`, with nothing taken, also if there are more, or if one is
    /// [rare](Place::put_plain).
    #[inline(always)]
    pub fn short_few_in_place<T: Place>(&mut self, places: &mut [T]) -> Option<usize> {
        let passage = self.passage;
        self.ring.short_few_in_place(places, || passage.is_open())
    }

    /// Takes completions into `places`, as many as are available and fit, and returns their number. Flags are the kernel's
    /// ([`WcFlags`](crate::WcFlags)). Completion counters of their queue pairs count them at this point.
    #[inline(always)]
    pub fn poll_places<T: Place>(&mut self, places: &mut [T]) -> usize {
        let passage = self.passage;
        // The gate is read after the check for completions: counters are bound before any request of their queue pair can complete.
        let taken = self.ring.poll(places, || passage.is_open());
        if taken > 0 || passage.is_open() { taken } else { self.poll_counting(places) }
    }

    /// The same if the gate is closed: queue pairs may have counters, or there was no memory for the gate's word.
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

    /// Removes the completions of the queue pair with this number, which was reset, because the reset has discarded their requests.
    /// The userspace drivers of adapters do so too (mlx5_modify_qp, providers/mlx5/verbs.c, rdma-core 44). rxe leaves the
    /// completions in the queue (rxe_qp_reset, rxe_qp.c, Linux 6.1).
    pub fn forget(&mut self, qp_num: u32) {
        if self.origin.is_here() {
            self.ring.forget(qp_num);
        }
    }
}
