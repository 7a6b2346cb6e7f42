//! What bindings ask of an open device.

use std::os::fd::BorrowedFd;

use uverbs_abi::write::ExQueryDeviceResp;

use super::Context;
use crate::driver::{CompletionFields, PacketCaps};
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

    /// As [`Context::query_device`], and what only the driver tells of packets.
    ///
    /// # Errors
    /// As [`Context::query_device`].
    pub fn query_with_driver(&self) -> Result<(ExQueryDeviceResp, PacketCaps)> {
        self.query_all()
    }

    /// The version of the firmware, of which the device's answer has this number, as the driver words it.
    pub fn firmware(&self, raw: u64) -> String {
        self.driver().firmware(raw).unwrap_or_else(|| self.device().firmware().to_owned())
    }

    /// What completions of the device can tell besides what all of them do.
    pub fn completion_fields(&self) -> CompletionFields {
        self.driver().completion_fields()
    }
}
