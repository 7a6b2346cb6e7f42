//! An open device.

mod door;
mod event;
mod gids;
mod identify;
mod invalidated;
mod kept;
pub(crate) mod limits;
mod open;
mod paged;
mod query;
#[cfg(test)]
mod tests;

#[cfg(feature = "raw")]
use std::fs::File;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

#[cfg(feature = "raw")]
use nix::errno::Errno;
use uverbs_abi::ids::{async_event, device};
use uverbs_abi::write::AsyncEventDesc;
use zerocopy::IntoBytes;

use self::door::Door;
#[cfg_attr(not(feature = "raw"), expect(unreachable_pub))]
pub use self::door::Unseen;
pub use self::event::{AsyncEvent, EventKind, Subject};
pub use self::gids::{GidCandidate, GidChoice, GidFault, GidReason, Peer};
pub(crate) use self::invalidated::Invalidated;
use self::invalidated::Keys;
use self::kept::Abandoned;
pub use self::open::OpenOptions;
use self::paged::Paged;
pub use self::query::{Gid, GidKind};
use crate::device::Device;
#[cfg(feature = "raw")]
use crate::device::Node;
use crate::driver::ring::RingDevice;
use crate::driver::{self, Driver};
use crate::kernel::command::{Command, CountersRead, Doorbell};
use crate::kernel::error::{Error, ErrorKind, Result};
use crate::kernel::event::EventFile;
use crate::kernel::process::{Here, Origin};
#[cfg(feature = "raw")]
use crate::kernel::transport::Uverbs;
use crate::kernel::transport::{Mapping, Transport};

/// An open device: it creates all other objects, and reports the device's events. Created by [`Device::open`].
///
/// Cheap to clone; the device file is closed when the last clone and the last object are gone. The one exception is a file whose
/// close could crash the kernel: see [`create_flow`](crate::QueuePair::create_flow).
///
/// It belongs to the process that first creates an object other than a [`ProtectionDomain`](crate::ProtectionDomain) with it,
/// before or after a `fork`. In the other process, calls on it and on its objects fail with
/// [`Disassociated`](crate::ErrorKind::Disassociated).
#[derive(Clone, Debug)]
#[doc(alias = "ibv_context")]
#[doc(alias = "ibv_close_device")]
pub struct Context(Arc<ContextCore>);

#[derive(Debug)]
struct ContextCore {
    door: Door,
    device: Device,
    driver: Driver,
    completion_vectors: u32,
    events: EventFile,
    /// Whether it may send commands to the firmware.
    devx: bool,
    /// What it can do to raw packets ([`query::Offloads`]); zero until it was queried.
    offloads: AtomicU64,
    /// How many reads of each side a connection can have ([`query::ReadDepths`]); zero until it was queried.
    read_depths: AtomicU64,
    /// Keys of memory windows that must not be invalidated.
    window_keys: Keys,
    /// Regions that may be named in advice on memory.
    paged: Paged,
    abandoned: Abandoned,
}

impl Context {
    /// Creates the kernel's context on a newly opened transport.
    ///
    /// The ioctl is used on every kernel: `GET_CONTEXT` by `INVOKE_WRITE` returns EBADF on Linux 7.2 (ib_alloc_ucontext, uverbs_cmd.c).
    /// The file of asynchronous events is created before any other object, because objects that are created without one have no events.
    pub(crate) fn establish(
        device: Device,
        transport: Box<dyn Transport>,
        devx: bool,
        inheritable: bool,
    ) -> Result<Self> {
        let door = Door::new(transport, device.driver_id(), inheritable).map_err(|(_, error)| error)?;
        let mut driver = device.driver_kind();
        let mut plan = driver.plan_context(devx);
        let vectors = create(&door, plan.payload()).or_else(|error| {
            let goes_on = error.kind() == ErrorKind::InvalidInput && plan.goes_on();
            if goes_on { create(&door, plan.payload()) } else { Err(error) }
        })?;
        driver.opened(&plan);
        Self::with(door, device, driver, vectors, devx).map_err(|(_, error)| error)
    }

    /// Another context on the kernel's one, which was created by somebody else. Returns the door if it is refused.
    #[cfg(feature = "raw")]
    fn adopt(device: Device, door: Door) -> Result<Self, (Door, Error)> {
        let mut driver = device.driver_kind();
        match query(&door, &mut driver) {
            Ok(vectors) => Self::with(door, device, driver, vectors, false),
            Err(error) => Err((door, error)),
        }
    }

    fn with(
        door: Door,
        device: Device,
        driver: Driver,
        completion_vectors: u32,
        devx: bool,
    ) -> Result<Self, (Door, Error)> {
        let events = match event_file(&door) {
            Ok(events) => EventFile::new(events),
            Err(error) => return Err((door, error)),
        };
        let inner = ContextCore {
            door,
            device,
            window_keys: Keys::of(&driver),
            paged: Paged::of(&driver),
            driver,
            completion_vectors,
            events,
            devx,
            offloads: AtomicU64::new(0),
            read_depths: AtomicU64::new(0),
            abandoned: Abandoned::default(),
        };
        Ok(Self(Arc::new(inner)))
    }

