//! Completion queues, and the channels that announce completions.

#[cfg(feature = "raw")]
mod cursor;
#[cfg(feature = "raw")]
pub(crate) mod object;
mod poll;

use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
#[cfg(feature = "raw")]
use std::sync::atomic::AtomicU32;
use std::time::Duration;

use nix::errno::Errno;
use uverbs_abi::ids::cq::{self, create};
use uverbs_abi::ids::device::invoke_write::{CORE_IN, CORE_OUT};
use uverbs_abi::write::{
    CompEventDesc, CqModeration, CreateCompChannel, CreateCompChannelResp, ExModifyCq, ResizeCq,
    ResizeCqResp, cmd,
};
use zerocopy::{FromZeros, IntoBytes};

use self::poll::Taking;
use crate::completion_counter::Registry;
use crate::device::context::Context;
use crate::device::context::limits::Size;
use crate::device::object::{self as objects, Kind, Object};
use crate::driver::completion::Completion;
use crate::driver::cq::Completions;
use crate::driver::{CqShape, CqSide, Created, DriverCq};
use crate::kernel::command::Command;
use crate::kernel::error::{Error, ErrorKind, Result, limit};
use crate::kernel::event::{self, EventFile};
use crate::kernel::mapping::Mapping;

/// A completion queue. Created by [`Context::create_cq`] or [`Context::cq`].
///
/// Polling takes `&mut self`: a queue has one consumer, so it needs no lock. Queue pairs keep the kernel object alive; the ring
/// of completions belongs to this handle.
#[derive(Debug)]
#[doc(alias = "ibv_cq")]
#[doc(alias = "ibv_cq_ex")]
#[doc(alias = "ibv_cq_ex_to_cq")]
pub struct CompletionQueue {
    ring: Completions,
    capacity: u32,
    taking: Taking,
    shared: Arc<CompletionQueueCore>,
}

/// The part of a completion queue that queue pairs share.
#[derive(Debug)]
pub(crate) struct CompletionQueueCore {
    object: Object,
    channel: Option<CompletionChannel>,
    /// The queue pairs whose operations are counted when their completions are taken from this queue.
    registry: Arc<Registry>,
    /// The driver's part of the queue that its queue pairs use.
    side: Arc<dyn CqSide>,
    /// The number of events that were read, if callers report them.
    #[cfg(feature = "raw")]
    events_read: AtomicU32,
}

impl CompletionQueueCore {
    pub(crate) fn id(&self) -> u32 {
        self.object.id()
    }

    pub(crate) fn context(&self) -> &Context {
        self.object.context()
    }

    /// Sends the kernel's command that resizes the queue, and returns the number of entries in the response.
    fn resize(&self, op: &'static str, entries: u32, payload: (&[u8], &mut [u8])) -> Result<u32> {
        let request = ResizeCq { cq_handle: self.id(), cqe: entries, ..ResizeCq::new_zeroed() };
        let mut response = ResizeCqResp::new_zeroed();
        let mut command = Command::write(op, cmd::RESIZE_CQ);
        command.input(CORE_IN, &request).output(CORE_OUT, response.as_mut_bytes()).driver_payload(payload);
        self.context().invoke(&mut command)?;
        Ok(response.cqe)
    }

    pub(crate) fn registry(&self) -> &Arc<Registry> {
        &self.registry
    }

    pub(crate) fn side(&self) -> &Arc<dyn CqSide> {
        &self.side
    }

    /// Changes the attributes that the bits of `attr_mask` name.
    fn change(&self, attr_mask: u32, attr: CqModeration) -> Result<()> {
        let request = ExModifyCq { cq_handle: self.id(), attr_mask, attr, reserved: 0 };
        let mut command = Command::write("cq.moderate", cmd::EX_MODIFY_CQ);
        command.input(CORE_IN, &request);
        self.context().invoke(&mut command).map_err(|error| {
            let size = |what, given: u16, most| Size { what, given: given.into(), least: 0, always: 1, most };
            let count = size("completions per event (max_cq_moderation_count)", attr.cq_count, |device| {
                device.cq_moderation_caps.max_cq_moderation_count.into()
            });
            let period = size("microseconds (max_cq_moderation_period)", attr.cq_period, |device| {
                device.cq_moderation_caps.max_cq_moderation_period.into()
            });
            self.context().sized(error, &[count, period], "the device does not moderate this queue")
        })
    }

    /// Requests an event.
    #[inline]
    fn notify(&self, solicited_only: bool) -> Result<()> {
        if self.arm(solicited_only) { Ok(()) } else { self.notify_apart(solicited_only, false) }
    }

    /// Requests an event by a doorbell, for drivers whose queues all have one. Returns false for other drivers, and in a process that does
    /// not own the queue.
    #[inline]
    fn arm(&self, solicited_only: bool) -> bool {
        self.side.arm(solicited_only)
    }

