//! An open device.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use nix::errno::Errno;
use uverbs_abi::ids::{async_event, device};
use uverbs_abi::rxe::Mminfo;
use uverbs_abi::types::gid_type;
use uverbs_abi::write::{AsyncEventDesc, ExQueryDevice, ExQueryDeviceResp, GidEntry, QueryPortRespEx, cmd};
use zerocopy::{FromZeros, IntoBytes};

use crate::command::{Command, CountersRead, READ_OP};
use crate::device::Device;
use crate::error::{Error, ErrorKind, Result};
use crate::event;
use crate::provider::Provider;
use crate::transport::{Mapping, Transport};

/// An open device: the parent of every object, and the place of its events.
///
/// Cheap to clone; the device file is closed when the last clone and the last object are gone.
#[derive(Clone, Debug)]
#[doc(alias = "ibv_context")]
pub struct Context(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    transport: Box<dyn Transport>,
    device: Device,
    provider: Provider,
    completion_vectors: u32,
    events: OwnedFd,
}

impl Context {
    /// Makes the kernel's context on a freshly opened transport.
    ///
    /// The ioctl form is used on every kernel: `GET_CONTEXT` by `INVOKE_WRITE` answers EBADF on Linux 7.2
    /// (ib_alloc_ucontext, uverbs_cmd.c). The async event file is made before any other object, since
    /// objects made without one have no events.
    pub(crate) fn establish(device: Device, transport: Box<dyn Transport>) -> Result<Self> {
        let driver = device.driver_id();
        let provider = device.provider();
        let request = provider.context_request();
        let mut vectors = 0_u32;
        let mut response = [0; 128];
        let mut command = Command::new("context.create", device::OBJECT, device::method::GET_CONTEXT);
        command.output(device::get_context::NUM_COMP_VECTORS, vectors.as_mut_bytes());
        let mut core_support = 0_u64;
        command.output(device::get_context::CORE_SUPPORT, core_support.as_mut_bytes());
        if let Some(request) = &request {
            command.driver_input(request).driver_output(&mut response);
        }
        invoke(&*transport, driver, &mut command)?;

        let mut command = Command::new("async_event.create", async_event::OBJECT, async_event::method::ALLOC);
        command.new_fd(async_event::alloc::FD_HANDLE);
        invoke(&*transport, driver, &mut command)?;
        let events = command.take_fd()?;
        event::set_nonblocking("async_event.create", &events)?;
        let inner = Inner { transport, device, provider, completion_vectors: vectors, events };
        Ok(Self(Arc::new(inner)))
    }

    /// Sends a command and checks that the kernel wrote every answer it was asked for.
    pub(crate) fn invoke(&self, command: &mut Command<'_>) -> Result<()> {
        invoke(&*self.0.transport, self.0.device.driver_id(), command)
    }

    /// Reads counters into `values`, of which there are 8191 at most.
    #[inline]
    pub(crate) fn read_counters(&self, read: &mut CountersRead, values: &mut [u64]) -> Result<()> {
        let answer = self.0.transport.read_counters(read, values);
        if answer.is_ok() && read.is_answered() { Ok(()) } else { Err(refusal(READ_OP, answer)) }
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
        self.0.transport.map(info.offset, len).map_err(|errno| Error::kernel(op, errno))
    }

    pub(crate) fn provider(&self) -> Provider {
        self.0.provider
    }

    /// The device that was opened.
    pub fn device(&self) -> &Device {
        &self.0.device
    }

    /// Number of completion vectors; a completion queue names one of `0..completion_vectors()`.
    pub fn completion_vectors(&self) -> u32 {
        self.0.completion_vectors
    }

    /// Limits and capabilities of the device.
    ///
    /// # Errors
    /// [`ErrorKind::Disassociated`] when the device has gone.
    ///
    /// # Kernel
    /// Extended `QUERY_DEVICE` by `INVOKE_WRITE` (ib_uverbs_ex_query_device, uverbs_cmd.c, Linux 6.1).
    #[doc(alias = "ibv_query_device_ex")]
    pub fn query_device(&self) -> Result<ExQueryDeviceResp> {
        self.query(None)
    }

