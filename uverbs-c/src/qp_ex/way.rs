//! The shortest paths to send queues, one for each format of queues.

use uverbs::raw::{Batch, Here, Lower, RequestKind, SendQueue};

/// The shortest path to a send queue.
pub(crate) trait Way {
    /// For one request.
    fn step<const LOOKS: bool>(queue: &mut SendQueue, here: Here) -> Option<Batch<'_, impl Lower>>;

    /// For several requests.
    fn batch(queue: &mut SendQueue, here: Here) -> Option<Batch<'_, impl Lower>>;
}

pub(crate) struct Slots;
/// Blocks for requests of this kind.
pub(crate) struct Blocks<const KIND: u8>;

pub(crate) type Frames = Blocks<{ RequestKind::Frames as u8 }>;
pub(crate) type Messages = Blocks<{ RequestKind::Messages as u8 }>;
pub(crate) type Addressed = Blocks<{ RequestKind::Addressed as u8 }>;

impl Way for Slots {
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
}
