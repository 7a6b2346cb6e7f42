//! The queues of whichever driver: rings that the kernel made, or memory that the device reads itself.

use std::borrow::Borrow;

use uverbs_abi::types::{SendFlags, qp_state};

use super::completion::Place;
pub(crate) use super::efa::{AtOnce, Looking};
pub(crate) use super::mlx5::Datagrams;
#[cfg(feature = "raw")]
pub use super::mlx5::Unread;
use super::mlx5::{ADDRESSED, FRAMES, MESSAGES};
pub use super::receives::LowerReceive;
pub(crate) use super::receives::{Receives, WithReceives};
use super::request::{Address, Data, FrameHead, Opcode, Refused, RequestKind, Sge, Terms};
use super::side::CqSide;
use super::{efa, mlx5, rxe, siw};
use crate::kernel::error::Result;

/// A completion queue.
// A tag of its own, which is quicker to look at than one among the fields.
#[repr(u8)]
#[derive(Debug)]
pub(crate) enum Completions {
    Rings(rxe::Completions),
    Mlx5(mlx5::Completions),
    Efa(Box<efa::Completions>),
    Siw(Box<siw::Completions>),
}

impl Completions {
    /// How many completions it can hold.
    pub(crate) fn capacity(&self) -> u32 {
        match self {
            Self::Rings(ring) => ring.capacity(),
            Self::Mlx5(queue) => queue.capacity(),
            Self::Efa(queue) => queue.capacity(),
            Self::Siw(queue) => queue.capacity(),
        }
    }

    /// Fills `places` with completions, as many as there are and fit; gives their slots back at once, and says how
    /// many. Before the first one is taken, `may_take` is asked: if not, nothing is.
    #[inline(always)]
    pub(crate) fn poll<T: Place>(&mut self, places: &mut [T], may_take: impl Fn() -> bool) -> usize {
        match self {
            Self::Rings(ring) => {
                ring.ring().take_if(places, may_take, |place, slot| place.put(&slot)).unwrap_or(0)
            }
            Self::Mlx5(queue) => queue.poll(places, may_take, |place, raised| place.put(raised)),
            Self::Efa(_) | Self::Siw(_) => self.poll_apart(places, may_take),
        }
    }

    /// Whether the device has written no completion.
    #[cfg(feature = "raw")]
    #[inline(always)]
    pub(crate) fn is_empty(&self) -> bool {
        match self {
            Self::Rings(ring) => ring.is_empty(),
            Self::Mlx5(queue) => queue.is_empty(),
            Self::Efa(queue) => queue.is_empty(),
            Self::Siw(queue) => queue.is_empty(),
        }
    }

    /// As [`Completions::poll`], by the shortest way. None by a driver that has no such way, and if there are some that may not be
    /// taken.
    #[inline(always)]
    pub(crate) fn short_poll<T: Place>(
        &mut self,
        places: &mut [T],
        may_take: impl Fn() -> bool,
    ) -> Option<usize> {
        match self {
            Self::Rings(ring) => ring.ring().take_if(places, may_take, |place, slot| place.put(&slot)),
            Self::Mlx5(_) | Self::Efa(_) | Self::Siw(_) => None,
        }
    }

    /// Takes one completion at most by the shortest way, and says how many. None by a driver that has no such way, and if there is
    /// one that may not be taken or is [rare](Place::put_plain).
    #[inline(always)]
    pub(crate) fn short_one<T: Place>(
        &mut self,
        place: &mut T,
        may_take: impl Fn() -> bool,
    ) -> Option<usize> {
        match self {
            Self::Rings(ring) => ring.ring().take_one(may_take, |slot| place.put_plain(&slot)),
            Self::Mlx5(_) | Self::Efa(_) | Self::Siw(_) => None,
        }
    }

    /// One completion where the device writes them itself; false if there is none. None elsewhere, and if there is one that may not be taken.
    #[inline(always)]
    pub(crate) fn one_in_blocks<T: Place>(
        &mut self,
        place: &mut T,
        may_take: impl Fn() -> bool,
    ) -> Option<bool> {
        match self {
            Self::Rings(_) | Self::Efa(_) | Self::Siw(_) => None,
            Self::Mlx5(queue) => queue.short_one(may_take, |raised| place.put(raised)),
        }
    }

