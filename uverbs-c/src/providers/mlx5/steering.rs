//! The one action of software steering that programs create although they do not steer by software: DPDK's for each of its queue pairs.

use std::ffi::c_int;

use uverbs::abi::types::qp_type;

use crate::answer::{EINVAL, or_null, returned};
use crate::context::Context;
use crate::qp::Qp;

/// `struct mlx5dv_dr_action`, which callers only pass on: frames go to this queue pair.
#[derive(Debug)]
pub(crate) struct Action(
    #[expect(dead_code, reason = "an allocation of zero bytes has no address of its own")] u32,
);

pub(crate) extern "C" fn create_dest_qp(qp: Option<&Qp>) -> Option<Box<Action>> {
    let make = || {
        let qp = qp.ok_or(EINVAL)?;
        super::known(qp.c.qp_base.context.get::<Context>())?;
        if qp.c.qp_base.qp_type != u32::from(qp_type::RAW_PACKET) {
            return Err(EINVAL);
        }
        Ok(Box::new(Action(qp.c.qp_base.qp_num)))
    };
    or_null(make())
}

pub(crate) extern "C" fn destroy_action(action: Option<Box<Action>>) -> c_int {
    returned(action.map(drop).ok_or(EINVAL))
}
