//! What bindings ask of an open device.

use std::os::fd::BorrowedFd;

use super::Context;

impl Context {
    /// The device file, if there is one; none behind a wrapper of the transport.
    pub fn command_file(&self) -> Option<BorrowedFd<'_>> {
        self.0.transport.file()
    }
}