    /// As [`Completions::poll`], of requests that complete in any order; none if there are some that may not be taken, and elsewhere.
    #[inline(always)]
    pub(crate) fn short_poll_numbered<T: Place>(
        &mut self,
        places: &mut [T],
        may_take: impl Fn() -> bool,
    ) -> Option<usize> {
        match self {
            Self::Efa(queue) => queue.short_poll(places, may_take),
            Self::Rings(_) | Self::Mlx5(_) | Self::Siw(_) => None,
        }
    }

    /// The same of one.
    #[inline(always)]
    pub(crate) fn short_one_numbered<T: Place>(
        &mut self,
        place: &mut T,
        may_take: impl Fn() -> bool,
    ) -> Option<usize> {
        match self {
            Self::Efa(queue) => queue.short_one(place, may_take),
            Self::Rings(_) | Self::Mlx5(_) | Self::Siw(_) => None,
        }
    }

    /// Gives back the slots of all that [`Completions::next_unread`] took.
    #[cfg(feature = "raw")]
    #[inline(always)]
    pub(crate) fn release(&mut self) {
        match self {
            Self::Mlx5(queue) => queue.release(),
            Self::Rings(_) | Self::Efa(_) | Self::Siw(_) => {}
        }
    }

    /// Takes out the completions of a queue pair that was reset. Those of mlx5 and efa know to which life they belong, and queue pairs of siw
    /// have one life.
    #[cfg(feature = "raw")]
    pub(crate) fn forget(&mut self, qp_num: u32) {
        match self {
            Self::Rings(ring) => ring.ring().retain(|wc| wc.qp_num != qp_num),
            Self::Mlx5(_) | Self::Efa(_) | Self::Siw(_) => {}
        }
    }

    /// What others know of it.
    pub(crate) fn side(&self) -> CqSide {
        match self {
            Self::Rings(_) => CqSide::Rings,
            Self::Mlx5(queue) => CqSide::Mlx5(queue.shared().clone()),
            Self::Efa(queue) => CqSide::Efa(queue.shared().clone()),
            Self::Siw(queue) => CqSide::Siw(queue.alarm().clone()),
        }
    }
}

/// A driver's send queue while a batch of requests is written into it.
pub trait Lower {
    /// Whether slots are used one behind the other.
    const IS_IN_ORDER: bool = true;

    /// The slot that is filled next.
    fn next_slot(&self) -> u32;

    /// Where slots are used in another order, the one that was filled last; it is asked for there, and not what is filled next.
    fn last_slot(&self) -> u32 {
        0
    }

    /// Where slots are used in another order, the slot of the request with this number, from zero on, since the last were published.
    fn filled(&self, _number: u32) -> Option<u32> {
        None
    }

    /// Writes a request into the next slot. `head` is the first bytes of a frame, if the device wants them apart.
    ///
    /// # Errors
    /// [`Refused::Full`], [`Refused::TooLarge`], [`Refused::NotReady`] and [`Refused::Lacks`]; the slot is not taken then.
    fn put<'b, P, B>(
        &mut self,
        wr_id: u64,
        flags: SendFlags,
        opcode: &impl Terms,
        head: Option<FrameHead>,
        data: &Data<P, B>,
    ) -> Result<(), Refused>
    where
        P: ExactSizeIterator<Item: Borrow<Sge>> + Clone,
        B: Iterator<Item = &'b [u8]> + Clone;

    /// Writes all of a request into the next slot but its data, of which it has none until it is told.
    ///
    /// # Errors
    /// [`Refused::Full`], [`Refused::NotReady`] and [`Refused::Lacks`]; the slot is not taken then.
    fn begin(&mut self, wr_id: u64, flags: SendFlags, opcode: &Opcode<'_>) -> Result<(), Refused>;

    /// Gives the request that was begun last its data, and flags, in the place of what was set before.
    ///
    /// # Errors
    /// [`Refused::TooLarge`]; [`Refused::NotBegun`].
    fn set_data<'b, P, B>(
        &mut self,
        flags: SendFlags,
        head: Option<FrameHead>,
        data: &Data<P, B>,
    ) -> Result<(), Refused>
    where
        P: ExactSizeIterator<Item: Borrow<Sge>> + Clone,
        B: Iterator<Item = &'b [u8]> + Clone;

    /// Gives that datagram its address: the handle's, queue pair and queue key there.
    ///
    /// # Errors
    /// [`Refused::NotBegun`]; [`Refused::Lacks`].
    fn set_address(&mut self, ah: Address, qp_num: u32, qkey: u32) -> Result<(), Refused>;

    /// Gives that request over an extended connection the number of the shared receive queue there.
    ///
    /// # Errors
    /// As [`Lower::set_address`].
    fn set_srq(&mut self, _srq: u32) -> Result<(), Refused> {
        Err(Refused::Lacks)
    }
}

