//! Receive work queues, and tables of them.

mod table;

use std::sync::Arc;

use nix::errno::Errno;
use uverbs_abi::ids::device::invoke_write::CORE_IN;
use uverbs_abi::ids::wq::{self, create};
use uverbs_abi::types::{RawPacketCaps, WqFlags, qp_state};
use uverbs_abi::write::{ExModifyWq, cmd};
use zerocopy::{FromZeros, IntoBytes};

pub use self::table::IndirectionTable;
pub(crate) use self::table::IndirectionTableCore;
use crate::device::context::limits::Size;
use crate::device::object::{self, Kind, Object};
use crate::driver::Created;
use crate::kernel::command::Command;
use crate::kernel::error::{Error, ErrorKind, Result};
#[cfg(feature = "raw")]
use crate::verbs::cq::object::CompletionObject;
use crate::verbs::cq::{self, CompletionQueue};
use crate::verbs::pd::ProtectionDomain;
use crate::verbs::work::{Held, Kept, ReceiveQueue, ReceiveRequest, Receiving};

/// A receive queue without a queue pair. An [`IndirectionTable`] spreads frames over several of them. Created by
/// [`ProtectionDomain::work_queue`].
///
/// Posting takes `&mut self`: the queue has one poster, so it needs no lock. Tables keep the kernel object alive, and with it the
/// memory of posted requests; only this handle can post more.
///
/// Completions go to its completion queue, with [`number`](Self::number) as [`qp_num`](crate::Completion::qp_num).
///
/// ```
/// # fn main() -> uverbs::Result<()> {
/// let context = uverbs::SoftDevice::default().open()?;
/// let (pd, cq) = (context.alloc_pd()?, context.create_cq(16)?);
/// // Of the devices that this crate supports, only mlx5 has work queues.
/// let refused = pd.work_queue(&cq).depth(64).create().unwrap_err();
/// assert_eq!(refused.kind(), uverbs::ErrorKind::Unsupported);
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
#[doc(alias = "ibv_wq")]
pub struct WorkQueue {
    receives: Receiving,
    shared: Arc<WorkQueueCore>,
    capacity: u32,
    segments: u32,
}

/// The part of a work queue that tables also use.
#[derive(Debug)]
pub(crate) struct WorkQueueCore {
    object: Object,
    /// After the object: the memory of its requests is released after it.
    kept: Kept,
    number: u32,
    _cq: Arc<cq::CompletionQueueCore>,
    _pd: ProtectionDomain,
}

/// The state of a work queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[doc(alias = "ibv_wq_state")]
pub enum WorkQueueState {
    /// Newly created, or reset: posted requests wait for [`Ready`](Self::Ready).
    #[doc(alias = "IBV_WQS_RESET")]
    Reset,
    /// Frames are received.
    #[doc(alias = "IBV_WQS_RDY")]
    Ready,
    /// Everything posted completes with [`Status::Flushed`](crate::Status::Flushed).
    #[doc(alias = "IBV_WQS_ERR")]
    Error,
}

/// Builder for a work queue; see [`ProtectionDomain::work_queue`].
#[derive(Debug)]
#[must_use = "nothing is made before `create`"]
#[doc(alias = "ibv_wq_init_attr")]
pub struct WorkQueueBuilder<'a> {
    pd: &'a ProtectionDomain,
    cq: &'a Arc<cq::CompletionQueueCore>,
    depth: u32,
    segments: u32,
    cookie: u64,
    flags: WqFlags,
}

impl ProtectionDomain {
    /// Starts a builder for a receive work queue, whose completions go to `cq`.
    pub fn work_queue<'a>(&'a self, cq: &'a CompletionQueue) -> WorkQueueBuilder<'a> {
        WorkQueueBuilder::new(self, cq.shared())
    }
}

/// The hint on devices that do not remove VLAN tags.
pub(crate) const KEEPS_VLAN: &str = "the device cannot remove VLAN tags";

#[cfg(feature = "raw")]
impl ProtectionDomain {
    /// Starts a builder for a receive work queue, whose completions go to the queue of `cq`; see [`ProtectionDomain::work_queue`].
    pub fn work_queue_on<'a>(&'a self, cq: &'a CompletionObject) -> WorkQueueBuilder<'a> {
        WorkQueueBuilder::new(self, cq.shared())
    }
}

