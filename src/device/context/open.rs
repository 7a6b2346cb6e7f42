//! Opening a device.

use std::path::Path;

use nix::errno::Errno;
use uverbs_abi::types::driver_id;

use super::{Context, identify};
use crate::device::{Device, Node};
use crate::kernel::error::{Error, ErrorKind, Result};
use crate::kernel::transport::{Transport, Uverbs, Watched, Watcher};
#[cfg(feature = "soft")]
use crate::soft::SoftDevice;

/// Options for opening a device, beyond [`Device::open`].
///
/// ```
/// use uverbs::{ErrorKind, OpenOptions, SoftDevice};
///
/// let device = SoftDevice::default().device();
/// assert!(OpenOptions::new().open(&device).is_ok());
/// let error = OpenOptions::new().devx(true).open(&device).unwrap_err();
/// assert_eq!(error.kind(), ErrorKind::Unsupported); // an mlx5 device is wanted
/// ```
#[derive(Clone, Copy, Debug, Default)]
#[doc(alias = "mlx5dv_open_device")]
pub struct OpenOptions {
    devx: bool,
}

impl OpenOptions {
    /// Options with which a device is opened as by [`Device::open`].
    pub fn new() -> Self {
        Self::default()
    }

    /// Whether the context may also send commands to the firmware of an mlx5 device (DEVX). The counter pools of
    /// [`mlx5`](crate::mlx5) need it.
    ///
    /// The firmware separates the objects of this context from those of others. DEVX needs no capability and gives none: the
    /// kernel passes on only commands about objects that this context created.
    ///
    /// # Kernel
    /// `MLX5_IB_ALLOC_UCTX_DEVX` (mlx5_ib_alloc_ucontext, main.c, and mlx5_ib_devx_create, devx.c, Linux 6.1).
    #[must_use]
    #[doc(alias = "MLX5DV_CONTEXT_FLAGS_DEVX")]
    pub fn devx(mut self, devx: bool) -> Self {
        self.devx = devx;
        self
    }

    /// Opens the device.
    ///
    /// # Errors
    /// As [`Device::open`]; [`ErrorKind::Unsupported`] if DEVX was requested and the driver or the device does not support it.
    pub fn open(self, device: &Device) -> Result<Context> {
        // A soft device is in the memory of its own process.
        let inheritable = matches!(device.node, Node::File(_));
        self.establish(device, |transport| transport, inheritable)
    }

    /// Opens the device with a [`Watcher`], as [`Device::open_with`] does.
    ///
    /// # Errors
    /// As [`OpenOptions::open`].
    pub fn open_with(self, device: &Device, watcher: impl Watcher + 'static) -> Result<Context> {
        self.open_through(device, |inner| Box::new(Watched::new(inner, watcher)))
    }

    /// Opens the device through another transport, as [`Device::open_through`] does.
    ///
    /// # Errors
    /// As [`OpenOptions::open`].
    pub fn open_through(
        self,
        device: &Device,
        wrap: impl FnOnce(Box<dyn Transport>) -> Box<dyn Transport>,
    ) -> Result<Context> {
        self.establish(device, wrap, false)
    }

    fn establish(
        self,
        device: &Device,
        wrap: impl FnOnce(Box<dyn Transport>) -> Box<dyn Transport>,
        inheritable: bool,
    ) -> Result<Context> {
        let transport = device.connect()?;
        let mut device = device.clone();
        if device.driver_id == driver_id::UNKNOWN && device.node().is_some() {
            device.driver_id = identify::driver(&*transport).unwrap_or(driver_id::UNKNOWN);
        }
        if self.devx && !device.driver_kind().has_devx() {
            let hint = format!("the driver {} has no DEVX; mlx5 has", device.driver());
            return Err(Error::refused("context.create", Errno::EOPNOTSUPP, hint));
        }
        let is_unknown = device.driver_id == driver_id::UNKNOWN && device.node().is_some();
        Context::establish(device, wrap(transport), self.devx, inheritable).map_err(|error| {
            if self.devx && matches!(error.kind(), ErrorKind::InvalidInput | ErrorKind::Unsupported) {
                // The kernel reports only EINVAL, and without DEVX the same request succeeds.
                let hint = "this device, or this function of it, has no DEVX (its log_max_uctx is zero)";
                return Error::refused(error.op(), Errno::EOPNOTSUPP, hint);
            }
            if is_unknown {
                return error.hinted_if(
                    ErrorKind::InvalidInput,
                    "the driver could not be identified, by RDMA netlink, sysfs or the device, and commands must name it",
                );
            }
            error
        })
    }
}

impl Device {
    /// Opens the device.
    ///
    /// # Errors
    /// [`ErrorKind::PermissionDenied`] if the mode of the device file forbids it, [`ErrorKind::NotFound`] if the file does not
    /// exist.
    #[doc(alias = "ibv_open_device")]
    pub fn open(&self) -> Result<Context> {
        OpenOptions::new().open(self)
    }

    /// Opens the device with a [`Watcher`], which can trace and count commands and inject faults.
    ///
    /// # Errors
    /// As [`Device::open`].
    pub fn open_with(&self, watcher: impl Watcher + 'static) -> Result<Context> {
        OpenOptions::new().open_with(self, watcher)
    }

    /// Opens the device and uses the transport that `wrap` returns for it: your own [`Transport`], several [`Watched`], or a
    /// [`Script`](crate::kernel::transport::Script) in place of the device.
    ///
    /// # Errors
    /// As [`Device::open`].
    pub fn open_through(
        &self,
        wrap: impl FnOnce(Box<dyn Transport>) -> Box<dyn Transport>,
    ) -> Result<Context> {
        OpenOptions::new().open_through(self, wrap)
    }

    /// Opens the device file.
    fn connect(&self) -> Result<Box<dyn Transport>> {
        match &self.node {
            Node::File(path) => {
                let file = Uverbs::open(path).map_err(|errno| self.open_error(path, errno))?;
                Ok(Box::new(file))
            }
            #[cfg(feature = "soft")]
            Node::Soft(device) => Ok(Box::new(device.connect("device.open")?)),
        }
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
    /// [`ErrorKind::Disassociated`] if it was unplugged.
    pub fn open(&self) -> Result<Context> {
        self.device().open()
    }
}
