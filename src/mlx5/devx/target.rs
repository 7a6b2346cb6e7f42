//! Commands about objects that exist: those of the firmware, and queues of this crate.

use uverbs_abi::mlx5::ids::devx_obj;

use super::command::judge;
use super::{clear, explained, lengths};
use crate::device::context::Context;
use crate::kernel::command::Command;
use crate::kernel::error::Result;
use crate::verbs::cq::CompletionQueue;
use crate::verbs::qp::{QpType, QueuePair, RssQueuePair};
use crate::verbs::srq::SharedReceiveQueue;
use crate::verbs::wq::{IndirectionTable, WorkQueue};

/// An object of this crate about which there are commands: a completion queue, a queue pair, a shared receive queue, a work queue or a table
/// of work queues; sealed.
pub trait Target: sealed::Sealed {}

mod sealed {
    use crate::device::context::Context;

    pub trait Sealed {
        fn subject(&self) -> Subject<'_>;
    }

    /// The object's context, and the kernel's handle of it.
    #[derive(Debug)]
    pub struct Subject<'a>(pub(super) &'a Context, pub(super) u32);
}

macro_rules! targets {
    ($($({$of:ident: $bound:ident})? $name:ty: |$core:ident| $context:expr, $id:expr;)*) => {
        $(
            impl$(<$of: $bound>)? Target for $name {}

            impl$(<$of: $bound>)? sealed::Sealed for $name {
                fn subject(&self) -> sealed::Subject<'_> {
                    let $core = self.shared();
                    sealed::Subject($context, $id)
                }
            }
        )*
    };
}

targets! {
    CompletionQueue: |core| core.context(), core.id();
    {T: QpType} QueuePair<T>: |core| core.object().context(), core.object().id();
    RssQueuePair: |core| core.object().context(), core.object().id();
    SharedReceiveQueue: |core| core.context(), core.id();
    WorkQueue: |core| core.object().context(), core.object().id();
    IndirectionTable: |core| core.object().context(), core.object().id();
}

/// Runs a command that reads a queue of this crate.
///
/// # Errors
/// Those of [`FirmwareObject::query`](super::FirmwareObject::query).
///
/// # Kernel
/// `MLX5_IB_METHOD_DEVX_OBJ_QUERY`: the command names the number of the queue, and for a raw packet queue pair that of its receive or send
/// queue, or of what transports them (devx_is_valid_obj_id, devx.c, Linux 6.1).
#[doc(alias = "mlx5dv_devx_qp_query")]
#[doc(alias = "mlx5dv_devx_cq_query")]
#[doc(alias = "mlx5dv_devx_srq_query")]
#[doc(alias = "mlx5dv_devx_wq_query")]
#[doc(alias = "mlx5dv_devx_ind_tbl_query")]
pub fn query(target: &impl Target, request: &[u8], answer: &mut [u8]) -> Result<()> {
    let sealed::Subject(context, handle) = target.subject();
    query_handle(context, handle, request, answer)
}

/// Runs a command that changes a queue of this crate. The crate does not learn what it changed: use
/// [`QueuePair::modify`](crate::QueuePair::modify) for states.
///
/// # Errors
/// Those of [`FirmwareObject::modify`](super::FirmwareObject::modify).
///
/// # Kernel
/// `MLX5_IB_METHOD_DEVX_OBJ_MODIFY`, as for [`query`].
#[doc(alias = "mlx5dv_devx_qp_modify")]
#[doc(alias = "mlx5dv_devx_cq_modify")]
#[doc(alias = "mlx5dv_devx_srq_modify")]
#[doc(alias = "mlx5dv_devx_wq_modify")]
#[doc(alias = "mlx5dv_devx_ind_tbl_modify")]
pub fn modify(target: &impl Target, request: &[u8], answer: &mut [u8]) -> Result<()> {
    let sealed::Subject(context, handle) = target.subject();
    modify_handle(context, handle, request, answer)
}

/// [`query`] of an object of the context that has this handle.
///
/// # Errors
/// Those of [`query`]; for a handle that is none, [`NotFound`](crate::ErrorKind::NotFound).
#[cfg_attr(not(feature = "raw"), expect(unreachable_pub))]
pub fn query_handle(context: &Context, handle: u32, request: &[u8], answer: &mut [u8]) -> Result<()> {
    use devx_obj::query::{CMD_IN, CMD_OUT, HANDLE};
    about(
        context,
        "devx.query",
        (devx_obj::method::QUERY, [HANDLE, CMD_IN, CMD_OUT]),
        handle,
        (request, answer),
    )
}

/// [`modify`] of an object of the context that has this handle.
///
/// # Errors
/// As [`query_handle`].
#[cfg_attr(not(feature = "raw"), expect(unreachable_pub))]
pub fn modify_handle(context: &Context, handle: u32, request: &[u8], answer: &mut [u8]) -> Result<()> {
    use devx_obj::modify::{CMD_IN, CMD_OUT, HANDLE};
    about(
        context,
        "devx.modify",
        (devx_obj::method::MODIFY, [HANDLE, CMD_IN, CMD_OUT]),
        handle,
        (request, answer),
    )
}

/// Runs a command about an object, by a method of the kernel with these attributes.
fn about(
    context: &Context,
    op: &'static str,
    (method, [id, command_in, command_out]): (u16, [u16; 3]),
    handle: u32,
    (request, answer): (&[u8], &mut [u8]),
) -> Result<()> {
    lengths::check(op, request, answer.len())?;
    clear(answer);
    let mut command = Command::new(op, devx_obj::OBJECT, method);
    command.handle(id, handle).input(command_in, request).output(command_out, answer);
    let sent = context.invoke(&mut command);
    judge(op, sent, answer).map_err(|error| explained(context, error))
}
