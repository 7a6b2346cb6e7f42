//! The functions of libefa (`efa/`): reliable datagrams, and additional properties of the device, of completions and of memory.
//!
//! Source of layouts, checks and errors: efadv.h and providers/efa/verbs.c, rdma-core 65. Structures have grown at their end: a caller
//! passes the length of its own.

mod counter;
mod cq;
mod qp;
mod rings;
#[cfg(test)]
mod tests;

use std::ffi::c_int;

use uverbs::efa::{Device, DeviceCaps, Ways};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

pub(crate) use self::counter::create_comp_cntr;
pub(crate) use self::cq::{CqPart, cq_from_ibv_cq_ex, create_cq};
pub(crate) use self::qp::{QpPart, create_driver_qp, create_qp_ex, qp_from_ibv_qp_ex};
pub(crate) use self::rings::{query_cq, query_qp_wqs};
use crate::answer::{Answer, Code, EINVAL, EOPNOTSUPP, returned};
use crate::boundary::{Places, Pointer};
use crate::context::Context;
use crate::mr::Mr;
use crate::pd::Ah;

/// The properties of the device. Refuses devices of other drivers.
fn device(context: Option<&Context>) -> Answer<Device> {
    Ok(Device::of(&context.ok_or(EINVAL)?.context)?)
}

/// A structure of the caller that is `len` bytes long, at least `least`. Missing fields are zero. It may be longer than the known structure
/// if the remaining bytes are zero.
fn given<T: FromBytes + IntoBytes>(attr: Pointer, len: u32, least: usize) -> Answer<T> {
    let bytes = attr.array::<u8>(len).filter(|bytes| bytes.len() >= least).ok_or(EINVAL)?;
    let mut value = T::new_zeroed();
    let known = bytes.len().min(size_of::<T>());
    value.as_mut_bytes()[..known].copy_from_slice(&bytes[..known]);
    if bytes[known..].iter().all(|byte| *byte == 0) { Ok(value) } else { Err(EINVAL) }
}

/// Fills a structure of the caller. Bytes after the known fields become zero.
fn told<T: Copy>(mut attr: Places<'_, u8>, len: u32, least: usize, value: &T) -> Answer {
    if (len as usize) < least {
        return Err(EINVAL);
    }
    attr.get(len as usize).iter_mut().for_each(|byte| byte.write(0));
    attr.write_prefix(value, len as usize).ok_or(EINVAL)
}

/// `struct efadv_device_attr`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct DeviceAttr {
    comp_mask: u64,
    max_sq_wr: u32,
    max_rq_wr: u32,
    max_sq_sge: u16,
    max_rq_sge: u16,
    inline_buf_size: u16,
    inline_buf_size_ex: u16,
    device_caps: u32,
    max_rdma_size: u32,
}

/// The size of the oldest version in bytes, and where later fields end.
const OLDEST_DEVICE_ATTR: usize = 24;
const DEVICE_ATTR_WITH_CAPS: u32 = 28;
const DEVICE_ATTR_WITH_RDMA: u32 = 32;

/// `EFADV_DEVICE_ATTR_CAPS_*` that this library supports. Completion queues in a dma-buf are not among them.
const CAPS: [(DeviceCaps, u32); 4] = [
    (DeviceCaps::RNR_RETRY, 1 << 1),
    (DeviceCaps::CQ_WITH_SGID, 1 << 2),
    (DeviceCaps::UNSOLICITED_WRITE_RECEIVE, 1 << 4),
    (DeviceCaps::COMPLETION_COUNTERS, 1 << 6),
];
const RDMA_CAPS: [(DeviceCaps, u32); 2] = [(DeviceCaps::RDMA_READ, 1 << 0), (DeviceCaps::RDMA_WRITE, 1 << 3)];

impl DeviceAttr {
    /// The attributes for a caller whose structure has `len` bytes.
    fn new(device: &Device, len: u32) -> Self {
        let caps = if len >= DEVICE_ATTR_WITH_CAPS { &CAPS[..] } else { &[] };
        let (of_rdma, max_rdma_size) =
            if len >= DEVICE_ATTR_WITH_RDMA { (&RDMA_CAPS[..], device.max_rdma_size) } else { (&[][..], 0) };
        let has = |(cap, _): &&(DeviceCaps, u32)| device.caps.contains(*cap);
        Self {
            comp_mask: 0,
            max_sq_wr: device.max_sends,
            max_rq_wr: device.max_receives,
            max_sq_sge: device.max_send_segments,
            max_rq_sge: device.max_receive_segments,
            inline_buf_size: device.max_inline as u16,
            inline_buf_size_ex: device.max_wide_inline as u16,
            device_caps: caps.iter().chain(of_rdma).filter(has).fold(0, |all, (_, bit)| all | bit),
            max_rdma_size,
        }
    }
}

pub(crate) extern "C" fn query_device(context: Option<&Context>, attr: Places<'_, u8>, len: u32) -> c_int {
    let query = || told(attr, len, OLDEST_DEVICE_ATTR, &DeviceAttr::new(&device(context)?, len));
    returned(query())
}

