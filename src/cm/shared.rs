//! What all clones of a manager and its identifiers share: the file, the dispatch of events, and the helper threads.

use std::net::SocketAddr;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::Waker;
use std::time::Duration;

use nix::errno::Errno;
use uverbs_abi::cm::{CONNECT_ERROR, DestroyId, EventResp, MigrateId, Notify};
use uverbs_abi::types::event_type;
use zerocopy::FromZeros;

use super::dispatch::{Dispatch, Given, Kind};
use super::helper::Helper;
use crate::device::Device;
use crate::kernel::error::{Error, ErrorKind, Result};
use crate::kernel::manager::{ManagerCommand, ManagerFile, Request};
use crate::kernel::process::Origin;

/// Finds the device that an answer names by its index.
pub(super) type FindDevice = dyn Fn(u32) -> Result<Device> + Send + Sync;

/// The result of reading an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Read {
    Event,
    Nothing,
    /// A thread reads, which must see every event itself.
    NotOurTurn,
}

pub(super) struct Shared {
    // Dropped before the file, at which it is registered.
    #[cfg(feature = "tokio")]
    pub(super) watch: super::task::Watch,
    file: Box<dyn ManagerFile>,
    devices: Box<FindDevice>,
    origin: Origin,
    dispatch: Mutex<Dispatch>,
    helper: Helper,
    /// Calls that the helper has not finished. What they report is not announced by the file.
    pub(super) helped: AtomicUsize,
}

impl std::fmt::Debug for Shared {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Shared").field("file", &self.file).finish_non_exhaustive()
    }
}

impl Shared {
    pub(super) fn new(file: Box<dyn ManagerFile>, devices: Box<FindDevice>) -> Arc<Self> {
        Arc::new(Self {
            #[cfg(feature = "tokio")]
            watch: super::task::Watch::default(),
            file,
            devices,
            origin: Origin::here(),
            dispatch: Mutex::default(),
            helper: Helper::default(),
            helped: AtomicUsize::new(0),
        })
    }

    pub(super) fn device(&self, index: u32) -> Result<Device> {
        (self.devices)(index)
    }

    pub(super) fn file(&self) -> &dyn ManagerFile {
        &*self.file
    }

