//! Objects that commands to the firmware have created.

use std::os::fd::AsFd;
use std::sync::Arc;

use uverbs_abi::mlx5::ids::devx_obj;

use super::command::{self, OBJECT};
use super::{Answers, clear, explained, lengths, target};
use crate::device::context::Context;
use crate::device::object::{self, Object};
use crate::kernel::command::Command;
use crate::kernel::error::{Error, ErrorKind, Result};

/// An object of the firmware, created by a command: a queue, a table, counters, a protection domain.
///
/// Cheap to clone; destroyed when the last clone and the last flow that uses it are gone. The crate does not know what its command names:
/// drop an object before those that it uses. If the firmware refuses to destroy it because another one still uses it, it remains until the
/// device file is closed.
#[derive(Clone, Debug)]
#[doc(alias = "mlx5dv_devx_obj")]
pub struct FirmwareObject(pub(in crate::mlx5) Arc<Object>);

impl FirmwareObject {
    /// Runs a command that creates an object. `answer` has as many bytes as the answer is to have, and contains the object's number.
    ///
    /// # Errors
    /// [`InvalidInput`](ErrorKind::InvalidInput) for a command or an answer that is too short, for a command that creates nothing, and on
    /// a context without DEVX; [`Unsupported`](ErrorKind::Unsupported) for a device without DEVX; if the firmware refuses, the hint
    /// contains its status and syndrome, and so do the first eight bytes of `answer`.
    ///
    /// # Kernel
    /// `MLX5_IB_METHOD_DEVX_OBJ_CREATE` (devx_is_obj_create_cmd, devx.c, Linux 6.1).
    #[doc(alias = "mlx5dv_devx_obj_create")]
    pub fn create(context: &Context, request: &[u8], answer: &mut [u8]) -> Result<Self> {
        use devx_obj::create::{CMD_IN, CMD_OUT, HANDLE};
        let op = "devx.create";
        lengths::check(op, request, answer.len())?;
        clear(answer);
        let mut command = Command::new(op, devx_obj::OBJECT, devx_obj::method::CREATE);
        command.new_handle(HANDLE).input(CMD_IN, request).output(CMD_OUT, answer);
        let sent = context.invoke(&mut command).and_then(|()| command.new_handle_of(HANDLE));
        let handle = match sent {
            Ok(handle) => handle,
            Err(error) => {
                command::judge(op, Err(error), answer).map_err(|error| explained(context, error))?;
                return Err(Error::malformed(op, "a refused command that has succeeded"));
            }
        };
        Ok(Self(Arc::new(Object::new(context, OBJECT, handle))))
    }

    /// Runs a command that reads the object.
    ///
    /// # Errors
    /// [`InvalidInput`](ErrorKind::InvalidInput) for a command or an answer that is too short, for a command that does not read, or one
    /// about another object; if the firmware refuses, the hint contains its status and syndrome, and so do the first eight bytes of
    /// `answer`.
    ///
    /// # Kernel
    /// `MLX5_IB_METHOD_DEVX_OBJ_QUERY` (devx_is_obj_query_cmd and devx_is_valid_obj_id, devx.c, Linux 6.1).
    #[doc(alias = "mlx5dv_devx_obj_query")]
    pub fn query(&self, request: &[u8], answer: &mut [u8]) -> Result<()> {
        target::query_handle(self.context(), self.0.id(), request, answer)
    }

    /// Runs a command that changes the object.
    ///
    /// # Errors
    /// Those of [`FirmwareObject::query`], for a command that does not change anything.
    ///
    /// # Kernel
    /// `MLX5_IB_METHOD_DEVX_OBJ_MODIFY` (devx_is_obj_modify_cmd, devx.c, Linux 6.1).
    #[doc(alias = "mlx5dv_devx_obj_modify")]
    pub fn modify(&self, request: &[u8], answer: &mut [u8]) -> Result<()> {
        target::modify_handle(self.context(), self.0.id(), request, answer)
    }

    /// Begins to read the object. The answer, of `len` bytes, arrives at `answers` with the number `number`.
    ///
    /// # Errors
    /// [`InvalidInput`](ErrorKind::InvalidInput) as [`FirmwareObject::query`], and for `answers` of another open device (EBADF);
    /// [`Exhausted`](ErrorKind::Exhausted) if answers of 1 MiB are outstanding or not taken yet.
    ///
    /// # Kernel
    /// `MLX5_IB_METHOD_DEVX_OBJ_ASYNC_QUERY` (devx.c, Linux 6.1).
    #[doc(alias = "mlx5dv_devx_obj_query_async")]
    pub fn start_query(&self, request: &[u8], len: usize, answers: &Answers, number: u64) -> Result<()> {
        let op = "devx.start_query";
        lengths::check(op, request, len)?;
        command::start_query(&self.0, op, request, len, (answers.as_fd(), number)).map_err(|error| {
            error.hinted_if(ErrorKind::Exhausted, "answers of 1 MiB are outstanding; take some first")
        })
    }

    /// The open device to which it belongs.
    pub fn context(&self) -> &Context {
        self.0.context()
    }

    /// Destroys the object and reports any error.
    ///
    /// # Errors
    /// [`Busy`](ErrorKind::Busy) while a clone or a flow has it; those of the firmware, such as while another object uses it.
    ///
    /// # Kernel
    /// `MLX5_IB_METHOD_DEVX_OBJ_DESTROY` (devx.c, Linux 6.1).
    #[doc(alias = "mlx5dv_devx_obj_destroy")]
    pub fn destroy(mut self) -> Result<(), (Self, Error)> {
        let hint = "a clone, or a flow that uses the object, still exists";
        let only = Arc::get_mut(&mut self.0).ok_or_else(|| object::shared("devx.destroy", hint));
        only.and_then(Object::release).map_err(|error| (self, error))
    }

    /// Destroys the object even if a clone or a flow has it, as the firmware decides.
    ///
    /// # Errors
    /// Those of the firmware.
    #[cfg(feature = "raw")]
    pub fn destroy_now(self) -> Result<(), (Self, Error)> {
        self.0.release_before_drop::<u32>().map(drop).map_err(|error| (self, error))
    }
}