    /// Requests an event for other drivers, if necessary by a command of the kernel. With `are_told`, the caller reports each event that it
    /// reads.
    #[inline(never)]
    fn notify_apart(&self, solicited_only: bool, are_told: bool) -> Result<()> {
        if self.context().is_here() {
            if self.side.arm_apart(solicited_only, are_told) {
                return Ok(());
            }
            if let Some(hint) = self.side.lacks_events(solicited_only) {
                return Err(Error::refused("cq.notify", Errno::EOPNOTSUPP, hint));
            }
        }
        let hint = "the device sends events for all completions of queues with a channel: not only for solicited ones, and not for other queues";
        let asked = self.context().request_event("cq.notify", self.id(), solicited_only);
        asked.map_err(|error| error.hinted_if(ErrorKind::Unsupported, hint))
    }
}

/// `IB_CQ_MODERATE`.
const MODERATION: u32 = 1;

impl Context {
    /// Creates a completion queue with room for at least `entries` completions.
    ///
    /// # Errors
    /// [`InvalidInput`](ErrorKind::InvalidInput) for zero entries or more than the device supports.
    #[doc(alias = "ibv_create_cq")]
    pub fn create_cq(&self, entries: u32) -> Result<CompletionQueue> {
        self.cq(entries).create()
    }

    /// Starts a builder for a completion queue with more options.
    #[doc(alias = "ibv_create_cq_ex")]
    pub fn cq(&self, entries: u32) -> CompletionQueueBuilder<'_> {
        let (channel, memory) = (None, None);
        CompletionQueueBuilder {
            context: self,
            entries,
            channel,
            vector: 0,
            cookie: 0,
            memory,
            driver: DriverCq::default(),
        }
    }

    /// Creates a channel to which completion queues send events.
    ///
    /// # Errors
    /// Those of the kernel.
    ///
    /// # Kernel
    /// `CREATE_COMP_CHANNEL` through `INVOKE_WRITE` (ib_uverbs_create_comp_channel, uverbs_cmd.c, Linux 6.1).
    #[doc(alias = "ibv_create_comp_channel")]
    pub fn create_comp_channel(&self) -> Result<CompletionChannel> {
        let op = "comp_channel.create";
        let request = CreateCompChannel::default();
        let mut response = CreateCompChannelResp::new_zeroed();
        let mut command = Command::write(op, cmd::CREATE_COMP_CHANNEL);
        command.input(CORE_IN, &request).output(CORE_OUT, response.as_mut_bytes()).output_is_fd();
        self.invoke(&mut command)?;
        let fd = command.take_fd()?;
        Ok(CompletionChannel(Arc::new(Channel { file: EventFile::new(fd), context: self.clone() })))
    }
}

/// Builder for a completion queue; see [`Context::cq`].
#[derive(Debug)]
#[must_use = "nothing is made before `create`"]
#[doc(alias = "ibv_cq_init_attr_ex")]
pub struct CompletionQueueBuilder<'a> {
    context: &'a Context,
    entries: u32,
    channel: Option<&'a CompletionChannel>,
    vector: u32,
    cookie: u64,
    memory: Option<&'a Mapping>,
    driver: DriverCq,
}

impl<'a> CompletionQueueBuilder<'a> {
    /// Sends events to `channel` when [`CompletionQueue::notify`] requests them.
    pub fn channel(mut self, channel: &'a CompletionChannel) -> Self {
        self.channel = Some(channel);
        self
    }

    /// The completion vector, below [`Context::completion_vectors`]; default 0.
    pub fn vector(mut self, vector: u32) -> Self {
        self.vector = vector;
        self
    }

    /// A number that identifies the queue in events; default 0.
    pub fn cookie(mut self, cookie: u64) -> Self {
        self.cookie = cookie;
        self
    }

    /// Places the queue in this memory, if the driver supports that.
    pub(crate) fn with_memory(mut self, memory: &'a Mapping) -> Self {
        self.memory = Some(memory);
        self
    }

    /// Sets options that only the driver defines.
    #[cfg(feature = "raw")]
    pub fn driver(mut self, driver: DriverCq) -> Self {
        self.driver = driver;
        self
    }

