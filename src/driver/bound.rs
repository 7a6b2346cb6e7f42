//! Ways to completions that only bindings take.

use uverbs_abi::write::Wc;

use super::completion::Place;
use super::queues::{Completions, Unread, by_entry};
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
            Self::Mlx5(_) | Self::Efa(_) | Self::Siw(_) => None,
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
            Self::Mlx5(_) | Self::Efa(_) | Self::Siw(_) => None,
        }
    }

    /// The same of every queue.
    #[inline(always)]
    pub(crate) fn short_poll_any<T: Place>(
        &mut self,
        places: &mut [T],
        may_take: impl Fn() -> bool,
    ) -> Option<usize> {
        match self {
            Self::Rings(ring) => ring.ring().take_if(places, may_take, |place, slot| place.put(&slot)),
            Self::Mlx5(queue) => queue.short_poll(places, may_take, |place, raised| place.put(raised)),
            Self::Efa(_) => None,
            Self::Siw(queue) => by_entry(queue, places, may_take),
        }
    }

    /// One completion of every queue; false if there is none. None if there is one that may not be taken.
    #[inline(always)]
    pub(crate) fn short_one_any<T: Place>(
        &mut self,
        place: &mut T,
        may_take: impl Fn() -> bool,
    ) -> Option<bool> {
        match self {
            Self::Rings(ring) => ring.ring().take_one_if(may_take, |slot| place.put(&slot)),
            Self::Mlx5(queue) => queue.short_one(may_take, |raised| place.put(raised)),
            Self::Efa(_) => None,
            Self::Siw(queue) => by_entry(queue, std::slice::from_mut(place), may_take).map(|count| count > 0),
        }
    }

    /// The next completion where it does not lie as the kernel has it, as the device wrote it; its slot is given back by
    /// [`Completions::release`]. False if there is none.
    pub(crate) fn next_unread(&mut self, may_take: impl Fn() -> bool, place: &mut Unread) -> bool {
        match self {
            Self::Rings(_) => false,
            Self::Mlx5(queue) => queue.next_unread(may_take, place).is_ok(),
            Self::Efa(queue) => queue.next_unread(may_take, |said| *place = Unread::of(said)),
            Self::Siw(queue) => {
                queue.take_one_if(may_take, |said| *place = Unread::of(said)).unwrap_or(false)
            }
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
            Self::Rings(_) => Err(true),
            Self::Mlx5(queue) => queue.short_unread(may_take, place),
            Self::Efa(_) | Self::Siw(_) => Err(false),
        }
    }

    /// Completions where they lie, if they lie there as the kernel has them.
    pub(crate) fn window(&self) -> Option<Opening<Wc>> {
        match self {
            Self::Rings(ring) => Some(ring.window()),
            Self::Mlx5(_) | Self::Efa(_) | Self::Siw(_) => None,
        }
    }
}