impl<'a> WorkQueueBuilder<'a> {
    fn new(pd: &'a ProtectionDomain, cq: &'a Arc<cq::CompletionQueueCore>) -> Self {
        Self { pd, cq, depth: 64, segments: 1, cookie: 0, flags: WqFlags::empty() }
    }

    /// Room for at least `depth` requests; default 64.
    pub fn depth(mut self, depth: u32) -> Self {
        self.depth = depth;
        self
    }

    /// Up to `segments` segments in each request; default 1.
    pub fn segments(mut self, segments: u32) -> Self {
        self.segments = segments;
        self
    }

    /// A number that identifies the work queue in asynchronous events; default 0.
    pub fn cookie(mut self, cookie: u64) -> Self {
        self.cookie = cookie;
        self
    }

    /// The device removes the outer VLAN tag from received frames and reports it in
    /// [`Completion::vlan`](crate::Completion::vlan).
    pub fn strip_vlan(mut self) -> Self {
        self.flags |= WqFlags::CVLAN_STRIPPING;
        self
    }

    /// Creates the work queue, in the state [`Reset`](WorkQueueState::Reset).
    ///
    /// # Errors
    /// [`Unsupported`](ErrorKind::Unsupported) on devices without work queues, or, with `strip_vlan`, without that feature;
    /// [`InvalidInput`](ErrorKind::InvalidInput) for a depth of zero, more requests or segments than the device supports, or a
    /// completion queue of another open device.
    ///
    /// # Kernel
    /// `UVERBS_METHOD_WQ_CREATE` (uverbs_std_types_wq.c, Linux 6.1).
    #[doc(alias = "ibv_create_wq")]
    pub fn create(self) -> Result<WorkQueue> {
        let op = "wq.create";
        let context = self.pd.context();
        let cq = self.cq;
        if !cq.context().is_same(context) {
            let hint = "the completion queue belongs to another open device";
            return Err(Error::refused(op, Errno::EINVAL, hint));
        }
        let wanted = [self.depth, self.segments];
        let mut plan = context.driver().plan_wq(op, wanted, cq.side(), context)?;
        if self.flags.contains(WqFlags::CVLAN_STRIPPING) {
            context.needs_raw_packet(op, RawPacketCaps::CVLAN_STRIPPING, KEEPS_VLAN)?;
        }
        let [capacity, segments] = plan.asked(wanted);
        let (mut requests, mut pieces, mut number) = (0_u32, 0_u32, 0_u32);
        let mut command = Command::new(op, wq::OBJECT, wq::method::CREATE);
        command
            .new_handle(create::HANDLE)
            .handle(create::PD_HANDLE, self.pd.id())
            .handle(create::CQ_HANDLE, cq.id())
            .input(create::USER_HANDLE, &self.cookie)
            .value(create::TYPE, 0)
            .input(create::MAX_WR, &capacity)
            .input(create::MAX_SGE, &segments)
            .flags(create::FLAGS, self.flags.bits())
            .output(create::RESP_MAX_WR, requests.as_mut_bytes())
            .output(create::RESP_MAX_SGE, pieces.as_mut_bytes())
            .output(create::RESP_WQ_NUM, number.as_mut_bytes())
            .driver_payload(plan.payload());
        context.invoke(&mut command).map_err(|error| match error.kind() {
            ErrorKind::Unsupported => error.hinted("the device has no receive work queues"),
            _ => {
                let size = |what, given, always, most| Size { what, given, least: 1, always, most };
                let sizes = [
                    size("requests (max_qp_wr)", self.depth, 16, |device| device.base.max_qp_wr),
                    size("segments of a request (max_sge)", self.segments, 1, |device| device.base.max_sge),
                ];
                context.sized(error, &sizes, "the device does not allow this combination of queue and flags")
            }
        })?;
        let object =
            Object::new(context, Kind::Wq, command.new_handle_of(create::HANDLE)?).holding(plan.memory());
        let receives = plan.open(Created { op, number, size: [requests, pieces], kernel: context })?;
        let queue = ReceiveQueue::new(context.origin(), receives, segments);
        let receives = Receiving::new(op, queue)?;
        let shared =
            WorkQueueCore { object, kept: Kept::default(), number, _cq: cq.clone(), _pd: self.pd.clone() };
        Ok(WorkQueue { receives, shared: Arc::new(shared), capacity, segments })
    }
}

/// Bit of [`ExModifyWq::attr_mask`].
const STATE: u32 = 1 << 0;

