//! Commands to the firmware, which the kernel passes on, and what their answers say.

use std::os::fd::{BorrowedFd, OwnedFd};
use std::time::Duration;

use nix::errno::Errno;
use uverbs_abi::mlx5::ids::{devx, devx_async_cmd_fd, devx_obj};
use uverbs_abi::mlx5::prm::{
    AllocFlowCounterIn, AllocFlowCounterOut, CMD_OP_QUERY_HCA_CAP, CmdOut, HCA_CAP_SIZE, QueryHcaCapIn,
};
use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes};

use crate::device::context::Context;
use crate::device::object::{Kind, Object};
use crate::kernel::command::Command;
use crate::kernel::error::{Error, Result};
use crate::kernel::event;

/// Size in bytes of the head of an answer, before the requested data.
pub(in crate::mlx5) const HEAD: usize = size_of::<CmdOut>();

/// An object that a command to the firmware has created.
pub(super) const OBJECT: Kind = Kind::OfDriver("devx.destroy", devx_obj::OBJECT, devx_obj::method::DESTROY);

/// One kind of the device's capabilities.
pub(in crate::mlx5) fn capabilities(context: &Context, op: &'static str, kind: u16) -> Result<Vec<u8>> {
    let request = QueryHcaCapIn {
        opcode: CMD_OP_QUERY_HCA_CAP.into(),
        op_mod: kind.into(),
        ..QueryHcaCapIn::new_zeroed()
    };
    let mut answer = vec![0; HEAD + HCA_CAP_SIZE];
    let mut command = Command::new(op, devx::OBJECT, devx::method::OTHER);
    command.input(devx::other::CMD_IN, &request).output(devx::other::CMD_OUT, &mut answer);
    let sent = context.invoke(&mut command);
    judge(op, sent, &answer)?;
    answer.drain(..HEAD);
    Ok(answer)
}

/// Allocates counters. Returns the object, and the firmware's number of the first counter.
pub(in crate::mlx5) fn alloc_counters(
    context: &Context,
    op: &'static str,
    request: &AllocFlowCounterIn,
) -> Result<(Object, u32)> {
    use devx_obj::create::{CMD_IN, CMD_OUT, HANDLE};
    let mut answer = AllocFlowCounterOut::new_zeroed();
    let mut command = Command::new(op, devx_obj::OBJECT, devx_obj::method::CREATE);
    command.new_handle(HANDLE).input(CMD_IN, request).output(CMD_OUT, answer.as_mut_bytes());
    let sent = context.invoke(&mut command).and_then(|()| command.new_handle_of(HANDLE));
    let handle = sent.as_ref().copied().unwrap_or_default();
    judge(op, sent.map(drop), answer.as_bytes())?;
    Ok((Object::new(context, OBJECT, handle), answer.flow_counter_id.get()))
}

/// Reads an object, such as counters. The answer is a [`CmdOut`] followed by what was asked for.
#[inline]
pub(in crate::mlx5) fn query<T: IntoBytes + Immutable + ?Sized>(
    object: &Object,
    op: &'static str,
    request: &T,
    answer: &mut [u8],
) -> Result<()> {
    use devx_obj::query::{CMD_IN, CMD_OUT, HANDLE};
    let mut command = Command::new(op, devx_obj::OBJECT, devx_obj::method::QUERY);
    command.handle(HANDLE, object.id()).input(CMD_IN, request).output(CMD_OUT, answer);
    let sent = object.context().invoke(&mut command);
    judge(op, sent, answer)
}

