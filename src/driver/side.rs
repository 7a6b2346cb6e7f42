//! The parts of queues that others than the poller and the poster use.

use std::sync::Arc;

use super::{efa, mlx5, siw};
use crate::kernel::error::{Error, Result};

/// The part of a shared receive queue that the queue pairs need that receive from it.
#[derive(Clone, Debug)]
pub(crate) enum SrqSide {
    Rings,
    Mlx5(Arc<mlx5::Places>),
}

impl SrqSide {
    /// The part that queue pairs of mlx5 need.
    pub(crate) fn mlx5(&self, op: &'static str) -> Result<&Arc<mlx5::Places>> {
        match self {
            Self::Mlx5(places) => Ok(places),
            Self::Rings => Err(Error::malformed(op, "a shared receive queue of another driver")),
        }
    }
}

/// The part of a completion queue that its queue pairs use, and callers that request events. It contains nothing that only the poller may
/// use.
#[derive(Debug)]
pub(crate) enum CqSide {
    Rings,
    Mlx5(Arc<mlx5::CompletionSide>),
    Efa(Arc<efa::CompletionSide>),
    Siw(Arc<siw::Alarm>),
}

impl CqSide {
    /// The part that queue pairs of mlx5 need.
    pub(crate) fn mlx5(&self, op: &'static str) -> Result<&Arc<mlx5::CompletionSide>> {
        match self {
            Self::Mlx5(shared) => Ok(shared),
            Self::Rings | Self::Efa(_) | Self::Siw(_) => Err(Self::foreign(op)),
        }
    }

    /// The part that queue pairs of efa need.
    pub(crate) fn efa(&self, op: &'static str) -> Result<&Arc<efa::CompletionSide>> {
        match self {
            Self::Efa(shared) => Ok(shared),
            Self::Rings | Self::Mlx5(_) | Self::Siw(_) => Err(Self::foreign(op)),
        }
    }

    fn foreign(op: &'static str) -> Error {
        Error::malformed(op, "a completion queue of another driver")
    }

    /// Reports that an event of the queue was read.
    #[cfg(feature = "raw")]
    #[inline(always)]
    pub(crate) fn tell(&self) {
        if let Self::Efa(shared) = self {
            shared.tell();
        }
    }

    /// Requests an event by a doorbell, for drivers whose queues all have one. False for other drivers, and in a process that did not
    /// create the queue.
    #[inline(always)]
    pub(crate) fn arm(&self, solicited_only: bool) -> bool {
        let Self::Mlx5(shared) = self else { return false };
        shared.arm(solicited_only)
    }

    /// Requests an event by a doorbell, as [`Self::arm`] does, for a caller that counts the events that it reads: `events` has the count in
    /// its two highest bits.
    #[cfg(feature = "raw")]
    #[inline(always)]
    pub(crate) fn arm_behind(&self, events: u32, solicited_only: bool) -> bool {
        let Self::Mlx5(shared) = self else { return false };
        shared.arm_behind(events, solicited_only)
    }

    /// Requests an event for drivers of which only some queues have a doorbell. Returns false if a command must request the event, which
    /// the kernel may refuse. With `are_told`, the caller reports each event that it has read by [`CqSide::tell`].
    pub(crate) fn arm_apart(&self, solicited_only: bool, are_told: bool) -> bool {
        match self {
            Self::Efa(shared) => shared.arm(solicited_only, are_told),
            Self::Siw(alarm) => {
                alarm.set(solicited_only);
                true
            }
            Self::Rings | Self::Mlx5(_) => false,
        }
    }
}
