//! The short ways of receives of one piece each, for who posts all of several or none: a queue that has one posts by it, or does nothing.

use super::Receives;
use crate::driver::request::Sge;
use crate::driver::{efa, mlx5, siw};

/// A receive of one piece: the number that its completion says, and the piece. None of a request that is another.
pub(crate) type Plain<'a> = Option<(u64, &'a Sge)>;

/// Several of them.
pub(crate) trait Plains<'a>: DoubleEndedIterator<Item = Plain<'a>> + ExactSizeIterator {}

impl<'a, T: DoubleEndedIterator<Item = Plain<'a>> + ExactSizeIterator> Plains<'a> for T {}

/// A queue with a short way.
pub(crate) trait ShortReceives {
    /// Posts one, and says what its slot is. None, and nothing is done, when there is no room, or more is to be looked at.
    fn post_one(&mut self, wr_id: u64, piece: &Sge) -> Option<u32>;

    /// Posts all; false, and nothing is done, when there is no room for one of them, or it is another, or more is to be looked at.
    fn post_all<'p>(&mut self, requests: impl Plains<'p>) -> bool;
}

/// Which short way a queue has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ShortWay {
    /// None: the way of all requests is short.
    AtLength,
    /// Through a list of entries.
    Listed,
    /// By numbers, where requests complete in any order.
    Numbered,
    /// Into slots with a flag each.
    Flagged,
}

impl Receives {
    /// Which it has.
    #[inline(always)]
    pub(crate) fn short_way(&self) -> ShortWay {
        match self {
            Self::Rings(_) | Self::Announced(..) | Self::Mlx5(_) | Self::Lost(_) => ShortWay::AtLength,
            Self::Mlx5Shared(_) => ShortWay::Listed,
            Self::Efa(_) => ShortWay::Numbered,
            Self::Siw(_) => ShortWay::Flagged,
        }
    }

    /// A list of entries, if it is one.
    #[inline(always)]
    pub(crate) fn listed_alone(&mut self) -> Option<&mut mlx5::SharedReceives> {
        if let Self::Mlx5Shared(receives) = self { Some(receives) } else { None }
    }

    /// A queue by numbers, if it is one.
    #[inline(always)]
    pub(crate) fn numbered_alone(&mut self) -> Option<&mut efa::Receives> {
        if let Self::Efa(receives) = self { Some(receives) } else { None }
    }

    /// Slots with a flag each, if it has such.
    #[inline(always)]
    pub(crate) fn flagged_alone(&mut self) -> Option<&mut siw::Receives> {
        if let Self::Siw(receives) = self { Some(receives) } else { None }
    }
}

/// Receives of this piece, with these numbers.
#[cfg(test)]
pub(crate) fn plain(wr_ids: std::ops::Range<u64>, piece: &Sge) -> Vec<Plain<'_>> {
    wr_ids.map(|wr_id| Some((wr_id, piece))).collect()
}
