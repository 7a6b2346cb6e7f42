//! Ways to completions that only bindings take.

use uverbs_abi::write::Wc;

use super::completion::Place;
use super::queues::{Completions, Unread};
use super::ring::Opening;

impl Completions {
    /// As [`Completions::poll`]; none if there are some that may not be taken, and where completions do not lie as the kernel has them.
    #[inline(always)]
    pub(crate) fn short_poll_in_place<T: Place>(
        &mut self,
        places: &mut [T],
        may_take: impl Fn() -> bool,
    ) -> Option<usize> {
        match self {
            Self::Rings(ring) => ring.ring().take_if(places, may_take, |place, slot| place.put_among(&slot)),
            Self::Mlx5(_) | Self::Efa(_) => None,
        }
    }

    /// The same of one or two; none, and nothing taken, if there are more, or one is [rare](Place::put_plain).
    #[inline(always)]
    pub(crate) fn short_few_in_place<T: Place>(
        &mut self,
        places: &mut [T],
        may_take: impl Fn() -> bool,
    ) -> Option<usize> {
        match self {
            Self::Rings(ring) => {
                ring.ring().take_few_if(places, may_take, |place, slot| place.put_plain(&slot))
            }
            Self::Mlx5(_) | Self::Efa(_) => None,
        }
    }

    /// As [`Completions::short_poll_in_place`], where the device writes completions itself.
    #[inline(always)]
    pub(crate) fn short_poll_in_blocks<T: Place>(
        &mut self,
        places: &mut [T],
        may_take: impl Fn() -> bool,
    ) -> Option<usize> {
        match self {
            Self::Mlx5(queue) => queue.short_poll(places, may_take, |place, raised| place.put(raised)),
            Self::Rings(_) | Self::Efa(_) => None,
        }
    }

    /// The next completion where it does not lie as the kernel has it, as the device wrote it; its slot is given back by
    /// [`Completions::release`]. False if there is none.
    pub(crate) fn next_unread(&mut self, may_take: impl Fn() -> bool, place: &mut Unread) -> bool {
        match self {
            Self::Rings(_) => false,
            Self::Mlx5(queue) => queue.next_unread(may_take, place).is_ok(),
            Self::Efa(queue) => queue.next_unread(may_take, |said| *place = Unread::of(said)),
        }
    }

    /// The same by the shortest way. Without one, whether there is none.
    #[inline(always)]
    pub(crate) fn short_unread(
        &mut self,
        may_take: impl Fn() -> bool,
        place: &mut Unread,
    ) -> Result<(), bool> {
        match self {
            Self::Mlx5(queue) => queue.short_unread(may_take, place),
            Self::Rings(_) | Self::Efa(_) => Err(false),
        }
    }

    /// Completions where they lie, if they lie there as the kernel has them.
    pub(crate) fn window(&self) -> Option<Opening<Wc>> {
        match self {
            Self::Rings(ring) => Some(ring.window()),
            Self::Mlx5(_) | Self::Efa(_) => None,
        }
    }
}
