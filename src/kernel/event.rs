//! Event files: each read gives one record of a fixed size.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use nix::errno::Errno;
use nix::fcntl::{FcntlArg, OFlag, fcntl};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use zerocopy::{FromBytes, IntoBytes};

use crate::kernel::error::{Error, Result};

/// Makes reads of `fd`, which was just made by the kernel and so has no other flag, return at once.
pub(crate) fn set_nonblocking(op: &'static str, fd: &OwnedFd) -> Result<()> {
    fcntl(fd, FcntlArg::F_SETFL(OFlag::O_NONBLOCK)).map_err(|errno| Error::kernel(op, errno))?;
    Ok(())
}

/// An event file. The kernel makes it one whose reads wait; it stays so until the first read here, so that who never reads,
/// or reads by itself as programs in C do, pays nothing for it.
#[derive(Debug)]
pub(crate) struct EventFile {
    fd: OwnedFd,
    is_nonblocking: AtomicBool,
}

impl EventFile {
    /// Of a file that the kernel has just made.
    pub(crate) fn new(fd: OwnedFd) -> Self {
        Self { fd, is_nonblocking: AtomicBool::new(false) }
    }

    /// Reads one record, or none when none is waiting.
    pub(crate) fn read<T: FromBytes + IntoBytes>(&self, op: &'static str) -> Result<Option<T>> {
        // Threads that come here together set it each; so does a child of `fork`, which has the file in common with its parent.
        if !self.is_nonblocking.load(Ordering::Relaxed) {
            set_nonblocking(op, &self.fd)?;
            self.is_nonblocking.store(true, Ordering::Relaxed);
        }
        let mut record = T::new_zeroed();
        match nix::unistd::read(&self.fd, record.as_mut_bytes()) {
            Ok(len) if len == size_of::<T>() => Ok(Some(record)),
            // End of file: the device has gone, and the events with it. The kernel's files say EIO.
            Ok(0) => Err(Error::kernel(op, Errno::EIO)),
            Ok(_) => Err(Error::malformed(op, "a record cut short")),
            Err(Errno::EAGAIN | Errno::EINTR) => Ok(None),
            Err(errno) => Err(Error::kernel(op, errno)),
        }
    }
}

impl AsFd for EventFile {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

/// Waits until `fd` can be read, or `timeout` is over (none: for ever). True when it can be read.
pub(crate) fn wait(op: &'static str, fd: &impl AsFd, timeout: Option<Duration>) -> Result<bool> {
    wait_any(op, &[fd.as_fd()], timeout)
}

/// Waits until one of these can be read, or `timeout` is over (none: for ever). True when one can be read; false also
/// when a signal came.
pub(crate) fn wait_any(op: &'static str, fds: &[BorrowedFd<'_>], timeout: Option<Duration>) -> Result<bool> {
    // In whole milliseconds, and never less than was asked for.
    let timeout = timeout.map_or(PollTimeout::NONE, |timeout| {
        let millis = timeout.as_nanos().div_ceil(1_000_000);
        i32::try_from(millis)
            .ok()
            .and_then(|millis| PollTimeout::try_from(millis).ok())
            .unwrap_or(PollTimeout::MAX)
    });
    let mut fds: Vec<_> = fds.iter().map(|fd| PollFd::new(*fd, PollFlags::POLLIN)).collect();
    match poll(&mut fds, timeout) {
        Ok(ready) => Ok(ready > 0),
        Err(Errno::EINTR) => Ok(false),
        Err(errno) => Err(Error::kernel(op, errno)),
    }
}
