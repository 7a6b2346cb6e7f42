//! Access to completions that only bindings use.

use uverbs_abi::write::Wc;

use super::completion::Place;
pub use super::efa::{Told, Untold};
use super::queues::{Completions, Sends, Unread};
use super::receives::Receives;
use super::request::Refused;
use super::ring::Opening;
use super::seam::{OwnRing, WithReceives};
use super::siw;

/// The same for siw, whose completions do not name a sender.
#[cold]
#[inline(never)]
fn next_plain(
    queue: &mut siw::Completions,
    may_take: impl Fn() -> bool,
    place: &mut Told,
) -> std::result::Result<(), bool> {
    let Some(said) = queue.next(&may_take) else { return Err(may_take()) };
    *place = Told::plain(&said.wc);
    Ok(())
}

impl Completions {
    /// Whether the completions are taken by [`Completions::next_told`].
    pub(crate) fn is_told(&self) -> bool {
        match self {
            Self::Rings(_) | Self::Mlx5(_) => false,
            Self::Efa(_) | Self::Siw(_) => true,
        }
    }

    /// The next completion, if completions name their sender. [`Completions::release_told`] gives its slot back. The error says whether
    /// there is no completion that may be taken.
    #[inline(always)]
    pub(crate) fn next_told(
        &mut self,
        may_take: impl Fn() -> bool,
        place: &mut Told,
    ) -> std::result::Result<(), bool> {
        match self {
            Self::Rings(_) | Self::Mlx5(_) => Err(true),
            Self::Efa(queue) => queue.next_told(may_take, place),
            Self::Siw(queue) => next_plain(queue, may_take, place),
        }
    }

    /// As [`Completions::next_told`], by the shortest path. Returns the number that was given with the request. The place gets everything
    /// except that number and the status, which is success.
    #[inline(always)]
    pub(crate) fn short_told(
        &mut self,
        may_take: impl Fn() -> bool,
        place: &mut Told,
    ) -> std::result::Result<u64, Untold> {
        match self {
            Self::Efa(queue) => queue.short_told(may_take, place),
            Self::Rings(_) | Self::Mlx5(_) | Self::Siw(_) => Err(Untold::Other),
        }
    }

    /// To be called after [`Untold::Elsewhere`]: searches the other rings. If it succeeds, [`Completions::short_told`] may find a
    /// completion there; the error says why it would not.
    #[inline(always)]
    pub(crate) fn look_elsewhere(&mut self) -> std::result::Result<(), Untold> {
        match self {
            Self::Efa(queue) => queue.look_elsewhere(),
            Self::Rings(_) | Self::Mlx5(_) | Self::Siw(_) => Err(Untold::Other),
        }
    }

    /// Gives back the slots of all completions that [`Completions::next_told`] took.
    #[inline(always)]
    pub(crate) fn release_told(&mut self) {
        match self {
            // The slots of siw were given back immediately.
            Self::Rings(_) | Self::Mlx5(_) | Self::Siw(_) => {}
            Self::Efa(queue) => queue.end_batch(),
        }
    }

    /// The ring, if a program may use it directly.
    pub(crate) fn own_ring(&self) -> Option<OwnRing> {
        match self {
            Self::Rings(_) | Self::Mlx5(_) | Self::Siw(_) => None,
            Self::Efa(queue) => Some(queue.ring()),
        }
    }

    /// As [`Completions::poll`]. `None` if there are completions that must not be taken, and if completions are not in the kernel's
    /// format.
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

    /// The same for one or two completions. `None`, with nothing taken, if there are more, or if one is [rare](Place::put_plain).
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

    /// As [`Completions::short_poll_in_place`], for devices that write completions themselves.
    #[inline(always)]
    pub(crate) fn short_poll_in_blocks<T: Place>(
        &mut self,
        places: &mut [T],
        may_take: impl Fn() -> bool,
    ) -> Option<usize> {
        match self {
            Self::Mlx5(queue) => queue.short_poll(places, may_take, |place, raised| place.put(raised)),
            Self::Rings(_) | Self::Efa(_) | Self::Siw(_) => None,
        }
    }

    /// The next completion, in the device's format, if that is not the kernel's. [`Completions::release`] gives its slot back. False if
    /// there is none.
    pub(crate) fn next_unread(&mut self, may_take: impl Fn() -> bool, place: &mut Unread) -> bool {
        match self {
            Self::Rings(_) | Self::Efa(_) | Self::Siw(_) => false,
            Self::Mlx5(queue) => queue.next_unread(may_take, place).is_ok(),
        }
    }

    /// The same by a short path. The error says whether there is no completion.
    #[inline(always)]
    pub(crate) fn short_unread(
        &mut self,
        may_take: impl Fn() -> bool,
        place: &mut Unread,
    ) -> Result<(), bool> {
        match self {
            Self::Mlx5(queue) => queue.short_unread(may_take, place),
            Self::Rings(_) | Self::Efa(_) | Self::Siw(_) => Err(false),
        }
    }

    /// The completions in the ring, if they have the kernel's format there.
    pub(crate) fn window(&self) -> Option<Opening<Wc>> {
        match self {
            Self::Rings(ring) => Some(ring.window()),
            Self::Mlx5(_) | Self::Efa(_) | Self::Siw(_) => None,
        }
    }
}

impl Sends {
    /// The ring, if a program may use it directly.
    pub(crate) fn own_ring(&self) -> Option<OwnRing> {
        match self {
            Self::Rings(_) | Self::Mlx5(_) | Self::Siw(_) => None,
            Self::Efa(sends) => Some(sends.ring()),
        }
    }

    /// Sets the hints of the last request, in the numbers of its driver.
    pub(crate) fn set_hints(&mut self, hints: u8) -> Result<(), Refused> {
        match self {
            Self::Rings(_) | Self::Mlx5(_) | Self::Siw(_) => Err(Refused::Lacks),
            Self::Efa(sends) => sends.set_hints(hints),
        }
    }
}

impl Receives {
    /// Posts requests that complete in any order. If one cannot be posted, those before it are posted, whatever [`WithReceives::is_kept`]
    /// returns. `None`, with nothing done, for another kind of queue.
    #[inline(always)]
    pub(crate) fn post_numbered<W: WithReceives>(&mut self, what: W) -> Option<W::Answer> {
        match self {
            Self::Efa(receives) => {
                let answer = what.with(receives.keeping());
                receives.publish();
                Some(answer)
            }
            Self::Rings(_) | Self::Announced(..) | Self::Mlx5(_) | Self::Mlx5Shared(_) => None,
            Self::Siw(_) | Self::Lost(_) => None,
        }
    }

    /// The ring, if a program may use it directly.
    pub(crate) fn own_ring(&self) -> Option<OwnRing> {
        match self {
            Self::Rings(_) | Self::Announced(..) | Self::Mlx5(_) | Self::Mlx5Shared(_) => None,
            Self::Siw(_) | Self::Lost(_) => None,
            Self::Efa(receives) => Some(receives.ring()),
        }
    }
}
