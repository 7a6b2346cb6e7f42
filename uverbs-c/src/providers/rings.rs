//! The parts of the data path that differ between drivers, for functions that are compiled once for each.

use uverbs::raw::provider::{Efa, Mlx5, Rxe, Siw};
use uverbs::raw::{Cursor, InPlace, Provider, Told, Unread};

use crate::abi::Function;
use crate::boundary::Beside;
use crate::cq::Cq;
use crate::{blocks, flagged, numbered, post, srq};

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

    const POST_SEND: Function = post::post_send as Function;
    const POST_RECV: Function = post::post_recv as Function;
    const POST_SRQ_RECV: Function = srq::post_srq_recv as Function;
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

    const POST_RECV: Function = blocks::post_recv as Function;
    const POST_SRQ_RECV: Function = blocks::post_srq_recv as Function;
}

impl Rings for Efa {
    type Cursor = Told;

    #[inline(always)]
    fn cursor(cq: &Cq) -> &Beside<Told> {
        &cq.told
    }

    const POST_SEND: Function = numbered::post_send as Function;
    const POST_RECV: Function = numbered::post_recv as Function;
}

impl Rings for Siw {
    type Cursor = Told;

    #[inline(always)]
    fn cursor(cq: &Cq) -> &Beside<Told> {
        &cq.told
    }

    const POST_SEND: Function = flagged::post_send as Function;
    const POST_RECV: Function = flagged::post_recv as Function;
    const POST_SRQ_RECV: Function = flagged::post_srq_recv as Function;
}
