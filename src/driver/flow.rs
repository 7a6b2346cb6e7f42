//! The driver's data for the counters of a flow, and the meaning of a refusal.

use std::borrow::Cow;

use uverbs_abi::flow::FlowAttr;

use super::seam::{Points, RefusedBind};
use super::{Driver, mlx5};
use crate::kernel::command::Command;
use crate::kernel::error::{Error, ErrorKind};

/// The driver's data for a flow.
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

impl Driver {
    /// The data for a flow. `points` is `None` if the flow does not count.
    pub(crate) fn flow_payload<'a>(&self, points: Option<Points<'a>>) -> FlowPayload<'a> {
        match self {
            Self::Mlx5(_) | Self::Soft => FlowPayload::Mlx5(mlx5::FlowPayload::new(points)),
            Self::Rxe | Self::Siw(_) | Self::Efa(_) | Self::Other => FlowPayload::Nothing,
        }
    }

    /// The consequence for some counters if their first flow, with a rule of this priority, was refused.
    pub(crate) fn refused_bind(&self, error: &Error, priority: u16) -> RefusedBind {
        match self {
            Self::Mlx5(_) | Self::Soft => mlx5::refused_bind(error, priority),
            // These drivers have neither flows nor counters.
            Self::Rxe | Self::Siw(_) | Self::Efa(_) => RefusedBind::Harmless,
            Self::Other => RefusedBind::Damaged,
        }
    }

    /// Whether the kernel may crash when a device file is closed whose counters were damaged.
    pub(crate) fn keeps_damaged_file(&self) -> bool {
        match self {
            Self::Mlx5(_) => true,
            // The soft device has no file.
            Self::Rxe | Self::Soft | Self::Siw(_) | Self::Efa(_) | Self::Other => false,
        }
    }

    /// What to do about a refused rule, if the driver knows a reason.
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
