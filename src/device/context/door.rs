//! The only way from an open device to its transport.
//!
//! A child of `fork` has the device file too. The kernel keeps the commands of both apart as little as those of two threads:
//! a read of counters in the child beside the bind of their first flow in the parent is one that it does not survive. So each
//! way through here asks first whose the device is.
//!
//! It is nobody's at first, and then the process's that is the first to make something of it, for ever. A program that opens
//! the device, asks it, and goes on in a child, as daemon(3) does it, has a device there; and no process ever has an object of
//! another's. Before that everybody who has inherited the device may ask, and make protection domains, which do nothing by
//! themselves. A device behind a wrapper, which may have locks, and a soft one, which is the memory of its process, are the
//! process's that opened them.

#[cfg(feature = "raw")]
use std::os::fd::BorrowedFd;

use nix::errno::Errno;
use uverbs_abi::ids::{async_event, device};
use uverbs_abi::write::{GidEntry, cmd};
use zerocopy::{FromZeros, IntoBytes};

use crate::kernel::command::{Command, CountersRead, Doorbell, EventRequest, READ_OP};
use crate::kernel::error::{Error, Result};
use crate::kernel::process::{Here, Origin, Owner, elsewhere};
use crate::kernel::transport::{Mapping, Transport};

/// Why a device has not looked at a ring.
#[derive(Clone, Copy, Debug)]
#[cfg_attr(not(feature = "raw"), expect(unreachable_pub))]
pub struct Unseen(Reason);

#[derive(Clone, Copy, Debug)]
enum Reason {
    /// The device is another process's.
    Elsewhere,
    /// What the kernel answered; it may have written less than all of its answers.
    Answer(Result<(), Errno>),
}

impl Unseen {
    /// In another process.
    pub(crate) const ELSEWHERE: Self = Self(Reason::Elsewhere);
}

/// A transport, and whose it is.
#[derive(Debug)]
pub(super) struct Door {
    transport: Box<dyn Transport>,
    driver: u32,
    owner: Owner,
}

impl Door {
    /// To a freshly opened device with the driver `driver`. Only one that is `inheritable` may become a child's.
    pub(super) fn new(transport: Box<dyn Transport>, driver: u32, inheritable: bool) -> Result<Self> {
        let owner = Owner::new().map_err(|errno| Error::kernel("context.create", errno))?;
        if !inheritable {
            owner.take();
        }
        Ok(Self { transport, driver, owner })
    }

    /// The process that it belongs to; none if that is another, or nobody yet.
    #[inline]
    pub(super) fn origin(&self) -> Origin {
        self.owner.origin()
    }

    /// Refuses `op` unless the device is this process's.
    #[inline]
    pub(super) fn check(&self, op: &'static str) -> Result<()> {
        self.owner.origin().check(op)
    }

    /// Whether the device is the process's that was just asked for.
    #[inline]
    fn was_asked(&self, here: Here) -> bool {
        self.owner.origin().is(here)
    }

    /// Makes the device this process's; refuses `op` if it is another's.
    #[inline]
    pub(super) fn take(&self, op: &'static str) -> Result<()> {
        if self.owner.take() { Ok(()) } else { Err(elsewhere(op)) }
    }

    /// Refuses `op` on a device that is another process's.
    pub(super) fn may_ask(&self, op: &'static str) -> Result<()> {
        if self.owner.is_free_or_here() { Ok(()) } else { Err(elsewhere(op)) }
    }

    /// Refuses to destroy what another process has made: also on a device that is nobody's yet, whose protection domains
    /// children have copies of.
    pub(super) fn may_destroy(&self, op: &'static str) -> Result<()> {
        if self.owner.is_here() || self.owner.is_made_here() { Ok(()) } else { Err(elsewhere(op)) }
    }

