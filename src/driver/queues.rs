//! The queues of whichever driver: rings that the kernel made, or memory that the device reads itself.

#[cfg(feature = "raw")]
use std::sync::atomic::Ordering;

use uverbs_abi::rxe::{SendWr, Sge};
use uverbs_abi::types::qp_state;

use super::ring::Watcher;
use super::{mlx5, rxe};
use crate::completion::Completion;
#[cfg(feature = "raw")]
use crate::completion::Extended;
use crate::error::{Error, Result};

/// What a send request carries: pieces of memory, or the bytes themselves.
pub(crate) enum Data<'a, P> {
    Pieces(P),
    Inline(&'a [u8]),
}

/// What an mlx5 send request has of the headers itself.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Head<'a> {
    /// Of one frame the first bytes of its data, [`Sends::inline_header`] of them; of a large send what each frame begins
    /// with.
    pub(crate) bytes: &'a [u8],
    /// Bytes of data in each frame of a large send; zero of one frame.
    pub(crate) mss: u16,
}

/// A completion queue.
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
    #[inline]
    pub(crate) fn poll(&mut self, places: &mut [Completion], may_take: impl Fn() -> bool) -> usize {
        match self {
            Self::Rings(ring) => ring.poll(places, may_take, Completion::fill),
            Self::Mlx5(queue) => queue.poll(places, may_take),
        }
    }

    /// Whether it is known to be empty.
    #[cfg(feature = "raw")]
    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        match self {
            Self::Rings(ring) => ring.is_empty(),
            Self::Mlx5(_) => false,
        }
    }

    /// The same in the kernel's layout, and what that has no place for; `fill` puts a completion into its place.
    #[cfg(feature = "raw")]
    #[inline]
    pub(crate) fn poll_wc<T>(
        &mut self,
        places: &mut [T],
        may_take: impl Fn() -> bool,
        mut fill: impl FnMut(&mut T, Extended),
    ) -> usize {
        match self {
            Self::Rings(ring) => ring.poll(places, may_take, |place, words| {
                let words = words.each_ref().map(|word| word.load(Ordering::Relaxed));
                fill(place, Extended { wc: zerocopy::transmute!(words), ..Extended::default() });
            }),
            Self::Mlx5(queue) => {
                let mut count = 0;
                for place in places {
                    let mut completion = [Completion::default()];
                    if queue.poll(&mut completion, &may_take) == 0 {
                        break;
                    }
                    let [Completion { vlan, timestamp, .. }] = completion;
                    fill(place, Extended { wc: completion[0].wc(), vlan, timestamp });
                    count += 1;
                }
                count
            }
        }
    }

    /// Takes out the completions of a queue pair that was reset. Those of mlx5 know to which life they belong.
    #[cfg(feature = "raw")]
    pub(crate) fn forget(&mut self, qp_num: u32) {
        if let Self::Rings(ring) = self {
            ring.forget(qp_num);
        }
    }

    /// What the queue pairs of mlx5 must know of it.
    pub(crate) fn mlx5(&self, op: &'static str) -> Result<&std::sync::Arc<mlx5::CqShared>> {
        match self {
            Self::Mlx5(queue) => Ok(queue.shared()),
            Self::Rings(_) => Err(Error::malformed(op, "a completion queue of another driver")),
        }
    }
}

/// The send queue of a queue pair.
#[derive(Debug)]
pub(crate) enum Sends {
    Rings(rxe::Sends),
    Mlx5(mlx5::Sends),
}

impl Sends {
    /// Number of slots.
    pub(crate) fn slots(&mut self) -> usize {
        match self {
            Self::Rings(sends) => sends.ring().geometry().slots(),
            Self::Mlx5(sends) => sends.slots(),
        }
    }

    /// Requests that can be posted now.
    #[inline]
    pub(crate) fn free(&mut self) -> u32 {
        match self {
            Self::Rings(sends) => sends.ring().free(),
            Self::Mlx5(sends) => sends.free(),
        }
    }

    /// The slot that is filled next.
    #[inline]
    pub(crate) fn next_slot(&mut self) -> u32 {
        match self {
            Self::Rings(sends) => sends.ring().next_slot(),
            Self::Mlx5(sends) => sends.next_slot(),
        }
    }

    /// How many bytes at the head of a frame the device must find in the request itself.
    #[inline]
    pub(crate) fn inline_header(&self) -> usize {
        match self {
            Self::Rings(_) => 0,
            Self::Mlx5(sends) => sends.inline_header(),
        }
    }

