//! Event files: each read gives one record of a fixed size.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Duration;

use nix::errno::Errno;
use nix::fcntl::{FcntlArg, OFlag, fcntl};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use zerocopy::{FromBytes, IntoBytes};

use crate::error::{Error, Result};

/// Makes reads of `fd`, which was just made by the kernel and so has no other flag, return at once.
pub(crate) fn set_nonblocking(op: &'static str, fd: &OwnedFd) -> Result<()> {
    fcntl(fd, FcntlArg::F_SETFL(OFlag::O_NONBLOCK)).map_err(|errno| Error::kernel(op, errno))?;
    Ok(())
}

/// Reads one record, or none when none is waiting.
pub(crate) fn read<T: FromBytes + IntoBytes>(op: &'static str, fd: &OwnedFd) -> Result<Option<T>> {
    let mut record = T::new_zeroed();
    match nix::unistd::read(fd, record.as_mut_bytes()) {
        Ok(len) if len == size_of::<T>() => Ok(Some(record)),
        // End of file: the device has gone, and the events with it. The kernel's files say EIO.
        Ok(0) => Err(Error::kernel(op, Errno::EIO)),
        Ok(_) => Err(Error::malformed(op, "a record cut short")),
        Err(Errno::EAGAIN | Errno::EINTR) => Ok(None),
        Err(errno) => Err(Error::kernel(op, errno)),
    }
}

/// Waits until `fd` can be read, or `timeout` is over (none: for ever). True when it can be read.
pub(crate) fn wait(op: &'static str, fd: &OwnedFd, timeout: Option<Duration>) -> Result<bool> {
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