    /// Creates the queue.
    ///
    /// # Errors
    /// [`InvalidInput`](ErrorKind::InvalidInput) for zero entries, more than the device supports, or a vector that it does not
    /// have.
    ///
    /// # Kernel
    /// `UVERBS_METHOD_CQ_CREATE` (uverbs_std_types_cq.c, Linux 6.1).
    #[doc(alias = "ibv_create_cq")]
    #[doc(alias = "ibv_create_cq_ex")]
    pub fn create(self) -> Result<CompletionQueue> {
        let op = "cq.create";
        let Self { context, entries, channel, vector, cookie, memory, driver } = self;
        let shape = CqShape { entries, has_channel: channel.is_some(), memory, driver };
        let mut plan = context.driver().plan_cq(op, &shape, context)?;
        let asked = plan.asked(entries);
        let mut real_entries = 0_u32;
        let mut command = Command::new(op, cq::OBJECT, cq::method::CREATE);
        command
            .new_handle(create::HANDLE)
            .input(create::CQE, &asked)
            .input(create::USER_HANDLE, &cookie)
            .input(create::COMP_VECTOR, &vector)
            .output(create::RESP_CQE, real_entries.as_mut_bytes())
            .driver_payload(plan.payload());
        if let Some(channel) = channel {
            command.fd(create::COMP_CHANNEL, channel.0.file.as_fd());
        }
        let place = memory.map(|memory| (memory.address(), memory.len() as u64));
        if let (Some(memory), Some((address, length))) = (memory, &place) {
            command.input(create::BUFFER_VA, address).input(create::BUFFER_LENGTH, length).registers(memory);
        }
        context.invoke(&mut command).map_err(|error| {
            let vectors = context.completion_vectors();
            let otherwise = if vector >= vectors {
                limit("completion vector", vector, format_args!("less than {vectors}"))
            } else {
                "the device does not allow these flags, or not this memory".to_owned()
            };
            context.sized(error, &[entries_of(entries)], otherwise)
        })?;
        let object =
            Object::new(context, Kind::Cq, command.new_handle_of(create::HANDLE)?).holding(plan.memory());
        let ring = plan.open(Created { op, number: 0, size: real_entries, kernel: context })?;
        let registry = Arc::<Registry>::default();
        let shared = CompletionQueueCore {
            object,
            channel: channel.cloned(),
            registry: registry.clone(),
            side: ring.side(),
            #[cfg(feature = "raw")]
            events_read: AtomicU32::new(0),
        };
        let capacity = context.driver().granted_entries(entries, real_entries, ring.capacity());
        Ok(CompletionQueue {
            ring,
            capacity,
            taking: Taking::new(context.origin(), &registry),
            shared: Arc::new(shared),
        })
    }
}

impl CompletionQueue {
    pub(crate) fn shared(&self) -> &Arc<CompletionQueueCore> {
        &self.shared
    }

    /// Refuses `op` in a child of `fork`.
    pub(crate) fn check_origin(&self, op: &'static str) -> Result<()> {
        self.shared.context().check_origin(op)
    }

    /// The channel to which the queue sends events.
    pub(crate) fn channel(&self) -> Option<&CompletionChannel> {
        self.shared.channel.as_ref()
    }

    /// The number of completions that the queue can hold.
    pub fn capacity(&self) -> u32 {
        self.capacity
    }

    /// Counts a completion that the device did not write.
    pub(crate) fn count_ended(&mut self, completion: &Completion) {
        self.taking.count(std::slice::from_ref(completion));
    }

    /// Makes the device send an event only when `count` completions are waiting, or after `period` microseconds; zero disables
    /// the condition. The maximum values are in [`cq_moderation_caps`](uverbs_abi::write::ExQueryDeviceResp).
    ///
    /// # Errors
    /// [`Unsupported`](ErrorKind::Unsupported) for drivers without moderation, such as rxe, and on a soft device whose profile
    /// does not enable it; others of the kernel.
    ///
    /// # Kernel
    /// Extended `MODIFY_CQ` through `INVOKE_WRITE` (ib_uverbs_ex_modify_cq, uverbs_cmd.c; mlx5_ib_modify_cq, mlx5/cq.c; Linux
    /// 6.1).
    #[doc(alias = "ibv_modify_cq")]
    pub fn moderate(&self, count: u16, period: u16) -> Result<()> {
        self.shared.change(MODERATION, CqModeration { cq_count: count, cq_period: period })
    }

    /// Resizes the queue to at least `entries` completions; completions in the queue stay there.
    ///
    /// # Errors
    /// [`InvalidInput`](ErrorKind::InvalidInput) for zero entries, fewer than are in the queue, or more than the device supports:
    /// the queue is unchanged. If the new ring cannot be mapped ([`Exhausted`](ErrorKind::Exhausted)), the queue appears empty
    /// until a resize succeeds.
    ///
    /// # Kernel
    /// `RESIZE_CQ` through `INVOKE_WRITE` (ib_uverbs_resize_cq, uverbs_cmd.c; rxe_resize_cq, rxe_verbs.c; mlx5_ib_resize_cq,
    /// mlx5/cq.c; Linux 6.1).
    #[doc(alias = "ibv_resize_cq")]
    pub fn resize(&mut self, entries: u32) -> Result<()> {
        self.resize_ring("cq.resize", entries).map_err(|error| {
            let otherwise = format!("more completions are in the queue than {entries}: poll first");
            self.shared.context().sized(error, &[entries_of(entries)], otherwise)
        })
    }

