//! The queues of whichever driver: rings that the kernel made, or memory that the device reads itself.

use std::borrow::Borrow;

use uverbs_abi::types::{SendFlags, qp_state};

use super::completion::Place;
#[cfg(feature = "raw")]
pub use super::mlx5::Unread;
use super::request::{Address, Data, FrameHead, Opcode, Refused, Sge, Terms};
use super::ring::{Producer, RingDevice};
use super::side::{CqSide, SrqSide};
use super::{mlx5, rxe};
use crate::kernel::error::Result;

/// A completion queue.
// A tag of its own, which is quicker to look at than one among the fields.
#[repr(u8)]
#[derive(Debug)]
pub(crate) enum Completions {
    Rings(rxe::Completions),
    Mlx5(mlx5::Completions),
}

impl Completions {
    /// How many completions it can hold.
    pub(crate) fn capacity(&self) -> u32 {
        match self {
            Self::Rings(ring) => ring.capacity(),
            Self::Mlx5(queue) => queue.capacity(),
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
        }
    }

    /// Whether the device has written no completion.
    #[cfg(feature = "raw")]
    #[inline(always)]
    pub(crate) fn is_empty(&self) -> bool {
        match self {
            Self::Rings(ring) => ring.is_empty(),
            Self::Mlx5(queue) => queue.is_empty(),
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
            Self::Mlx5(_) => None,
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
            Self::Mlx5(_) => None,
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
            Self::Rings(_) => None,
            Self::Mlx5(queue) => queue.short_one(may_take, |raised| place.put(raised)),
        }
    }

    /// Gives back the slots of all that [`Completions::next_unread`] took.
    #[cfg(feature = "raw")]
    #[inline(always)]
    pub(crate) fn release(&mut self) {
        match self {
            Self::Rings(_) => {}
            Self::Mlx5(queue) => queue.release(),
        }
    }

    /// Takes out the completions of a queue pair that was reset. Those of mlx5 know to which life they belong.
    #[cfg(feature = "raw")]
    pub(crate) fn forget(&mut self, qp_num: u32) {
        match self {
            Self::Rings(ring) => ring.ring().retain(|wc| wc.qp_num != qp_num),
            Self::Mlx5(_) => {}
        }
    }

    /// What others know of it.
    pub(crate) fn side(&self) -> CqSide {
        match self {
            Self::Rings(_) => CqSide::Rings,
            Self::Mlx5(queue) => CqSide::Mlx5(queue.shared().clone()),
        }
    }
}

/// A driver's send queue while a batch of requests is written into it.
pub trait Lower {
    /// The slot that is filled next.
    fn next_slot(&self) -> u32;

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

/// A driver's receive queue while a batch of requests is written into it.
pub trait LowerReceive {
    /// The slot that is filled next.
    fn next_slot(&self) -> u32;

    /// The slot that is filled behind this one, if that is not the next of a ring.
    fn link(&self, _slot: u32) -> Option<u32> {
        None
    }

    /// Fills the next slot.
    ///
    /// # Errors
    /// [`Refused::Full`] and [`Refused::TooLarge`]; nothing is filled then.
    fn put<P>(&mut self, wr_id: u64, pieces: P) -> Result<(), Refused>
    where
        P: ExactSizeIterator<Item: Borrow<Sge>>;
}

/// What is done with a send queue of whichever driver: once for each of them, so that a driver is asked for once in a batch.
pub(crate) trait WithSends {
    type Answer;
    fn with<L: Lower>(self, lower: L) -> Self::Answer;
}

/// The same with a receive queue.
pub(crate) trait WithReceives {
    type Answer;
    fn with<L: LowerReceive>(self, lower: L) -> Self::Answer;
    /// Whether the device is to see what was filled; else that is forgotten.
    fn is_kept(answer: &Self::Answer) -> bool;
}

#[inline(always)]
fn end<W>(ring: &mut Producer<W>, is_kept: bool) {
    if is_kept { ring.publish() } else { ring.rewind() }
}

/// Posts to a ring, and tells who watches it.
#[cold]
#[inline(never)]
fn announced<W: WithReceives>(receives: &mut rxe::Receives, device: &dyn RingDevice, what: W) -> W::Answer {
    let answer = what.with(rxe::Writing(receives.ring().one::<true>()));
    end(receives.ring(), W::is_kept(&answer));
    device.look();
    answer
}

/// Posts to a shared queue that the device reads by itself.
#[inline(always)]
fn told_all<W: WithReceives>(receives: &mut mlx5::SharedReceives, what: W) -> W::Answer {
    let answer = what.with(receives.writing());
    if W::is_kept(&answer) {
        receives.publish();
    } else {
        receives.rewind();
    }
    answer
}

/// Posts to a ring that the device reads by itself.
#[inline(always)]
fn told<W: WithReceives>(receives: &mut mlx5::Receives, what: W) -> W::Answer {
    let answer = what.with(receives.writing());
    if W::is_kept(&answer) {
        receives.publish();
    } else {
        receives.rewind();
    }
    answer
}

/// Posts messages where the device reads them itself: in a place of its own, so that frames pay nothing for what these have.
#[inline(never)]
fn messages<W: WithSends>(sends: &mut mlx5::Sends, what: W) -> W::Answer {
    what.with(sends.writing::<true, true>())
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
    /// Blocks that the device reads itself, with frames.
    Frames,
    /// The same with messages.
    Messages,
}

/// The send queue of a queue pair.
// A tag of its own, which is quicker to look at than one among the fields.
#[repr(u8)]
#[derive(Debug)]
pub(crate) enum Sends {
    Rings(rxe::Sends),
    Mlx5(mlx5::Sends),
}

impl Sends {
    /// Number of slots.
    pub(crate) fn slots(&self) -> usize {
        match self {
            Self::Rings(sends) => sends.geometry().slots(),
            Self::Mlx5(sends) => sends.slots(),
        }
    }

