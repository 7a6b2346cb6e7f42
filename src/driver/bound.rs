//! Ways to completions that only bindings take.

use uverbs_abi::write::Wc;

use super::completion::Place;
pub use super::efa::{Told, Untold};
use super::queues::{Completions, Receives, Sends, Unread, WithReceives};
use super::request::Refused;
use super::ring::Opening;
use super::siw;

/// A ring in memory that the kernel gave, by addresses in the process: a program may use it in place of the queue.
#[derive(Clone, Copy, Debug, Default)]
pub struct OwnRing {
    /// Where it begins; zero of none.
    pub address: u64,
    /// Bytes of an entry.
    pub entry_size: u32,
    /// Number of entries.
    pub entries: u32,
    /// Where its doorbell is; zero of none.
    pub doorbell: u64,
    /// Most requests that the device is told of at once.
    pub most_at_once: u32,
}

/// The same of siw, whose completions tell nothing of a sender.
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
    /// Whether they are taken by [`Completions::next_told`].
    pub(crate) fn is_told(&self) -> bool {
        match self {
            Self::Rings(_) | Self::Mlx5(_) => false,
            Self::Efa(_) | Self::Siw(_) => true,
        }
    }

    /// The next completion, where entries tell who has sent; its slot is given back by [`Completions::release_told`]. Without one, whether
    /// there is none that may be taken.
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

    /// The same by the shortest way. The number that was given with the request is told, and the place has all else but that and the
    /// status, which is success.
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

    /// Behind [`Untold::Elsewhere`]: looks there. There may be one for [`Completions::short_told`] then; or why not.
    #[inline(always)]
    pub(crate) fn look_elsewhere(&mut self) -> std::result::Result<(), Untold> {
        match self {
            Self::Efa(queue) => queue.look_elsewhere(),
            Self::Rings(_) | Self::Mlx5(_) | Self::Siw(_) => Err(Untold::Other),
        }
    }

    /// Gives back the slots of all that [`Completions::next_told`] took.
    #[inline(always)]
    pub(crate) fn release_told(&mut self) {
        match self {
            // What was taken from siw was given back at once.
            Self::Rings(_) | Self::Mlx5(_) | Self::Siw(_) => {}
            Self::Efa(queue) => queue.end_batch(),
        }
    }

    /// Where the ring lies, if a program may use it.
    pub(crate) fn own_ring(&self) -> Option<OwnRing> {
        match self {
            Self::Rings(_) | Self::Mlx5(_) | Self::Siw(_) => None,
            Self::Efa(queue) => Some(queue.ring()),
        }
    }

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

    /// As [`Completions::short_poll_in_place`], where the device writes completions itself.
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

    /// The next completion where it does not lie as the kernel has it, as the device wrote it; its slot is given back by
    /// [`Completions::release`]. False if there is none.
    pub(crate) fn next_unread(&mut self, may_take: impl Fn() -> bool, place: &mut Unread) -> bool {
        match self {
            Self::Rings(_) | Self::Efa(_) | Self::Siw(_) => false,
            Self::Mlx5(queue) => queue.next_unread(may_take, place).is_ok(),
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
            Self::Rings(_) | Self::Efa(_) | Self::Siw(_) => Err(false),
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

impl Sends {
    /// Where the ring lies, if a program may use it.
    pub(crate) fn own_ring(&self) -> Option<OwnRing> {
        match self {
            Self::Rings(_) | Self::Mlx5(_) | Self::Siw(_) => None,
            Self::Efa(sends) => Some(sends.ring()),
        }
    }

    /// Says of the last request how the device shall go about it, as its driver numbers that.
    pub(crate) fn set_hints(&mut self, hints: u8) -> Result<(), Refused> {
        match self {
            Self::Rings(_) | Self::Mlx5(_) | Self::Siw(_) => Err(Refused::Lacks),
            Self::Efa(sends) => sends.set_hints(hints),
        }
    }
}

impl Receives {
    /// Posts requests that complete in any order: those before the first that cannot be posted are, whatever
    /// [`WithReceives::is_kept`] says. None, and nothing is done, in another queue.
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

    /// Where the ring lies, if a program may use it.
    pub(crate) fn own_ring(&self) -> Option<OwnRing> {
        match self {
            Self::Rings(_) | Self::Announced(..) | Self::Mlx5(_) | Self::Mlx5Shared(_) => None,
            Self::Siw(_) | Self::Lost(_) => None,
            Self::Efa(receives) => Some(receives.ring()),
        }
    }
}
