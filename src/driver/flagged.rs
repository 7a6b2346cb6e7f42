//! Queues whose slots have a flag each (siw), and the functions that these queues and other rare ones use. The functions are marked as
//! cold, so that a compiler checks for rings and blocks first and keeps their code paths short.

use super::completion::Place;
use super::queues::{Completions, Sends, Way};
use super::seam::Published;
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

    /// The slots with a flag each, if the queue has such slots.
    #[inline(always)]
    pub(crate) fn flagged_alone(&mut self) -> Option<&mut siw::Sends> {
        match self {
            Self::Siw(sends) => Some(sends),
            Self::Rings(_) | Self::Mlx5(_) | Self::Efa(_) => None,
        }
    }
}

impl Completions {
    /// The format of its completions.
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

    /// The next completion of a queue with flags, by the shortest path; false if there is none. `None` if the completion has failed or
    /// must not be taken, and for other queues.
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

    /// The same for several completions, up to the first that has failed.
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