    /// Whether the device must find the head of a frame in the request itself.
    #[inline]
    pub(crate) fn wants_head(&self) -> bool {
        match self {
            Self::Rings(_) => false,
            Self::Mlx5(sends) => sends.wants_head(),
        }
    }

    /// Begins a batch.
    #[inline(always)]
    pub(crate) fn batch<W: WithSends>(&mut self, what: W) -> W::Answer {
        match self {
            Self::Rings(sends) => what.with(rxe::Writing(sends.ring().batch())),
            Self::Mlx5(sends) if sends.has_frames() => what.with(sends.writing::<true, false>()),
            Self::Mlx5(sends) => what.with(sends.writing::<true, true>()),
        }
    }

    /// Of what it is, by which the shortest way to it is chosen.
    #[cfg(feature = "raw")]
    pub(crate) fn layout(&self) -> SendLayout {
        match self {
            Self::Rings(_) => SendLayout::Slots,
            Self::Mlx5(sends) if sends.has_frames() => SendLayout::Frames,
            Self::Mlx5(_) => SendLayout::Messages,
        }
    }

    /// The shortest way to one request in a ring of slots. Unless it `LOOKS`, there is none but in what is known to be free.
    #[cfg(feature = "raw")]
    #[inline(always)]
    pub(crate) fn slots_way<const LOOKS: bool>(&mut self) -> Option<impl Lower> {
        match self {
            Self::Rings(sends) => Some(rxe::Writing(sends.ring().one::<LOOKS>())),
            Self::Mlx5(_) => None,
        }
    }

    /// The same of frames in blocks.
    #[cfg(feature = "raw")]
    #[inline(always)]
    pub(crate) fn frames_way<const LOOKS: bool>(&mut self) -> Option<impl Lower> {
        match self {
            Self::Mlx5(sends) if sends.has_frames() => Some(sends.writing::<LOOKS, false>()),
            Self::Rings(_) | Self::Mlx5(_) => None,
        }
    }

    /// The same of messages in blocks.
    #[cfg(feature = "raw")]
    #[inline(always)]
    pub(crate) fn messages_way<const LOOKS: bool>(&mut self) -> Option<impl Lower> {
        match self {
            Self::Mlx5(sends) if !sends.has_frames() => Some(sends.writing::<LOOKS, true>()),
            Self::Rings(_) | Self::Mlx5(_) => None,
        }
    }

    /// The same for a step of one request.
    #[inline(always)]
    pub(crate) fn step<W: WithSends>(&mut self, what: W) -> W::Answer {
        match self {
            Self::Rings(sends) => what.with(rxe::Writing(sends.ring().one::<true>())),
            Self::Mlx5(sends) if sends.has_frames() => what.with(sends.writing::<true, false>()),
            Self::Mlx5(sends) => messages(sends, what),
        }
    }

    /// Goes back to what the device has seen: slots filled since are forgotten.
    pub(crate) fn rewind(&mut self) {
        match self {
            Self::Rings(sends) => sends.ring().rewind(),
            Self::Mlx5(sends) => sends.rewind(),
        }
    }

