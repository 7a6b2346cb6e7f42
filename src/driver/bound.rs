//! Access to queues that only bindings use.

use super::queues::Sends;
use super::request::Refused;
use super::seam::OwnRing;

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
