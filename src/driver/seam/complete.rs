//! What a driver's completion queue does.

#[cfg(feature = "raw")]
use super::OwnRing;
use crate::driver::completion::Place;

/// The part of a driver's completion queue that polls.
///
/// Each poll calls `may_take` after it has found a completion, because most polls find none. If it returns false, nothing is taken.
pub(crate) trait CompletionRing {
    /// This queue, also where it is in a box.
    fn by_ref(&mut self) -> &mut Self {
        self
    }

    /// Number of completions that it can hold.
    fn capacity(&self) -> u32;

    /// Whether the device has written no completion.
    #[cfg(feature = "raw")]
    fn is_empty(&self) -> bool;

    /// Moves completions into `places`, as many as there are and fit, gives their entries back to the device, and returns their number.
    /// `None`, with nothing taken, if the first completion must not be taken, or if this path does not handle it.
    fn poll_fast<P: Place>(&mut self, places: &mut [P], may_take: impl Fn() -> bool) -> Option<usize>;

    /// Moves one completion into `place`, gives its entry back to the device, and returns the number of completions. `None` as for
    /// [`CompletionRing::poll_fast`].
    #[inline(always)]
    fn poll_one_fast<P: Place>(&mut self, place: &mut P, may_take: impl Fn() -> bool) -> Option<usize> {
        self.poll_fast(std::slice::from_mut(place), may_take)
    }

    /// For at most so many places [`CompletionRing::poll_few_fast`] is better than [`CompletionRing::poll_fast`].
    #[cfg(feature = "raw")]
    const FEW: usize = 0;

    /// Moves completions into `places` in the usual poll, which finds one completion or none, although it has room for more. It returns
    /// what [`CompletionRing::poll_fast`] does, but may also return `None`, with nothing taken, if there are several.
    #[cfg(feature = "raw")]
    #[inline(always)]
    fn poll_few_fast<P: Place>(&mut self, places: &mut [P], may_take: impl Fn() -> bool) -> Option<usize> {
        self.poll_fast(places, may_take)
    }

    /// Moves completions into `places` by a path that handles every completion, as many as there are and fit, gives their entries back to
    /// the device, and returns their number. If the first one must not be taken, the number is zero.
    #[inline(always)]
    fn poll<P: Place>(&mut self, places: &mut [P], may_take: impl Fn() -> bool) -> usize {
        self.poll_fast(places, may_take).unwrap_or(0)
    }

    /// Removes the completions of a queue pair that was reset, if they do not show that they are from before the reset.
    #[cfg(feature = "raw")]
    fn forget(&mut self, _qp_num: u32) {}

    /// Hands the ring over, if a program may use it directly. From then on the queue accesses it only when it is asked to post or to poll.
    #[cfg(feature = "raw")]
    fn hand_over(&mut self) -> Option<OwnRing> {
        None
    }
}
