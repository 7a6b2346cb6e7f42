//! What each driver implements, and what it is told. This folder uses the ground alone: requests (`request.rs`), completions
//! (`completion.rs`) and memory shared with a device (`ring/`). A driver's folder uses the ground, this folder and its own files; the
//! files around them, which name all drivers, use everything. A test holds this (tests/house/layers.rs).

#[cfg(feature = "raw")]
mod binding;
mod complete;
mod control;
mod create;
mod facts;
mod flow;
mod plan;
mod receive;
#[cfg(feature = "raw")]
mod ring;
mod send;

#[cfg(feature = "raw")]
pub use self::binding::{Facts, Written, walk};
pub(crate) use self::complete::CompletionRing;
pub(crate) use self::control::Control;
pub(crate) use self::create::{
    CqSide, Created, Known, Plan, Planned, QpQueues, Queues, Sides, SrqSide, own, without_work_queues,
};
#[cfg(feature = "raw")]
pub use self::facts::CompletionFields;
#[cfg_attr(not(feature = "raw"), expect(unreachable_pub))]
pub use self::facts::PacketCaps;
pub(crate) use self::facts::{GuardedKeys, QueryPlan};
pub(crate) use self::flow::{PointData, Points, RefusedBind};
pub(crate) use self::plan::{AhPlan, ContextPlan, CqShape, Exchange, Kernel, Payload, QpShape, SrqChange};
#[cfg_attr(not(feature = "raw"), expect(unreachable_pub))]
pub use self::plan::{DriverCq, DriverQp};
#[cfg(test)]
pub(crate) use self::receive::plain;
pub use self::receive::{FillReceives, LowerReceive, ReceiveBatch};
pub(crate) use self::receive::{Plains, ReceiveRing};
#[cfg(feature = "raw")]
pub use self::ring::OwnRing;
pub use self::send::Lower;
#[cfg_attr(not(feature = "raw"), expect(unreachable_pub))]
pub use self::send::Short;
pub(crate) use self::send::{Late, Published, SendRing, Simple, SimpleData};