impl WorkQueueState {
    /// The kernel's number, and the state of a queue pair in which its ring behaves the same.
    fn numbers(self) -> (u32, u8) {
        match self {
            Self::Reset => (0, qp_state::RESET),
            Self::Ready => (1, qp_state::RTR),
            Self::Error => (2, qp_state::ERR),
        }
    }
}

impl WorkQueueCore {
    pub(crate) fn object(&self) -> &Object {
        &self.object
    }
}

impl WorkQueue {
    pub(crate) fn shared(&self) -> &Arc<WorkQueueCore> {
        &self.shared
    }

    /// The work queue's number.
    pub fn number(&self) -> u32 {
        self.shared.number
    }

    /// The number of requests that the queue can hold.
    pub fn capacity(&self) -> u32 {
        self.capacity
    }

    /// Maximum number of segments of a request.
    pub fn segments(&self) -> u32 {
        self.segments
    }

    /// Changes the state. A transition to [`Reset`](WorkQueueState::Reset) discards everything posted, without a completion.
    ///
    /// # Errors
    /// Those of the kernel. The kernel uses the state that was set last, and does not detect that the device has stopped the queue
    /// by itself: destroy such a queue.
    ///
    /// # Kernel
    /// `EX_MODIFY_WQ` through `INVOKE_WRITE` (ib_uverbs_ex_modify_wq, uverbs_cmd.c; mlx5_ib_modify_wq, qp.c, Linux 6.1).
    #[doc(alias = "ibv_modify_wq")]
    pub fn modify(&mut self, state: WorkQueueState) -> Result<()> {
        let object = &self.shared.object;
        let (wq_state, ring_state) = state.numbers();
        let request =
            ExModifyWq { attr_mask: STATE, wq_handle: object.id(), wq_state, ..ExModifyWq::new_zeroed() };
        let op = "wq.modify";
        let driver = object.context().driver().plan_wq_change(op)?;
        let mut command = Command::write(op, cmd::EX_MODIFY_WQ);
        command.input(CORE_IN, &request).driver_payload((driver, &mut []));
        object.context().invoke(&mut command)?;
        self.receives.enter(ring_state);
        if state == WorkQueueState::Reset {
            self.receives.let_go();
        }
        Ok(())
    }

    /// Posts receives for frames, all of them or none. In the state [`Reset`](WorkQueueState::Reset), they are shown to the device
    /// when the queue becomes ready.
    ///
    /// # Errors
    /// [`Exhausted`](ErrorKind::Exhausted) if the queue has no room for all of them; [`InvalidInput`](ErrorKind::InvalidInput)
    /// for more segments than the queue was created with.
    #[doc(alias = "ibv_post_wq_recv")]
    #[inline]
    pub fn post_receive(&mut self, requests: &[ReceiveRequest<'_>]) -> Result<()> {
        self.receives.post("wq.post_receive", requests)
    }

    /// Destroys the work queue and reports any error. Posted requests are discarded without a completion.
    ///
    /// # Errors
    /// [`Busy`](ErrorKind::Busy) while a table contains it.
    #[doc(alias = "ibv_destroy_wq")]
    pub fn destroy(mut self) -> Result<(), (Self, Error)> {
        self.alone().and_then(Object::release).map_err(|error| (self, error))
    }

    /// The kernel's object, if no table uses it.
    fn alone(&mut self) -> Result<&mut Object> {
        let hint = "an indirection table still has the work queue";
        let shared = Arc::get_mut(&mut self.shared).ok_or_else(|| object::shared("wq.destroy", hint))?;
        Ok(&mut shared.object)
    }
}

#[cfg(feature = "raw")]
impl WorkQueue {
    /// The kernel's handle of the queue.
    pub fn handle(&self) -> u32 {
        self.shared.object.id()
    }

    /// The queue to which bindings post requests by address and key.
    #[inline]
    pub fn queue_mut(&mut self) -> &mut ReceiveQueue {
        &mut self.receives.queue
    }

    /// Destroys the queue and returns how many of its asynchronous events were read.
    ///
    /// # Errors
    /// As [`WorkQueue::destroy`].
    pub fn destroy_reporting(mut self) -> Result<u32, (Self, Error)> {
        self.alone().and_then(Object::release_reporting).map_err(|error| (self, error))
    }
}

impl Drop for WorkQueue {
    fn drop(&mut self) {
        // A table may keep the kernel object, and with it the memory of posted requests.
        self.shared.kept.keep([self.receives.take_held(), Held::default()]);
    }
}
