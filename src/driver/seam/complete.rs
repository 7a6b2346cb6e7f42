//! What a driver's completion queue does.

use std::sync::Arc;

use nix::errno::Errno;
#[cfg(feature = "raw")]
use uverbs_abi::write::Wc;

#[cfg(feature = "raw")]
use super::OwnRing;
use super::create::CqSide;
use super::plan::{Kernel, Payload};
#[cfg(feature = "raw")]
use crate::driver::completion::Extended;
use crate::driver::completion::Place;
#[cfg(feature = "raw")]
use crate::driver::ring::Opening;
use crate::kernel::error::{Error, Result};
use crate::kernel::mapping::Mapping;

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

    /// The part that others than the poller use.
    fn side(&self) -> Arc<dyn CqSide> {
        Arc::new(())
    }

    /// Continues in a ring with room for `entries`. `command` makes the kernel create or use it, and gets the driver's payload and the
    /// memory to which the device may write from then on. Returns the memory to which it does not write any more. Whether the driver can do
    /// this was asked before ([`Control::may_resize_cq`](super::Control::may_resize_cq)).
    fn resize(
        &mut self,
        op: &'static str,
        _entries: u32,
        _kernel: &dyn Kernel,
        _command: impl FnOnce(Payload<'_>, Option<&Mapping>) -> Result<()>,
    ) -> Result<Option<Mapping>> {
        Err(Error::refused(op, Errno::EOPNOTSUPP, "this driver cannot resize completion queues"))
    }

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
    #[inline]
    fn poll_few_fast<P: Place>(&mut self, places: &mut [P], may_take: impl Fn() -> bool) -> Option<usize> {
        self.poll_fast(places, may_take)
    }

    /// Moves completions into `places` by a path that handles every completion, as many as there are and fit, gives their entries back to
    /// the device, and returns their number. If the first one must not be taken, the number is zero.
    #[inline(always)]
    fn poll<P: Place>(&mut self, places: &mut [P], may_take: impl Fn() -> bool) -> usize {
        self.poll_fast(places, may_take).unwrap_or(0)
    }

    /// The completions in the ring, if they have the kernel's format there.
    #[cfg(feature = "raw")]
    fn window(&self) -> Option<Opening<Wc>> {
        None
    }

    /// Takes the next completion and gives its entry back, for a driver without a cursor of its own. `None` if there is none, or if it must
    /// not be taken.
    #[cfg(feature = "raw")]
    fn next_copied(&mut self, _may_take: &dyn Fn() -> bool) -> Option<Extended> {
        None
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
