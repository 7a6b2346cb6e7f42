//! Open devices.

use std::ffi::c_int;
use std::mem::ManuallyDrop;
use std::os::fd::{AsFd, AsRawFd};
use std::sync::Arc;

use nix::libc;
use uverbs::{ErrorKind, OpenOptions};

use crate::abi::{self, Function};
use crate::answer::{Answer, Code, EBADF, EINVAL, minus_one, or_null, returned};
use crate::boundary::{Handed, Lock, Pointer, give_part, given_file, take_part};
use crate::channel;
use crate::cq;
use crate::device::{self, Device};
use crate::providers::rings::with_rings;
use crate::providers::{Reserved, has_devx};
use crate::slots::{FRONT, front, operations, set_poll};

/// An open device, as C sees it: [`Whole`] without its first part.
#[repr(C)]
pub(crate) struct Context {
    c: abi::Context,
    pub(crate) context: uverbs::Context,
    /// Numbers of queue pairs that the program has reserved.
    pub(crate) reserved: Lock<Reserved>,
    _device: Arc<Device>,
}

/// `struct verbs_context` and what follows it.
///
/// It grows at its front. This is the layout of rdma-core 65, in which programs that were compiled for older versions find all fields
/// that they know.
#[repr(C)]
struct Whole {
    front: [Function; FRONT],
    context: Context,
}

/// Whether a context may send commands to the firmware.
#[derive(Clone, Copy, PartialEq)]
pub(crate) enum Devx {
    /// If the device has them, as with libmlx5.
    IfThere,
    Needed,
}

fn open(device: Pointer, devx: Devx) -> Answer<Pointer> {
    let device = device::share(device)?;
    let with = |devx| device.open(OpenOptions::new().devx(devx));
    let context = match devx {
        // The kernel says only that the request is invalid.
        Devx::Needed => with(true).map_err(|error| match error.kind() {
            ErrorKind::Unsupported => EINVAL,
            _ => Code::from(error),
        })?,
        Devx::IfThere if has_devx(&device) => with(true).or_else(|_| with(false))?,
        Devx::IfThere => with(false)?,
    };
    Ok(give(device, context))
}

pub(crate) fn open_with(device: Pointer, devx: Devx) -> Pointer {
    or_null(open(device, devx)).unwrap_or(Pointer::NULL)
}

fn give(device: Arc<Device>, context: uverbs::Context) -> Pointer {
    let mut ops = with_rings!(context, R => operations::<R>());
    if context.is_driven_by_polls() {
        set_poll(&mut ops, cq::poll_cq_on_wire as Function);
    }
    let c = abi::Context {
        device: Pointer::to(&*device),
        ops,
        cmd_fd: context.command_file().map_or(-1, |file| file.as_raw_fd()),
        async_fd: context.as_fd().as_raw_fd(),
        num_comp_vectors: context.completion_vectors() as c_int,
        mutex: libc::PTHREAD_MUTEX_INITIALIZER,
        // `__VERBS_ABI_IS_EXTENDED`: this is part of a `verbs_context`.
        abi_compat: Pointer::from_word(u64::MAX),
    };
    let context = Context { c, context, reserved: Lock::default(), _device: device };
    let whole = Whole { front: front(), context };
    give_part(Box::new(whole), std::mem::offset_of!(Whole, context))
}

/// A context on a file with which somebody has created one. The file belongs to the context, if there is one; a refusal leaves it open.
fn import(file: c_int) -> Answer<Pointer> {
    let file = given_file(file).ok_or(EBADF)?;
    let device = device::of_file(&file)?;
    match uverbs::Context::import(&device.device, ManuallyDrop::into_inner(file)) {
        Ok(context) => Ok(give(device, context)),
        Err((file, error)) => {
            std::mem::forget(file);
            Err(error.into())
        }
    }
}

pub(crate) extern "C" fn import_device(file: c_int) -> Pointer {
    or_null(import(file)).unwrap_or(Pointer::NULL)
}

pub(crate) extern "C" fn open_device(device: Pointer) -> Pointer {
    open_with(device, Devx::IfThere)
}

/// Objects that were not destroyed keep the device file open until the process ends.
pub(crate) extern "C" fn close_device(context: Handed) -> c_int {
    let whole = take_part::<Whole>(context, std::mem::offset_of!(Whole, context));
    returned(whole.map(drop).ok_or(EINVAL))
}

pub(crate) extern "C" fn get_async_event(
    context: Option<&Context>,
    event: Option<&mut channel::AsyncEvent>,
) -> c_int {
    let read = || {
        let (context, event) = (context.ok_or(EINVAL)?, event.ok_or(EINVAL)?);
        // The cookie of an event is an address in the process that created the object. Another process may have created the first one
        // while this call waited.
        context.context.check()?;
        let record = channel::read_record(context.context.as_fd())?;
        context.context.check()?;
        *event = record;
        Ok(())
    };
    minus_one(read())
}
