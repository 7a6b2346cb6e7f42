//! Queues whose slots have a flag each (siw), and the functions that these queues and other rare ones use. The functions are marked as
//! cold, so that a compiler checks for rings and blocks first and keeps their code paths short.

use super::queues::Sends;
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
