//! The parts of the data path that differ between drivers, for functions that are compiled once for each.

use uverbs::raw::provider::{Efa, Mlx5, Rxe, Siw};
use uverbs::raw::{Cursor, InPlace, Provider, Told, Unread};

use crate::abi::Function;
use crate::boundary::Beside;
use crate::cq::Cq;
use crate::{flagged, numbered, post};

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

pub(crate) trait Rings: Provider {
    /// The position in a poll of the extended interface.
    type Cursor: Cursor;

    fn cursor(cq: &Cq) -> &Beside<Self::Cursor>;

    /// Whether only this library changes the states of queue pairs, so that it knows them.
    const KNOWS_STATES: bool = true;

    const POST_SEND: Function = post::post_send as Function;
}

impl Rings for Rxe {
    type Cursor = InPlace;

    #[inline(always)]
    fn cursor(cq: &Cq) -> &Beside<InPlace> {
        &cq.in_place
    }
}

impl Rings for Mlx5 {
    type Cursor = Unread;

    #[inline(always)]
    fn cursor(cq: &Cq) -> &Beside<Unread> {
        &cq.unread
    }
}

impl Rings for Efa {
    type Cursor = Told;

    #[inline(always)]
    fn cursor(cq: &Cq) -> &Beside<Told> {
        &cq.told
    }

    const POST_SEND: Function = numbered::post_send as Function;
}

impl Rings for Siw {
    type Cursor = Told;

    #[inline(always)]
    fn cursor(cq: &Cq) -> &Beside<Told> {
        &cq.told
    }

    const KNOWS_STATES: bool = false;

    const POST_SEND: Function = flagged::post_send as Function;
}
