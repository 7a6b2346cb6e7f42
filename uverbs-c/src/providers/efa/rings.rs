//! Rings, for programs that access them directly.

use std::ffi::c_int;

use uverbs::raw::OwnRing;

use crate::answer::{EINVAL, EOPNOTSUPP, returned};
use crate::boundary::Places;
use crate::cq::Cq;
use crate::qp::Qp;

/// `struct efadv_wq_attr`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
struct WqAttr {
    comp_mask: u64,
    buffer: u64,
    entry_size: u32,
    num_entries: u32,
    doorbell: u64,
    max_batch: u32,
    caps: u16,
    reserved: [u8; 2],
}

/// The end of the fields in the oldest version. The later ones are the queue's capabilities, and are zero: its request numbers have 16
/// bits.
const OLDEST_WQ_ATTR: u32 = 36;

impl From<OwnRing> for WqAttr {
    fn from(ring: OwnRing) -> Self {
        let OwnRing { address, entry_size, entries, doorbell, most_at_once, .. } = ring;
        let (buffer, num_entries, max_batch) = (address, entries, most_at_once);
        Self { buffer, entry_size, num_entries, doorbell, max_batch, ..Self::default() }
    }
}

pub(crate) extern "C" fn query_qp_wqs(
    qp: Option<&Qp>,
    mut sq_attr: Places<'_, u8>,
    mut rq_attr: Places<'_, u8>,
    len: u32,
) -> c_int {
    let mut query = || {
        let qp = qp.ok_or(EINVAL)?;
        let sends = qp.sends.lock()?.queue.get_mut()?.hand_over().ok_or(EOPNOTSUPP)?;
        let receives = qp.receives.lock()?.as_mut().map(|queue| queue.hand_over().ok_or(EOPNOTSUPP));
        let receives = receives.transpose()?.unwrap_or_default();
        if len < OLDEST_WQ_ATTR {
            return Err(EINVAL);
        }
        // Bytes after the last field in the structure of an older header are not changed.
        let size =
            if len as usize >= size_of::<WqAttr>() { size_of::<WqAttr>() } else { OLDEST_WQ_ATTR as usize };
        sq_attr.write_prefix(&WqAttr::from(sends), size).ok_or(EINVAL)?;
        rq_attr.write_prefix(&WqAttr::from(receives), size).ok_or(EINVAL)
    };
    returned(query())
}

/// `struct efadv_cq_attr`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
struct CqAttr {
    comp_mask: u64,
    buffer: u64,
    entry_size: u32,
    num_entries: u32,
    doorbell: u64,
}

/// The end of the fields in the oldest version. The later one is the doorbell.
const OLDEST_CQ_ATTR: u32 = 24;

pub(crate) extern "C" fn query_cq(cq: Option<&Cq>, mut attr: Places<'_, u8>, len: u32) -> c_int {
    let mut query = || {
        let ring = cq.ok_or(EINVAL)?.queue.lock()?.hand_over().ok_or(EOPNOTSUPP)?;
        if len < OLDEST_CQ_ATTR {
            return Err(EINVAL);
        }
        let OwnRing { address, entry_size, entries, doorbell, .. } = ring;
        let (buffer, num_entries) = (address, entries);
        let size =
            if len as usize >= size_of::<CqAttr>() { size_of::<CqAttr>() } else { OLDEST_CQ_ATTR as usize };
        attr.write_prefix(&CqAttr { comp_mask: 0, buffer, entry_size, num_entries, doorbell }, size)
            .ok_or(EINVAL)
    };
    returned(query())
}
