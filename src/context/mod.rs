//! An open device.

mod event;
mod identify;
mod invalidated;
mod kept;
mod mlx5;
mod open;
mod origin;
mod query;
#[cfg(feature = "raw")]
mod raw;

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Arc, OnceLock};

use nix::errno::Errno;
use uverbs_abi::ids::{async_event, device};
use uverbs_abi::mlx5::{AllocUcontextReqV2, AllocUcontextResp};
use uverbs_abi::rxe::Mminfo;
use uverbs_abi::write::{AsyncEventDesc, GidEntry};
use zerocopy::{FromZeros, IntoBytes};

pub use self::event::{AsyncEvent, EventKind, Subject};
use self::invalidated::Keys;
use self::kept::Abandoned;
use self::mlx5::Mlx5;
pub use self::open::OpenOptions;
pub(crate) use self::origin::Origin;
use self::query::Offloads;
pub use self::query::{Gid, GidKind};
use crate::command::{Command, CountersRead, Doorbell, READ_OP};
use crate::device::Device;
use crate::error::{Error, ErrorKind, Result};
use crate::event as event_file;
use crate::provider::Provider;
use crate::provider::mlx5::Limits;
use crate::provider::queues::Receives;
use crate::provider::rxe;
use crate::transport::{Mapping, Transport};

/// An open device: the parent of every object, and the place of its events.
///
/// Cheap to clone; the device file is closed when the last clone and the last object are gone. The one exception is a file
/// whose close the kernel may not survive: see [`create_flow`](crate::QueuePair::create_flow).
#[derive(Clone, Debug)]
#[doc(alias = "ibv_context")]
#[doc(alias = "ibv_close_device")]
pub struct Context(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    transport: Box<dyn Transport>,
    device: Device,
    provider: Provider,
    completion_vectors: u32,
    events: OwnedFd,
    origin: Origin,
    mlx5: Option<Mlx5>,
    /// Whether it may send commands to the firmware.
    devx: bool,
    /// What it does to raw packets, once asked.
    offloads: OnceLock<Offloads>,
    /// Keys of memory windows that must not be invalidated.
    window_keys: Keys,
    abandoned: Abandoned,
}

impl Context {
    /// Makes the kernel's context on a freshly opened transport.
    ///
    /// The ioctl form is used on every kernel: `GET_CONTEXT` by `INVOKE_WRITE` answers EBADF on Linux 7.2
    /// (ib_alloc_ucontext, uverbs_cmd.c). The async event file is made before any other object, since
    /// objects made without one have no events.
    pub(crate) fn establish(device: Device, transport: Box<dyn Transport>, devx: bool) -> Result<Self> {
        let driver = device.driver_id();
        let provider = device.provider();
        let mut response = AllocUcontextResp::new_zeroed();
        let mut create = |request: Option<AllocUcontextReqV2>| {
            create(&*transport, driver, request.as_ref(), &mut response)
        };
        let vectors = create(provider.context_request(devx)).or_else(|error| {
            let older = provider.older_context_request();
            let older = older.filter(|_| !devx && error.kind() == ErrorKind::InvalidInput);
            older.map_or(Err(error), |request| create(Some(request)))
        })?;

        let mut command = Command::new("async_event.create", async_event::OBJECT, async_event::method::ALLOC);
        command.new_fd(async_event::alloc::FD_HANDLE);
        invoke(&*transport, driver, &mut command)?;
        let events = command.take_fd()?;
        event_file::set_nonblocking("async_event.create", &events)?;
        let mlx5 = (provider == Provider::Mlx5).then(|| Mlx5::new(Limits::new(&response)));
        let origin = Origin::new().map_err(|errno| Error::kernel("context.create", errno))?;
        let inner = Inner {
            transport,
            device,
            provider,
            completion_vectors: vectors,
            events,
            origin,
            mlx5,
            devx,
            offloads: OnceLock::new(),
            window_keys: Keys::of(provider),
            abandoned: Abandoned::default(),
        };
        Ok(Self(Arc::new(inner)))
    }

