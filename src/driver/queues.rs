//! The send queues of all drivers: rings that the kernel has created, or memory that the device reads itself.

use uverbs_abi::types::qp_state;

pub(crate) use super::efa::{AtOnce, Looking};
use super::mlx5::FRAMES;
#[cfg_attr(not(feature = "raw"), expect(unreachable_pub))]
pub use super::mlx5::Plain;
pub(crate) use super::mlx5::{ADDRESSED, MESSAGES};
use super::request::RequestKind;
#[cfg(feature = "raw")]
use super::seam::Lower;
use super::seam::{Late, Published, WithSends};
use super::{efa, mlx5, rxe, siw};

/// The layout of a send queue.
#[cfg(feature = "raw")]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SendLayout {
    /// Slots in a ring.
    Slots,
    /// Blocks that the device reads itself, with requests of this kind.
    Blocks(RequestKind),
    /// Slots in the device's memory. Requests are datagrams, complete in any order, and are written in parts.
    Numbered,
    /// Slots with a flag each; lists of requests have a shorter path.
    Flagged,
}

/// How requests are written into a send queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Way {
    Slots,
    Blocks,
    // The others have a function. The variants are in the order of the queues and have the same number, so that one tag can be used as
    // the other.
    Numbered,
    Flagged,
}

/// The send queue of a queue pair.
// The tag is separate, because it is faster to read than one among the fields.
#[repr(u8)]
#[derive(Debug)]
pub(crate) enum Sends {
    Rings(rxe::Sends),
    Mlx5(mlx5::Sends),
    Efa(Box<efa::Sends>),
    Siw(Box<siw::Sends>),
}

/// Performs an operation on a queue of blocks, by the code for its kind of requests.
#[inline(always)]
pub(crate) fn in_blocks<W: WithSends>(sends: &mut mlx5::Sends, what: W) -> W::Answer {
    match W::KIND {
        Some(RequestKind::Frames) => what.with(sends.writing::<true, FRAMES>()),
        Some(RequestKind::Messages) => what.with(sends.writing::<true, MESSAGES>()),
        Some(RequestKind::Addressed) => what.with(sends.writing::<true, ADDRESSED>()),
        None if sends.kind() == RequestKind::Frames => what.with(sends.writing::<true, FRAMES>()),
        // A third copy of the code here would make the other two longer.
        None => what.with(sends.writing::<true, ADDRESSED>()),
    }
}

impl Sends {
    /// Number of slots.
    pub(crate) fn slots(&self) -> usize {
        match self {
            Self::Rings(sends) => sends.geometry().slots(),
            Self::Mlx5(sends) => sends.slots(),
            Self::Efa(sends) => sends.slots(),
            Self::Siw(sends) => sends.places(),
        }
    }

    /// Whether requests complete in their order. Those of siw do, except that others overtake reads.
    pub(crate) fn is_in_order(&self) -> bool {
        match self {
            Self::Rings(_) | Self::Mlx5(_) => true,
            Self::Efa(_) | Self::Siw(_) => false,
        }
    }

    /// Whether the device requires the first bytes of a frame in the request itself.
    #[inline]
    pub(crate) fn wants_head(&self) -> bool {
        match self {
            Self::Rings(_) | Self::Efa(_) | Self::Siw(_) => false,
            Self::Mlx5(sends) => sends.wants_head(),
        }
    }

    /// Begins a batch, or a step of one request, for a queue that is neither a ring of slots nor of blocks. `None` for those, and if
    /// there is no code for it.
    // A separate function, so that the code for the other queues does not become longer.
    #[inline(never)]
    pub(crate) fn apart<W: WithSends>(&mut self, what: W) -> Option<W::Answer> {
        match self {
            Self::Rings(_) | Self::Mlx5(_) => None,
            Self::Efa(sends) => Some(what.with(sends.staging::<false>())),
            Self::Siw(sends) if W::KNOWS_FLAGS => Some(what.with(siw::Apart(sends.writing()))),
            Self::Siw(_) => None,
        }
    }

    /// The layout of the queue, by which the shortest path is chosen.
    #[cfg(feature = "raw")]
    pub(crate) fn layout(&self) -> SendLayout {
        match self {
            Self::Rings(_) => SendLayout::Slots,
            Self::Mlx5(sends) => SendLayout::Blocks(sends.kind()),
            Self::Efa(_) => SendLayout::Numbered,
            Self::Siw(_) => SendLayout::Flagged,
        }
    }

