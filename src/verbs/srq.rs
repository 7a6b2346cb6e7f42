//! Shared receive queues.

use std::sync::Arc;

use nix::errno::Errno;
use uverbs_abi::ids::device::invoke_write::{CORE_IN, CORE_OUT};
use uverbs_abi::ids::srq::{self, create};
use uverbs_abi::types::srq_type;
use uverbs_abi::write::{ModifySrq, QuerySrq, QuerySrqResp, cmd};
use zerocopy::{FromZeros, IntoBytes};

use crate::device::context::Context;
use crate::device::context::limits::Size;
use crate::device::object::{self, Kind, Object};
use crate::driver::{Created, SrqSide};
use crate::kernel::command::Command;
use crate::kernel::error::{Error, ErrorKind, Result, limit as limit_hint};
#[cfg(feature = "raw")]
use crate::verbs::cq::object::CompletionObject;
use crate::verbs::cq::{self, CompletionQueue};
use crate::verbs::pd::ProtectionDomain;
use crate::verbs::work::{Held, Kept, ReceiveQueue, ReceiveRequest, Receiving};
use crate::verbs::xrcd::XrcDomain;

/// Bits of [`ModifySrq::attr_mask`].
const MAX_WR: u32 = 1 << 0;
const LIMIT: u32 = 1 << 1;

/// A receive queue that several queue pairs share. Created by [`ProtectionDomain::srq`] or [`XrcDomain::srq`].
///
/// Posting takes `&mut self`: the queue has one poster, so it needs no lock. Queue pairs keep the kernel object alive, and with
/// it the memory of posted requests; only this handle can post more.
///
/// The completion of a shared receive goes to the completion queue of the queue pair that took it, and contains the number of
/// that queue pair. A device may take a request from the queue when its message begins, so its slot may be used again before its
/// completion arrives: keep a handle of its memory until then.
///
/// ```
/// use uverbs::{AccessFlags, ReceiveRequest};
/// # fn main() -> uverbs::Result<()> {
/// let context = uverbs::SoftDevice::default().open()?;
/// let (pd, cq) = (context.alloc_pd()?, context.create_cq(16)?);
/// let mut srq = pd.srq(32).limit(4).cookie(7).create()?;
/// let memory = pd.register(4096, AccessFlags::LOCAL_WRITE)?;
/// let segments = [memory.segment(0..2048)?];
/// srq.post_receive(&[ReceiveRequest::new(1, &segments)])?;
///
/// let mut qp = pd.rc(&cq).srq(&srq).create()?;
/// // A queue pair that receives from a shared queue has none of its own.
/// assert!(qp.post_receive(&[ReceiveRequest::new(2, &segments)]).is_err());
/// # Ok(())
/// # }
/// ```
///
/// A queue of an [`XrcDomain`] is different: messages name it by its [number](Self::number), no queue pair is created with it,
/// and it has its own completion queue.
#[derive(Debug)]
#[doc(alias = "ibv_srq")]
pub struct SharedReceiveQueue {
    receives: Receiving,
    shared: Arc<SharedReceiveQueueCore>,
    capacity: u32,
    segments: u32,
    /// For a queue of a domain.
    number: Option<u32>,
    /// The device's number, if the driver returns it.
    #[cfg(feature = "raw")]
    device_number: Option<u32>,
}

/// The part of a shared receive queue that queue pairs also use.
#[derive(Debug)]
pub(crate) struct SharedReceiveQueueCore {
    object: Object,
    /// After the object: the memory of its requests is released after it.
    kept: Kept,
    side: SrqSide,
    _extended: Option<(Arc<cq::CompletionQueueCore>, XrcDomain)>,
    _pd: ProtectionDomain,
}

impl SharedReceiveQueueCore {
    pub(crate) fn id(&self) -> u32 {
        self.object.id()
    }

    pub(crate) fn context(&self) -> &Context {
        self.object.context()
    }

    /// The driver's part of the queue that its queue pairs use.
    pub(crate) fn side(&self) -> &SrqSide {
        &self.side
    }
}

