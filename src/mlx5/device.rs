//! What the device tells beyond the limits that all devices have.

use uverbs_abi::mlx5::QueryDeviceResp;
use zerocopy::{FromZeros, IntoBytes};

use crate::device::context::Context;
use crate::driver::Driver;
use crate::kernel::error::Result;

impl Context {
    /// What mlx5 tells beyond [`Context::query_device`]: large sends, hashes, sending rates. None of other drivers.
    ///
    /// # Errors
    /// As [`Context::query_device`].
    ///
    /// # Kernel
    /// The driver's answer to the same command (mlx5_ib_query_device, main.c, Linux 6.1).
    pub fn query_device_mlx5(&self) -> Result<Option<QueryDeviceResp>> {
        if !matches!(self.driver(), Driver::Mlx5(_)) {
            return Ok(None);
        }
        let mut driver = QueryDeviceResp::new_zeroed();
        self.query(driver.as_mut_bytes())?;
        Ok(Some(driver))
    }
}