    /// What mlx5 tells beyond [`Context::query_device`]: large sends, hashes, sending rates. None of other drivers.
    ///
    /// # Errors
    /// As [`Context::query_device`].
    ///
    /// # Kernel
    /// The driver's answer to the same command (mlx5_ib_query_device, main.c, Linux 6.1).
    pub fn query_device_mlx5(&self) -> Result<Option<uverbs_abi::mlx5::QueryDeviceResp>> {
        if self.provider() != Provider::Mlx5 {
            return Ok(None);
        }
        let mut driver = uverbs_abi::mlx5::QueryDeviceResp::new_zeroed();
        self.query(Some(driver.as_mut_bytes()))?;
        Ok(Some(driver))
    }

    fn query(&self, driver: Option<&mut [u8]>) -> Result<ExQueryDeviceResp> {
        use device::invoke_write::{CORE_IN, CORE_OUT};
        let request = ExQueryDevice::default();
        let mut response = ExQueryDeviceResp::new_zeroed();
        let mut command = Command::write("device.query", cmd::EX_QUERY_DEVICE);
        command.input(CORE_IN, &request).output(CORE_OUT, response.as_mut_bytes());
        if let Some(driver) = driver {
            command.driver_output(driver);
        }
        self.invoke(&mut command)?;
        Ok(response)
    }

    /// State and limits of `port`, which counts from 1.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidInput`] for a port that the device does not have.
    ///
    /// # Kernel
    /// `UVERBS_METHOD_QUERY_PORT`; 48 bytes of answer are the least (uverbs_std_types_device.c, Linux 6.1).
    #[doc(alias = "ibv_query_port")]
    pub fn query_port(&self, port: u8) -> Result<QueryPortRespEx> {
        use device::query_port::{PORT_NUM, RESP};
        let mut response = QueryPortRespEx::new_zeroed();
        let mut command = Command::new("port.query", device::OBJECT, device::method::QUERY_PORT);
        command.value(PORT_NUM, port.into()).output(RESP, response.as_mut_bytes());
        self.invoke(&mut command)
            .map_err(|error| error.hinted_if(ErrorKind::InvalidInput, "the device has no such port"))?;
        Ok(response)
    }

    /// Every valid entry of the GID tables of all ports.
    ///
    /// # Errors
    /// Those of the kernel; [`ErrorKind::Malformed`] if it reports more entries than asked for.
    ///
    /// # Kernel
    /// `UVERBS_METHOD_QUERY_GID_TABLE` (uverbs_std_types_device.c, Linux 6.1).
    #[doc(alias = "ibv_query_gid_table")]
    pub fn gid_table(&self) -> Result<Vec<Gid>> {
        use device::query_gid_table::{ENTRY_SIZE, FLAGS, RESP_ENTRIES, RESP_NUM_ENTRIES};
        let op = "gid_table.query";
        let ports = self.query_device()?.base.phys_port_cnt;
        let mut size = 0;
        for port in 1..=ports {
            let entries = usize::try_from(self.query_port(port)?.legacy_resp.gid_tbl_len);
            size += entries.map_err(|_| Error::malformed(op, "a negative table size"))?;
        }
        // The kernel takes lengths of 16 bits.
        let size = size.clamp(1, usize::from(u16::MAX) / size_of::<GidEntry>());
        let mut entries = vec![GidEntry::new_zeroed(); size];
        let mut count = 0_u64;
        let mut command = Command::new(op, device::OBJECT, device::method::QUERY_GID_TABLE);
        command
            .value(ENTRY_SIZE, size_of::<GidEntry>() as u64)
            .flags(FLAGS, 0)
            .output(RESP_ENTRIES, entries.as_mut_bytes())
            .output(RESP_NUM_ENTRIES, count.as_mut_bytes());
        self.invoke(&mut command)?;
        let valid = usize::try_from(count).ok().and_then(|count| entries.get(..count));
        let valid = valid.ok_or_else(|| Error::malformed(op, "more entries than asked for"))?;
        Ok(valid.iter().map(Gid::from).collect())
    }