    /// The shortest path for requests in blocks, if they are of this kind.
    #[cfg(feature = "raw")]
    #[inline(always)]
    pub(crate) fn blocks_way<const LOOKS: bool, const KIND: u8>(&mut self) -> Option<impl Lower> {
        match self {
            Self::Mlx5(sends) if sends.kind() as u8 == KIND => Some(sends.writing::<LOOKS, KIND>()),
            Self::Rings(_) | Self::Mlx5(_) | Self::Efa(_) | Self::Siw(_) => None,
        }
    }

    /// Whether it is a ring of slots, blocks, or one of the others.
    // Not by the layout, which also names the kind of requests in blocks and costs more to read.
    #[inline(always)]
    pub(crate) fn way(&self) -> Way {
        match self {
            Self::Rings(_) => Way::Slots,
            Self::Mlx5(_) => Way::Blocks,
            Self::Efa(_) => Way::Numbered,
            Self::Siw(_) => Way::Flagged,
        }
    }

    /// The ring of slots, if it is one.
    // It returns the ring and not the result of an operation on it, because an option of the result would be stored in memory.
    #[inline(always)]
    pub(crate) fn slots_alone(&mut self) -> Option<&mut rxe::Sends> {
        match self {
            Self::Rings(sends) => Some(sends),
            Self::Mlx5(_) | Self::Efa(_) | Self::Siw(_) => None,
        }
    }

    /// The blocks, if it has blocks.
    #[inline(always)]
    pub(crate) fn blocks_alone(&mut self) -> Option<&mut mlx5::Sends> {
        match self {
            Self::Mlx5(sends) => Some(sends),
            Self::Rings(_) | Self::Efa(_) | Self::Siw(_) => None,
        }
    }

    /// The slots of requests that complete in any order, if it has these.
    #[inline(always)]
    pub(crate) fn numbered_alone(&mut self) -> Option<&mut efa::Sends> {
        match self {
            Self::Efa(sends) => Some(sends),
            Self::Rings(_) | Self::Mlx5(_) | Self::Siw(_) => None,
        }
    }

    /// Discards the slots that were filled and not published.
    pub(crate) fn rewind(&mut self) {
        match self {
            Self::Rings(sends) => sends.ring().rewind(),
            Self::Mlx5(sends) => sends.rewind(),
            Self::Efa(sends) => sends.rewind(),
            Self::Siw(sends) => sends.rewind(),
        }
    }

    /// The slot that is filled next.
    pub(crate) fn next_slot(&self) -> u32 {
        match self {
            Self::Rings(sends) => sends.next_slot(),
            Self::Mlx5(sends) => sends.next_slot(),
            Self::Efa(sends) => sends.next_slot(),
            Self::Siw(sends) => sends.next_slot(),
        }
    }

    /// Whether all that was posted has completed, if each request has a completion that shows this.
    pub(crate) fn is_idle(&self) -> Option<bool> {
        match self {
            Self::Rings(_) | Self::Mlx5(_) => None,
            Self::Efa(sends) => Some(sends.is_idle()),
            Self::Siw(sends) => Some(sends.is_idle()),
        }
    }

    /// In the error state: removes the requests that the device does not read any more and has not flushed, oldest first.
    pub(crate) fn take_late(&mut self, each: impl FnMut(Late)) {
        match self {
            // These drivers flush every request.
            Self::Rings(_) | Self::Mlx5(_) | Self::Efa(_) => {}
            Self::Siw(sends) => sends.take_late(each),
        }
    }

    /// Takes back what was published last: the kernel has refused to read it.
    pub(crate) fn retract(&mut self) {
        match self {
            Self::Rings(sends) => sends.ring().retract(),
            Self::Siw(sends) => sends.retract(),
            // The kernel is not involved.
            Self::Mlx5(_) | Self::Efa(_) => {}
        }
    }

    /// Shows the device every slot that was filled.
    #[inline(always)]
    pub(crate) fn publish(&mut self) -> Published {
        match self {
            Self::Rings(sends) => {
                let ring = sends.ring();
                if !ring.has_more() {
                    return Published::Nothing;
                }
                ring.publish();
                Published::Shown
            }
            Self::Mlx5(sends) => {
                sends.publish();
                Published::Told
            }
            Self::Efa(_) | Self::Siw(_) => self.publish_apart(),
        }
    }

    /// The queue pair has entered a state.
    pub(crate) fn enter(&mut self, state: u8) {
        match self {
            // The kernel keeps the state.
            Self::Rings(_) => {}
            Self::Mlx5(sends) => {
                if state == qp_state::RESET {
                    sends.reset();
                }
                sends.set_ready(state >= qp_state::RTS);
            }
            Self::Efa(sends) => sends.enter(state),
            Self::Siw(sends) => sends.enter(state),
        }
    }
}