/// Begins to read an object. The answer, of `len` bytes after `number`, arrives in the file `answers`.
pub(in crate::mlx5) fn start_query<T: IntoBytes + Immutable + ?Sized>(
    object: &Object,
    op: &'static str,
    request: &T,
    len: usize,
    (answers, number): (BorrowedFd<'_>, u64),
) -> Result<()> {
    use devx_obj::async_query::{CMD_IN, FD, HANDLE, OUT_LEN, WR_ID};
    let mut command = Command::new(op, devx_obj::OBJECT, devx_obj::method::ASYNC_QUERY);
    command
        .handle(HANDLE, object.id())
        .input(CMD_IN, request)
        .fd(FD, answers)
        .value(WR_ID, number)
        .value(OUT_LEN, len as u64);
    object.context().invoke(&mut command).map_err(|error| of_function(op, error))
}

/// Takes the next answer from such a file, which does not block, and returns its length in bytes; none if there is none yet.
pub(in crate::mlx5) fn take(op: &'static str, answers: &OwnedFd, place: &mut [u8]) -> Result<Option<usize>> {
    let mut is_ready = false;
    loop {
        match nix::unistd::read(answers, place) {
            Ok(len) => return Ok(Some(len)),
            // If there is nothing to read although the file is readable, the device was removed (devx_async_cmd_event_read and
            // devx_async_cmd_event_poll, devx.c, Linux 6.1).
            Err(Errno::EAGAIN) if is_ready => return Err(Error::kernel(op, Errno::EIO)),
            Err(Errno::EAGAIN) => is_ready = event::wait(op, answers, Some(Duration::ZERO))?,
            Err(Errno::EINTR) => return Ok(None),
            Err(errno) => return Err(Error::kernel(op, errno)),
        }
        if !is_ready {
            return Ok(None);
        }
    }
}

/// Creates a file in which answers arrive.
pub(in crate::mlx5) fn answers(context: &Context, op: &'static str) -> Result<OwnedFd> {
    let mut command = Command::new(op, devx_async_cmd_fd::OBJECT, devx_async_cmd_fd::method::ALLOC);
    command.new_fd(devx_async_cmd_fd::alloc::HANDLE);
    context.invoke(&mut command)?;
    command.take_fd()
}

/// The result of a command: the kernel returns EREMOTEIO if the firmware refused it, and the answer contains the reason.
pub(in crate::mlx5) fn judge(op: &'static str, sent: Result<()>, answer: &[u8]) -> Result<()> {
    let head = CmdOut::read_from_prefix(answer).map_or_else(|_| CmdOut::new_zeroed(), |(head, _)| head);
    match sent {
        Ok(()) if head.status == 0 => Ok(()),
        Err(error) if error.errno() != Some(Errno::EREMOTEIO as i32) || head.status == 0 => {
            Err(of_function(op, error))
        }
        _ => Err(refusal(op, &head)),
    }
}

/// The device is being removed if the driver does not send commands to the firmware any more (cmd_exec, cmd.c, Linux 6.1).
pub(super) fn of_function(op: &'static str, error: Error) -> Error {
    if error.errno() == Some(Errno::ENXIO as i32) { Error::kernel(op, Errno::EIO) } else { error }
}

/// The error for a status of the firmware, with the errno that the kernel uses for it elsewhere (cmd_status_to_err, cmd.c, Linux 6.1).
/// The exception is EIO, which would mean that the device was removed: the kernel's errno is kept then.
#[cold]
fn refusal(op: &'static str, head: &CmdOut) -> Error {
    let (errno, words) = match head.status {
        0x01 => (Errno::EREMOTEIO, "internal error"),
        0x02 => (Errno::EOPNOTSUPP, "no such command"),
        0x03 => (Errno::EINVAL, "bad parameter"),
        0x04 => (Errno::EREMOTEIO, "bad system state"),
        0x05 => (Errno::EINVAL, "bad resource"),
        0x06 => (Errno::EBUSY, "resource busy"),
        0x08 => (Errno::ENOMEM, "a limit is exceeded"),
        0x09 => (Errno::EINVAL, "bad resource state"),
        0x0a => (Errno::EINVAL, "bad index"),
        0x0f => (Errno::EAGAIN, "no resources"),
        0x50 => (Errno::EREMOTEIO, "bad length of the command"),
        0x51 => (Errno::EREMOTEIO, "bad length of the answer"),
        _ => (Errno::EREMOTEIO, "unknown status"),
    };
    let (status, syndrome) = (head.status, head.syndrome.get());
    let hint = format!("the firmware refused it: {words} (status {status:#x}, syndrome {syndrome:#x})");
    Error::refused(op, errno, hint)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernel::error::ErrorKind;

    fn answer(status: u8, syndrome: u32) -> Vec<u8> {
        let head = CmdOut { status, syndrome: syndrome.into(), ..CmdOut::new_zeroed() };
        [head.as_bytes(), &[0; 16]].concat()
    }

    #[test]
    fn a_refusal_of_the_firmware_says_status_and_syndrome() {
        let sent = || Err(Error::kernel("pool.read", Errno::EREMOTEIO));
        let error = judge("pool.read", sent(), &answer(5, 0xabc)).unwrap_err();
        assert_eq!(
            error.to_string(),
            "pool.read: invalid input (EINVAL): the firmware refused it: bad resource (status 0x5, syndrome 0xabc)"
        );
        // A status in an answer counts even if the command succeeded.
        assert_eq!(judge("pool.read", Ok(()), &answer(8, 0)).unwrap_err().kind(), ErrorKind::Exhausted);
        assert_eq!(judge("pool.read", Ok(()), &answer(0, 0)), Ok(()));
        for (status, kind) in [(1, ErrorKind::Other), (2, ErrorKind::Unsupported), (6, ErrorKind::Busy)] {
            assert_eq!(judge("pool.read", sent(), &answer(status, 0)).unwrap_err().kind(), kind);
        }
    }

    #[test]
    fn a_refusal_of_the_kernel_stays_what_it_is_but_for_a_device_that_goes() {
        let kernel = |errno| judge("pool.read", Err(Error::kernel("pool.read", errno)), &answer(0, 0));
        assert_eq!(kernel(Errno::EINVAL).unwrap_err().kind(), ErrorKind::InvalidInput);
        assert_eq!(kernel(Errno::EREMOTEIO).unwrap_err().kind(), ErrorKind::Other);
        assert_eq!(kernel(Errno::ENXIO).unwrap_err().kind(), ErrorKind::Disassociated);
    }
}
