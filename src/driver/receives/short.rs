//! Short paths for receives of one piece each, all or none of which are posted. A queue with such a path posts them by it, or does
//! nothing.

use super::Receives;
use crate::driver::{efa, mlx5, siw};

/// The short path of a queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ShortWay {
    /// There is none: the path for all requests is short.
    AtLength,
    /// For a queue whose entries form a list.
    Listed,
    /// For a queue whose requests have numbers, and complete in any order.
    Numbered,
    /// For a queue whose slots have a flag each.
    Flagged,
}

impl Receives {
    /// The short path of this queue.
    #[inline(always)]
    pub(crate) fn short_way(&self) -> ShortWay {
        match self {
            Self::Rings(_) | Self::Announced(..) | Self::Mlx5(_) | Self::Lost(_) => ShortWay::AtLength,
            Self::Mlx5Shared(_) => ShortWay::Listed,
            Self::Efa(_) => ShortWay::Numbered,
            Self::Siw(_) => ShortWay::Flagged,
        }
    }

    /// The queue, if its entries form a list.
    #[inline(always)]
    pub(crate) fn listed_alone(&mut self) -> Option<&mut mlx5::SharedReceives> {
        if let Self::Mlx5Shared(receives) = self { Some(receives) } else { None }
    }

    /// The queue, if its requests have numbers.
    #[inline(always)]
    pub(crate) fn numbered_alone(&mut self) -> Option<&mut efa::Receives> {
        if let Self::Efa(receives) = self { Some(receives) } else { None }
    }

    /// The queue, if its slots have a flag each.
    #[inline(always)]
    pub(crate) fn flagged_alone(&mut self) -> Option<&mut siw::Receives> {
        if let Self::Siw(receives) = self { Some(receives) } else { None }
    }
}
