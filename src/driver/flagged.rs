//! What is done with queues whose slots have a flag each (siw); and functions for these and others that are apart, of which the ways of
//! rings and blocks take no notice: to a compiler there is one more choice, whatever their number.

use super::completion::Place;
use super::queues::{Completions, Published, Sends, WithSends};
use super::siw;

/// Does something with a queue of slots that are each handed over by themselves. Apart, as the ways below.
#[inline(never)]
pub(super) fn by_slot<W: WithSends>(sends: &mut siw::Sends, what: W) -> W::Answer {
    // What the requests are is known where they are posted by their own functions, which are worth their length.
    if W::KIND.is_some() { what.with(sends.writing()) } else { what.with(siw::Apart(sends.writing())) }
}

impl Sends {
    /// Shows the device every request filled so far; none, and nothing is done, where slots have no flags.
    pub(crate) fn publish_flagged(&mut self) -> Option<Published> {
        match self {
            Self::Siw(sends) => Some(sends.publish()),
            Self::Rings(_) | Self::Mlx5(_) | Self::Efa(_) => None,
        }
    }

    /// The same of efa's, whose device knows then.
    #[inline(never)]
    pub(super) fn publish_numbered(&mut self) {
        match self {
            Self::Efa(sends) => sends.publish(),
            Self::Rings(_) | Self::Mlx5(_) | Self::Siw(_) => {}
        }
    }

    /// Whether each slot has a flag.
    pub(crate) fn is_flagged(&self) -> bool {
        match self {
            Self::Siw(_) => true,
            Self::Rings(_) | Self::Mlx5(_) | Self::Efa(_) => false,
        }
    }

    /// Slots with a flag each, if it is of these.
    #[cfg(feature = "raw")]
    #[inline(always)]
    pub(crate) fn flagged_alone(&mut self) -> Option<&mut siw::Sends> {
        match self {
            Self::Siw(sends) => Some(sends),
            Self::Rings(_) | Self::Mlx5(_) | Self::Efa(_) => None,
        }
    }
}

impl Completions {
    /// As [`Completions::poll`].
    #[inline(never)]
    pub(super) fn poll_apart<T: Place>(&mut self, places: &mut [T], may_take: impl Fn() -> bool) -> usize {
        match self {
            Self::Efa(queue) => queue.poll(places, may_take, |place, raised| place.put(raised)),
            Self::Siw(queue) => queue.take_if(places, may_take).unwrap_or(0),
            Self::Rings(_) | Self::Mlx5(_) => 0,
        }
    }

    /// Whether each completion has a flag.
    #[inline(always)]
    pub(crate) fn is_flagged(&self) -> bool {
        match self {
            Self::Siw(_) => true,
            Self::Rings(_) | Self::Mlx5(_) | Self::Efa(_) => false,
        }
    }

    /// As [`Completions::poll`] as long as what was posted has succeeded, where each has a flag; none if the first has not, or may not be
    /// taken, and elsewhere.
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