/// Builder for a shared receive queue; see [`ProtectionDomain::srq`] and [`XrcDomain::srq`].
#[derive(Debug)]
#[must_use = "nothing is made before `create`"]
#[doc(alias = "ibv_srq_init_attr")]
#[doc(alias = "ibv_srq_init_attr_ex")]
pub struct SharedReceiveQueueBuilder<'a> {
    pd: &'a ProtectionDomain,
    extended: Option<Extended<'a>>,
    depth: u32,
    segments: u32,
    limit: u32,
    /// Whether to arm the queue after it was created if the kernel's driver does not.
    arms: bool,
    /// Whether a depth of zero is left to the driver.
    may_be_empty: bool,
    cookie: u64,
}

/// The additional properties of a queue of a domain.
#[derive(Clone, Copy, Debug)]
struct Extended<'a> {
    domain: &'a XrcDomain,
    cq: &'a Arc<cq::CompletionQueueCore>,
}

impl ProtectionDomain {
    /// Creates a shared receive queue with room for at least `depth` requests of one segment.
    ///
    /// # Errors
    /// As [`SharedReceiveQueueBuilder::create`].
    #[doc(alias = "ibv_create_srq")]
    #[doc(alias = "rdma_create_srq")]
    pub fn create_srq(&self, depth: u32) -> Result<SharedReceiveQueue> {
        self.srq(depth).create()
    }

    /// Starts a builder for a shared receive queue with more options; `depth` is as in [`ProtectionDomain::create_srq`].
    #[doc(alias = "ibv_create_srq_ex")]
    #[doc(alias = "rdma_create_srq_ex")]
    pub fn srq(&self, depth: u32) -> SharedReceiveQueueBuilder<'_> {
        SharedReceiveQueueBuilder {
            pd: self,
            extended: None,
            depth,
            segments: 1,
            limit: 0,
            arms: true,
            may_be_empty: false,
            cookie: 0,
        }
    }
}

impl XrcDomain {
    /// Starts a builder for a shared receive queue of the domain, with memory of `pd` and completions in `cq`; `depth` is as in
    /// [`ProtectionDomain::create_srq`].
    #[doc(alias = "ibv_create_srq_ex")]
    #[doc(alias = "IBV_SRQT_XRC")]
    pub fn srq<'a>(
        &'a self,
        pd: &'a ProtectionDomain,
        cq: &'a CompletionQueue,
        depth: u32,
    ) -> SharedReceiveQueueBuilder<'a> {
        self.srq_of(pd, cq.shared(), depth)
    }

    fn srq_of<'a>(
        &'a self,
        pd: &'a ProtectionDomain,
        cq: &'a Arc<cq::CompletionQueueCore>,
        depth: u32,
    ) -> SharedReceiveQueueBuilder<'a> {
        SharedReceiveQueueBuilder { extended: Some(Extended { domain: self, cq }), ..pd.srq(depth) }
    }
}

#[cfg(feature = "raw")]
impl XrcDomain {
    /// Starts a builder for a shared receive queue of the domain, whose completions go to the queue of `cq`; see [`XrcDomain::srq`].
    pub fn srq_on<'a>(
        &'a self,
        pd: &'a ProtectionDomain,
        cq: &'a CompletionObject,
        depth: u32,
    ) -> SharedReceiveQueueBuilder<'a> {
        self.srq_of(pd, cq.shared(), depth)
    }
}

