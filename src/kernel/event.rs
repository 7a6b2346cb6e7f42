//! Event files: each read returns one record of fixed size.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use nix::errno::Errno;
use nix::fcntl::{FcntlArg, OFlag, fcntl};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use zerocopy::{FromBytes, IntoBytes};

use crate::kernel::error::{Error, Result};

/// Makes reads of `fd` non-blocking. The kernel has just created the file, so it has no other flags.
pub(crate) fn set_nonblocking(op: &'static str, fd: &OwnedFd) -> Result<()> {
    fcntl(fd, FcntlArg::F_SETFL(OFlag::O_NONBLOCK)).map_err(|errno| Error::kernel(op, errno))?;
    Ok(())
}

/// An event file. The kernel creates it with blocking reads. It is made non-blocking at the first read here, so that programs that never
/// read, or that read by themselves as C programs do, do not pay for it.
#[derive(Debug)]
pub(crate) struct EventFile {
    fd: OwnedFd,
    is_nonblocking: AtomicBool,
}

impl EventFile {
    /// For a file that the kernel has just created.
    pub(crate) fn new(fd: OwnedFd) -> Self {
        Self { fd, is_nonblocking: AtomicBool::new(false) }
    }

    /// Reads one record; `None` if no record is available.
    pub(crate) fn read<T: FromBytes + IntoBytes>(&self, op: &'static str) -> Result<Option<T>> {
        // If several threads arrive here together, each sets the flag. A child of `fork` does too; it shares the file with its parent.
        if !self.is_nonblocking.load(Ordering::Relaxed) {
            set_nonblocking(op, &self.fd)?;
            self.is_nonblocking.store(true, Ordering::Relaxed);
        }
        let mut record = T::new_zeroed();
        match nix::unistd::read(&self.fd, record.as_mut_bytes()) {
            Ok(len) if len == size_of::<T>() => Ok(Some(record)),
            // End of file: the device was removed, and its events too. The kernel's files return EIO.
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

/// Waits until `fd` can be read, or until `timeout` (`None`: for ever). True if it can be read.
pub(crate) fn wait(op: &'static str, fd: &impl AsFd, timeout: Option<Duration>) -> Result<bool> {
    wait_any(op, [fd.as_fd()], timeout)
}

/// Waits until one of these can be read, or until `timeout` (`None`: for ever). True if one can be read; false also if a signal arrived.
pub(crate) fn wait_any<const N: usize>(
    op: &'static str,
    fds: [BorrowedFd<'_>; N],
    timeout: Option<Duration>,
) -> Result<bool> {
    Ok(wait_each(op, fds, timeout)?.contains(&true))
}

/// Waits until one of these can be read, or until `timeout` (`None`: for ever). Says of each whether it can be read; of none also if a
/// signal arrived.
pub(crate) fn wait_each<const N: usize>(
    op: &'static str,
    fds: [BorrowedFd<'_>; N],
    timeout: Option<Duration>,
) -> Result<[bool; N]> {
    // In whole milliseconds, rounded up.
    let timeout = timeout.map_or(PollTimeout::NONE, |timeout| {
        let millis = timeout.as_nanos().div_ceil(1_000_000);
        i32::try_from(millis)
            .ok()
            .and_then(|millis| PollTimeout::try_from(millis).ok())
            .unwrap_or(PollTimeout::MAX)
    });
    let mut fds = fds.map(|fd| PollFd::new(fd, PollFlags::POLLIN));
    match poll(&mut fds, timeout) {
        // An error or the end of a file is an answer too: the next read reports it.
        Ok(_) => Ok(fds.map(|fd| fd.revents().is_none_or(|events| !events.is_empty()))),
        Err(Errno::EINTR) => Ok([false; N]),
        Err(errno) => Err(Error::kernel(op, errno)),
    }
}