    /// Sends a command and checks that the kernel wrote every answer it was asked for.
    pub(crate) fn invoke(&self, command: &mut Command<'_>) -> Result<()> {
        self.check_origin(command.op())?;
        invoke(&*self.0.transport, self.0.device.driver_id(), command)
    }

    /// Whether this is the process that opened the device, and not a child that `fork` made of it.
    #[inline]
    pub(crate) fn is_here(&self) -> bool {
        self.0.origin.is_here()
    }

    /// The process that opened the device.
    pub(crate) fn origin(&self) -> Origin {
        self.0.origin
    }

    /// Refuses `op` in a child that `fork` made.
    #[inline]
    pub(crate) fn check_origin(&self, op: &'static str) -> Result<()> {
        self.0.origin.check(op)
    }

    /// Reads counters into `values`, of which there are 8191 at most.
    #[inline]
    pub(crate) fn read_counters(&self, read: &mut CountersRead, values: &mut [u64]) -> Result<()> {
        let answer = self.0.transport.read_counters(read, values);
        if answer.is_ok() && read.is_answered() { Ok(()) } else { Err(self.refusal(READ_OP, answer)) }
    }

    /// Has the kernel look at the send ring of the queue pair `handle`.
    #[inline]
    pub(crate) fn ring(&self, op: &'static str, handle: u32) -> Result<()> {
        let mut doorbell = Doorbell::new(self.0.device.driver_id(), handle);
        let answer = self.0.transport.ring(op, &mut doorbell);
        if answer.is_ok() && doorbell.is_answered() { Ok(()) } else { Err(self.refusal(op, answer)) }
    }

    /// Whether both are clones of one open device.
    pub(crate) fn is_same(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }

    pub(crate) fn driver_id(&self) -> u32 {
        self.0.device.driver_id()
    }

    /// Maps a ring, which an earlier command has made and described so.
    pub(crate) fn map_ring(&self, op: &'static str, info: Mminfo) -> Result<Mapping> {
        let len =
            usize::try_from(info.size).map_err(|_| Error::malformed(op, "a ring of no possible size"))?;
        self.map(op, info.offset, len)
    }

    /// Maps a ring of receives: of the queue pair of this number, or of a shared queue.
    pub(crate) fn map_receives(&self, op: &'static str, info: Mminfo, qp: Option<u32>) -> Result<Receives> {
        let ring = rxe::Receives::open(op, self.map_ring(op, info)?)?;
        Ok(match self.0.device.watcher(qp) {
            Some(watcher) => Receives::Watched(ring, watcher),
            None => Receives::Rings(ring),
        })
    }

    /// Maps memory of the device at an offset that the kernel or its driver knows.
    fn map(&self, op: &'static str, offset: u64, len: usize) -> Result<Mapping> {
        self.0.transport.map(offset, len).map_err(|errno| self.refusal(op, Err(errno)))
    }

    /// The error of a command that failed, or that succeeded without its answers.
    #[cold]
    #[inline(never)]
    fn refusal(&self, op: &'static str, answer: Result<(), Errno>) -> Error {
        refusal(&*self.0.transport, self.driver_id(), op, answer)
    }

    pub(crate) fn provider(&self) -> Provider {
        self.0.provider
    }

    /// Keys of memory windows that must not be invalidated.
    pub(crate) fn window_keys(&self) -> &Keys {
        &self.0.window_keys
    }

    /// The device that was opened.
    pub fn device(&self) -> &Device {
        &self.0.device
    }

    /// Whether it was opened with [`OpenOptions::devx`].
    pub fn has_devx(&self) -> bool {
        self.0.devx
    }

    /// Number of completion vectors; a completion queue names one of `0..completion_vectors()`.
    pub fn completion_vectors(&self) -> u32 {
        self.0.completion_vectors
    }

