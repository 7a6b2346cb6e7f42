//! Queues with options that only mlx5 has.

use uverbs::abi::mlx5::{
    CREATE_CQ_FLAGS_CQE_128B_PAD, QP_FLAG_PACKET_BASED_CREDIT_MODE, QP_FLAG_TIR_ALLOW_SELF_LB_MC,
    QP_FLAG_TIR_ALLOW_SELF_LB_UC, QP_FLAG_TUNNEL_OFFLOADS,
};
use uverbs::raw::{DriverCq, DriverQp};

use super::known;
use crate::abi::{CqInitAttrEx, QpInitAttrEx, WqInitAttr};
use crate::answer::{Answer, Code, EINVAL, EOPNOTSUPP, or_null};
use crate::context::Context;
use crate::cq::Cq;
use crate::cq_ex;
use crate::qp::{Own, Qp, make_own};
use crate::wq::{self, Wq};

/// `struct mlx5dv_cq_init_attr`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub(crate) struct CqInitAttr {
    comp_mask: u64,
    cqe_comp_res_format: u8,
    flags: u32,
    cqe_size: u16,
}

/// `enum mlx5dv_cq_init_attr_mask`, and `MLX5DV_CQ_INIT_ATTR_FLAGS_CQE_PAD`.
mod cq_mask {
    pub(super) const COMPRESSED: u64 = 1 << 0;
    pub(super) const FLAGS: u64 = 1 << 1;
    pub(super) const SIZE: u64 = 1 << 2;
    pub(super) const PAD: u32 = 1 << 0;
}

fn make_cq(
    context: Option<&Context>,
    attr: Option<&CqInitAttrEx>,
    own: Option<&CqInitAttr>,
) -> Answer<Box<Cq>> {
    let own_context = known(context)?;
    let Some(own) = own else { return cq_ex::create(context, attr, DriverCq::default()) };
    let has = |bit: u64| own.comp_mask & bit != 0;
    let flags = if has(cq_mask::FLAGS) { own.flags } else { 0 };
    if own.comp_mask & !(cq_mask::COMPRESSED | cq_mask::FLAGS | cq_mask::SIZE) != 0
        || flags & !cq_mask::PAD != 0
    {
        return Err(EINVAL);
    }
    if has(cq_mask::COMPRESSED) {
        let caps = own_context.query_device_mlx5()?.ok_or(EOPNOTSUPP)?.cqe_comp_caps;
        let format = u32::from(own.cqe_comp_res_format);
        if caps.max_num == 0 || format & caps.supported_format == 0 {
            return Err(EINVAL);
        }
    }
    let driver = DriverCq {
        // Its only bit is the first one.
        flags: if flags & cq_mask::PAD != 0 { CREATE_CQ_FLAGS_CQE_128B_PAD as u8 } else { 0 },
        entry_size: has(cq_mask::SIZE).then_some(own.cqe_size),
        compression: has(cq_mask::COMPRESSED).then_some(own.cqe_comp_res_format),
    };
    cq_ex::create(context, attr, driver)
}

pub(crate) extern "C" fn create_cq(
    context: Option<&Context>,
    attr: Option<&CqInitAttrEx>,
    own: Option<&CqInitAttr>,
) -> Option<Box<Cq>> {
    or_null(make_cq(context, attr, own))
}

/// `struct mlx5dv_wq_init_attr`, without what follows the sizes of strides.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub(crate) struct WqInit {
    comp_mask: u64,
    /// Binary logarithms of the bytes of a stride, and of the strides of a request.
    stride_bytes: u32,
    strides: u32,
}

/// `MLX5DV_WQ_INIT_ATTR_MASK_STRIDING_RQ`.
const STRIDING: u64 = 1 << 0;

/// Why a queue cannot have strides: their sizes are not the device's, which has none if it has no strides, or it is not supported here.
fn without_strides(context: &uverbs::Context, own: &WqInit) -> Answer<Code> {
    let caps = context.query_device_mlx5()?.ok_or(EOPNOTSUPP)?.striding_rq_caps;
    let bytes = caps.min_single_stride_log_num_of_bytes..=caps.max_single_stride_log_num_of_bytes;
    let strides = caps.min_single_wqe_log_num_of_strides..=caps.max_single_wqe_log_num_of_strides;
    let is_one = bytes.contains(&own.stride_bytes) && strides.contains(&own.strides);
    Ok(if is_one { EOPNOTSUPP } else { EINVAL })
}

pub(crate) extern "C" fn create_wq(
    context: Option<&Context>,
    attr: Option<&mut WqInitAttr>,
    own: Option<&WqInit>,
) -> Option<Box<Wq>> {
    let make = || {
        let opened = known(context)?;
        match own {
            None | Some(WqInit { comp_mask: 0, .. }) => wq::create(context, attr),
            Some(own) if own.comp_mask == STRIDING => Err(without_strides(opened, own)?),
            Some(_) => Err(EINVAL),
        }
    };
    or_null(make())
}

/// `struct mlx5dv_qp_init_attr`, as far as it is read here.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub(crate) struct QpInit {
    comp_mask: u64,
    create_flags: u32,
}

/// `enum mlx5dv_qp_init_attr_mask`.
mod qp_mask {
    pub(super) const FLAGS: u64 = 1 << 0;
    pub(super) const KNOWN: u64 = (1 << 4) - 1;
}

/// `enum mlx5dv_qp_create_flags`, and the kernel's flags. Small messages never come inside a completion here, whether or not they may.
const FLAGS: [(u32, u32); 6] = [
    (1 << 0, QP_FLAG_TUNNEL_OFFLOADS),
    (1 << 1, QP_FLAG_TIR_ALLOW_SELF_LB_UC),
    (1 << 2, QP_FLAG_TIR_ALLOW_SELF_LB_MC),
    (NO_SCATTER, 0),
    (MAY_SCATTER, 0),
    (1 << 5, QP_FLAG_PACKET_BASED_CREDIT_MODE),
];
const NO_SCATTER: u32 = 1 << 3;
const MAY_SCATTER: u32 = 1 << 4;

fn make_qp(
    context: Option<&Context>,
    init: Option<&mut QpInitAttrEx>,
    own: Option<&QpInit>,
) -> Answer<Box<Qp>> {
    known(context)?;
    let init = init.ok_or(EINVAL)?;
    let comp_mask = own.map_or(0, |own| own.comp_mask);
    if comp_mask & !qp_mask::KNOWN != 0 {
        return Err(EINVAL);
    }
    // Dynamically connected transport, and operations that only mlx5 has.
    if comp_mask & !qp_mask::FLAGS != 0 {
        return Err(EOPNOTSUPP);
    }
    let flags = own.filter(|_| comp_mask != 0).map_or(0, |own| own.create_flags);
    let all = FLAGS.iter().fold(0, |all, (flag, _)| all | flag);
    if flags & (NO_SCATTER | MAY_SCATTER) == NO_SCATTER | MAY_SCATTER {
        return Err(EINVAL);
    }
    if flags & !all != 0 {
        return Err(EOPNOTSUPP);
    }
    let kernels = FLAGS.iter().filter(|(flag, _)| flags & flag != 0).fold(0, |all, (_, bit)| all | bit);
    // All of them are below 2^16.
    let driver = DriverQp { flags: kernels as u16, ..DriverQp::default() };
    make_own(context, init, Some(&Own { driver, operations: None }))
}

pub(crate) extern "C" fn create_qp(
    context: Option<&Context>,
    init: Option<&mut QpInitAttrEx>,
    own: Option<&QpInit>,
) -> Option<Box<Qp>> {
    or_null(make_qp(context, init, own))
}
