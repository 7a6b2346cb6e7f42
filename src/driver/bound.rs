//! Access to queues that only bindings use.

use super::queues::Sends;
use super::receives::Receives;
use super::request::Refused;
use super::seam::{OwnRing, WithReceives};

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