    /// The slot that is filled next.
    pub(crate) fn next_slot(&self) -> u32 {
        match self {
            Self::Rings(sends) => sends.next_slot(),
            Self::Mlx5(sends) => sends.next_slot(),
        }
    }

    /// Takes back what was published last: the kernel has refused to look at it.
    pub(crate) fn retract(&mut self) {
        match self {
            Self::Rings(sends) => sends.ring().retract(),
            // The kernel is not asked to look.
            Self::Mlx5(_) => {}
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
        }
    }
}

/// The receive queue of a queue pair, or a shared one.
// A tag of its own, which is quicker to look at than one among the fields.
#[repr(u8)]
#[derive(Debug)]
pub(crate) enum Receives {
    Rings(rxe::Receives),
    /// The soft device's: it is told what was posted, and has it before the call returns.
    Announced(rxe::Receives, Box<dyn RingDevice>),
    Mlx5(mlx5::Receives),
    Mlx5Shared(mlx5::SharedReceives),
}

impl Receives {
    /// Number of slots.
    pub(crate) fn slots(&self) -> usize {
        match self {
            Self::Rings(receives) | Self::Announced(receives, _) => receives.geometry().slots(),
            Self::Mlx5(receives) => receives.slots(),
            Self::Mlx5Shared(receives) => receives.slots(),
        }
    }

    /// How many requests it can hold.
    pub(crate) fn capacity(&self) -> u32 {
        match self {
            Self::Rings(receives) | Self::Announced(receives, _) => receives.geometry().capacity(),
            Self::Mlx5(receives) => receives.slots() as u32,
            // One of them is never posted.
            Self::Mlx5Shared(receives) => receives.slots() as u32 - 1,
        }
    }

    /// The slot that is filled next.
    pub(crate) fn next_slot(&mut self) -> u32 {
        match self {
            Self::Rings(receives) | Self::Announced(receives, _) => receives.ring().next_slot(),
            Self::Mlx5(receives) => receives.next_slot(),
            Self::Mlx5Shared(receives) => receives.next_slot(),
        }
    }

    /// What queue pairs that take from it must know of it, if it is shared.
    pub(crate) fn side(&self) -> SrqSide {
        match self {
            Self::Rings(_) | Self::Announced(..) | Self::Mlx5(_) => SrqSide::Rings,
            Self::Mlx5Shared(receives) => SrqSide::Mlx5(receives.places().clone()),
        }
    }

    /// Posts a batch.
    #[inline(always)]
    pub(crate) fn post<W: WithReceives>(&mut self, what: W) -> W::Answer {
        match self {
            Self::Rings(receives) => {
                let answer = what.with(rxe::Writing(receives.ring().batch()));
                end(receives.ring(), W::is_kept(&answer));
                answer
            }
            Self::Announced(receives, device) => announced(receives, &**device, what),
            Self::Mlx5(receives) => told(receives, what),
            Self::Mlx5Shared(receives) => told_all(receives, what),
        }
    }

    /// The same of one request.
    #[inline(always)]
    pub(crate) fn step<W: WithReceives>(&mut self, what: W) -> W::Answer {
        match self {
            Self::Rings(receives) => {
                let answer = what.with(rxe::Writing(receives.ring().one::<true>()));
                end(receives.ring(), W::is_kept(&answer));
                answer
            }
            Self::Announced(receives, device) => announced(receives, &**device, what),
            Self::Mlx5(receives) => told(receives, what),
            Self::Mlx5Shared(receives) => told_all(receives, what),
        }
    }

    /// Forgets what was filled and not published, since filling was not ended.
    #[cold]
    pub(crate) fn rewind(&mut self) {
        match self {
            Self::Rings(receives) | Self::Announced(receives, _) => receives.ring().rewind(),
            Self::Mlx5(receives) => receives.rewind(),
            Self::Mlx5Shared(receives) => receives.rewind(),
        }
    }

    /// The queue pair has come to a state.
    pub(crate) fn enter(&mut self, state: u8) {
        match self {
            // The kernel knows the state.
            Self::Rings(_) | Self::Announced(..) => {}
            // A shared queue has no state.
            Self::Mlx5Shared(_) => {}
            Self::Mlx5(receives) => {
                if state == qp_state::RESET {
                    receives.reset();
                } else if state >= qp_state::RTR {
                    receives.start();
                }
            }
        }
    }
}