    /// Fills the next slot; false when the data does not fit into it.
    #[inline(always)]
    #[must_use]
    pub(crate) fn put<P>(&mut self, wr: &SendWr, iova: u64, head: Head<'_>, data: Data<'_, P>) -> bool
    where
        P: Iterator<Item = Sge>,
    {
        match self {
            Self::Rings(sends) => sends.put(wr, iova, data),
            Self::Mlx5(sends) => sends.put(wr, head, data),
        }
    }

    /// Goes back to what the device has seen: slots filled since are forgotten.
    pub(crate) fn rewind(&mut self) {
        match self {
            Self::Rings(sends) => sends.ring().rewind(),
            Self::Mlx5(sends) => sends.rewind(),
        }
    }

    /// Takes back slots that the kernel has refused to look at.
    pub(crate) fn retract(&mut self, slot: u32) {
        if let Self::Rings(sends) = self {
            sends.ring().retract(slot);
        }
    }

    /// Shows the device every slot filled so far; false when the kernel must still be told by a command.
    #[inline]
    pub(crate) fn publish(&mut self) -> bool {
        match self {
            Self::Rings(sends) => {
                sends.ring().publish();
                false
            }
            Self::Mlx5(sends) => {
                sends.publish();
                true
            }
        }
    }

    /// The queue pair has come to a state.
    pub(crate) fn enter(&mut self, state: u8) {
        if let Self::Mlx5(sends) = self {
            if state == qp_state::RESET {
                sends.reset();
            }
            sends.is_ready = state >= qp_state::RTS;
        }
    }

    /// Whether the state of the queue pair is one in which requests are carried out or flushed. The kernel is asked for
    /// it where it hears of requests.
    #[inline]
    pub(crate) fn is_ready(&self) -> bool {
        match self {
            Self::Rings(_) => true,
            Self::Mlx5(sends) => sends.is_ready,
        }
    }
}

/// The receive queue of a queue pair, or a shared one.
#[derive(Debug)]
pub(crate) enum Receives {
    Rings(rxe::Receives),
    /// The soft device's: it is told what was posted, and has it before the call returns.
    Watched(rxe::Receives, Box<dyn Watcher>),
    Mlx5(mlx5::Receives),
}

impl Receives {
    /// Number of slots.
    pub(crate) fn slots(&mut self) -> usize {
        match self {
            Self::Rings(receives) | Self::Watched(receives, _) => receives.ring().geometry().slots(),
            Self::Mlx5(receives) => receives.slots(),
        }
    }

    /// How many requests it can hold.
    pub(crate) fn capacity(&mut self) -> u32 {
        match self {
            Self::Rings(receives) | Self::Watched(receives, _) => receives.ring().geometry().capacity(),
            Self::Mlx5(receives) => receives.slots() as u32,
        }
    }

    /// Requests that can be posted now.
    #[inline]
    pub(crate) fn free(&mut self) -> u32 {
        match self {
            Self::Rings(receives) | Self::Watched(receives, _) => receives.ring().free(),
            Self::Mlx5(receives) => receives.free(),
        }
    }

    /// The slot that is filled next.
    #[inline]
    pub(crate) fn next_slot(&mut self) -> u32 {
        match self {
            Self::Rings(receives) | Self::Watched(receives, _) => receives.ring().next_slot(),
            Self::Mlx5(receives) => receives.next_slot(),
        }
    }

    /// Fills the next slot; false when the pieces do not fit into it.
    #[inline(always)]
    #[must_use]
    pub(crate) fn put(&mut self, wr_id: u64, pieces: impl ExactSizeIterator<Item = Sge>) -> bool {
        match self {
            Self::Rings(receives) | Self::Watched(receives, _) => receives.put(wr_id, pieces),
            Self::Mlx5(receives) => receives.put(wr_id, pieces),
        }
    }

    /// Goes back to what the device has seen: slots filled since are forgotten.
    pub(crate) fn rewind(&mut self) {
        match self {
            Self::Rings(receives) | Self::Watched(receives, _) => receives.ring().rewind(),
            Self::Mlx5(receives) => receives.rewind(),
        }
    }

    /// Shows the device every slot filled so far.
    #[inline]
    pub(crate) fn publish(&mut self) {
        match self {
            Self::Rings(receives) => receives.ring().publish(),
            Self::Watched(receives, watcher) => {
                receives.ring().publish();
                watcher.look();
            }
            Self::Mlx5(receives) => receives.publish(),
        }
    }

    /// The queue pair has come to a state.
    pub(crate) fn enter(&mut self, state: u8) {
        match (self, state) {
            (Self::Mlx5(receives), qp_state::RESET) => receives.reset(),
            (Self::Mlx5(receives), qp_state::RTR..) => receives.start(),
            _ => {}
        }
    }
}