    /// Maps memory of the device for reading only, at an offset that its driver defines.
    pub(crate) fn map_to_read(&self, op: &'static str, offset: u64, len: usize) -> Result<Mapping> {
        self.0.door.map_to_read(op, offset, len)
    }

    /// Sends a command and checks that the kernel wrote every response that was requested.
    pub(crate) fn invoke(&self, command: &mut Command<'_>) -> Result<()> {
        self.0.door.invoke(command)
    }

    /// Whether this process owns the device.
    #[inline]
    pub(crate) fn is_here(&self) -> bool {
        self.0.door.origin().is_here()
    }

    /// The process that owns the device.
    pub(crate) fn origin(&self) -> Origin {
        self.0.door.origin()
    }

    /// Refuses `op` on an object in a child of `fork`.
    #[inline]
    pub(crate) fn check_origin(&self, op: &'static str) -> Result<()> {
        self.0.door.check(op)
    }

    /// Refuses to destroy in a child what its parent has created.
    pub(crate) fn may_destroy(&self, op: &'static str) -> Result<()> {
        self.0.door.may_destroy(op)
    }

    /// Reads counters into `values`, which has at most 8191 elements.
    #[inline]
    pub(crate) fn read_counters(&self, read: &mut CountersRead, values: &mut [u64]) -> Result<()> {
        self.0.door.read_counters(read, values)
    }

    /// The doorbell of the send ring of the queue pair `handle`.
    pub(crate) fn doorbell(&self, handle: u32) -> Doorbell {
        self.0.door.doorbell(handle)
    }

    /// Makes the kernel read a send ring.
    #[inline]
    pub(crate) fn ring(&self, op: &'static str, doorbell: &mut Doorbell, here: Here) -> Result<(), Unseen> {
        self.0.door.ring(op, doorbell, here)
    }

    /// Requests an event for the next completion of the queue `handle`, or for its next solicited one.
    pub(crate) fn request_event(&self, op: &'static str, handle: u32, solicited_only: bool) -> Result<()> {
        self.0.door.request_event(op, handle, solicited_only)
    }

    /// The error for a ring that the kernel did not read.
    pub(crate) fn unseen(&self, op: &'static str, why: Unseen) -> Error {
        self.0.door.unseen(op, why)
    }

    /// Whether both are clones of one open device.
    pub(crate) fn is_same(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }

    pub(crate) fn driver_id(&self) -> u32 {
        self.0.device.driver_id()
    }

    pub(crate) fn driver(&self) -> &Driver {
        &self.0.driver
    }

    /// Whether each slot of its queues has a flag that shows which side owns the slot.
    #[cfg(feature = "raw")]
    pub fn has_flagged_queues(&self) -> bool {
        self.driver().has_flagged_queues()
    }

    /// Keys of memory windows that must not be invalidated.
    pub(crate) fn window_keys(&self) -> &Keys {
        &self.0.window_keys
    }

    /// Regions that may be named in advice on memory.
    pub(crate) fn paged(&self) -> &Paged {
        &self.0.paged
    }

    /// The device that was opened.
    pub fn device(&self) -> &Device {
        &self.0.device
    }

    /// Whether it was opened with [`OpenOptions::devx`].
    pub fn has_devx(&self) -> bool {
        self.0.devx
    }

    /// Number of completion vectors; a completion queue uses one of `0..completion_vectors()`.
    pub fn completion_vectors(&self) -> u32 {
        self.0.completion_vectors
    }

    /// The next asynchronous event, or none if there is none yet; never blocks.
    ///
    /// To wait, poll the context's file descriptor ([`AsFd`]) for reading.
    ///
    /// # Errors
    /// [`Malformed`](crate::ErrorKind::Malformed) if the record is incomplete.
    #[doc(alias = "ibv_get_async_event")]
    #[doc(alias = "ibv_ack_async_event")]
    pub fn next_event(&self) -> Result<Option<AsyncEvent>> {
        let op = "async_event.read";
        self.0.door.may_ask(op)?;
        let record = self.0.events.read::<AsyncEventDesc>(op)?;
        Ok(record.map(AsyncEvent::from))
    }

    /// Whether the device was removed after it was opened.
    ///
    /// On Linux 7.2 some commands return EPERM if the device was removed. Before "permission denied" is reported, a command that needs no
    /// permission is therefore sent.
    pub(crate) fn is_gone(&self) -> bool {
        self.0.door.is_gone()
    }
}