/// `struct efadv_ah_attr`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
struct AhAttr {
    comp_mask: u64,
    ahn: u16,
    reserved: [u8; 6],
}

pub(crate) extern "C" fn query_ah(ah: Option<&Ah>, attr: Places<'_, u8>, len: u32) -> c_int {
    let query = || {
        let ahn = uverbs::efa::handle_number(ah.ok_or(EINVAL)?.ah.get()?)?;
        told(attr, len, 10, &AhAttr { ahn, ..AhAttr::default() })
    };
    returned(query())
}

/// `struct efadv_mr_attr`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
struct MrAttr {
    comp_mask: u64,
    ic_id_validity: u16,
    recv_ic_id: u16,
    rdma_read_ic_id: u16,
    rdma_recv_ic_id: u16,
}

pub(crate) extern "C" fn query_mr(mr: Option<&Mr>, attr: Places<'_, u8>, len: u32) -> c_int {
    let query = || {
        let mr = mr.ok_or(EINVAL)?;
        let context = &mr.c.context.get::<Context>().ok_or(EINVAL)?.context;
        Device::of(context)?;
        if len < size_of::<MrAttr>() as u32 {
            return Err(EINVAL);
        }
        let Ways { receive, rdma_read, rdma_receive, .. } = Ways::of_handle(context, mr.c.handle)?;
        let ways = [receive, rdma_read, rdma_receive];
        let valid = ways.iter().enumerate().filter(|(_, way)| way.is_some());
        let [recv_ic_id, rdma_read_ic_id, rdma_recv_ic_id] = ways.map(Option::unwrap_or_default);
        let ic_id_validity = valid.fold(0, |all, (bit, _)| all | 1 << bit);
        let told_of = MrAttr { ic_id_validity, recv_ic_id, rdma_read_ic_id, rdma_recv_ic_id, comp_mask: 0 };
        told(attr, len, 0, &told_of)
    };
    returned(query())
}

/// `struct efadv_sq_depth_attr`.
#[repr(C)]
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, KnownLayout, Immutable)]
struct SqDepthAttr {
    comp_mask: u64,
    flags: u32,
    max_send_sge: u32,
    max_rdma_sge: u32,
    max_inline_data: u32,
}

/// `EFADV_SQ_DEPTH_ATTR_INLINE_WRITE`. libefa ignores the other bits.
const INLINE_WRITE: u32 = 1;

/// `struct efadv_rq_depth_attr`.
#[repr(C)]
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, KnownLayout, Immutable)]
struct RqDepthAttr {
    comp_mask: u64,
    max_recv_sge: u32,
    padding: u32,
}

/// A number, or an errno below zero.
fn number(answer: Answer<u32>) -> c_int {
    answer.and_then(|number| c_int::try_from(number).map_err(|_| EINVAL)).unwrap_or_else(|code| -code.get())
}

/// The largest number of bytes of inline data of a request in a small slot.
const SMALL_INLINE: u32 = 32;

pub(crate) extern "C" fn get_max_sq_depth(context: Option<&Context>, attr: Pointer, len: u32) -> c_int {
    let depth = || {
        let device = device(context)?;
        let attr: SqDepthAttr = given_prefix(attr, len, size_of::<SqDepthAttr>())?;
        let context = &context.ok_or(EINVAL)?.context;
        let most_rdma = context.query_device()?.base.max_sge_rd;
        if attr.comp_mask != 0
            || attr.max_send_sge > device.max_send_segments.into()
            || attr.max_rdma_sge > most_rdma
            || attr.max_inline_data > device.max_wide_inline
        {
            return Err(EINVAL);
        }
        let is_wide = attr.max_inline_data > SMALL_INLINE || attr.flags & INLINE_WRITE != 0;
        Ok(Device::most_sends(context, is_wide)?)
    };
    number(depth())
}

pub(crate) extern "C" fn get_max_rq_depth(context: Option<&Context>, attr: Pointer, len: u32) -> c_int {
    let depth = || {
        let device = device(context)?;
        let attr: RqDepthAttr = given_prefix(attr, len, 12)?;
        if attr.comp_mask != 0 || attr.max_recv_sge > device.max_receive_segments.into() {
            return Err(EINVAL);
        }
        // libefa divides by it.
        device.max_receives.checked_div(attr.max_recv_sge).ok_or(EINVAL)
    };
    number(depth())
}

/// A structure of the caller that is `len` bytes long, at least `least`. Missing fields are zero; all bytes after the known fields are
/// ignored.
fn given_prefix<T: FromBytes + IntoBytes>(attr: Pointer, len: u32, least: usize) -> Answer<T> {
    given(attr, len.min(size_of::<T>() as u32), least)
}

/// Refuses a feature that the device or this library does not have.
fn only(is_had: bool) -> Result<(), Code> {
    if is_had { Ok(()) } else { Err(EOPNOTSUPP) }
}