impl SharedReceiveQueueBuilder<'_> {
    /// Up to `segments` segments in each request; default 1.
    pub fn segments(mut self, segments: u32) -> Self {
        self.segments = segments;
        self
    }

    /// Arms the queue immediately, as [`SharedReceiveQueue::arm`] does; default not armed.
    pub fn limit(mut self, limit: u32) -> Self {
        (self.limit, self.arms) = (limit, true);
        self
    }

    /// Arms the queue immediately only if the kernel's driver does this when it creates the queue; mlx5's does not.
    #[cfg(feature = "raw")]
    pub fn limit_told(mut self, limit: u32) -> Self {
        (self.limit, self.arms) = (limit, false);
        self
    }

    /// A depth of zero is not refused if the driver has queues without requests (mlx5).
    #[cfg(feature = "raw")]
    pub fn or_empty(mut self) -> Self {
        self.may_be_empty = true;
        self
    }

    /// A number that identifies the queue in asynchronous events; default 0.
    pub fn cookie(mut self, cookie: u64) -> Self {
        self.cookie = cookie;
        self
    }

    /// Creates the queue.
    ///
    /// # Errors
    /// [`InvalidInput`](ErrorKind::InvalidInput) for a depth of zero, more requests or segments than the device supports, or a
    /// domain or a completion queue of another open device; [`Unsupported`](ErrorKind::Unsupported) if the device has no such
    /// queues.
    ///
    /// # Kernel
    /// `UVERBS_METHOD_SRQ_CREATE` (uverbs_std_types_srq.c, Linux 6.1).
    #[doc(alias = "ibv_create_srq")]
    #[doc(alias = "ibv_create_srq_ex")]
    pub fn create(self) -> Result<SharedReceiveQueue> {
        let op = "srq.create";
        let context = self.pd.context();
        let foreign = |other: &Context| !other.is_same(context);
        if self.extended.is_some_and(|of| foreign(of.domain.context()) || foreign(of.cq.context())) {
            let hint = "the domain or the completion queue belongs to another open device";
            return Err(Error::refused(op, Errno::EINVAL, hint));
        }
        if self.depth == 0 && !self.may_be_empty {
            let error = Error::kernel(op, Errno::EINVAL);
            let otherwise = limit_hint("requests of a shared receive queue", self.depth, "at least 1");
            return Err(context.sized(error, &[depth_of(self.depth)], otherwise));
        }
        let wanted = [self.depth, self.segments];
        let queue = self.extended.map(|of| of.cq.side());
        let mut plan = context.driver().plan_srq(op, wanted, queue, context)?;
        let [depth, most_segments] = plan.asked(wanted);
        let (mut requests, mut segments, mut number) = (0_u32, 0_u32, 0_u32);
        let type_ = if self.extended.is_some() { srq_type::XRC } else { srq_type::BASIC };
        let mut command = Command::new(op, srq::OBJECT, srq::method::CREATE);
        command
            .new_handle(create::HANDLE)
            .handle(create::PD_HANDLE, self.pd.id())
            .value(create::TYPE, type_.into())
            .input(create::USER_HANDLE, &self.cookie)
            .input(create::MAX_WR, &depth)
            .input(create::MAX_SGE, &most_segments)
            .input(create::LIMIT, &self.limit)
            .output(create::RESP_MAX_WR, requests.as_mut_bytes())
            .output(create::RESP_MAX_SGE, segments.as_mut_bytes())
            .driver_payload(plan.payload());
        if let Some(of) = self.extended {
            command.handle(create::XRCD_HANDLE, of.domain.id()).handle(create::CQ_HANDLE, of.cq.id());
            command.output(create::RESP_SRQ_NUM, number.as_mut_bytes());
        }
        context.invoke(&mut command).map_err(|error| {
            let segments = Size {
                what: "segments of a request (max_srq_sge)",
                given: self.segments,
                least: 0,
                always: 1,
                most: |device| device.base.max_srq_sge,
            };
            let otherwise = if self.limit > self.depth {
                limit_hint("limit", self.limit, format_args!("at most {}", self.depth))
            } else {
                "the device does not allow this combination of queue, limit and domain".to_owned()
            };
            context.sized(error, &[depth_of(self.depth), segments], otherwise)
        })?;
        let handle = command.new_handle_of(create::HANDLE)?;
        let is_armed_later = self.arms && self.limit > 0 && context.driver().forgets_limit();
        let object = Object::new(context, Kind::Srq, handle).holding(plan.memory());
        let size = [requests, segments];
        let receives = plan.open(Created { op, number, size, kernel: context })?;
        let side = receives.side();
        #[cfg(feature = "raw")]
        let device_number = receives.number();
        let queue = ReceiveQueue::new(context.origin(), receives, segments);
        let receives = Receiving::new(op, queue)?;
        // rxe allocates more room than requested, but does not report it (rxe_srq_from_init, rxe_srq.c, Linux 6.1).
        let capacity = context.driver().granted_shared(self.depth, requests, receives.queue.capacity());
        let _extended = self.extended.map(|of| (of.cq.clone(), of.domain.clone()));
        let number = self.extended.map(|_| number);
        let shared =
            SharedReceiveQueueCore { object, kept: Kept::default(), side, _extended, _pd: self.pd.clone() };
        let shared = Arc::new(shared);
        let queue = SharedReceiveQueue {
            receives,
            shared,
            capacity,
            segments,
            number,
            #[cfg(feature = "raw")]
            device_number,
        };
        if is_armed_later {
            queue.arm(self.limit)?;
        }
        Ok(queue)
    }
}