/// What is done with a send queue of whichever driver: once for each of them, so that a driver is asked for once in a batch.
pub(crate) trait WithSends {
    /// What all the requests are, where that is known before: then there is no way for others.
    const KIND: Option<RequestKind> = None;
    /// Whether there is a way of it into slots with a flag each.
    const KNOWS_FLAGS: bool = true;
    type Answer;
    fn with<L: Lower>(self, lower: L) -> Self::Answer;
}

/// What became of the slots that were filled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Published {
    /// There were none.
    Nothing,
    /// The kernel is to be told by a command.
    Shown,
    /// The device knows.
    Told,
}

/// What a send queue is of.
#[cfg(feature = "raw")]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SendLayout {
    /// Slots in a ring.
    Slots,
    /// Blocks that the device reads itself, with requests of this kind.
    Blocks(RequestKind),
    /// Slots in the device's memory, whose requests are datagrams, complete in any order, and are written part for part.
    Numbered,
    /// Slots with a flag each, to which lists of requests have a shorter way.
    Flagged,
}

/// How requests are written into a send queue, or completions lie in a queue of theirs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Way {
    Slots,
    Blocks,
    // The others have a function. In the order of the queues and as many as they, so that one is the other's tag.
    Numbered,
    Flagged,
}

/// The send queue of a queue pair.
// A tag of its own, which is quicker to look at than one among the fields.
#[repr(u8)]
#[derive(Debug)]
pub(crate) enum Sends {
    Rings(rxe::Sends),
    Mlx5(mlx5::Sends),
    Efa(Box<efa::Sends>),
    Siw(Box<siw::Sends>),
}

/// A request that the device does not look at any more, and that it has not flushed: it came later than the error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Late {
    pub(crate) wr_id: u64,
    /// One of [`uverbs_abi::types::wc_opcode`].
    pub(crate) opcode: u32,
}

