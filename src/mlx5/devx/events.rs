//! Events of objects and of the device.

use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::time::Duration;

use nix::errno::Errno;
use uverbs_abi::mlx5::DevxAsyncEventHdr;
use uverbs_abi::mlx5::ids::{devx, devx_async_event_fd};
use zerocopy::FromBytes;

use super::{FirmwareObject, command, explained};
use crate::device::context::Context;
use crate::kernel::command::Command;
use crate::kernel::error::{Error, Result};
use crate::kernel::event;

const OP: &str = "devx.events";
const SUBSCRIBE: &str = "devx.subscribe";

/// Bytes of an event queue's entry (`struct mlx5_eqe`, include/linux/mlx5/device.h, Linux 6.1).
const ENTRY: usize = 64;
const COOKIE: usize = size_of::<DevxAsyncEventHdr>();

/// A file of events, to which objects of the firmware and the device are subscribed. It can be polled ([`AsFd`]).
#[derive(Debug)]
#[doc(alias = "mlx5dv_devx_event_channel")]
#[doc(alias = "mlx5dv_devx_destroy_event_channel")]
pub struct EventChannel {
    file: OwnedFd,
    context: Context,
    has_entries: bool,
}

/// An event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FirmwareEvent {
    /// The value of the subscription.
    pub cookie: u64,
    /// The entry of the event queue, in the device's layout; none from a channel without entries.
    pub entry: Option<[u8; ENTRY]>,
}

impl EventChannel {
    /// Creates a channel. With `has_entries` an event contains the entry of the event queue, and each occurrence is an event; without,
    /// occurrences of a subscription are one event until it is read.
    ///
    /// # Errors
    /// [`Unsupported`](crate::ErrorKind::Unsupported) for a device without DEVX; [`Exhausted`](crate::ErrorKind::Exhausted) if the process has no free
    /// file descriptor.
    ///
    /// # Kernel
    /// `MLX5_IB_METHOD_DEVX_ASYNC_EVENT_FD_ALLOC` (devx.c, Linux 6.1).
    #[doc(alias = "mlx5dv_devx_create_event_channel")]
    pub fn new(context: &Context, has_entries: bool) -> Result<Self> {
        let channel = Self::with_flags(context, u32::from(!has_entries))?;
        event::set_nonblocking(OP, &channel.file)?;
        Ok(channel)
    }

    /// A channel with flags of the kernel, whose reads wait for an event as the kernel creates it.
    ///
    /// # Errors
    /// As [`EventChannel::new`]; [`InvalidInput`](crate::ErrorKind::InvalidInput) for unknown flags.
    #[cfg(feature = "raw")]
    pub fn new_blocking(context: &Context, flags: u32) -> Result<Self> {
        Self::with_flags(context, flags)
    }

    fn with_flags(context: &Context, flags: u32) -> Result<Self> {
        use devx_async_event_fd::{OBJECT, alloc, method};
        let mut command = Command::new(OP, OBJECT, method::ALLOC);
        command.new_fd(alloc::HANDLE).flags(alloc::FLAGS, flags);
        context.invoke(&mut command)?;
        Ok(Self { file: command.take_fd()?, context: context.clone(), has_entries: flags == 0 })
    }

    /// Asks for events of an object, or of the device if there is none. `events` are the firmware's numbers, at most 16; each event contains
    /// `cookie`.
    ///
    /// # Errors
    /// [`InvalidInput`](crate::ErrorKind::InvalidInput) for a number that the device does not have, for more than 16 or none, for an object of
    /// another open device, and on a context without DEVX.
    ///
    /// # Kernel
    /// `MLX5_IB_METHOD_DEVX_SUBSCRIBE_EVENT` (is_valid_events, devx.c, Linux 6.1).
    #[doc(alias = "mlx5dv_devx_subscribe_devx_event")]
    pub fn subscribe(&self, object: Option<&FirmwareObject>, events: &[u16], cookie: u64) -> Result<()> {
        let mut command = self.subscription(object, events)?;
        command.value(devx::subscribe_event::COOKIE, cookie);
        self.context.invoke(&mut command).map_err(|error| explained(&self.context, error))
    }