impl SharedReceiveQueue {
    pub(crate) fn shared(&self) -> &Arc<SharedReceiveQueueCore> {
        &self.shared
    }

    /// The number of requests that the queue can hold.
    pub fn capacity(&self) -> u32 {
        self.capacity
    }

    /// Maximum number of segments of a request.
    pub fn segments(&self) -> u32 {
        self.segments
    }

    /// The number with which requests over extended connections name the queue; `None` if it belongs to no domain.
    #[doc(alias = "ibv_get_srq_num")]
    pub fn number(&self) -> Option<u32> {
        self.number
    }

    /// Posts receives for messages, all of them or none.
    ///
    /// # Errors
    /// [`Exhausted`](ErrorKind::Exhausted) if the queue has no room for all of them; [`InvalidInput`](ErrorKind::InvalidInput)
    /// for more segments than the queue was created with.
    #[doc(alias = "ibv_post_srq_recv")]
    #[inline]
    pub fn post_receive(&mut self, requests: &[ReceiveRequest<'_>]) -> Result<()> {
        let op = "srq.post_receive";
        self.receives.post(op, requests)
    }

    /// Requests one event ([`SrqLimitReached`](crate::EventKind::SrqLimitReached)) for when a request is taken and fewer than
    /// `limit` are left; 0 disables it. The event disarms the queue.
    ///
    /// The event may come later than the completions of messages that were received after it, even when nothing is left in the queue. Look
    /// for events also while waiting for completions: nothing more completes until the queue is filled up.
    ///
    /// # Errors
    /// [`InvalidInput`](ErrorKind::InvalidInput) for more than the queue can hold.
    ///
    /// # Kernel
    /// `MODIFY_SRQ` through `INVOKE_WRITE` (ib_uverbs_modify_srq, uverbs_cmd.c; rxe_modify_srq, rxe_verbs.c, Linux 6.1).
    #[doc(alias = "ibv_modify_srq")]
    #[doc(alias = "IBV_SRQ_LIMIT")]
    pub fn arm(&self, limit: u32) -> Result<()> {
        let op = "srq.arm";
        let context = self.shared.context();
        let request =
            ModifySrq { srq_handle: self.shared.id(), attr_mask: LIMIT, max_wr: 0, srq_limit: limit };
        let plan = context.driver().plan_srq_change(op)?;
        let mut command = Command::write(op, cmd::MODIFY_SRQ);
        command.input(CORE_IN, &request);
        plan.arm(&mut command);
        context.invoke(&mut command).map_err(|error| {
            let allowed = format!("at most {} (the queue's capacity)", self.capacity);
            error.hinted_if(ErrorKind::InvalidInput, limit_hint("limit", limit, allowed))
        })
    }

    /// Resizes the queue to at least `depth` requests; posted requests stay posted.
    ///
    /// # Errors
    /// [`InvalidInput`](ErrorKind::InvalidInput) for zero, for fewer than are posted or than the limit, or for more than the
    /// device supports, [`Unsupported`](ErrorKind::Unsupported) on mlx5: the queue is unchanged.
    /// [`Malformed`](ErrorKind::Malformed) or the error of `mmap(2)` if the device has changed the ring but the new one cannot be
    /// mapped: nothing can be posted until another resize succeeds.
    ///
    /// # Kernel
    /// `MODIFY_SRQ` through `INVOKE_WRITE`; rxe returns the new ring at an address in the request (rxe_srq_from_attr, rxe_srq.c,
    /// Linux 6.1).
    #[doc(alias = "ibv_modify_srq")]
    #[doc(alias = "IBV_SRQ_MAX_WR")]
    pub fn resize(&mut self, depth: u32) -> Result<()> {
        let op = "srq.resize";
        let context = self.shared.context().clone();
        context.check_origin(op)?;
        let request =
            ModifySrq { srq_handle: self.shared.id(), attr_mask: MAX_WR, max_wr: depth, srq_limit: 0 };
        let mut plan = context.driver().plan_srq_change(op)?;
        let mut command = Command::write(op, cmd::MODIFY_SRQ);
        command.input(CORE_IN, &request);
        plan.resize(op, &mut command)?;
        context.invoke(&mut command).map_err(|error| {
            let otherwise = format!("{depth} requests are fewer than are posted, or than the limit");
            context.sized(error, &[depth_of(depth)], otherwise)
        })?;
        // From here on, the device uses only the new ring.
        let moved = plan.open(op, &context).and_then(|receives| self.receives.move_to(op, receives));
        moved.inspect_err(|_| self.receives.lose())?;
        let room = self.receives.queue.capacity();
        // The response does not contain a size.
        self.capacity = context.driver().granted_shared(depth, depth, room);
        Ok(())
    }

    /// The kernel's attributes of the queue: its size, and the limit with which it is armed.
    ///
    /// # Errors
    /// Those of the kernel.
    ///
    /// # Kernel
    /// `QUERY_SRQ` through `INVOKE_WRITE` (ib_uverbs_query_srq, uverbs_cmd.c, Linux 6.1).
    #[doc(alias = "ibv_query_srq")]
    #[doc(alias = "ibv_srq_attr")]
    pub fn query(&self) -> Result<QuerySrqResp> {
        let request = QuerySrq { srq_handle: self.shared.id(), ..QuerySrq::new_zeroed() };
        let mut response = QuerySrqResp::new_zeroed();
        let mut command = Command::write("srq.query", cmd::QUERY_SRQ);
        command.input(CORE_IN, &request).output(CORE_OUT, response.as_mut_bytes());
        self.shared.context().invoke(&mut command)?;
        Ok(response)
    }

    /// Destroys the queue and reports any error. Posted requests are discarded without a completion.
    ///
    /// # Errors
    /// [`Busy`](ErrorKind::Busy) while a queue pair receives from it.
    #[doc(alias = "ibv_destroy_srq")]
    #[doc(alias = "rdma_destroy_srq")]
    pub fn destroy(mut self) -> Result<(), (Self, Error)> {
        self.alone().and_then(Object::release).map_err(|error| (self, error))
    }

    /// The kernel's object, if no queue pair uses it.
    fn alone(&mut self) -> Result<&mut Object> {
        let hint = "a queue pair still receives from the shared receive queue";
        let shared = Arc::get_mut(&mut self.shared).ok_or_else(|| object::shared("srq.destroy", hint))?;
        Ok(&mut shared.object)
    }
}

#[cfg(feature = "raw")]
impl SharedReceiveQueue {
    /// The kernel's handle of the queue.
    pub fn handle(&self) -> u32 {
        self.shared.id()
    }