    /// The next asynchronous event, or none when there is none yet; never waits.
    ///
    /// To wait, poll the context's file descriptor ([`AsFd`]) for reading.
    ///
    /// # Errors
    /// [`Malformed`](crate::ErrorKind::Malformed) if the record is cut short.
    #[doc(alias = "ibv_get_async_event")]
    #[doc(alias = "ibv_ack_async_event")]
    pub fn next_event(&self) -> Result<Option<AsyncEvent>> {
        let op = "async_event.read";
        self.check_origin(op)?;
        let record = event_file::read::<AsyncEventDesc>(op, &self.0.events)?;
        Ok(record.map(AsyncEvent::from))
    }

    /// Whether the device has gone since it was opened.
    ///
    /// On Linux 7.2 a device that has gone answers some commands with EPERM; so before "permission denied"
    /// is believed, a command that needs no permission is asked.
    pub(crate) fn is_gone(&self) -> bool {
        is_gone(&*self.0.transport, self.driver_id())
    }
}

/// Makes the kernel's context, with the driver's request and answer if it has any; says how many completion vectors
/// there are.
fn create(
    transport: &dyn Transport,
    driver: u32,
    request: Option<&AllocUcontextReqV2>,
    response: &mut AllocUcontextResp,
) -> Result<u32> {
    let (mut vectors, mut core_support) = (0_u32, 0_u64);
    let mut command = Command::new("context.create", device::OBJECT, device::method::GET_CONTEXT);
    command
        .output(device::get_context::NUM_COMP_VECTORS, vectors.as_mut_bytes())
        .output(device::get_context::CORE_SUPPORT, core_support.as_mut_bytes());
    if let Some(request) = request {
        command.driver_payload((request.as_bytes(), response.as_mut_bytes()));
    }
    invoke(transport, driver, &mut command)?;
    Ok(vectors)
}

/// Sends one command to `driver`'s device.
fn invoke(transport: &dyn Transport, driver: u32, command: &mut Command<'_>) -> Result<()> {
    command.sendable()?;
    command.for_driver(driver);
    let answer = transport.invoke(command);
    if answer.is_ok() && command.outputs_are_valid() {
        return Ok(());
    }
    Err(refusal(transport, driver, command.op(), answer))
}

/// The error of a command that failed, or that succeeded without its answers.
///
/// EIO is the answer of a device that has gone, and also what mlx5 makes of a firmware that fails (cmd_status_to_err, cmd.c,
/// Linux 6.1). Which of the two it is, another command tells.
#[cold]
#[inline(never)]
fn refusal(transport: &dyn Transport, driver: u32, op: &'static str, answer: Result<(), Errno>) -> Error {
    match answer {
        Err(Errno::EIO) if !is_gone(transport, driver) => Error::device_failed(op),
        Err(errno) => Error::kernel(op, errno),
        Ok(()) => Error::malformed(op, "the kernel did not write every answer"),
    }
}

/// Asks for an entry of the GID table, which the core has itself (uverbs_std_types_device.c, Linux 6.1): EIO then comes from
/// the core alone, when the device has gone, with or without a context.
fn is_gone(transport: &dyn Transport, driver: u32) -> bool {
    use device::query_gid_entry::{FLAGS, GID_INDEX, PORT, RESP_ENTRY};
    let mut entry = GidEntry::new_zeroed();
    let mut command = Command::new("gid.query", device::OBJECT, device::method::QUERY_GID_ENTRY);
    command.value(PORT, 1).value(GID_INDEX, 0).flags(FLAGS, 0).output(RESP_ENTRY, entry.as_mut_bytes());
    command.for_driver(driver);
    transport.invoke(&mut command) == Err(Errno::EIO)
}

impl AsFd for Context {
    /// The file of asynchronous events, ready for reading when [`Context::next_event`] has one.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.events.as_fd()
    }
}