#[cfg(feature = "raw")]
impl Context {
    /// A context on an open file of the device, with which somebody else has created one: another process, or this one. Both use the
    /// kernel's context, and the objects in it exist until the last file is closed.
    ///
    /// # Errors
    /// [`InvalidInput`](ErrorKind::InvalidInput) if the file is not that of the device, or if there is no context yet;
    /// [`Unsupported`](ErrorKind::Unsupported) for drivers other than mlx5. The file comes back.
    ///
    /// # Kernel
    /// `UVERBS_METHOD_QUERY_CONTEXT` (uverbs_std_types_device.c, Linux 6.1).
    #[doc(alias = "ibv_import_device")]
    pub fn import(device: &Device, file: File) -> Result<Self, (Option<File>, Error)> {
        let op = "context.import";
        let Some(node) = device.node() else {
            return Err((Some(file), Error::refused(op, Errno::EINVAL, "the device has no file")));
        };
        let transport = Uverbs::over(file, node).map_err(|(file, errno)| {
            let hint = "the file is not that of the device";
            (Some(file), Error::kernel(op, errno).hinted_if(ErrorKind::InvalidInput, hint))
        })?;
        let door = Door::new(Box::new(transport), device.driver_id(), true)
            .map_err(|(transport, error)| (transport.into_file(), error))?;
        Self::adopt(device.clone(), door).map_err(|(door, error)| (door.into_file(), error))
    }

    /// Checks that this device does not belong to another process since a fork.
    ///
    /// # Errors
    /// [`Disassociated`](ErrorKind::Disassociated).
    pub fn check(&self) -> Result<()> {
        self.0.door.may_ask("context.check")
    }

    /// Whether a poll that finds nothing is to call [`progress`](Self::progress): the device is a part of the process, and on a wire.
    pub fn is_driven_by_polls(&self) -> bool {
        match &self.0.device.node {
            #[cfg(feature = "soft")]
            Node::Soft(device) => device.address().is_some(),
            Node::File(_) => false,
        }
    }

    /// Handles what has arrived, as [`SoftDevice::progress`](crate::SoftDevice::progress).
    pub fn progress(&self) -> bool {
        match &self.0.device.node {
            #[cfg(feature = "soft")]
            Node::Soft(device) => device.progress(),
            Node::File(_) => false,
        }
    }

    /// The device file, if there is one; none if the transport is wrapped, or if the device belongs to another process since a fork.
    pub fn command_file(&self) -> Option<BorrowedFd<'_>> {
        self.0.door.file()
    }
}

/// The file of asynchronous events.
fn event_file(door: &Door) -> Result<OwnedFd> {
    let mut command = Command::new("async_event.create", async_event::OBJECT, async_event::method::ALLOC);
    command.new_fd(async_event::alloc::FD_HANDLE);
    door.invoke(&mut command)?;
    command.take_fd()
}

/// Reads again what the kernel answered when the context was created. Returns the number of completion vectors.
#[cfg(feature = "raw")]
fn query(door: &Door, driver: &mut Driver) -> Result<u32> {
    let op = "context.import";
    let Some((attribute, size)) = driver.answers_again() else {
        return Err(driver.lacking(op, "has no contexts that others can use"));
    };
    let (mut vectors, mut core_support, mut answer) = (0_u32, 0_u64, vec![0; size]);
    let mut command = Command::new(op, device::OBJECT, device::method::QUERY_CONTEXT);
    command
        .output(device::query_context::NUM_COMP_VECTORS, vectors.as_mut_bytes())
        .output(device::query_context::CORE_SUPPORT, core_support.as_mut_bytes())
        .output(attribute, &mut answer);
    door.invoke(&mut command)?;
    driver.opened(&driver::ContextPlan::answered(answer));
    Ok(vectors)
}

/// Creates the kernel's context, with the driver's request and response if it has any. Returns the number of completion vectors.
fn create(door: &Door, payload: (&[u8], &mut [u8])) -> Result<u32> {
    let (mut vectors, mut core_support) = (0_u32, 0_u64);
    let mut command = Command::new("context.create", device::OBJECT, device::method::GET_CONTEXT);
    command
        .output(device::get_context::NUM_COMP_VECTORS, vectors.as_mut_bytes())
        .output(device::get_context::CORE_SUPPORT, core_support.as_mut_bytes())
        .driver_payload(payload);
    door.invoke(&mut command)?;
    Ok(vectors)
}

impl driver::Kernel for Context {
    fn take(&self, op: &'static str) -> Result<()> {
        self.0.door.take(op)
    }

    fn invoke(&self, command: &mut Command<'_>) -> Result<()> {
        self.0.door.invoke(command)
    }

    fn map(&self, op: &'static str, offset: u64, len: usize) -> Result<Mapping> {
        self.0.door.map(op, offset, len)
    }

    fn ring_device(&self, qp: Option<u32>) -> Option<Box<dyn RingDevice>> {
        self.0.device.ring_device(qp)
    }
}

impl AsFd for Context {
    /// The file of asynchronous events. It is readable when [`Context::next_event`] has an event.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.events.as_fd()
    }
}
