//! How a command reaches a device: the real character device, the soft device, and wrappers.

mod fault;
mod null;
mod raw;
mod trace;
mod uverbs;

use std::fmt::Debug;
#[cfg(feature = "raw")]
use std::os::fd::BorrowedFd;

use nix::errno::Errno;

pub use self::fault::Fault;
pub use self::null::Null;
#[cfg(feature = "soft")]
pub(crate) use self::raw::AnyShape;
pub use self::raw::{RawAttr, RawCommand, RawConnection};
pub use self::trace::Trace;
pub(crate) use self::uverbs::Uverbs;
use crate::command::{Command, CountersRead, Doorbell};
pub use crate::mapping::Mapping;

/// One open device file, or something that answers as one.
///
/// Implement it to wrap another transport: to trace, to inject faults, to count. See
/// [`Device::open_with`](crate::Device::open_with).
pub trait Transport: Debug + Send + Sync {
    /// Carries out one command. On success every output that was written is marked as valid.
    ///
    /// # Errors
    /// The errno that the kernel gives.
    fn invoke(&self, command: &mut Command<'_>) -> Result<(), Errno>;

    /// Carries out a read of counters into `values`, of which there are 8191 at most.
    ///
    /// # Errors
    /// The errno that the kernel gives.
    #[inline]
    fn read_counters(&self, read: &mut CountersRead, values: &mut [u64]) -> Result<(), Errno> {
        let mut command = read.as_command(values);
        self.invoke(&mut command)?;
        read.mark(command.outputs_are_valid());
        Ok(())
    }

    /// Has the device look at a send ring in shared memory; `op` names the operation.
    ///
    /// # Errors
    /// The errno that the kernel gives.
    #[inline]
    fn ring(&self, op: &'static str, doorbell: &mut Doorbell) -> Result<(), Errno> {
        let mut command = doorbell.as_command(op);
        self.invoke(&mut command)?;
        let is_valid = command.outputs_are_valid();
        doorbell.mark(is_valid);
        Ok(())
    }

    /// Maps `len` bytes of device memory, at an offset that an earlier command gave.
    ///
    /// # Errors
    /// The errno that `mmap` gives.
    fn map(&self, offset: u64, len: usize) -> Result<Mapping, Errno>;

    /// The device file, if there is one.
    #[cfg(feature = "raw")]
    fn file(&self) -> Option<BorrowedFd<'_>> {
        None
    }
}
