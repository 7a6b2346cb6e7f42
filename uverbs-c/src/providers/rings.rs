//! The parts of the data path that differ between drivers, for functions that are compiled once for each.

use uverbs::raw::provider::{Efa, Mlx5, Rxe, Siw};
use uverbs::raw::{Cursor, InPlace, Provider, RequestKind, Told, Unread};

use crate::boundary::Beside;
use crate::cq::Cq;

/// Does the work with the type of a context's driver.
macro_rules! with_rings {
    ($context:expr, $rings:ident => $work:expr) => {
        match $context.provider() {
            uverbs::raw::ProviderKind::Rxe => {
                type $rings = uverbs::raw::provider::Rxe;
                $work
            }
            uverbs::raw::ProviderKind::Mlx5 => {
                type $rings = uverbs::raw::provider::Mlx5;
                $work
            }
            uverbs::raw::ProviderKind::Efa => {
                type $rings = uverbs::raw::provider::Efa;
                $work
            }
            uverbs::raw::ProviderKind::Siw => {
                type $rings = uverbs::raw::provider::Siw;
                $work
            }
        }
    };
}
pub(crate) use with_rings;

/// How requests of the extended interface are written into a queue.
pub(crate) enum Written {
    /// Whole, when their data is set, by code for the operation that was begun.
    AsBegun,
    /// Whole, when their data is set, by code for all operations.
    Whole,
    /// Part by part.
    InParts,
    /// There is no extended interface.
    Never,
}

/// For functions of objects without a queue, which return an error with every driver.
pub(crate) type NoRings = Rxe;

pub(crate) trait Rings: Provider {
    /// The position in a poll of the extended interface.
    type Cursor: Cursor;

    fn cursor(cq: &Cq) -> &Beside<Self::Cursor>;

    /// Whether a request that is too large for the queue is reported as if the queue were full, and a queue pair with a shared receive queue
    /// has no receives of its own, as with libmlx5.
    const IS_LIKE_LIBMLX5: bool = false;

    /// Whether only this library changes the states of queue pairs, so that it knows them.
    const KNOWS_STATES: bool = true;

    /// The kind of all requests, if the driver has queue pairs for one only.
    const ONLY: Option<RequestKind> = None;

    /// How requests of the extended interface are written.
    const WRITTEN: Written;
}

impl Rings for Rxe {
    type Cursor = InPlace;

    #[inline(always)]
    fn cursor(cq: &Cq) -> &Beside<InPlace> {
        &cq.in_place
    }

    const WRITTEN: Written = Written::AsBegun;
}

impl Rings for Mlx5 {
    type Cursor = Unread;

    #[inline(always)]
    fn cursor(cq: &Cq) -> &Beside<Unread> {
        &cq.unread
    }

    const WRITTEN: Written = Written::Whole;
    const IS_LIKE_LIBMLX5: bool = true;
}

impl Rings for Efa {
    type Cursor = Told;

    #[inline(always)]
    fn cursor(cq: &Cq) -> &Beside<Told> {
        &cq.told
    }

    const ONLY: Option<RequestKind> = Some(RequestKind::Addressed);
    const WRITTEN: Written = Written::InParts;
}

impl Rings for Siw {
    type Cursor = Told;

    #[inline(always)]
    fn cursor(cq: &Cq) -> &Beside<Told> {
        &cq.told
    }

    const KNOWS_STATES: bool = false;

    const ONLY: Option<RequestKind> = Some(RequestKind::Messages);
    const WRITTEN: Written = Written::Never;
}
