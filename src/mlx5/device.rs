//! Properties that the device reports in addition to the limits of all devices.

#[cfg(feature = "raw")]
use nix::errno::Errno;
use uverbs_abi::mlx5::ids::device;
use uverbs_abi::mlx5::{QueryDeviceResp, UapiQueryPort};
use zerocopy::{FromZeros, IntoBytes};

use crate::device::context::Context;
use crate::driver::Driver;
#[cfg(feature = "raw")]
use crate::driver::mlx5::Formats;
use crate::kernel::command::Command;
#[cfg(feature = "raw")]
use crate::kernel::error::Error;
use crate::kernel::error::Result;
#[cfg(feature = "raw")]
use crate::kernel::mapping::source::BlockSource;
#[cfg(feature = "raw")]
use crate::verbs::ah::AddressHandle;

impl Context {
    /// Attributes of mlx5 that [`Context::query_device`] does not contain: large sends, hashes, sending rates. None for other
    /// drivers.
    ///
    /// # Errors
    /// As [`Context::query_device`].
    ///
    /// # Kernel
    /// The driver's part of the answer to the same command (mlx5_ib_query_device, main.c, Linux 6.1).
    pub fn query_device_mlx5(&self) -> Result<Option<QueryDeviceResp>> {
        if !matches!(self.driver(), Driver::Mlx5(_)) {
            return Ok(None);
        }
        let mut driver = QueryDeviceResp::new_zeroed();
        self.query(driver.as_mut_bytes())?;
        Ok(Some(driver))
    }
}

impl Context {
    /// What the steering of packets has to know of a port: the switch's virtual port and its addresses, and which of these there are. All is
    /// zero on a device without a switch or several ports.
    ///
    /// # Errors
    /// [`InvalidInput`](crate::ErrorKind::InvalidInput) for a port that the device does not have;
    /// [`Unsupported`](crate::ErrorKind::Unsupported) for other drivers.
    ///
    /// # Kernel
    /// `MLX5_IB_METHOD_QUERY_PORT` (mlx5/std_types.c, Linux 6.1).
    #[doc(alias = "mlx5dv_query_port")]
    pub fn query_port_mlx5(&self, port: u32) -> Result<UapiQueryPort> {
        let op = "port.query_mlx5";
        if !matches!(self.driver(), Driver::Mlx5(_)) {
            return Err(self.driver().lacking(op, "has no ports of mlx5"));
        }
        let mut answer = UapiQueryPort::new_zeroed();
        let mut command = Command::new(op, device::OBJECT, device::method::QUERY_PORT);
        command
            .input(device::query_port::PORT_NUM, &port)
            .output(device::query_port::RESP, answer.as_mut_bytes());
        self.invoke(&mut command)?;
        Ok(answer)
    }
}

#[cfg(feature = "raw")]
impl Context {
    /// What the kernel said of an mlx5 device when the context was made. None of other drivers.
    pub fn mlx5_formats(&self) -> Option<Formats> {
        match self.driver() {
            Driver::Mlx5(state) => Some(state.formats()),
            _ => None,
        }
    }

    /// Has the rings of queues that are created from now on in memory of this source. No effect for other drivers.
    pub fn use_memory_mlx5(&self, source: BlockSource) {
        if let Driver::Mlx5(state) = self.driver() {
            state.use_memory(source);
        }
    }
}

/// An address handle in the device's format, as a request to it contains it (`struct mlx5_av`, qp.h, Linux 6.1). The key and the number of
/// the destination, at its beginning, are zero.
///
/// # Errors
/// [`Unsupported`](crate::ErrorKind::Unsupported) for a device of another driver.
#[cfg(feature = "raw")]
pub fn address_vector(handle: &AddressHandle) -> Result<[u32; 12]> {
    if handle.context().mlx5_formats().is_none() {
        return Err(Error::refused("mlx5.address", Errno::EOPNOTSUPP, "the device is not of mlx5"));
    }
    let [a, b, c, d, e, f, g, h, i] = handle.address().vector;
    Ok([0, 0, 0, a, b, c, d, e, f, g, h, i])
}
