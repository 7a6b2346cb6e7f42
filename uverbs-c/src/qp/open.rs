//! Opening a receiving queue pair of an extended connection, which may belong to another process.

use uverbs::raw::QueuePair;
use zerocopy::FromZeros;

use super::{Qp, empty, without_queues};
use crate::abi::{QpInitAttrEx, QpOpenAttr};
use crate::answer::{Answer, EINVAL, EOPNOTSUPP, or_null};
use crate::boundary::Pointer;
use crate::context::Context;
use crate::xrcd::Xrcd;

/// `enum ibv_qp_open_attr_mask`, and `IBV_QPS_UNKNOWN`.
const OPEN_NUMBER: u32 = 1 << 0;
const OPEN_XRCD: u32 = 1 << 1;
const OPEN_CONTEXT: u32 = 1 << 2;
const OPEN_TYPE: u32 = 1 << 3;
const UNKNOWN_STATE: u32 = 7;

fn open(context: Option<&Context>, attr: Option<&QpOpenAttr>) -> Answer<Box<Qp>> {
    let context = context.ok_or(EINVAL)?;
    // Before the attributes are checked: librxe checks nothing.
    context.context.needs_xrc("qp.open")?;
    let attr = attr.ok_or(EINVAL)?;
    let needed = OPEN_NUMBER | OPEN_XRCD | OPEN_TYPE;
    if attr.comp_mask & !(needed | OPEN_CONTEXT) != 0 {
        return Err(EOPNOTSUPP);
    }
    if attr.comp_mask & needed != needed {
        return Err(EINVAL);
    }
    let type_ = u8::try_from(attr.qp_type).map_err(|_| EINVAL)?;
    let xrcd = attr.xrcd.get::<Xrcd>().ok_or(EINVAL)?;
    let made = QueuePair::from(xrcd.xrcd.get()?.open_qp_raw(attr.qp_num, type_)?);
    let (qp_context, qp_type) = (attr.qp_context, attr.qp_type);
    let init = QpInitAttrEx { qp_context, qp_type, ..QpInitAttrEx::new_zeroed() };
    let qp = without_queues(empty(Pointer::to(context), Pointer::NULL, &init), made);
    qp.c.qp_base.state.set(UNKNOWN_STATE);
    Ok(qp)
}

pub(crate) extern "C" fn open_qp(context: Option<&Context>, attr: Option<&QpOpenAttr>) -> Option<Box<Qp>> {
    or_null(open(context, attr))
}