    /// The partition key at `index` of the table of `port`.
    ///
    /// # Errors
    /// [`ErrorKind::NotFound`] for an index or port that does not exist.
    ///
    /// # Kernel
    /// There is no command for it: as in libibverbs the key comes from sysfs (`ports/N/pkeys/I`).
    #[doc(alias = "ibv_query_pkey")]
    pub fn pkey(&self, port: u8, index: u16) -> Result<u16> {
        self.0.device.pkey(port, index)
    }

    /// The next asynchronous event, or none when there is none yet; never waits.
    ///
    /// To wait, poll the context's file descriptor ([`AsFd`]) for reading.
    ///
    /// # Errors
    /// [`ErrorKind::Malformed`] if the record is cut short.
    #[doc(alias = "ibv_get_async_event")]
    pub fn next_event(&self) -> Result<Option<AsyncEvent>> {
        let record = event::read::<AsyncEventDesc>("async_event.read", &self.0.events)?;
        Ok(record.map(|record| AsyncEvent { element: record.element, kind: record.event_type }))
    }

    /// Whether the device has gone since it was opened.
    ///
    /// On Linux 7.2 a device that has gone answers some commands with EPERM; so before "permission denied"
    /// is believed, a command that needs no permission is asked.
    pub(crate) fn is_gone(&self) -> bool {
        matches!(self.query_port(1), Err(error) if error.kind() == ErrorKind::Disassociated)
    }
}

/// Sends one command to `driver`'s device.
fn invoke(transport: &dyn Transport, driver: u32, command: &mut Command<'_>) -> Result<()> {
    command.sendable()?;
    command.for_driver(driver);
    let answer = transport.invoke(command);
    if answer.is_ok() && command.outputs_are_valid() { Ok(()) } else { Err(refusal(command.op(), answer)) }
}

/// The error of a command that failed, or that succeeded without its answers.
#[cold]
#[inline(never)]
fn refusal(op: &'static str, answer: Result<(), Errno>) -> Error {
    match answer {
        Err(errno) => Error::kernel(op, errno),
        Ok(()) => Error::malformed(op, "the kernel did not write every answer"),
    }
}

impl AsFd for Context {
    /// The file of asynchronous events, ready for reading when [`Context::next_event`] has one.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.events.as_fd()
    }
}

/// An entry of a port's GID table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[doc(alias = "ibv_gid_entry")]
pub struct Gid {
    /// The address, in network order.
    pub raw: [u8; 16],
    /// Its port, from 1.
    pub port: u32,
    /// Its place in the port's table.
    pub index: u32,
    /// What it is for.
    pub kind: GidKind,
    /// Index of the network interface it belongs to; zero for none.
    pub interface: u32,
}

/// What a GID is for.
#[non_exhaustive]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GidKind {
    /// InfiniBand.
    InfiniBand,
    /// RoCE version 1 (Ethertype 0x8915).
    RoceV1,
    /// RoCE version 2 (UDP port 4791).
    RoceV2,
    /// A number that this crate does not know.
    Unknown(u32),
}

impl From<&GidEntry> for Gid {
    fn from(entry: &GidEntry) -> Self {
        let kind = match entry.gid_type {
            gid_type::IB => GidKind::InfiniBand,
            gid_type::ROCE_V1 => GidKind::RoceV1,
            gid_type::ROCE_V2 => GidKind::RoceV2,
            other => GidKind::Unknown(other),
        };
        let mut raw = [0; 16];
        raw.copy_from_slice(entry.gid.as_bytes());
        Self { raw, port: entry.port_num, index: entry.gid_index, kind, interface: entry.netdev_ifindex }
    }
}

/// Something happened on the device, not in answer to a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[doc(alias = "ibv_async_event")]
pub struct AsyncEvent {
    /// The cookie of the object it is about, or the port's number for events of ports.
    pub element: u64,
    /// What happened: one of [`uverbs_abi::types::event_type`].
    pub kind: u32,
}
