//! Queries that are answered later.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Duration;

use nix::errno::Errno;
use uverbs_abi::mlx5::DevxAsyncCmdHdr;
use zerocopy::FromBytes;

use super::command;
use crate::device::context::Context;
use crate::kernel::error::{Error, Result};
use crate::kernel::event;

const OP: &str = "devx.answers";

/// Bytes before the firmware's answer.
const NUMBER: usize = size_of::<DevxAsyncCmdHdr>();

/// The file at which the answers to [`FirmwareObject::start_query`](super::FirmwareObject::start_query) arrive. It can be polled
/// ([`AsFd`]).
///
/// Dropping it waits until the firmware has answered all commands.
#[derive(Debug)]
#[doc(alias = "mlx5dv_devx_cmd_comp")]
#[doc(alias = "mlx5dv_devx_destroy_cmd_comp")]
pub struct Answers {
    file: OwnedFd,
    context: Context,
}

impl Answers {
    /// Creates the file.
    ///
    /// # Errors
    /// [`Unsupported`](crate::ErrorKind::Unsupported) for a device without DEVX; [`Exhausted`](crate::ErrorKind::Exhausted) if the
    /// process has no free file descriptor.
    ///
    /// # Kernel
    /// `MLX5_IB_METHOD_DEVX_ASYNC_CMD_FD_ALLOC` (devx.c, Linux 6.1).
    #[doc(alias = "mlx5dv_devx_create_cmd_comp")]
    pub fn new(context: &Context) -> Result<Self> {
        let answers = Self::blocking(context)?;
        event::set_nonblocking(OP, &answers.file)?;
        Ok(answers)
    }

    /// As the kernel creates it: a read of the file waits for an answer.
    ///
    /// # Errors
    /// As [`Answers::new`].
    #[cfg(feature = "raw")]
    pub fn new_blocking(context: &Context) -> Result<Self> {
        Self::blocking(context)
    }

    fn blocking(context: &Context) -> Result<Self> {
        Ok(Self { file: command::answers(context, OP)?, context: context.clone() })
    }

    /// Takes the next answer: its number and its length in bytes, which are the first ones of `answer`; none if there is none yet. Never
    /// blocks.
    ///
    /// The kernel also returns zeros for a command that never reached the firmware (devx_query_callback, devx.c, Linux 6.1, ignores the
    /// status).
    ///
    /// # Errors
    /// [`InvalidInput`](crate::ErrorKind::InvalidInput) if the answer is longer than `answer`, which leaves it in the file;
    /// [`Disassociated`](crate::ErrorKind::Disassociated) if the device has gone, and in a child of `fork`. If the firmware refused the
    /// command, the hint contains its status and syndrome, and the answer is lost.
    #[doc(alias = "mlx5dv_devx_get_async_cmd_comp")]
    pub fn next(&self, answer: &mut [u8]) -> Result<Option<(u64, usize)>> {
        self.context.check_origin(OP)?;
        let mut record = vec![0; NUMBER.saturating_add(answer.len())];
        let taken = command::take(OP, &self.file, &mut record).map_err(|error| {
            if error.errno() != Some(Errno::ENOSPC as i32) {
                return error;
            }
            Error::refused(OP, Errno::EINVAL, format!("the answer has more than {} bytes", answer.len()))
        })?;
        let Some(len) = taken else { return Ok(None) };
        let short = || Error::malformed(OP, "an answer of another length");
        let (head, data) = DevxAsyncCmdHdr::read_from_prefix(&record).map_err(|_| short())?;
        let data = len.checked_sub(NUMBER).and_then(|len| data.get(..len)).ok_or_else(short)?;
        answer.get_mut(..data.len()).ok_or_else(short)?.copy_from_slice(data);
        command::judge(OP, Ok(()), data)?;
        Ok(Some((head.wr_id, data.len())))
    }

    /// The open device to which it belongs.
    pub fn context(&self) -> &Context {
        &self.context
    }

    /// Waits until there is an answer or `timeout` has elapsed (none: forever). Returns whether there is one.
    ///
    /// # Errors
    /// Those of `poll(2)`; [`Disassociated`](crate::ErrorKind::Disassociated) in a child of `fork`.
    pub fn wait(&self, timeout: Option<Duration>) -> Result<bool> {
        self.context.check_origin(OP)?;
        event::wait(OP, &self.file, timeout)
    }
}

impl AsFd for Answers {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}
