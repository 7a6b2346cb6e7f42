//! Multicast groups, and the order in which data arrives.

use std::ffi::c_int;

use super::Qp;
use crate::answer::{EINVAL, returned};

pub(crate) extern "C" fn attach_mcast(qp: Option<&Qp>, gid: Option<&[u8; 16]>, lid: u16) -> c_int {
    let attach = || Ok(qp.ok_or(EINVAL)?.qp.lock()?.get()?.attach_multicast(*gid.ok_or(EINVAL)?, lid)?);
    returned(attach())
}

pub(crate) extern "C" fn detach_mcast(qp: Option<&Qp>, gid: Option<&[u8; 16]>, lid: u16) -> c_int {
    let detach = || Ok(qp.ok_or(EINVAL)?.qp.lock()?.get()?.detach_multicast(*gid.ok_or(EINVAL)?, lid)?);
    returned(detach())
}

/// `IBV_QUERY_QP_DATA_IN_ORDER_RETURN_CAPS` and `_DEVICE_ONLY`, and `_ALIGNED_128_BYTES` of the answer.
const RETURN_CAPS: u32 = 1 << 0;
const DEVICE_ONLY: u32 = 1 << 1;
const ALIGNED_128_BYTES: c_int = 1 << 1;

/// Whether the data of a message arrives in order. Without `RETURN_CAPS` the question is about a whole message, within which no device here
/// keeps the order.
pub(crate) extern "C" fn query_qp_data_in_order(qp: Option<&Qp>, _opcode: u32, flags: u32) -> c_int {
    // For other processors this is not known.
    let is_known = cfg!(target_arch = "x86_64") || flags & DEVICE_ONLY != 0;
    if flags & !DEVICE_ONLY != RETURN_CAPS || !is_known {
        return 0;
    }
    let orders = |qp: &Qp| qp.qp.lock().ok()?.get().ok()?.orders_data().ok();
    if qp.and_then(orders) == Some(true) { ALIGNED_128_BYTES } else { 0 }
}
