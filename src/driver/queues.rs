//! The queues of whichever driver: rings that the kernel made, or memory that the device reads itself.

use std::borrow::Borrow;

use uverbs_abi::types::{SendFlags, qp_state};

use super::completion::Place;
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

/// Takes completions from entries that are each handed over by themselves. Apart, so that the ways of others stay as short as they are.
#[inline(never)]
pub(super) fn by_entry<T: Place>(
    queue: &mut siw::Completions,
    places: &mut [T],
    may_take: impl Fn() -> bool,
) -> Option<usize> {
    queue.take_if(places, may_take)
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
            Self::Efa(queue) => queue.poll(places, may_take, |place, raised| place.put(raised)),
            Self::Siw(queue) => by_entry(queue, places, may_take).unwrap_or(0),
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
            Self::Siw(queue) => by_entry(queue, places, may_take),
            Self::Mlx5(_) | Self::Efa(_) => None,
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
            Self::Siw(queue) => by_entry(queue, std::slice::from_mut(place), may_take),
            Self::Mlx5(_) | Self::Efa(_) => None,
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

    /// Gives back the slots of all that [`Completions::next_unread`] took.
    #[cfg(feature = "raw")]
    #[inline(always)]
    pub(crate) fn release(&mut self) {
        match self {
            // What was taken from siw was given back at once.
            Self::Rings(_) | Self::Siw(_) => {}
            Self::Mlx5(queue) => queue.release(),
            Self::Efa(queue) => queue.release(),
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

    /// Where slots are used in another order, those that were filled since the last were published.
    fn filled(&self) -> &[u16] {
        &[]
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

/// Does something with a queue of slots that are each handed over by themselves. Apart, as the ways below.
#[inline(never)]
fn by_slot<W: WithSends>(sends: &mut siw::Sends, what: W) -> W::Answer {
    what.with(sends)
}

/// Shows the device what was filled there.
#[inline(never)]
fn publish_slots(sends: &mut siw::Sends) -> Published {
    sends.publish()
}

/// Does something with a queue of blocks by the way for its requests.
#[inline(always)]
fn of_kind<W: WithSends>(sends: &mut mlx5::Sends, what: W) -> W::Answer {
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

    /// Begins a batch.
    #[inline(always)]
    pub(crate) fn batch<W: WithSends>(&mut self, what: W) -> W::Answer {
        match self {
            Self::Rings(sends) => what.with(rxe::Writing(sends.ring().batch())),
            Self::Mlx5(sends) => of_kind(sends, what),
            Self::Efa(sends) => what.with(&mut **sends),
            Self::Siw(sends) => by_slot(sends, what),
        }
    }

    /// Of what it is, by which the shortest way to it is chosen.
    #[cfg(feature = "raw")]
    pub(crate) fn layout(&self) -> SendLayout {
        match self {
            // Efa's and siw's have no shorter way, and so no layout that matters.
            Self::Rings(_) | Self::Efa(_) | Self::Siw(_) => SendLayout::Slots,
            Self::Mlx5(sends) => SendLayout::Blocks(sends.kind()),
        }
    }

    /// The shortest way to one request in a ring of slots. Unless it `LOOKS`, there is none but in what is known to be free.
    #[cfg(feature = "raw")]
    #[inline(always)]
    pub(crate) fn slots_way<const LOOKS: bool>(&mut self) -> Option<impl Lower> {
        match self {
            Self::Rings(sends) => Some(rxe::Writing(sends.ring().one::<LOOKS>())),
            Self::Mlx5(_) | Self::Efa(_) | Self::Siw(_) => None,
        }
    }

    /// The same in blocks, of requests of this kind.
    #[cfg(feature = "raw")]
    #[inline(always)]
    pub(crate) fn blocks_way<const LOOKS: bool, const KIND: u8>(&mut self) -> Option<impl Lower> {
        match self {
            Self::Mlx5(sends) if sends.kind() as u8 == KIND => Some(sends.writing::<LOOKS, KIND>()),
            Self::Rings(_) | Self::Mlx5(_) | Self::Efa(_) | Self::Siw(_) => None,
        }
    }

    /// The same for a step of one request.
    #[inline(always)]
    pub(crate) fn step<W: WithSends>(&mut self, what: W) -> W::Answer {
        match self {
            Self::Rings(sends) => what.with(rxe::Writing(sends.ring().one::<true>())),
            Self::Mlx5(sends) => of_kind(sends, what),
            Self::Efa(sends) => what.with(&mut **sends),
            Self::Siw(sends) => by_slot(sends, what),
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
            Self::Efa(sends) => {
                sends.publish();
                Published::Told
            }
            Self::Siw(sends) => publish_slots(sends),
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
