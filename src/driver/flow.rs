//! The driver's data for the counters of a flow.

use super::seam::Points;
use super::{Driver, mlx5};
use crate::kernel::command::Command;

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
        if self.has_flow_counters() {
            FlowPayload::Mlx5(mlx5::FlowPayload::new(points))
        } else {
            FlowPayload::Nothing
        }
    }
}
