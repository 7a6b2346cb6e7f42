//! Open devices.

use std::ffi::c_int;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::sync::Arc;

use nix::fcntl::{FcntlArg, OFlag, fcntl};
use nix::libc;

use crate::abi::{self, Function};
use crate::answer::{Answer, EINVAL, minus_one, or_null, returned};
use crate::boundary::{Counted, Pointer, give_part, take_part};
use crate::device::Device;
use crate::{buf, channel, counters, cq, cq_ex, flow, mr, mw, post, qp, query, srq, wq};

/// An open device, as C knows it: [`Whole`] without its first part.
#[repr(C)]
pub(crate) struct Context {
    c: abi::Context,
    pub(crate) context: uverbs::Context,
    _device: Arc<Device>,
}

/// `struct verbs_context` and what is behind it.
///
/// It grows at its front. This is the layout of rdma-core 65, in which programs made for older versions find all that
/// they know.
#[repr(C)]
struct Whole {
    front: [Function; FRONT],
    context: Context,
}

/// Words of `verbs_context` before its `context`.
const FRONT: usize = 46;

/// The functions that inline code of the header calls, by their offset in `verbs_context`. A function that is not there
/// is EOPNOTSUPP, says that code.
fn front() -> [Function; FRONT] {
    let mut front = [std::ptr::null(); FRONT];
    let mut set = |offset: usize, function: Function| front[offset / size_of::<Function>()] = function;
    set(0, buf::free_buf as Function);
    set(8, buf::alloc_buf as Function);
    set(24, mr::reg_mr_ex as Function);
    set(48, query::query_port_sized as Function);
    set(56, mr::advise_mr as Function);
    set(72, counters::read_counters as Function);
    set(80, counters::attach_counters_point_flow as Function);
    set(88, counters::create_counters as Function);
    set(96, counters::destroy_counters as Function);
    set(184, cq::modify_cq as Function);
    set(200, wq::destroy_rwq_ind_table as Function);
    set(208, wq::create_rwq_ind_table as Function);
    set(216, wq::destroy_wq as Function);
    set(224, wq::modify_wq as Function);
    set(232, wq::create_wq as Function);
    set(248, cq_ex::create_cq_ex as Function);
    set(264, query::query_device_ex as Function);
    set(272, flow::destroy_flow as Function);
    set(288, flow::create_flow as Function);
    set(312, qp::create_qp_ex as Function);
    set(328, srq::create_srq_ex as Function);
    // The size of all of it.
    set(360, std::ptr::without_provenance(FRONT * size_of::<Function>() + size_of::<abi::Context>()));
    front
}

/// The functions that inline code of the header calls without a look, by their offset in `ibv_context_ops`.
fn operations() -> abi::ContextOps {
    let mut operations = [std::ptr::null(); 32];
    let mut set = |offset: usize, function: Function| operations[offset / size_of::<Function>()] = function;
    set(56, mw::alloc_mw as Function);
    set(64, mw::bind_mw as Function);
    set(72, mw::dealloc_mw as Function);
    set(88, cq::poll_cq as Function);
    set(96, cq::req_notify_cq as Function);
    set(160, srq::post_srq_recv as Function);
    set(200, post::post_send as Function);
    set(208, post::post_recv as Function);
    operations
}

/// Reads of the file wait, unless the program says otherwise: the library has it the other way round.
pub(crate) fn set_blocking(file: BorrowedFd<'_>) -> Answer {
    let flags = OFlag::from_bits_retain(fcntl(file, FcntlArg::F_GETFL)?);
    fcntl(file, FcntlArg::F_SETFL(flags.difference(OFlag::O_NONBLOCK)))?;
    Ok(())
}

fn open(device: Pointer) -> Answer<Pointer> {
    let device = Counted::share::<Device>(device).ok_or(EINVAL)?;
    let context = device.device.open()?;
    set_blocking(context.as_fd())?;
    let c = abi::Context {
        device: Pointer::to(&*device),
        ops: operations(),
        cmd_fd: context.command_file().map_or(-1, |file| file.as_raw_fd()),
        async_fd: context.as_fd().as_raw_fd(),
        num_comp_vectors: context.completion_vectors() as c_int,
        mutex: libc::PTHREAD_MUTEX_INITIALIZER,
        // `__VERBS_ABI_IS_EXTENDED`: there is a `verbs_context` around.
        abi_compat: Pointer::from_word(u64::MAX),
    };
    let whole = Whole { front: front(), context: Context { c, context, _device: device } };
    Ok(give_part(Box::new(whole), std::mem::offset_of!(Whole, context)))
}

pub(crate) extern "C" fn open_device(device: Pointer) -> Pointer {
    or_null(open(device)).unwrap_or(Pointer::NULL)
}

/// Objects that were not destroyed keep the device file open until the process ends.
pub(crate) extern "C" fn close_device(context: Pointer) -> c_int {
    let whole = take_part::<Whole>(context, std::mem::offset_of!(Whole, context));
    returned(whole.map(drop).ok_or(EINVAL))
}

pub(crate) extern "C" fn get_async_event(
    context: Option<&Context>,
    event: Option<&mut channel::AsyncEvent>,
) -> c_int {
    let read = || {
        let (context, event) = (context.ok_or(EINVAL)?, event.ok_or(EINVAL)?);
        *event = channel::read_record(context.context.as_fd())?;
        Ok(())
    };
    minus_one(read())
}
