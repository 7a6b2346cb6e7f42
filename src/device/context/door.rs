//! The only access from an open device to its transport.
//!
//! A child of `fork` has the device file too. The kernel does not separate the commands of the two processes any more than those of two
//! threads: if the child reads counters while the parent binds their first flow, the kernel crashes. Every method here therefore first
//! checks which process owns the device.
//!
//! At first the device has no owner. The first process that creates an object with it becomes the owner, for ever. A program that opens
//! the device, queries it, and continues in a child, as daemon(3) does, therefore has a device there; and no process ever has an object
//! of another. Until there is an owner, every process that has inherited the device may query it, and may create protection domains,
//! which do nothing by themselves. A device with a wrapped transport, which may have locks, and a soft device, which is memory of its
//! process, belong to the process that opened them.

#[cfg(feature = "raw")]
use std::{fs::File, os::fd::BorrowedFd};

use nix::errno::Errno;
use uverbs_abi::ids::{async_event, device};
use uverbs_abi::write::{GidEntry, cmd};
use zerocopy::{FromZeros, IntoBytes};

use crate::kernel::command::{Command, CountersRead, Doorbell, EventRequest, READ_OP};
use crate::kernel::error::{Error, Result};
use crate::kernel::process::{Here, Origin, Owner, elsewhere};
use crate::kernel::transport::{Mapping, Transport};

/// Why a device has not read a ring.
#[derive(Clone, Copy, Debug)]
#[cfg_attr(not(feature = "raw"), expect(unreachable_pub))]
pub struct Unseen(Reason);

#[derive(Clone, Copy, Debug)]
enum Reason {
    /// Another process owns the device.
    #[cfg(feature = "raw")]
    Elsewhere,
    /// The kernel's answer. It may have written only some of its responses.
    Answer(Result<(), Errno>),
}

impl Unseen {
    /// For another process.
    #[cfg(feature = "raw")]
    pub(crate) const ELSEWHERE: Self = Self(Reason::Elsewhere);

    /// For this answer.
    #[cold]
    fn answered(answer: Result<(), Errno>) -> Self {
        Self(Reason::Answer(answer))
    }
}

/// A transport, and its owner.
#[derive(Debug)]
pub(super) struct Door {
    transport: Box<dyn Transport>,
    driver: u32,
    owner: Owner,
}

impl Door {
    /// For a newly opened device with the driver `driver`. Only if it is `inheritable`, a child may become its owner. Returns the transport
    /// if there is no memory for an owner.
    pub(super) fn new(
        transport: Box<dyn Transport>,
        driver: u32,
        inheritable: bool,
    ) -> Result<Self, (Box<dyn Transport>, Error)> {
        let owner = match Owner::new() {
            Ok(owner) => owner,
            Err(errno) => return Err((transport, Error::kernel("context.create", errno))),
        };
        if !inheritable {
            owner.take();
        }
        Ok(Self { transport, driver, owner })
    }

    /// The device file, if there is one.
    #[cfg(feature = "raw")]
    pub(super) fn into_file(self) -> Option<File> {
        let Self { transport, .. } = self;
        transport.into_file()
    }

    /// The owner; none if it is another process, or if there is no owner yet.
    #[inline]
    pub(super) fn origin(&self) -> Origin {
        self.owner.origin()
    }

    /// Refuses `op` unless this process is the owner.
    #[inline]
    pub(super) fn check(&self, op: &'static str) -> Result<()> {
        self.owner.origin().check(op)
    }

    /// Whether this process, which was just checked, is the owner.
    #[inline]
    fn was_asked(&self, here: Here) -> bool {
        self.owner.origin().is(here)
    }

    /// Makes this process the owner. Refuses `op` if another process is.
    #[inline]
    pub(super) fn take(&self, op: &'static str) -> Result<()> {
        if self.owner.take() { Ok(()) } else { Err(elsewhere(op)) }
    }

    /// Refuses `op` if another process is the owner.
    pub(super) fn may_ask(&self, op: &'static str) -> Result<()> {
        if self.owner.is_free_or_here() { Ok(()) } else { Err(elsewhere(op)) }
    }

    /// Refuses to destroy what another process has created. This also applies to a device without an owner, because children have copies
    /// of its protection domains.
    pub(super) fn may_destroy(&self, op: &'static str) -> Result<()> {
        if self.owner.is_here() || self.owner.is_made_here() { Ok(()) } else { Err(elsewhere(op)) }
    }

    /// Sends a command, and checks that the kernel wrote every response that was requested.
    pub(super) fn invoke(&self, command: &mut Command<'_>) -> Result<()> {
        if !self.owner.is_here() {
            self.admit(command)?;
        }
        command.sendable()?;
        command.for_driver(self.driver);
        let answer = self.transport.invoke(command);
        if answer.is_ok() && command.outputs_are_valid() {
            return Ok(());
        }
        Err(self.refusal(command.op(), answer))
    }

    /// Makes this process the owner, if the command requires it and there is no owner yet. Refuses the command if another process owns
    /// the device.
    #[cold]
    fn admit(&self, command: &Command<'_>) -> Result<()> {
        if is_harmless(command) { self.may_ask(command.op()) } else { self.take(command.op()) }
    }

