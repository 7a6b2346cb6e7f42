//! How a driver creates what has a queue: its part of the kernel's command, and the queue after it.

use std::any::Any;
use std::fmt::Debug;
use std::sync::Arc;

use nix::errno::Errno;
use uverbs_abi::write::QpCap;

use super::control::Control;
use super::plan::{CqShape, Kernel, Payload, QpShape};
use crate::kernel::error::{Error, Result};
use crate::kernel::mapping::Mapping;

/// An object that is about to be created. `S` is its size, as in the kernel's command, and `T` is what the driver makes of the object.
pub(crate) trait Plan<S, T>: Debug {
    fn payload(&mut self) -> Payload<'_>;

    /// The size to request from the kernel if `wanted` is needed.
    fn asked(&self, wanted: S) -> S {
        wanted
    }

    /// The memory to which the device may write as long as the object exists.
    fn memory(&self) -> Option<&Mapping> {
        None
    }

    /// What is made of the object, after the kernel has created it.
    fn open(self: Box<Self>, made: Created<'_, S>) -> Result<T>;
}

/// A plan, or why there is none.
pub(crate) type Planned<S, T> = Result<Box<dyn Plan<S, T>>>;

/// An object that the kernel has created.
pub(crate) struct Created<'a, S> {
    pub(crate) op: &'static str,
    /// The number of a queue pair or work queue.
    pub(crate) number: u32,
    /// The size that the kernel has returned.
    pub(crate) size: S,
    pub(crate) kernel: &'a dyn Kernel,
}

/// A driver whose devices have queues. What only some drivers have is refused unless they write its method.
pub(crate) trait Queues: Control + Default {
    /// The kernel's number of the driver: one of [`uverbs_abi::types::driver_id`].
    const NUMBER: u32;

    type Completions;
    type Sends;
    type Receives;
    /// Shared receive queues.
    type Shared;

    /// A completion queue, whose size is its number of entries.
    fn plan_cq(
        &self,
        op: &'static str,
        shape: &CqShape<'_>,
        kernel: &dyn Kernel,
    ) -> Planned<u32, Self::Completions>;

    /// A queue pair.
    fn plan_qp(
        &self,
        op: &'static str,
        shape: &QpShape,
        sides: Sides<'_>,
        kernel: &dyn Kernel,
    ) -> Planned<QpCap, QpQueues<Self::Sends, Self::Receives>>;

    /// A shared receive queue, whose size is its number of requests, and of segments of each. One of extended connections completes in
    /// `queue`.
    fn plan_srq(
        &self,
        op: &'static str,
        _wanted: [u32; 2],
        _queue: Option<&Arc<dyn CqSide>>,
        _kernel: &dyn Kernel,
    ) -> Planned<[u32; 2], Self::Shared> {
        Err(self.lacking(op, "has no shared receive queues"))
    }

    /// A receive work queue that completes in `queue`. Its size is that of a shared receive queue.
    fn plan_wq(
        &self,
        op: &'static str,
        _wanted: [u32; 2],
        _queue: &Arc<dyn CqSide>,
        _kernel: &dyn Kernel,
    ) -> Planned<[u32; 2], Self::Receives> {
        Err(without_work_queues(op))
    }
}

/// The queues of a queue pair, and their capacity.
#[derive(Debug)]
pub(crate) struct QpQueues<S, R> {
    pub(crate) sends: S,
    pub(crate) receives: Option<R>,
    pub(crate) cap: QpCap,
    /// Keeps the queue pair registered with its completion queues, if the driver needs this as long as the kernel's object exists.
    pub(crate) known: Option<Known>,
}

pub(crate) type Known = Arc<dyn Debug + Send + Sync>;

/// What a queue pair uses of other queues: those in which its sends and its receives complete, and the shared one that provides receives.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sides<'a> {
    pub(crate) queues: [&'a Arc<dyn CqSide>; 2],
    pub(crate) shared: Option<&'a SrqSide>,
}

/// The part of a completion queue that its queue pairs use, and callers that request events. It contains nothing that only the poller may
/// use.
pub(crate) trait CqSide: Any + Debug + Send + Sync {
    /// Reports that an event of the queue was read.
    #[cfg(feature = "raw")]
    fn tell(&self) {}

    /// Requests an event by a doorbell, for drivers whose queues all have one. False for other drivers, and in a process that did not
    /// create the queue.
    fn arm(&self, _solicited_only: bool) -> bool {
        false
    }

    /// Requests an event by a doorbell, as [`CqSide::arm`] does, for a caller that counts the events that it reads: `events` has the count
    /// in its two highest bits.
    #[cfg(feature = "raw")]
    fn arm_behind(&self, _events: u32, _solicited_only: bool) -> bool {
        false
    }

    /// The hint for a kind of event that the driver never makes, and that its kernel half refuses without a reason.
    fn lacks_events(&self, _solicited_only: bool) -> Option<&'static str> {
        None
    }

    /// Requests an event for drivers of which only some queues have a doorbell. Returns false if a command must request the event, which
    /// the kernel may refuse. With `are_told`, the caller reports each event that it has read by [`CqSide::tell`].
    fn arm_apart(&self, _solicited_only: bool, _are_told: bool) -> bool {
        false
    }
}

/// There is nothing that others use.
impl CqSide for () {}

/// The part of a shared receive queue that the queue pairs use that receive from it.
pub(crate) type SrqSide = Arc<dyn Any + Send + Sync>;

/// The part of a queue as the type that its driver has made.
pub(crate) fn own<T: Any + Send + Sync>(op: &'static str, side: SrqSide) -> Result<Arc<T>> {
    side.downcast().map_err(|_| Error::malformed(op, "a queue of another driver"))
}

/// The error for a receive work queue, or for what needs one.
pub(crate) fn without_work_queues(op: &'static str) -> Error {
    let hint = "of the devices that this crate knows, only those of mlx5 have receive work queues";
    Error::refused(op, Errno::EOPNOTSUPP, hint)
}
