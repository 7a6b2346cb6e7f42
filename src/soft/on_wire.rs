//! A soft device on a wire that exists only while it is open, for bindings.

use std::net::IpAddr;
use std::sync::{Arc, Weak};

use nix::errno::Errno;

use super::profile::Profile;
use super::{Hardware, SoftDevice};
use crate::kernel::error::{Error, Result};
use crate::kernel::process::Local;

/// A soft device [on a wire](SoftDevice::on) that takes its address when it is opened, and frees it when it is no longer open: a program may
/// list devices that others use. Opened a second time, it is the same device.
///
/// A child of `fork` does not have the device of its parent, and opens one of its own.
#[derive(Debug)]
pub struct DeviceOnWire {
    address: IpAddr,
    profile: Profile,
    opened: Local<Weak<Hardware>>,
}

impl DeviceOnWire {
    /// A device with this address, which is not open.
    pub fn new(address: IpAddr, profile: Profile) -> Self {
        Self { address, profile, opened: Local::new(|_| Weak::new()) }
    }

    /// A device that answers for it while it is not open: it has its properties, and no wire.
    pub(crate) fn described(&self) -> SoftDevice {
        SoftDevice::new(self.profile.clone().at(self.address))
    }

    /// The device, on its wire.
    pub(crate) fn take(&self, op: &'static str) -> Result<SoftDevice> {
        let mut opened = self.opened.lock();
        if let Some(hardware) = opened.upgrade() {
            return Ok(SoftDevice { hardware });
        }
        let device = SoftDevice::on(self.address, self.profile.clone()).map_err(|error| {
            let errno = error.raw_os_error().map_or(Errno::EIO, Errno::from_raw);
            Error::refused(op, errno, format!("the device has UDP port 4791 of {}", self.address))
        })?;
        *opened = Arc::downgrade(&device.hardware);
        Ok(device)
    }
}
