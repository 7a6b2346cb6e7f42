//! What a driver is told about the counters of a flow, and what it says about a refusal.

/// A point of the counters in the kernel's format. Only one driver has flow counters, so the layout is that driver's.
pub(crate) use uverbs_abi::mlx5::FlowCountersDesc as PointData;

/// What a flow passes to the driver about its counters.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Points<'a> {
    /// Nothing, because the device already has the points.
    Known,
    /// The points, which go with the first flow.
    First(&'a [PointData]),
    /// Points at an invalid address, so that no flow can be created.
    Unreadable,
    /// Points at an invalid address, for a rule that matches no header, so that no flow can be created.
    UnreadableOfAnyRule,
}

/// What the refusal of the first flow means for the kernel object of the counters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RefusedBind {
    /// Nothing. The object can be used again.
    Harmless,
    /// Nothing if the rule was the reason. To find out, the flow is requested again with points at an invalid address.
    AskAgain,
    /// The object may contain an error in place of a counter, which the kernel does not check. It must never be used again.
    Damaged,
}
