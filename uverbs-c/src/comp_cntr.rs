//! Completion counters, which the library implements in software for every device.

use std::ffi::c_int;

use uverbs::{CompletionCounter, Counted, CounterEvents};

use crate::abi::{self, CompCntrCaps, CompCntrInitAttr, QpAttachCompCntrAttr};
use crate::answer::{Answer, EBUSY, EINVAL, EOPNOTSUPP, or_null, returned};
use crate::boundary::{Places, Pointer};
use crate::context::Context;
use crate::owned::{Owned, end};
use crate::qp::Qp;

#[repr(C)]
pub(crate) struct CompCntr {
    c: abi::CompCntr,
    counter: Owned<CompletionCounter>,
}

/// `enum ibv_comp_cntr_type`.
pub(crate) const WRS: u32 = 0;
const BYTES: u32 = 1;

/// `enum ibv_qp_attach_comp_cntr_op`: the operations that software can count, and their names in the library. A write with immediate data
/// completes a receive.
const OPERATIONS: [(u32, Counted); 4] = [
    (1 << 0, Counted::SEND),
    (1 << 1, Counted::RECEIVE.union(Counted::REMOTE_WRITE_IMMEDIATE)),
    (1 << 2, Counted::READ),
    (1 << 4, Counted::WRITE),
];

pub(crate) extern "C" fn query_comp_cntr_caps(
    context: Option<&Context>,
    mut caps: Places<'_, u8>,
    size: usize,
) -> c_int {
    let mut query = || {
        context.ok_or(EINVAL)?;
        caps.get(size).iter_mut().for_each(|byte| byte.write(0));
        let supported_qp_attach_ops = OPERATIONS.iter().fold(0, |all, operation| all | operation.0);
        // Only memory limits the number. Programs print it as a signed number.
        let max_counters = i32::MAX.cast_unsigned();
        let told = CompCntrCaps { max_value: u64::MAX, max_counters, supported_qp_attach_ops };
        caps.write_prefix(&told, size);
        Ok(())
    };
    returned(query())
}

fn create(context: Option<&Context>, attr: Option<&CompCntrInitAttr>) -> Answer<Box<CompCntr>> {
    let (context, attr) = (context.ok_or(EINVAL)?, attr.ok_or(EINVAL)?);
    let events = match attr {
        CompCntrInitAttr { comp_mask: 0, type_: WRS, flags: 0 } => CounterEvents::Completions,
        CompCntrInitAttr { comp_mask: 0, type_: BYTES, flags: 0 } => CounterEvents::Bytes,
        _ => return Err(EOPNOTSUPP),
    };
    let counter = CompletionCounter::builder().events(events).create()?;
    Ok(CompCntr::made(context, counter))
}

impl CompCntr {
    pub(crate) fn made(context: &Context, counter: CompletionCounter) -> Box<Self> {
        // A counter that the kernel does not know has no handle.
        let handle = counter.handle().unwrap_or(0);
        let c = abi::CompCntr { context: Pointer::to(context), handle };
        Box::new(Self { c, counter: Owned::new(counter) })
    }
}

pub(crate) extern "C" fn create_comp_cntr(
    context: Option<&Context>,
    attr: Option<&CompCntrInitAttr>,
) -> Option<Box<CompCntr>> {
    or_null(create(context, attr))
}

pub(crate) extern "C" fn destroy_comp_cntr(counter: Option<Box<CompCntr>>) -> c_int {
    returned(end(counter, |counter| counter.counter.destroy(CompletionCounter::destroy)))
}

macro_rules! changes {
    ($($name:ident: $method:ident;)*) => {
        $(pub(crate) extern "C" fn $name(counter: Option<&CompCntr>, value: u64) -> c_int {
            let change = || Ok(counter.ok_or(EINVAL)?.counter.get()?.$method(value)?);
            returned(change())
        })*
    };
}

changes! {
    set_comp_cntr: set;
    set_err_comp_cntr: set_err;
    inc_comp_cntr: add;
    inc_err_comp_cntr: add_err;
}

macro_rules! reads {
    ($($name:ident: $method:ident;)*) => {
        $(pub(crate) extern "C" fn $name(counter: Option<&CompCntr>, value: Option<&mut u64>) -> c_int {
            let read = || {
                *value.ok_or(EINVAL)? = counter.ok_or(EINVAL)?.counter.get()?.$method();
                Ok(())
            };
            returned(read())
        })*
    };
}

reads! {
    read_comp_cntr: read;
    read_err_comp_cntr: read_err;
}

fn attach(qp: Option<&Qp>, counter: Option<&CompCntr>, attr: Option<&QpAttachCompCntrAttr>) -> Answer {
    let (qp, counter, attr) = (qp.ok_or(EINVAL)?, counter.ok_or(EINVAL)?, attr.ok_or(EINVAL)?);
    if counter.c.context.word() != qp.c.qp_base.context.word() {
        return Err(EINVAL);
    }
    if counter.counter.get()?.handle().is_some() {
        return attach_of_device(qp, counter, attr);
    }
    let known = OPERATIONS.iter().filter(|operation| attr.op_mask & operation.0 != 0);
    let (mask, counted) = known.fold((0, Counted::empty()), |(mask, counted), operation| {
        (mask | operation.0, counted | operation.1)
    });
    if attr.comp_mask != 0 || attr.op_mask != mask {
        return Err(EOPNOTSUPP);
    }
    let mut sends = qp.sends.lock()?;
    // The library could count one operation in several counters; the manual of libibverbs allows one.
    if sends.counted & mask != 0 {
        return Err(EBUSY);
    }
    // A queue pair over a table has no queues.
    let queue = sends.queue.get_mut().map_err(|_| EOPNOTSUPP)?;
    qp.qp.lock()?.get()?.bind_counter(queue, counter.counter.get()?, counted)?;
    sends.counted |= mask;
    Ok(())
}

/// The kernel checks which operations a counter of the device can count. Its numbers are those of C.
fn attach_of_device(qp: &Qp, counter: &CompCntr, attr: &QpAttachCompCntrAttr) -> Answer {
    if attr.comp_mask != 0 {
        return Err(EOPNOTSUPP);
    }
    let counted = Counted::from_bits(attr.op_mask).ok_or(EINVAL)?;
    let mut sends = qp.sends.lock()?;
    let queue = sends.queue.get_mut().map_err(|_| EOPNOTSUPP)?;
    Ok(qp.qp.lock()?.get()?.bind_counter(queue, counter.counter.get()?, counted)?)
}

pub(crate) extern "C" fn qp_attach_comp_cntr(
    qp: Option<&Qp>,
    counter: Option<&CompCntr>,
    attr: Option<&QpAttachCompCntrAttr>,
) -> c_int {
    returned(attach(qp, counter, attr))
}
