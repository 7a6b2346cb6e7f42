//! Commands to the firmware, and its objects (`mlx5dv_devx_*`).
//!
//! A command that the firmware refuses is EREMOTEIO, and the answer contains the status. Source: providers/mlx5/verbs.c, rdma-core 65.

mod events;
mod memory;

use std::ffi::c_int;

use nix::libc;
use uverbs::mlx5::devx::{self, FirmwareObject};

pub(crate) use self::events::{
    create_cmd_comp, create_event_channel, destroy_cmd_comp, destroy_event_channel, get_cmd_comp, get_event,
    query_async, subscribe, subscribe_fd,
};
pub(crate) use self::memory::{alloc_uar, alloc_var, free_uar, free_var, umem_dereg, umem_reg, umem_reg_ex};
use super::known;
use crate::answer::{Answer, Code, EINVAL, or_null, returned};
use crate::boundary::{Places, Pointer};
use crate::context::Context;
use crate::cq::Cq;
use crate::owned::{Owned, end};
use crate::qp::Qp;
use crate::srq::Srq;
use crate::wq::{Table, Wq};

const EREMOTEIO: Code = Code::new(libc::EREMOTEIO);

/// `struct mlx5dv_devx_obj`, which callers only pass on.
pub(crate) struct Object {
    pub(crate) object: Owned<FirmwareObject>,
}

/// A command of the caller, the place for its answer, and their lengths in bytes.
struct Exchange<'a> {
    request: (Pointer, usize),
    answer: (Places<'a, u8>, usize),
}

impl Exchange<'_> {
    /// Sends the command. The answer is written to its place if there is one: also that of a firmware which refuses.
    fn run<T>(self, send: impl FnOnce(&[u8], &mut [u8]) -> uverbs::Result<T>) -> Answer<T> {
        let ((request, len), (mut place, room)) = (self.request, self.answer);
        let request = request.items::<u8>(len).ok_or(EINVAL)?;
        // The kernel's lengths have 16 bits.
        if place.is_null() || len.max(room) > usize::from(u16::MAX) {
            return Err(EINVAL);
        }
        let mut answer = vec![0; room];
        let sent = send(request, &mut answer);
        let is_refusal = sent.is_err() && answer.first().is_some_and(|status| *status != 0);
        if sent.is_ok() || is_refusal {
            for (place, byte) in place.get(room).iter_mut().zip(answer) {
                place.write(byte);
            }
        }
        sent.map_err(|error| if is_refusal { EREMOTEIO } else { Code::from(error) })
    }
}

pub(crate) extern "C" fn general_cmd(
    context: Option<&Context>,
    request: Pointer,
    len: usize,
    answer: Places<'_, u8>,
    room: usize,
) -> c_int {
    let run = || {
        let context = known(context)?;
        let exchange = Exchange { request: (request, len), answer: (answer, room) };
        exchange.run(|request, answer| devx::command(context, request, answer))
    };
    returned(run())
}

pub(crate) extern "C" fn obj_create(
    context: Option<&Context>,
    request: Pointer,
    len: usize,
    answer: Places<'_, u8>,
    room: usize,
) -> Option<Box<Object>> {
    let make = || {
        let context = known(context)?;
        let exchange = Exchange { request: (request, len), answer: (answer, room) };
        let object = exchange.run(|request, answer| FirmwareObject::create(context, request, answer))?;
        Ok(Box::new(Object { object: Owned::new(object) }))
    };
    or_null(make())
}

/// The firmware decides whether an object that others use can be destroyed.
pub(crate) extern "C" fn obj_destroy(object: Option<Box<Object>>) -> c_int {
    returned(end(object, |object| object.object.destroy(FirmwareObject::destroy_now)))
}

pub(crate) extern "C" fn query_eqn(
    context: Option<&Context>,
    vector: u32,
    mut number: Places<'_, u32>,
) -> c_int {
    let mut query = || {
        let context = known(context)?;
        let place = number.get(1).first_mut().ok_or(EINVAL)?;
        place.write(devx::event_queue(context, vector)?);
        Ok(())
    };
    returned(query())
}

/// An object of libibverbs: its context and the kernel's handle.
trait Handle {
    fn handle(&self) -> (Pointer, u32);
}

