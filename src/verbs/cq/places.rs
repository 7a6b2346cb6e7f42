//! Taking completions straight into the places that want them, which bindings do.

use std::cell::Cell;
use std::sync::Arc;

use uverbs_abi::write::Wc;

use super::CompletionQueue;
use crate::completion_counter::Registry;
use crate::driver::bound::{OwnRing, Told, Untold};
use crate::driver::completion::{Extended, Place};
use crate::driver::queues::Unread;
use crate::driver::ring::Opening;

impl CompletionQueue {
    /// The next completion of a queue without [`InPlace`](crate::raw::InPlace), put into its place, which is given back; false if there is
    /// none. None if there is one that may not be taken in this way, and where there is no such way: then
    /// [`CompletionQueue::poll_places`] tells.
    #[inline(always)]
    pub fn short_one<T: Place>(&mut self, place: &mut T) -> Option<bool> {
        let passage = self.passage;
        self.ring.one_in_blocks(place, || passage.is_open())
    }

    /// Takes the next completion of a queue without [`InPlace`](crate::raw::InPlace), and puts it into its place. The device gets its
    /// own back by [`CompletionQueue::release`].
    ///
    /// # Errors
    /// Without one, whether there is none: else there may be one that is not taken in this way, and
    /// [`CompletionQueue::next_unread`] tells.
    #[inline(always)]
    pub fn short_unread(&mut self, place: &mut Unread) -> Result<(), bool> {
        let passage = self.passage;
        self.ring.short_unread(|| passage.is_open(), place)
    }

    /// The same by the long way: completion counters of its queue pair count it now. False if there is none, and in a child of `fork`.
    pub fn next_unread(&mut self, place: &mut Unread) -> bool {
        let Self { ring, origin, registry, tally, .. } = self;
        let is_there = ring.next_unread(|| origin.is_here(), place);
        if is_there {
            tally.count_extended(registry, &place.extended());
        }
        is_there
    }

    /// Whether its completions are taken one by one by [`CompletionQueue::next_told`]: then neither by
    /// [`CompletionQueue::next_unread`] nor by [`InPlace`](crate::raw::InPlace).
    pub fn is_told(&self) -> bool {
        self.ring.is_told()
    }

    /// As [`CompletionQueue::short_unread`], with the sender, for a queue with [`CompletionQueue::next_told`]. Returns the number that was
    /// given with the request. The place gets everything except that number and the status, which is success.
    ///
    /// # Errors
    /// Why no completion was taken.
    #[inline(always)]
    pub fn short_told(&mut self, place: &mut Told) -> Result<u64, Untold> {
        let Self { ring, passage, .. } = self;
        ring.short_told(|| passage.is_open(), place)
    }

    /// To be called after [`Untold::Elsewhere`]: searches the other rings.
    ///
    /// # Errors
    /// Why [`CompletionQueue::short_told`] finds no completion there either. This is never [`Untold::Elsewhere`].
    #[inline(always)]
    pub fn look_elsewhere(&mut self) -> Result<(), Untold> {
        self.ring.look_elsewhere()
    }

    /// As [`CompletionQueue::release`], of a queue with [`CompletionQueue::next_told`].
    #[inline(always)]
    pub fn release_told(&mut self) -> bool {
        let is_here = self.origin.is_here();
        if is_here {
            self.ring.release_told();
        }
        is_here
    }

    /// As [`CompletionQueue::next_unread`], with who has sent.
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

    /// Where the ring lies, of a device whose rings programs may use themselves: then they take no completions here.
    pub fn own_ring(&self) -> Option<OwnRing> {
        self.ring.own_ring()
    }

    /// Counts a completion that was taken by [`InPlace`](crate::raw::InPlace) where its short way is closed; false in a child of
    /// `fork`.
    pub fn count(&mut self, extended: &Extended) -> bool {
        let is_here = self.origin.is_here();
        if is_here {
            self.tally.count_extended(&self.registry, extended);
        }
        is_here
    }

    /// Whether this process has the queue, and not its parent.
    pub fn is_here(&self) -> bool {
        self.origin.is_here()
    }

    pub(crate) fn opening(&self) -> Option<(Opening<Wc>, Arc<Registry>)> {
        Some((self.ring.window()?, self.registry.clone()))
    }

    /// Gives the places of all completions that were taken by [`CompletionQueue::short_unread`] back to the device; false in a
    /// child of `fork`, which gives none back.
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

    /// The same of several: none, and none is taken, where there are some that may not be.
    #[inline(always)]
    pub fn short_poll<T: Place>(&mut self, places: &mut [T]) -> Option<usize> {
        let passage = self.passage;
        self.ring.short_poll_in_blocks(places, || passage.is_open())
    }

    /// The same of a queue whose completions have a flag each.
    #[inline(always)]
    pub fn short_poll_flagged<T: Place>(&mut self, places: &mut [T]) -> Option<usize> {
        let passage = self.passage;
        self.ring.short_poll_flagged(places, || passage.is_open())
    }

    /// The same of a queue of datagrams that complete in any order.
    #[inline(always)]
    pub fn short_poll_numbered<T: Place>(&mut self, places: &mut [T]) -> Option<usize> {
        let passage = self.passage;
        self.ring.short_poll_numbered(places, || passage.is_open())
    }

    /// The same of one, by the shortest way.
    #[inline(always)]
    pub fn short_one_numbered<T: Place>(&mut self, place: &mut T) -> Option<usize> {
        let passage = self.passage;
        self.ring.short_one_numbered(place, || passage.is_open())
    }

    /// The same of a queue with [`InPlace`](crate::raw::InPlace).
    #[inline(always)]
    pub fn short_poll_in_place<T: Place>(&mut self, places: &mut [T]) -> Option<usize> {
        let passage = self.passage;
        self.ring.short_poll_in_place(places, || passage.is_open())
    }

    /// The same of one or two completions; none, and none is taken, where there are more, or one is [rare](Place::put_plain).
    #[inline(always)]
    pub fn short_few_in_place<T: Place>(&mut self, places: &mut [T]) -> Option<usize> {
        let passage = self.passage;
        self.ring.short_few_in_place(places, || passage.is_open())
    }

    /// Takes completions, as many as there are places. Says how many. Flags are the
    /// kernel's ([`WcFlags`](crate::WcFlags)). Completion counters of their queue pairs count them now.
    #[inline(always)]
    pub fn poll_places<T: Place>(&mut self, places: &mut [T]) -> usize {
        let passage = self.passage;
        // Asked behind the look at what there is: a queue pair is bound before anything of it can complete.
        let taken = self.ring.poll(places, || passage.is_open());
        if taken > 0 || passage.is_open() { taken } else { self.poll_counting(places) }
    }

    /// The same where the short way is closed: queue pairs may have counters, or there was no memory for its word.
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
