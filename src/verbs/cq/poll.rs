//! Taking completions.

use super::CompletionQueue;
use crate::driver::completion::Completion;
use crate::driver::queues::Way;

impl CompletionQueue {
    /// Takes completions from the queue into `completions`, as many as are available and fit, and returns their number. Never
    /// blocks.
    ///
    /// [`CompletionCounter`](crate::CompletionCounter)s of their queue pairs count them at this point.
    ///
    /// In a child of `fork` the queue appears empty, because the completions belong to the parent.
    #[doc(alias = "ibv_poll_cq")]
    #[doc(alias = "ibv_start_poll")]
    #[doc(alias = "ibv_next_poll")]
    #[doc(alias = "ibv_end_poll")]
    #[inline]
    pub fn poll(&mut self, completions: &mut [Completion]) -> usize {
        match completions {
            // Each is compared separately, because a match on all variants costs more.
            [place] if self.ring.way() == Way::Blocks => self.poll_one_in_blocks(place),
            [place] if self.ring.way() == Way::Numbered => self.poll_one_numbered(place),
            [place] => self.poll_one(place),
            _ => self.poll_many(completions),
        }
    }

    // A separate function each, so that none has to save registers for another one.

    #[inline(never)]
    fn poll_one(&mut self, place: &mut Completion) -> usize {
        let passage = self.passage;
        // The gate is read only if there is a completion, because most polls find the queue empty.
        match self.ring.short_one(place, || passage.is_open()) {
            Some(count) => count,
            None => self.poll_one_apart(place),
        }
    }

    /// As [`CompletionQueue::poll_one`], for devices that write completions themselves.
    #[inline(never)]
    fn poll_one_in_blocks(&mut self, place: &mut Completion) -> usize {
        let passage = self.passage;
        match self.ring.one_in_blocks(place, || passage.is_open()) {
            Some(is_there) => is_there.into(),
            None => self.poll_at_length(std::slice::from_mut(place)),
        }
    }

    #[inline(never)]
    fn poll_one_apart(&mut self, place: &mut Completion) -> usize {
        match self.ring.way() {
            Way::Slots | Way::Blocks | Way::Numbered => self.poll_at_length(std::slice::from_mut(place)),
            Way::Flagged => self.poll_one_flagged(place),
        }
    }

    /// The same for requests that complete in any order.
    #[inline(never)]
    fn poll_one_numbered(&mut self, place: &mut Completion) -> usize {
        let passage = self.passage;
        match self.ring.short_one_numbered(place, || passage.is_open()) {
            Some(count) => count,
            None => self.poll_at_length(std::slice::from_mut(place)),
        }
    }

    /// The same for completions that have a flag each.
    #[inline(never)]
    fn poll_one_flagged(&mut self, place: &mut Completion) -> usize {
        let passage = self.passage;
        match self.ring.one_flagged(place, || passage.is_open()) {
            Some(is_there) => is_there.into(),
            None => self.poll_at_length(std::slice::from_mut(place)),
        }
    }

    #[inline(never)]
    fn poll_many(&mut self, completions: &mut [Completion]) -> usize {
        let passage = self.passage;
        match self.ring.short_poll(completions, || passage.is_open()) {
            Some(count) => count,
            None => self.poll_many_apart(completions),
        }
    }

    /// As [`CompletionQueue::poll_many`], for queues without its short path, and for completions that this path does not take.
    #[inline(never)]
    fn poll_many_apart(&mut self, completions: &mut [Completion]) -> usize {
        match self.ring.way() {
            Way::Slots | Way::Blocks => self.poll_at_length(completions),
            Way::Numbered => self.poll_many_numbered(completions),
            Way::Flagged => self.poll_many_flagged(completions),
        }
    }

    #[inline(never)]
    fn poll_many_numbered(&mut self, completions: &mut [Completion]) -> usize {
        let passage = self.passage;
        match self.ring.short_poll_numbered(completions, || passage.is_open()) {
            Some(count) => count,
            None => self.poll_at_length(completions),
        }
    }

    #[inline(never)]
    fn poll_many_flagged(&mut self, completions: &mut [Completion]) -> usize {
        let passage = self.passage;
        match self.ring.short_poll_flagged(completions, || passage.is_open()) {
            Some(count) => count,
            None => self.poll_at_length(completions),
        }
    }

    /// As [`CompletionQueue::poll`], for every queue and every completion, with the count for completion counters.
    #[inline(never)]
    fn poll_at_length(&mut self, completions: &mut [Completion]) -> usize {
        let origin = self.origin;
        let count = self.ring.poll(completions, || origin.is_here());
        self.tally.count(&self.registry, &completions[..count]);
        count
    }
}
