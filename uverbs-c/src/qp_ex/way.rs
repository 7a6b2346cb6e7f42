//! The shortest paths to send queues, one for each format of queues.

use uverbs::raw::{Batch, Here, Lower, RequestKind, SendQueue};

use crate::blocks;
use crate::boundary::Pointer;
use crate::qp::Qp;
use crate::request::{Gather, gathered};

/// The shortest path to a send queue.
pub(crate) trait Way {
    /// For one request.
    fn step<const LOOKS: bool>(queue: &mut SendQueue, here: Here) -> Option<Batch<'_, impl Lower>>;

    /// For several requests.
    fn batch(queue: &mut SendQueue, here: Here) -> Option<Batch<'_, impl Lower>>;

    /// How inline data of several pieces takes the path of one piece.
    const GATHER: Gather = gathered;

    /// Puts the first requests of a list by a path that is shorter still, if there is one for them, and moves `at` behind them. Returns
    /// whether these are all.
    #[inline(always)]
    fn put_plain(_qp: &Qp, _queue: &mut SendQueue, _here: Here, _at: &mut Pointer) -> bool {
        false
    }
}

pub(crate) struct Slots;
/// Blocks for requests of this kind.
pub(crate) struct Blocks<const KIND: u8>;

pub(crate) type Frames = Blocks<{ RequestKind::Frames as u8 }>;
pub(crate) type Messages = Blocks<{ RequestKind::Messages as u8 }>;
pub(crate) type Addressed = Blocks<{ RequestKind::Addressed as u8 }>;

impl Way for Slots {
    /// Such requests take the path for all requests, which costs the usual ones nothing.
    const GATHER: Gather = |_, _| None;

    #[inline(always)]
    fn step<const LOOKS: bool>(queue: &mut SendQueue, here: Here) -> Option<Batch<'_, impl Lower>> {
        queue.step_in_slots::<LOOKS>(here)
    }

    #[inline(always)]
    fn batch(queue: &mut SendQueue, here: Here) -> Option<Batch<'_, impl Lower>> {
        queue.batch_in_slots(here)
    }
}

impl<const KIND: u8> Way for Blocks<KIND> {
    #[inline(always)]
    fn step<const LOOKS: bool>(queue: &mut SendQueue, here: Here) -> Option<Batch<'_, impl Lower>> {
        queue.step_in_blocks::<LOOKS, KIND>(here)
    }

    #[inline(always)]
    fn batch(queue: &mut SendQueue, here: Here) -> Option<Batch<'_, impl Lower>> {
        queue.step_in_blocks::<true, KIND>(here)
    }

    #[inline(always)]
    fn put_plain(qp: &Qp, queue: &mut SendQueue, here: Here, at: &mut Pointer) -> bool {
        if KIND != RequestKind::Frames as u8 {
            blocks::put_plain::<KIND>(qp, queue, here, at);
        }
        at.is_null()
    }
}
