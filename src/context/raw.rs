//! What bindings ask of an open device.

use std::os::fd::BorrowedFd;

use super::Context;
use crate::error::Result;

impl Context {
    /// Refuses what a device is not for that is another process's since a fork.
    ///
    /// # Errors
    /// [`Disassociated`](crate::ErrorKind::Disassociated).
    pub fn check(&self) -> Result<()> {
        self.0.door.may_ask("context.check")
    }

    /// The device file, if there is one; none behind a wrapper of the transport, nor of a device that is another process's
    /// since a fork.
    pub fn command_file(&self) -> Option<BorrowedFd<'_>> {
        self.0.door.file()
    }
}