    /// Sends a command, and checks that the kernel wrote every answer that it was asked for.
    pub(super) fn invoke(&self, command: &mut Command<'_>) -> Result<()> {
        if is_harmless(command) {
            self.may_ask(command.op())?
        } else {
            self.take(command.op())?
        }
        command.sendable()?;
        command.for_driver(self.driver);
        let answer = self.transport.invoke(command);
        if answer.is_ok() && command.outputs_are_valid() {
            return Ok(());
        }
        Err(self.refusal(command.op(), answer))
    }

    /// Reads counters into `values`, of which there are 8191 at most.
    #[inline]
    pub(super) fn read_counters(&self, read: &mut CountersRead, values: &mut [u64]) -> Result<()> {
        // As in `check`, which compiles to more.
        if !self.owner.is_here() {
            return Err(elsewhere(READ_OP));
        }
        let answer = self.transport.read_counters(read, values);
        // The transport marks an answer only with success.
        if read.is_answered() { Ok(()) } else { Err(self.refusal(READ_OP, answer)) }
    }

    /// The doorbell of the send ring of the queue pair `handle`.
    pub(super) fn doorbell(&self, handle: u32) -> Doorbell {
        Doorbell::new(self.driver, handle)
    }

    /// Has the kernel look at a send ring.
    #[inline]
    pub(super) fn ring(&self, op: &'static str, doorbell: &mut Doorbell, here: Here) -> Result<(), Unseen> {
        if !self.was_asked(here) {
            return Err(Unseen::ELSEWHERE);
        }
        let answer = self.transport.ring(op, doorbell);
        if answer.is_ok() && doorbell.is_answered() { Ok(()) } else { Err(Unseen(Reason::Answer(answer))) }
    }

    /// The error of a ring that was not looked at.
    #[cold]
    pub(super) fn unseen(&self, op: &'static str, Unseen(reason): Unseen) -> Error {
        match reason {
            Reason::Elsewhere => elsewhere(op),
            Reason::Answer(answer) => self.refusal(op, answer),
        }
    }

    /// Has the completion queue `handle` announce its next completion, or its next solicited one.
    pub(super) fn request_event(&self, op: &'static str, handle: u32, solicited_only: bool) -> Result<()> {
        self.check(op)?;
        let mut request = EventRequest::new(self.driver, handle, solicited_only);
        let answer = self.transport.request_event(op, &mut request);
        if answer.is_ok() { Ok(()) } else { Err(self.refusal(op, answer)) }
    }

    /// Maps memory of the device at an offset that the kernel or its driver knows.
    #[inline(never)]
    pub(super) fn map(&self, op: &'static str, offset: u64, len: usize) -> Result<Mapping> {
        self.take(op)?;
        self.transport.map(offset, len).map_err(|errno| self.refusal(op, Err(errno)))
    }

    /// The device file, if there is one.
    #[cfg(feature = "raw")]
    pub(super) fn file(&self) -> Option<BorrowedFd<'_>> {
        self.may_ask("context.file").ok().and_then(|()| self.transport.file())
    }

    /// The error of a command that failed, or that succeeded without its answers.
    ///
    /// EIO is the answer of a device that has gone, and also what mlx5 makes of a firmware that fails (cmd_status_to_err, cmd.c,
    /// Linux 6.1). Which of the two it is, another command tells.
    #[cold]
    #[inline(never)]
    fn refusal(&self, op: &'static str, answer: Result<(), Errno>) -> Error {
        match answer {
            Err(Errno::EIO) if !self.is_gone() => Error::device_failed(op),
            Err(errno) => Error::kernel(op, errno),
            Ok(()) => Error::malformed(op, "the kernel did not write every answer"),
        }
    }

    /// Whether the device has gone. Asks for an entry of the GID table, which the core has itself (uverbs_std_types_device.c,
    /// Linux 6.1): EIO then comes from the core alone, with or without a context.
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

/// Whether a command makes nothing that two processes must not share: what opening consists of, what only asks, and protection
/// domains.
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
