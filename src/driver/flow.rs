//! What a flow carries for its counters, and what a refused one means.

use std::borrow::Cow;

use uverbs_abi::flow::FlowAttr;
/// A point of some counters as the kernel reads it: one driver has flow counters, so the layout is that one's.
pub(crate) use uverbs_abi::mlx5::FlowCountersDesc as PointData;

use super::{Driver, mlx5};
use crate::kernel::command::Command;
use crate::kernel::error::{Error, ErrorKind};

/// What the driver is told of the counters with a flow.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Points<'a> {
    /// Nothing: the device has the points.
    Known,
    /// The points, with the first flow.
    First(&'a [PointData]),
    /// Points that cannot be copied, so that no flow comes of it.
    Unreadable,
    /// The same, with a rule that matches no header.
    UnreadableOfAnyRule,
}

/// What goes with a flow.
#[derive(Debug)]
pub(crate) enum FlowPayload<'a> {
    Nothing,
    Mlx5(mlx5::FlowPayload<'a>),
}

impl FlowPayload<'_> {
    /// Adds it to the command that creates the flow.
    pub(crate) fn put<'c>(&'c mut self, command: &mut Command<'c>) {
        match self {
            Self::Nothing => {}
            Self::Mlx5(payload) => payload.put(command),
        }
    }
}

/// What the refusal of the first flow of some counters means for the counters' kernel object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RefusedBind {
    /// Nothing: it can be used again.
    Harmless,
    /// Nothing if it was for the rule, which is found out by asking again with points that cannot be copied.
    AskAgain,
    /// It may hold an error in place of a counter, which the kernel would follow: it must never be touched again.
    Damaged,
}

impl Driver {
    /// What goes with a flow; `points` are none of one that does not count.
    pub(crate) fn flow_payload<'a>(&self, points: Option<Points<'a>>) -> FlowPayload<'a> {
        match self {
            Self::Mlx5(_) | Self::Soft => FlowPayload::Mlx5(mlx5::FlowPayload::new(points)),
            Self::Rxe | Self::Siw(_) | Self::Efa(_) | Self::Other => FlowPayload::Nothing,
        }
    }

    /// What it means that the first flow of some counters, with a rule of this priority, was refused.
    pub(crate) fn refused_bind(&self, error: &Error, priority: u16) -> RefusedBind {
        match self {
            Self::Mlx5(_) | Self::Soft => mlx5::refused_bind(error, priority),
            // They have neither flows nor counters.
            Self::Rxe | Self::Siw(_) | Self::Efa(_) => RefusedBind::Harmless,
            Self::Other => RefusedBind::Damaged,
        }
    }

    /// Whether the kernel may not survive the close of a device file whose counters were damaged.
    pub(crate) fn keeps_damaged_file(&self) -> bool {
        match self {
            Self::Mlx5(_) => true,
            // The soft device has no file.
            Self::Rxe | Self::Soft | Self::Siw(_) | Self::Efa(_) | Self::Other => false,
        }
    }

    /// What to do about a rule that was refused so, if the driver has a reason of its own.
    pub(crate) fn flow_hint(&self, kind: ErrorKind, rule: &FlowAttr) -> Option<Cow<'static, str>> {
        match self {
            Self::Mlx5(_) => mlx5::flow_hint(kind, rule),
            Self::Soft => mlx5::priority_hint(kind, rule),
            Self::Rxe => (kind == ErrorKind::Unsupported).then_some("rxe has no flows".into()),
            Self::Siw(_) => (kind == ErrorKind::Unsupported).then_some("siw has no flows".into()),
            Self::Efa(_) => (kind == ErrorKind::Unsupported).then_some("efa has no flows".into()),
            Self::Other => None,
        }
    }
}
