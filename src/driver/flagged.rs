//! What is done with queues whose slots have a flag each (siw); and functions for these and others that are apart. They are marked as cold:
//! then a compiler asks for rings and blocks first, whose ways are not longer for what else there is.

use super::completion::Place;
use super::queues::{Completions, Published, Sends, Way};
use super::siw;

impl Sends {
    /// As [`Sends::publish`].
    #[cold]
    #[inline(never)]
    pub(super) fn publish_apart(&mut self) -> Published {
        match self {
            Self::Efa(sends) => {
                sends.publish();
                Published::Told
            }
            Self::Siw(sends) => sends.publish(),
            Self::Rings(_) | Self::Mlx5(_) => Published::Nothing,
        }
    }

    /// Slots with a flag each, if it is of these.
    #[inline(always)]
    pub(crate) fn flagged_alone(&mut self) -> Option<&mut siw::Sends> {
        match self {
            Self::Siw(sends) => Some(sends),
            Self::Rings(_) | Self::Mlx5(_) | Self::Efa(_) => None,
        }
    }
}

impl Completions {
    /// How completions lie in it.
    #[inline(always)]
    pub(crate) fn way(&self) -> Way {
        match self {
            Self::Rings(_) => Way::Slots,
            Self::Mlx5(_) => Way::Blocks,
            Self::Efa(_) => Way::Numbered,
            Self::Siw(_) => Way::Flagged,
        }
    }

    /// As [`Completions::poll`].
    #[cold]
    #[inline(never)]
    pub(super) fn poll_apart<T: Place>(&mut self, places: &mut [T], may_take: impl Fn() -> bool) -> usize {
        match self {
            Self::Efa(queue) => queue.poll(places, may_take),
            Self::Siw(queue) => queue.poll(places, may_take),
            Self::Rings(_) | Self::Mlx5(_) => 0,
        }
    }

    /// The next completion by the shortest way, where each has a flag; false if there is none. None if it has not succeeded, or may not be taken,
    /// and elsewhere.
    #[inline(always)]
    pub(crate) fn one_flagged<T: Place>(
        &mut self,
        place: &mut T,
        may_take: impl Fn() -> bool,
    ) -> Option<bool> {
        match self {
            Self::Siw(queue) => queue.take_one_plain(place, may_take),
            Self::Rings(_) | Self::Mlx5(_) | Self::Efa(_) => None,
        }
    }

    /// One completion of a request that completes in any order, if it is of the queue pair of the one before it; zero if there is none. None if there is
    /// another, or it may not be taken, and elsewhere.
    #[inline(always)]
    pub(crate) fn plain_one_numbered<T: Place>(
        &mut self,
        place: &mut T,
        may_take: impl Fn() -> bool,
    ) -> Option<usize> {
        match self {
            Self::Efa(queue) => queue.plain_one(place, may_take),
            Self::Rings(_) | Self::Mlx5(_) | Self::Siw(_) => None,
        }
    }

    /// As [`Completions::one_flagged`], of several, up to the first that has not succeeded.
    #[inline(always)]
    pub(crate) fn short_poll_flagged<T: Place>(
        &mut self,
        places: &mut [T],
        may_take: impl Fn() -> bool,
    ) -> Option<usize> {
        match self {
            Self::Siw(queue) => queue.take_plain(places, may_take),
            Self::Rings(_) | Self::Mlx5(_) | Self::Efa(_) => None,
        }
    }
}