    pub(super) fn events(&self) -> BorrowedFd<'_> {
        self.file.events()
    }

    pub(super) fn is_here(&self) -> bool {
        self.origin.is_here()
    }

    pub(super) fn check_origin(&self, op: &'static str) -> Result<()> {
        self.origin.check(op)
    }

    /// Only after a check of the origin: in a child of `fork` another thread may hold the lock for ever.
    pub(super) fn dispatch(&self) -> MutexGuard<'_, Dispatch> {
        // Nothing panics under the lock.
        self.dispatch.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sends a command, and returns its answer.
    pub(super) fn request<R: Request>(&self, op: &'static str, request: &R) -> Result<R::Answer> {
        self.origin.check(op)?;
        let mut answer = R::Answer::new_zeroed();
        let sent = self.file.send(&mut ManagerCommand::new(request, &mut answer));
        sent.map(|()| answer).map_err(|errno| refusal(op, errno))
    }

    pub(super) fn set_option(&self, op: &'static str, id: u32, option: u32, value: &[u8]) -> Result<()> {
        self.origin.check(op)?;
        let sent = self.file.send(&mut ManagerCommand::set_option(id, option, value));
        sent.map_err(|errno| refusal(op, errno))
    }

    /// Destroys an identifier. There is nobody to whom an error could be told: it can only be that it is gone.
    pub(super) fn destroy(&self, id: u32) {
        let _ = self.request("cm.destroy", &DestroyId { id, ..DestroyId::default() });
    }

    /// Tells the kernel that a queue pair has received a message, if its identifier is still here. Nothing is to do if the connection is
    /// established already (`cm_establish`, cm.c, Linux 6.1).
    pub(super) fn notify(&self, op: &'static str, uid: u64, id: u32) -> Result<()> {
        self.origin.check(op)?;
        // Under the lock, so that the identifier is not destroyed meanwhile and its number that of another one.
        let dispatch = self.dispatch();
        if !dispatch.has(uid) {
            return Ok(());
        }
        let request = Notify { id, event: event_type::COMM_EST };
        let sent = self.file.send(&mut ManagerCommand::new(&request, &mut ()));
        drop(dispatch);
        match sent {
            Ok(()) | Err(Errno::EISCONN) => Ok(()),
            Err(errno) => Err(refusal(op, errno)),
        }
    }

    /// Takes over an identifier of another manager, for which nobody waits. Returns whether events may wait of which nobody here was told.
    pub(super) fn take_over(&self, op: &'static str, from: &Self, uid: u64, id: u32) -> Result<bool> {
        from.origin.check(op)?;
        self.origin.check(op)?;
        self.dispatch().admit(uid);
        // Under the lock: what another thread reads of the old file is in its place, or still in the file and moves.
        let mut old = from.dispatch();
        // Descriptors are not negative.
        let request = MigrateId { id, fd: from.events().as_raw_fd() as u32, ..MigrateId::default() };
        if let Err(error) = self.request(op, &request) {
            drop(old);
            self.dispatch().dismiss(uid);
            return Err(error);
        }
        let events = old.dismiss(uid);
        drop(old);
        let mut new = self.dispatch();
        new.precede(uid, events);
        let is_read = new.is_read();
        drop(new);
        Ok(is_read && crate::kernel::event::wait(op, &self.events(), Some(Duration::ZERO))?)
    }

    /// Reads one event and gives it to its identifier.
    pub(super) fn read(&self, op: &'static str, kind: Kind) -> Result<Read> {
        self.origin.check(op)?;
        let mut event = EventResp::new_zeroed();
        // Under the lock: a thread that begins to sleep afterwards has seen what was read before.
        let mut dispatch = self.dispatch();
        if !dispatch.may_read(kind) {
            return Ok(Read::NotOurTurn);
        }
        match self.read_with_step(&mut dispatch, &mut event) {
            Ok(()) => {}
            Err(Errno::EAGAIN | Errno::EINTR) => return Ok(Read::Nothing),
            Err(errno) => return Err(refusal(op, errno)),
        }
        let given = dispatch.give(Box::new(event));
        drop(dispatch);
        self.wake(given);
        Ok(Read::Event)
    }

    /// Wakes those for whom an event has come. Not under the lock.
    pub(super) fn wake(&self, given: Given) {
        if let Some(orphan) = given.wake() {
            self.destroy(orphan);
        }
    }

    /// A waiter ends: another one reads.
    pub(super) fn stop_reading(&self, kind: Kind, ticket: u64) {
        if self.is_here() {
            let next = self.dispatch().stops(kind, ticket);
            next.into_iter().for_each(Waker::wake);
        }
    }

    /// Makes a call that may block in the kernel, in another thread.
    pub(super) fn help(self: &Arc<Self>, call: impl FnOnce(&Self) + Send + 'static) -> Result<()> {
        self.helped.fetch_add(1, Ordering::Relaxed);
        let shared = self.clone();
        let done = self.helper.run(Box::new(move || {
            call(&shared);
            shared.helped.fetch_sub(1, Ordering::Relaxed);
        }));
        done.inspect_err(|_| {
            self.helped.fetch_sub(1, Ordering::Relaxed);
        })
    }

    /// Gives an event to its identifier again, and wakes whoever waits for it.
    pub(super) fn give_back(&self, event: Box<EventResp>) {
        let given = self.dispatch().give(event);
        given.wake();
    }

    /// Reports what a call in the helper has found, as an event of the identifier.
    pub(super) fn report_failure(&self, uid: u64, id: u32, error: &Error) {
        let status = error.errno().unwrap_or(Errno::EIO as i32).wrapping_neg();
        // The bits of a signed number, as the kernel has it.
        let event =
            EventResp { uid, id, event: CONNECT_ERROR, status: status as u32, ..EventResp::default() };
        let given = self.dispatch().give(Box::new(event));
        given.wake();
    }
}

/// The error for a command that was refused, with a hint for what any command may find.
pub(super) fn refusal(op: &'static str, errno: Errno) -> Error {
    let error = Error::kernel(op, errno);
    match errno {
        Errno::EACCES => error.hinted(
            "the kernel answers only the process that opened the connection manager, with the same user: open another manager",
        ),
        Errno::ENXIO => Error::device_gone(op),
        Errno::EADDRINUSE => error.hinted("another listener, or on iWARP a TCP socket, has this port"),
        Errno::ENETUNREACH => error.hinted("there is no route to this address"),
        _ => error.hinted_if(ErrorKind::Exhausted, "the kernel has no more memory for connections"),
    }
}

fn is_without_zone(address: &SocketAddr) -> bool {
    matches!(address, SocketAddr::V6(v6) if v6.ip().is_unicast_link_local() && v6.scope_id() == 0)
}

/// The hint for an own address that is not here.
pub(super) fn not_here(error: Error, address: &SocketAddr) -> Error {
    let ip = address.ip();
    match error.errno().map(Errno::from_raw) {
        Some(Errno::EADDRNOTAVAIL) => error.hinted(format!(
            "{ip} is not an address of this host, or the port is bound for any address already"
        )),
        Some(Errno::ENODEV) => error.not_found(format!("no RDMA device has the address {ip}")),
        Some(Errno::EINVAL) if is_without_zone(address) => {
            error.hinted(format!("{ip}: a link-local address needs its zone, as in fe80::1%eth0"))
        }
        Some(Errno::EACCES) => error.hinted("a port below 1024 needs CAP_NET_BIND_SERVICE"),
        _ => error,
    }
}