    fn resize_ring(&mut self, op: &'static str, entries: u32) -> Result<()> {
        self.check_origin(op)?;
        let object = &self.shared.object;
        let context = object.context();
        context.driver().may_resize_cq(op, entries, context)?;
        let mut told = 0;
        let old = self.ring.resize(op, entries, context, |payload, memory| {
            memory.into_iter().for_each(|memory| object.hold(memory));
            let resized = self.shared.resize(op, entries, payload).inspect_err(|error| {
                // Refused. After any other failure it is not known whether the device uses the new ring.
                if matches!(error.kind(), ErrorKind::InvalidInput | ErrorKind::Unsupported) {
                    memory.into_iter().for_each(|memory| object.let_go(memory));
                }
            });
            resized.map(|entries| told = entries)
        })?;
        self.capacity = context.driver().granted_entries(entries, told, self.ring.capacity());
        old.iter().for_each(|memory| object.let_go(memory));
        Ok(())
    }

    /// Requests one event on the queue's channel at the next completion, or at the next solicited one.
    ///
    /// Completions that arrived before this call cause no event: poll once more after it.
    ///
    /// # Errors
    /// [`Unsupported`](ErrorKind::Unsupported) on efa and mana with `solicited_only`, and on efa for a queue without a channel;
    /// others of the kernel.
    ///
    /// # Kernel
    /// `REQ_NOTIFY_CQ` through `INVOKE_WRITE` on rxe and the soft device; on mlx5, efa, erdma and mana a doorbell; on siw a word
    /// in memory shared with the kernel.
    #[doc(alias = "ibv_req_notify_cq")]
    pub fn notify(&self, solicited_only: bool) -> Result<()> {
        self.shared.notify(solicited_only)
    }

    /// Destroys the queue and reports any error.
    ///
    /// # Errors
    /// [`Busy`](ErrorKind::Busy) while a queue pair still uses it.
    #[doc(alias = "ibv_destroy_cq")]
    pub fn destroy(mut self) -> Result<(), (Self, Error)> {
        self.alone().and_then(Object::release).map_err(|error| (self, error))
    }

    /// The kernel's object, if no other queue uses it.
    fn alone(&mut self) -> Result<&mut Object> {
        let hint = "a queue pair, a work queue or a shared receive queue still uses the completion queue";
        let shared = Arc::get_mut(&mut self.shared).ok_or_else(|| objects::shared("cq.destroy", hint))?;
        Ok(&mut shared.object)
    }
}

/// A file to which completion queues send events. Created by [`Context::create_comp_channel`].
///
/// Cheap to clone; closed when the last clone and the last queue that uses it are gone.
#[derive(Clone, Debug)]
#[doc(alias = "ibv_comp_channel")]
#[doc(alias = "ibv_destroy_comp_channel")]
pub struct CompletionChannel(Arc<Channel>);

#[derive(Debug)]
struct Channel {
    file: EventFile,
    context: Context,
}

impl CompletionChannel {
    #[cfg_attr(not(feature = "tokio"), expect(dead_code))]
    pub(crate) fn is_same(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }

    /// Takes the next event and returns the cookie of its queue, or `None` if there is no event; never blocks.
    ///
    /// # Errors
    /// [`Disassociated`](ErrorKind::Disassociated) if the device has gone, and in a child of `fork`, because the events belong to
    /// the parent.
    #[doc(alias = "ibv_get_cq_event")]
    #[doc(alias = "ibv_ack_cq_events")]
    pub fn next_event(&self) -> Result<Option<u64>> {
        let op = "comp_channel.read";
        self.0.context.check_origin(op)?;
        let record = self.0.file.read::<CompEventDesc>(op)?;
        Ok(record.map(|record| record.cq_handle))
    }

    /// Waits for an event and returns whether there is one; without a `timeout`, it waits forever.
    ///
    /// # Errors
    /// Those of `poll(2)`; [`Disassociated`](ErrorKind::Disassociated) in a child of `fork`.
    pub fn wait(&self, timeout: Option<Duration>) -> Result<bool> {
        let op = "comp_channel.wait";
        self.0.context.check_origin(op)?;
        event::wait(op, &self.0.file, timeout)
    }
}

impl AsFd for CompletionChannel {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.file.as_fd()
    }
}

/// The number of entries that were asked for.
fn entries_of(entries: u32) -> Size {
    Size {
        what: "entries of a completion queue (max_cqe)",
        given: entries,
        least: 1,
        always: 16,
        most: |device| device.base.max_cqe,
    }
}