    /// Asks that `eventfd` is signalled for an event of an object, or of the device if there is none. The kernel keeps the eventfd.
    ///
    /// # Errors
    /// As [`EventChannel::subscribe`]; [`InvalidInput`](crate::ErrorKind::InvalidInput) if the file is no eventfd.
    ///
    /// # Kernel
    /// As [`EventChannel::subscribe`].
    #[doc(alias = "mlx5dv_devx_subscribe_devx_event_fd")]
    pub fn subscribe_eventfd(
        &self,
        object: Option<&FirmwareObject>,
        event: u16,
        eventfd: BorrowedFd<'_>,
    ) -> Result<()> {
        self.signal(object, event, eventfd.as_raw_fd())
    }

    /// [`EventChannel::subscribe_eventfd`] with the number of a file, which the kernel refuses if it is none.
    ///
    /// # Errors
    /// As [`EventChannel::subscribe_eventfd`].
    #[cfg(feature = "raw")]
    pub fn subscribe_number(&self, object: Option<&FirmwareObject>, event: u16, eventfd: i32) -> Result<()> {
        self.signal(object, event, eventfd)
    }

    fn signal(&self, object: Option<&FirmwareObject>, event: u16, eventfd: i32) -> Result<()> {
        let events = [event];
        let mut command = self.subscription(object, &events)?;
        command.input(devx::subscribe_event::FD_NUM, &eventfd);
        self.context.invoke(&mut command).map_err(|error| explained(&self.context, error))
    }

    fn subscription<'a>(&'a self, object: Option<&FirmwareObject>, events: &'a [u16]) -> Result<Command<'a>> {
        use devx::subscribe_event::{FD_HANDLE, OBJ_HANDLE, TYPE_NUM_LIST};
        let mut command = Command::new(SUBSCRIBE, devx::OBJECT, devx::method::SUBSCRIBE_EVENT);
        command.fd(FD_HANDLE, self.file.as_fd()).input(TYPE_NUM_LIST, events);
        if let Some(object) = object {
            if !object.context().is_same(&self.context) {
                let hint = "the object belongs to another open device than the channel";
                return Err(Error::refused(SUBSCRIBE, Errno::EINVAL, hint));
            }
            command.handle(OBJ_HANDLE, object.0.id());
        }
        Ok(command)
    }

    /// The next event, or none if there is none yet. Never blocks.
    ///
    /// # Errors
    /// [`Disassociated`](crate::ErrorKind::Disassociated) if the device has gone, and in a child of `fork`; `EOVERFLOW` if the kernel had no memory
    /// for an event, once.
    #[doc(alias = "mlx5dv_devx_get_event")]
    pub fn next(&self) -> Result<Option<FirmwareEvent>> {
        self.context.check_origin(OP)?;
        let mut record = [0; COOKIE + ENTRY];
        let Some(len) = command::take(OP, &self.file, &mut record)? else { return Ok(None) };
        let wanted = if self.has_entries { record.len() } else { COOKIE };
        let (head, entry) = DevxAsyncEventHdr::read_from_prefix(&record)
            .ok()
            .filter(|_| len == wanted)
            .ok_or_else(|| Error::malformed(OP, "an event of another length"))?;
        let entry = entry.first_chunk().copied().filter(|_| self.has_entries);
        Ok(Some(FirmwareEvent { cookie: head.cookie, entry }))
    }

    /// The open device to which it belongs.
    pub fn context(&self) -> &Context {
        &self.context
    }

    /// Waits until there is an event or `timeout` has elapsed (none: forever). Returns whether there is one.
    ///
    /// # Errors
    /// Those of `poll(2)`; [`Disassociated`](crate::ErrorKind::Disassociated) in a child of `fork`.
    pub fn wait(&self, timeout: Option<Duration>) -> Result<bool> {
        self.context.check_origin(OP)?;
        event::wait(OP, &self.file, timeout)
    }
}

impl AsFd for EventChannel {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}