impl Handle for Cq {
    fn handle(&self) -> (Pointer, u32) {
        (self.c.context, self.c.handle)
    }
}

impl Handle for Qp {
    fn handle(&self) -> (Pointer, u32) {
        (self.c.qp_base.context, self.c.qp_base.handle)
    }
}

impl Handle for Srq {
    fn handle(&self) -> (Pointer, u32) {
        (self.c.context, self.c.handle)
    }
}

impl Handle for Wq {
    fn handle(&self) -> (Pointer, u32) {
        (self.c.context, self.c.handle)
    }
}

impl Handle for Table {
    fn handle(&self) -> (Pointer, u32) {
        (self.c.context, self.c.ind_tbl_handle.cast_unsigned())
    }
}

fn query<T: Handle>(object: Option<&T>, exchange: Exchange<'_>) -> Answer {
    let (context, handle) = object.ok_or(EINVAL)?.handle();
    let context = known(context.get::<Context>())?;
    exchange.run(|request, answer| devx::query_handle(context, handle, request, answer))
}

fn modify<T: Handle>(object: Option<&T>, exchange: Exchange<'_>) -> Answer {
    let (context, handle) = object.ok_or(EINVAL)?.handle();
    let context = known(context.get::<Context>())?;
    exchange.run(|request, answer| devx::modify_handle(context, handle, request, answer))
}

fn query_object(object: Option<&Object>, exchange: Exchange<'_>) -> Answer {
    let object = object.ok_or(EINVAL)?.object.get()?;
    exchange.run(|request, answer| object.query(request, answer))
}

fn modify_object(object: Option<&Object>, exchange: Exchange<'_>) -> Answer {
    let object = object.ok_or(EINVAL)?.object.get()?;
    exchange.run(|request, answer| object.modify(request, answer))
}

macro_rules! of_objects {
    ($($name:ident: $how:ident of $type:ty;)*) => {
        $(
            pub(crate) extern "C" fn $name(
                object: Option<&$type>,
                request: Pointer,
                len: usize,
                answer: Places<'_, u8>,
                room: usize,
            ) -> c_int {
                let exchange = Exchange { request: (request, len), answer: (answer, room) };
                returned($how(object, exchange))
            }
        )*
    };
}

of_objects! {
    obj_query: query_object of Object;
    obj_modify: modify_object of Object;
    cq_query: query of Cq;
    cq_modify: modify of Cq;
    qp_query: query of Qp;
    qp_modify: modify_qp of Qp;
    srq_query: query of Srq;
    srq_modify: modify of Srq;
    wq_query: query of Wq;
    wq_modify: modify of Wq;
    ind_tbl_query: query of Table;
    ind_tbl_modify: modify of Table;
}

/// Opcodes that change the state of a queue pair, and `enum ibv_qp_state` (modify_opcode_to_state, verbs.c).
const STATES: [(u16, u8); 9] = [
    (0x502, 1), // RST2INIT_QP
    (0x50e, 1), // INIT2INIT_QP
    (0x503, 2), // INIT2RTR_QP
    (0x504, 3), // RTR2RTS_QP
    (0x505, 3), // RTS2RTS_QP
    (0x506, 3), // SQERR2RTS_QP
    (0x50c, 3), // SQD_RTS_QP
    (0x507, 6), // 2ERR_QP
    (0x50a, 0), // 2RST_QP
];

/// The queues of the library follow the new state.
fn modify_qp(qp: Option<&Qp>, exchange: Exchange<'_>) -> Answer {
    let opcode = exchange.request.0.items::<u8>(exchange.request.1).and_then(|bytes| bytes.first_chunk());
    let opcode = opcode.map(|bytes| u16::from_be_bytes(*bytes));
    modify(qp, exchange)?;
    let state = STATES.iter().find(|(of, _)| Some(*of) == opcode);
    let (Some(qp), Some((_, state))) = (qp, state) else { return Ok(()) };
    let (mut sends, mut receives) = (qp.sends.lock()?, qp.receives.lock()?);
    let pair = qp.qp.lock()?;
    pair.get()?.entered(*state, sends.queue.get_mut().ok(), receives.as_mut());
    Ok(())
}
