//! Receive queues of all drivers.

mod short;

use std::borrow::Borrow;

use uverbs_abi::types::qp_state;

pub(crate) use self::short::with_short;
use super::request::{Refused, Sge};
use super::ring::{Producer, RingDevice};
use super::seam::{Late, LowerReceive, WithReceives};
use super::side::SrqSide;
use super::{efa, mlx5, rxe, siw};

#[inline(always)]
fn end<W>(ring: &mut Producer<W>, is_kept: bool) {
    if is_kept { ring.publish() } else { ring.rewind() }
}

/// Posts to a ring, and notifies the device that watches it.
#[cold]
#[inline(never)]
fn announced<W: WithReceives>(receives: &mut rxe::Receives, device: &dyn RingDevice, what: W) -> W::Answer {
    let answer = what.with(rxe::Writing(receives.ring().one::<true>()));
    end(receives.ring(), W::is_kept(&answer));
    device.look();
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

/// The same for efa.
#[inline(never)]
fn numbered<W: WithReceives>(receives: &mut efa::Receives, what: W) -> W::Answer {
    let answer = what.with(receives.staging());
    if W::is_kept(&answer) {
        receives.publish();
    } else {
        receives.rewind();
    }
    answer
}

/// Posts to slots that each have a flag. Marked as cold, so that the loops of other callers do not become longer.
#[cold]
#[inline(never)]
fn by_slot<W: WithReceives>(receives: &mut siw::Receives, what: W) -> W::Answer {
    let answer = what.with(receives.writing::<false>());
    if W::is_kept(&answer) {
        receives.publish();
    } else {
        receives.rewind();
    }
    answer
}

/// The same for one request, which belongs to the kernel as soon as it is filled.
#[cold]
#[inline(never)]
fn one_by_slot<W: WithReceives>(receives: &mut siw::Receives, what: W) -> W::Answer {
    if let Some(showing) = receives.showing() {
        return what.with(showing);
    }
    by_slot(receives, what)
}

/// As [`numbered`], for one request. A refused request was not filled.
#[inline(never)]
fn one_numbered<W: WithReceives>(receives: &mut efa::Receives, what: W) -> W::Answer {
    let answer = what.with(receives.keeping());
    receives.publish();
    answer
}

/// Posts to a linked list of entries.
#[inline(always)]
fn listed<W: WithReceives>(receives: &mut mlx5::SharedReceives, what: W) -> W::Answer {
    let mut writing = receives.writing();
    let answer = what.with(&mut writing);
    writing.end(W::is_kept(&answer));
    answer
}

/// The receive queue of a queue pair, or a shared one.
// The tag is separate, because it is faster to read than one among the fields.
#[repr(u8)]
#[derive(Debug)]
pub(crate) enum Receives {
    Rings(rxe::Receives),
    /// Those of the soft device, which is notified of posted requests and has taken them when the call returns.
    Announced(rxe::Receives, Box<dyn RingDevice>),
    Mlx5(mlx5::Receives),
    Mlx5Shared(mlx5::SharedReceives),
    Efa(Box<efa::Receives>),
    /// Those of a queue pair, or shared ones.
    Siw(Box<siw::Receives>),
    /// The ring that the device now uses could not be mapped.
    Lost(Lost),
}

/// A ring that was lost, and its next slot.
#[derive(Debug)]
pub(crate) struct Lost(u32);

impl LowerReceive for &Lost {
    fn next_slot(&self) -> u32 {
        self.0
    }

    fn put<P>(&mut self, _: u64, _: P) -> Result<(), Refused>
    where
        P: ExactSizeIterator<Item: Borrow<Sge>>,
    {
        Err(Refused::Lost)
    }
}

#[cold]
#[inline(never)]
fn nowhere<W: WithReceives>(lost: &Lost, what: W) -> W::Answer {
    what.with(lost)
}

impl Receives {
    /// A ring, and the device that must be notified of what is in it.
    pub(super) fn in_rings((ring, device): rxe::Receiving) -> Self {
        match device {
            Some(device) => Self::Announced(ring, device),
            None => Self::Rings(ring),
        }
    }

    /// Number of slots.
    pub(crate) fn slots(&self) -> usize {
        match self {
            Self::Rings(receives) | Self::Announced(receives, _) => receives.geometry().slots(),
            Self::Mlx5(receives) => receives.slots(),
            Self::Mlx5Shared(receives) => receives.slots(),
            Self::Efa(receives) => receives.slots(),
            Self::Siw(receives) => receives.places(),
            Self::Lost(_) => 0,
        }
    }

    /// Number of requests that it can hold.
    pub(crate) fn capacity(&self) -> u32 {
        match self {
            Self::Rings(receives) | Self::Announced(receives, _) => receives.geometry().capacity(),
            Self::Mlx5(receives) => receives.slots() as u32,
            // One of the entries is never posted.
            Self::Mlx5Shared(receives) => receives.slots() as u32 - 1,
            Self::Efa(receives) => receives.slots() as u32,
            Self::Siw(receives) => receives.capacity(),
            Self::Lost(_) => 0,
        }
    }

    /// The slot that is filled next.
    pub(crate) fn next_slot(&mut self) -> u32 {
        match self {
            Self::Rings(receives) | Self::Announced(receives, _) => receives.ring().next_slot(),
            Self::Mlx5(receives) => receives.next_slot(),
            Self::Mlx5Shared(receives) => receives.next_slot(),
            Self::Efa(receives) => receives.next_slot(),
            Self::Siw(receives) => receives.next_slot(),
            Self::Lost(Lost(next)) => *next,
        }
    }

    /// The ring that the device now uses could not be mapped: nothing can be posted any more.
    pub(crate) fn lose(&mut self) {
        *self = Self::Lost(Lost(self.next_slot()));
    }

    /// The part that queue pairs need that receive from it, if it is shared.
    pub(crate) fn side(&self) -> SrqSide {
        match self {
            Self::Rings(_)
            | Self::Announced(..)
            | Self::Mlx5(_)
            | Self::Efa(_)
            | Self::Siw(_)
            | Self::Lost(_) => SrqSide::Rings,
            Self::Mlx5Shared(receives) => SrqSide::Mlx5(receives.places().clone()),
        }
    }

    /// Posts a batch.
    #[inline(always)]
    pub(crate) fn post<W: WithReceives>(&mut self, what: W) -> W::Answer {
        // Checked separately: with the match alone, a post in Rust takes some instructions more (lane mlx5-messages).
        if let Self::Mlx5Shared(receives) = self {
            return listed(receives, what);
        }
        match self {
            Self::Rings(receives) => {
                let answer = what.with(rxe::Writing(receives.ring().batch()));
                end(receives.ring(), W::is_kept(&answer));
                answer
            }
            Self::Announced(receives, device) => announced(receives, &**device, what),
            Self::Mlx5(receives) => told(receives, what),
            Self::Mlx5Shared(receives) => listed(receives, what),
            Self::Efa(receives) => numbered(receives, what),
            Self::Siw(receives) => by_slot(receives, what),
            Self::Lost(lost) => nowhere(lost, what),
        }
    }

    /// The same for one request.
    #[inline(always)]
    pub(crate) fn step<W: WithReceives>(&mut self, what: W) -> W::Answer {
        if let Self::Mlx5Shared(receives) = self {
            return listed(receives, what);
        }
        match self {
            Self::Rings(receives) => {
                let answer = what.with(rxe::Writing(receives.ring().one::<true>()));
                end(receives.ring(), W::is_kept(&answer));
                answer
            }
            Self::Announced(receives, device) => announced(receives, &**device, what),
            Self::Mlx5(receives) => told(receives, what),
            Self::Mlx5Shared(receives) => listed(receives, what),
            Self::Efa(receives) => one_numbered(receives, what),
            Self::Siw(receives) => one_by_slot(receives, what),
            Self::Lost(lost) => nowhere(lost, what),
        }
    }

    /// Posts requests to slots that each have a flag and belong to the device one by one. If a request cannot be posted, those before it
    /// are, whatever [`WithReceives::is_kept`] returns. `None`, with nothing done, for a queue without flags, or if `may` forbids it.
    #[cfg(feature = "raw")]
    #[inline(always)]
    pub(crate) fn post_flagged<W: WithReceives>(
        &mut self,
        what: W,
        may: impl Fn() -> bool,
    ) -> Option<W::Answer> {
        match self {
            Self::Siw(receives) if may() => receives.showing().map(|showing| what.with(showing)),
            Self::Siw(_) => None,
            Self::Rings(_) | Self::Announced(..) | Self::Mlx5(_) | Self::Mlx5Shared(_) => None,
            Self::Efa(_) | Self::Lost(_) => None,
        }
    }

    /// As [`Receives::post`], for a queue pair's queue that the device reads by itself, and for callers that keep whatever was filled.
    /// `None` for another queue.
    #[cfg(feature = "raw")]
    #[inline(always)]
    pub(crate) fn post_in_blocks<W: WithReceives>(&mut self, what: W) -> Option<W::Answer> {
        if let Self::Mlx5(receives) = self { Some(told(receives, what)) } else { None }
    }

    /// The same for a linked list of entries.
    #[cfg(feature = "raw")]
    #[inline(always)]
    pub(crate) fn post_listed<W: WithReceives>(&mut self, what: W) -> Option<W::Answer> {
        if let Self::Mlx5Shared(receives) = self { Some(listed(receives, what)) } else { None }
    }

    /// The same by the code of [`Receives::post`].
    #[cfg(feature = "raw")]
    pub(crate) fn post_flagged_at_length<W: WithReceives>(&mut self, what: W) -> Option<W::Answer> {
        match self {
            Self::Siw(receives) => Some(by_slot(receives, what)),
            Self::Rings(_) | Self::Announced(..) | Self::Mlx5(_) | Self::Mlx5Shared(_) => None,
            Self::Efa(_) | Self::Lost(_) => None,
        }
    }

    /// Discards what was filled and not published, because filling was not ended.
    #[cold]
    pub(crate) fn rewind(&mut self) {
        match self {
            Self::Rings(receives) | Self::Announced(receives, _) => receives.ring().rewind(),
            Self::Mlx5(receives) => receives.rewind(),
            Self::Efa(receives) => receives.rewind(),
            Self::Siw(receives) => receives.rewind(),
            // What was filled is discarded already, or nothing was filled.
            Self::Mlx5Shared(_) | Self::Lost(_) => {}
        }
    }

    /// Whether all that was posted has completed, if this is known without an extra request.
    pub(crate) fn is_idle(&self) -> Option<bool> {
        match self {
            Self::Efa(receives) => Some(receives.is_idle()),
            Self::Siw(receives) => Some(receives.is_idle()),
            Self::Rings(_) | Self::Announced(..) | Self::Mlx5(_) | Self::Mlx5Shared(_) | Self::Lost(_) => {
                None
            }
        }
    }

    /// In the error state: removes the requests that the device does not read any more and has not flushed, oldest first.
    pub(crate) fn take_late(&mut self, each: impl FnMut(Late)) {
        match self {
            Self::Siw(receives) => receives.take_late(each),
            // These drivers flush every request.
            Self::Rings(_) | Self::Announced(..) | Self::Mlx5(_) | Self::Mlx5Shared(_) | Self::Efa(_) => {}
            Self::Lost(_) => {}
        }
    }

    /// The queue pair has entered a state.
    pub(crate) fn enter(&mut self, state: u8) {
        match self {
            // The kernel keeps the state.
            Self::Rings(_) | Self::Announced(..) => {}
            // A shared queue has no state.
            Self::Mlx5Shared(_) | Self::Lost(_) => {}
            Self::Mlx5(receives) => {
                if state == qp_state::RESET {
                    receives.reset();
                } else if state >= qp_state::RTR {
                    receives.start();
                }
            }
            Self::Efa(receives) => receives.enter(state),
            Self::Siw(receives) => receives.enter(state),
        }
    }
}