    /// Reads counters into `values`, which has at most 8191 elements.
    #[inline]
    pub(super) fn read_counters(&self, read: &mut CountersRead, values: &mut [u64]) -> Result<()> {
        // As in `check`, which compiles to more instructions.
        if !self.owner.is_here() {
            return Err(elsewhere(READ_OP));
        }
        let answer = self.transport.read_counters(read, values);
        // The transport marks a response only on success.
        if read.is_answered() { Ok(()) } else { Err(self.refusal(READ_OP, answer)) }
    }

    /// The doorbell of the send ring of the queue pair `handle`.
    pub(super) fn doorbell(&self, handle: u32) -> Doorbell {
        Doorbell::new(self.driver, handle)
    }

    /// Makes the kernel read a send ring. `here` is the answer of the ring's queue, whose origin is that of its device.
    #[inline]
    pub(super) fn ring(&self, op: &'static str, doorbell: &mut Doorbell, here: Here) -> Result<(), Unseen> {
        debug_assert!(self.was_asked(here), "a queue that belongs to another process than its device");
        match self.transport.ring(op, doorbell) {
            Ok(()) if doorbell.is_answered() => Ok(()),
            answer => Err(Unseen::answered(answer)),
        }
    }

    /// The error for a ring that the kernel did not read.
    #[cold]
    pub(super) fn unseen(&self, op: &'static str, Unseen(reason): Unseen) -> Error {
        match reason {
            #[cfg(feature = "raw")]
            Reason::Elsewhere => elsewhere(op),
            Reason::Answer(answer) => self.refusal(op, answer),
        }
    }

    /// Requests an event for the next completion of the queue `handle`, or for its next solicited one.
    pub(super) fn request_event(&self, op: &'static str, handle: u32, solicited_only: bool) -> Result<()> {
        self.check(op)?;
        let mut request = EventRequest::new(self.driver, handle, solicited_only);
        let answer = self.transport.request_event(op, &mut request);
        if answer.is_ok() { Ok(()) } else { Err(self.refusal(op, answer)) }
    }

    /// Maps memory of the device at an offset that the kernel or its driver defines.
    #[inline(never)]
    pub(super) fn map(&self, op: &'static str, offset: u64, len: usize) -> Result<Mapping> {
        self.take(op)?;
        self.transport.map(offset, len).map_err(|errno| self.refusal(op, Err(errno)))
    }

    /// Maps memory that the kernel or the device writes, for reading only.
    pub(super) fn map_to_read(&self, op: &'static str, offset: u64, len: usize) -> Result<Mapping> {
        self.take(op)?;
        self.transport.map_to_read(offset, len).map_err(|errno| self.refusal(op, Err(errno)))
    }

    /// The device file, if there is one.
    #[cfg(feature = "raw")]
    pub(super) fn file(&self) -> Option<BorrowedFd<'_>> {
        self.may_ask("context.file").ok().and_then(|()| self.transport.file())
    }

    /// The error for a command that failed, or that succeeded without all of its responses.
    ///
    /// EIO means that the device was removed, but mlx5 also returns it if the firmware fails (cmd_status_to_err, cmd.c, Linux 6.1).
    /// Another command distinguishes the two.
    #[cold]
    fn refusal(&self, op: &'static str, answer: Result<(), Errno>) -> Error {
        match answer {
            Err(Errno::EIO) if !self.is_gone() => Error::device_failed(op),
            Err(errno) => Error::kernel(op, errno),
            Ok(()) => Error::malformed(op, "the kernel did not write every answer"),
        }
    }

    /// Whether the device was removed. Reads an entry of the GID table, which the core stores itself (uverbs_std_types_device.c, Linux
    /// 6.1): EIO then comes from the core alone, with or without a context.
    pub(super) fn is_gone(&self) -> bool {
        use device::query_gid_entry::{FLAGS, GID_INDEX, PORT, RESP_ENTRY};
        if self.may_ask("gid.query").is_err() {
            return true;
        }
        let mut entry = GidEntry::new_zeroed();
        let mut command = Command::new("gid.query", device::OBJECT, device::method::QUERY_GID_ENTRY);
        command.value(PORT, 1).value(GID_INDEX, 0).flags(FLAGS, 0).output(RESP_ENTRY, entry.as_mut_bytes());
        command.for_driver(self.driver);
        self.transport.invoke(&mut command) == Err(Errno::EIO)
    }
}

/// Whether a command creates nothing that two processes must not share: the commands that open a device, queries, and protection domains.
fn is_harmless(command: &Command<'_>) -> bool {
    let header = command.header();
    match (header.object_id, header.method_id) {
        (device::OBJECT, device::method::INVOKE_WRITE) => {
            let number = command.attrs().next().map(|attr| attr.data);
            let harmless = [cmd::QUERY_DEVICE, cmd::EX_QUERY_DEVICE, cmd::QUERY_PORT, cmd::ALLOC_PD];
            harmless.iter().any(|harmless| Some(u64::from(*harmless)) == number)
        }
        (device::OBJECT, _) => true,
        (object, method) => (object, method) == (async_event::OBJECT, async_event::method::ALLOC),
    }
}
