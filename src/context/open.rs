//! Opening a device.

use std::path::Path;

use nix::errno::Errno;
use uverbs_abi::types::driver_id;

use super::Context;
use crate::device::{Device, Node};
use crate::error::{Error, ErrorKind, Result};
#[cfg(feature = "soft")]
use crate::soft::SoftDevice;
use crate::transport::{Transport, Uverbs};

impl Device {
    /// Opens the device.
    ///
    /// # Errors
    /// [`ErrorKind::PermissionDenied`] and [`ErrorKind::NotFound`] as the device file's mode and presence say.
    #[doc(alias = "ibv_open_device")]
    pub fn open(&self) -> Result<Context> {
        self.open_with(|transport| transport)
    }

    /// Opens the device behind a wrapper of one's own: to trace, to count, to inject faults.
    ///
    /// # Errors
    /// As [`Device::open`].
    pub fn open_with(&self, wrap: impl FnOnce(Box<dyn Transport>) -> Box<dyn Transport>) -> Result<Context> {
        let transport: Box<dyn Transport> = match &self.node {
            Node::File(path) => {
                let file = Uverbs::open(path).map_err(|errno| self.open_error(path, errno))?;
                Box::new(file)
            }
            #[cfg(feature = "soft")]
            Node::Soft(device) => Box::new(device.connect()),
        };
        Context::establish(self.clone(), wrap(transport)).map_err(|error| {
            if self.driver_id == driver_id::UNKNOWN && self.sysfs.is_some() {
                return error.hinted_if(
                    ErrorKind::InvalidInput,
                    "the driver could not be identified without RDMA netlink, and commands must name it",
                );
            }
            error
        })
    }

    fn open_error(&self, path: &Path, errno: Errno) -> Error {
        let error = Error::kernel("device.open", errno);
        match error.kind() {
            ErrorKind::PermissionDenied => error.hinted(format!(
                "no read and write access to {}, or the device is in another network namespace",
                path.display()
            )),
            ErrorKind::NotFound => {
                error.hinted(format!("{} is not there; is the module ib_uverbs loaded?", path.display()))
            }
            _ => error,
        }
    }
}

#[cfg(feature = "soft")]
impl SoftDevice {
    /// Opens the device.
    ///
    /// # Errors
    /// [`ErrorKind::Disassociated`] when it was unplugged.
    pub fn open(&self) -> Result<Context> {
        self.device().open()
    }
}