/// Does something with a queue of blocks by the way for its requests.
#[inline(always)]
pub(crate) fn in_blocks<W: WithSends>(sends: &mut mlx5::Sends, what: W) -> W::Answer {
    match W::KIND {
        Some(RequestKind::Frames) => what.with(sends.writing::<true, FRAMES>()),
        Some(RequestKind::Messages) => what.with(sends.writing::<true, MESSAGES>()),
        Some(RequestKind::Addressed) => what.with(sends.writing::<true, ADDRESSED>()),
        None if sends.kind() == RequestKind::Frames => what.with(sends.writing::<true, FRAMES>()),
        // A third way in one place makes the other two longer.
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

    /// Whether requests complete in their order. Those of siw do but for reads, which others overtake.
    pub(crate) fn is_in_order(&self) -> bool {
        match self {
            Self::Rings(_) | Self::Mlx5(_) => true,
            Self::Efa(_) | Self::Siw(_) => false,
        }
    }

    /// Whether the device must find the head of a frame in the request itself.
    #[inline]
    pub(crate) fn wants_head(&self) -> bool {
        match self {
            Self::Rings(_) | Self::Efa(_) | Self::Siw(_) => false,
            Self::Mlx5(sends) => sends.wants_head(),
        }
    }

    /// Begins a batch or a step of one request, of a queue that is neither a ring of slots nor of blocks; none of these, and where there is no way.
    // Not with the others, which would be longer.
    #[inline(never)]
    pub(crate) fn apart<W: WithSends>(&mut self, what: W) -> Option<W::Answer> {
        match self {
            Self::Rings(_) | Self::Mlx5(_) => None,
            Self::Efa(sends) => Some(what.with(sends.staging::<false>())),
            Self::Siw(sends) if W::KNOWS_FLAGS => Some(what.with(siw::Apart(sends.writing()))),
            Self::Siw(_) => None,
        }
    }

    /// Of what it is, by which the shortest way to it is chosen.
    #[cfg(feature = "raw")]
    pub(crate) fn layout(&self) -> SendLayout {
        match self {
            Self::Rings(_) => SendLayout::Slots,
            Self::Mlx5(sends) => SendLayout::Blocks(sends.kind()),
            Self::Efa(_) => SendLayout::Numbered,
            Self::Siw(_) => SendLayout::Flagged,
        }
    }

    /// The shortest way to requests in blocks, if they are of this kind.
    #[cfg(feature = "raw")]
    #[inline(always)]
    pub(crate) fn blocks_way<const LOOKS: bool, const KIND: u8>(&mut self) -> Option<impl Lower> {
        match self {
            Self::Mlx5(sends) if sends.kind() as u8 == KIND => Some(sends.writing::<LOOKS, KIND>()),
            Self::Rings(_) | Self::Mlx5(_) | Self::Efa(_) | Self::Siw(_) => None,
        }
    }

    /// Whether it is a ring of slots; blocks; or which of the others.
    // Not by the layout, which says of blocks what stands in them and is dearer to look at.
    #[inline(always)]
    pub(crate) fn way(&self) -> Way {
        match self {
            Self::Rings(_) => Way::Slots,
            Self::Mlx5(_) => Way::Blocks,
            Self::Efa(_) => Way::Numbered,
            Self::Siw(_) => Way::Flagged,
        }
    }

    /// A ring of slots, if it is one.
    // The ring, and not what comes of what is done with it: in an option that would go through memory.
    #[inline(always)]
    pub(crate) fn slots_alone(&mut self) -> Option<&mut rxe::Sends> {
        match self {
            Self::Rings(sends) => Some(sends),
            Self::Mlx5(_) | Self::Efa(_) | Self::Siw(_) => None,
        }
    }

    /// Blocks, if it is of these.
    #[inline(always)]
    pub(crate) fn blocks_alone(&mut self) -> Option<&mut mlx5::Sends> {
        match self {
            Self::Mlx5(sends) => Some(sends),
            Self::Rings(_) | Self::Efa(_) | Self::Siw(_) => None,
        }
    }

    /// Slots of requests that complete in any order, if it is of these.
    #[inline(always)]
    pub(crate) fn numbered_alone(&mut self) -> Option<&mut efa::Sends> {
        match self {
            Self::Efa(sends) => Some(sends),
            Self::Rings(_) | Self::Mlx5(_) | Self::Siw(_) => None,
        }
    }

    /// Goes back to what the device has seen: slots filled since are forgotten.
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

    /// Whether all that was posted has completed, where each request has a completion by which that is known.
    pub(crate) fn is_idle(&self) -> Option<bool> {
        match self {
            Self::Rings(_) | Self::Mlx5(_) => None,
            Self::Efa(sends) => Some(sends.is_idle()),
            Self::Siw(sends) => Some(sends.is_idle()),
        }
    }

    /// In the error state: takes out what the device does not look at any more and has not flushed, from the oldest on.
    pub(crate) fn take_late(&mut self, each: impl FnMut(Late)) {
        match self {
            // They flush whatever is posted.
            Self::Rings(_) | Self::Mlx5(_) | Self::Efa(_) => {}
            Self::Siw(sends) => sends.take_late(each),
        }
    }

    /// Takes back what was published last: the kernel has refused to look at it.
    pub(crate) fn retract(&mut self) {
        match self {
            Self::Rings(sends) => sends.ring().retract(),
            Self::Siw(sends) => sends.retract(),
            // The kernel is not asked to look.
            Self::Mlx5(_) | Self::Efa(_) => {}
        }
    }

    /// Shows the device every slot filled so far.
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

    /// The queue pair has come to a state.
    pub(crate) fn enter(&mut self, state: u8) {
        match self {
            // The kernel knows the state.
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