    /// The device's number of the queue, whether or not it belongs to a domain; `None` if the driver does not return one (rxe).
    pub fn device_number(&self) -> Option<u32> {
        self.number.or(self.device_number)
    }

    /// The queue to which bindings post requests by address and key.
    #[inline]
    pub fn queue_mut(&mut self) -> &mut ReceiveQueue {
        &mut self.receives.queue
    }

    /// Destroys the queue and returns how many of its asynchronous events were read.
    ///
    /// # Errors
    /// As [`SharedReceiveQueue::destroy`].
    pub fn destroy_reporting(mut self) -> Result<u32, (Self, Error)> {
        let answer = self.alone().and_then(Object::release_reporting::<uverbs_abi::write::DestroySrqResp>);
        answer.map(|answer| answer.events_reported).map_err(|error| (self, error))
    }
}

impl Drop for SharedReceiveQueue {
    fn drop(&mut self) {
        // Queue pairs may continue to use the posted requests.
        self.shared.kept.keep([self.receives.take_held(), Held::default()]);
    }
}

/// The error for posting a receive to a queue pair without a receive queue of its own.
pub(crate) fn not_here(op: &'static str) -> Error {
    let hint = "the queue pair receives from a shared receive queue: post there; nothing was posted";
    Error::refused(op, Errno::EINVAL, hint)
}

/// The number of requests that was asked for.
fn depth_of(depth: u32) -> Size {
    Size {
        what: "requests of a shared receive queue (max_srq_wr)",
        given: depth,
        least: 1,
        always: 16,
        most: |device| device.base.max_srq_wr,
    }
}
