//! The functions of libmlx5 (`mlx5/`): queries, and direct access to the rings of queues.
//!
//! Source of layouts, checks and errors: mlx5dv.h, and providers/mlx5/mlx5.c, verbs.c and cq.c, rdma-core 65.

mod create;
mod devx;
mod facts;
mod matcher;
mod memory;
mod objects;
mod pacing;
mod qp_numbers;
mod steering;
#[cfg(test)]
mod tests;

pub(crate) use self::create::{create_cq, create_qp, create_wq};
pub(crate) use self::devx::{
    alloc_uar, alloc_var, cq_modify, cq_query, create_cmd_comp, create_event_channel, destroy_cmd_comp,
    destroy_event_channel, free_uar, free_var, general_cmd, get_cmd_comp, get_event, ind_tbl_modify,
    ind_tbl_query, obj_create, obj_destroy, obj_modify, obj_query, qp_modify, qp_query, query_async,
    query_eqn, srq_modify, srq_query, subscribe, subscribe_fd, umem_dereg, umem_reg, umem_reg_ex, wq_modify,
    wq_query,
};
pub(crate) use self::facts::{get_clock_info, query_port};
pub(crate) use self::matcher::{
    create_flow, create_flow_matcher, create_flow_sized, create_modify_header, create_packet_reformat,
    destroy_flow_action, destroy_flow_matcher,
};
pub(crate) use self::memory::set_context_attr;
pub(crate) use self::objects::{init_obj, init_obj_0};
pub(crate) use self::pacing::{pp_alloc, pp_free};
pub(crate) use self::qp_numbers::{Reserved, reserved_qpn_alloc, reserved_qpn_dealloc};
pub(crate) use self::steering::{create_dest_qp, destroy_action};

use std::ffi::c_int;

use uverbs::AddressHandle;
use uverbs::abi::types::driver_id;

use crate::answer::{Answer, EINVAL, EOPNOTSUPP, returned};
use crate::boundary::{Places, Pointer};
use crate::context::{self, Context, Devx};
use crate::device::{self, Device};

/// The known part of `struct mlx5dv_context`. Later fields are written only for callers that request them.
#[repr(C)]
pub(crate) struct Attr {
    version: u8,
    flags: u64,
    comp_mask: u64,
    cqe_comp_caps: [u32; 2],
    sw_parsing_caps: [u32; 2],
    striding_rq_caps: [u32; 5],
    tunnel_offloads_caps: u32,
    max_dynamic_bfregs: u32,
}

/// `enum mlx5dv_context_flags`, and the kernel's bits with the same meaning.
mod flags {
    use uverbs::abi::mlx5::{
        ALLOW_MPW, QUERY_DEV_RESP_FLAGS_CQE_128B_COMP, QUERY_DEV_RESP_FLAGS_CQE_128B_PAD,
        QUERY_DEV_RESP_PACKET_BASED_CREDIT_MODE, SUPPORT_EMPW,
    };

    pub(super) const CQE_V1: u64 = 1 << 0;
    pub(super) const BLUEFLAME: u64 = 1 << 8;
    pub(super) const OF_REQUESTS: [(u32, u64); 2] = [(ALLOW_MPW, 1 << 2), (SUPPORT_EMPW, 1 << 3)];
    pub(super) const OF_DEVICE: [(u32, u64); 3] = [
        (QUERY_DEV_RESP_FLAGS_CQE_128B_COMP, 1 << 4),
        (QUERY_DEV_RESP_FLAGS_CQE_128B_PAD, 1 << 5),
        (QUERY_DEV_RESP_PACKET_BASED_CREDIT_MODE, 1 << 6),
    ];
}

/// `enum mlx5dv_context_comp_mask`.
mod mask {
    pub(super) const CQE_COMPRESSION: u64 = 1 << 0;
    pub(super) const SWP: u64 = 1 << 1;
    pub(super) const STRIDING_RQ: u64 = 1 << 2;
    pub(super) const TUNNEL_OFFLOADS: u64 = 1 << 3;
    pub(super) const DYN_BFREGS: u64 = 1 << 4;
    pub(super) const KNOWN: u64 = (1 << 5) - 1;
}

/// Fills in the fields that `comp_mask` requests and that are known. perftest of 2024 and later calls this before it creates a queue pair
/// (perftest_resources.c, `create_reg_qp_main`), and uses libibverbs' functions if the device has no such feature.
pub(crate) extern "C" fn query_device(context: Option<&Context>, attr: Option<&mut Attr>) -> c_int {
    let query = || {
        let (context, attr) = (&context.ok_or(EINVAL)?.context, attr.ok_or(EINVAL)?);
        let formats = context.mlx5_formats().ok_or(EOPNOTSUPP)?;
        let told = context.query_device_mlx5()?.ok_or(EOPNOTSUPP)?;
        attr.version = 0;
        attr.flags = if formats.completion_version == 1 { flags::CQE_V1 } else { 0 };
        if formats.has_bursts {
            attr.flags |= flags::BLUEFLAME;
        }
        let both = flags::OF_REQUESTS.iter().map(|flag| (told.mlx5_ib_support_multi_pkt_send_wqes, flag));
        for (word, (bit, flag)) in both.chain(flags::OF_DEVICE.iter().map(|flag| (told.flags, flag))) {
            if word & bit != 0 {
                attr.flags |= flag;
            }
        }
        attr.comp_mask &= mask::KNOWN;
        if attr.comp_mask & mask::CQE_COMPRESSION != 0 {
            attr.cqe_comp_caps = [told.cqe_comp_caps.max_num, told.cqe_comp_caps.supported_format];
        }
        if attr.comp_mask & mask::SWP != 0 {
            let caps = told.sw_parsing_caps;
            attr.sw_parsing_caps = [caps.sw_parsing_offloads, caps.supported_qpts];
        }
        if attr.comp_mask & mask::STRIDING_RQ != 0 {
            let caps = told.striding_rq_caps;
            attr.striding_rq_caps = [
                caps.min_single_stride_log_num_of_bytes,
                caps.max_single_stride_log_num_of_bytes,
                caps.min_single_wqe_log_num_of_strides,
                caps.max_single_wqe_log_num_of_strides,
                caps.supported_qpts,
            ];
        }
        if attr.comp_mask & mask::TUNNEL_OFFLOADS != 0 {
            attr.tunnel_offloads_caps = told.tunnel_offloads_caps;
        }
        if attr.comp_mask & mask::DYN_BFREGS != 0 {
            attr.max_dynamic_bfregs = formats.dynamic_registers;
        }
        Ok(())
    };
    returned(query())
}

/// Nothing can be exported: no object needs any bytes.
pub(crate) extern "C" fn export_sizes(mut sizes: Places<'_, u8>, length: usize) {
    sizes.get(length).iter_mut().for_each(|byte| byte.write(0));
}

/// An address handle as a request contains it; zeros for a device of another driver.
pub(crate) fn address_vector(handle: &AddressHandle) -> [u32; 12] {
    uverbs::mlx5::address_vector(handle).unwrap_or_default()
}

/// The open device of a context. Refuses devices of other drivers.
fn known(context: Option<&Context>) -> Answer<&uverbs::Context> {
    let context = &context.ok_or(EINVAL)?.context;
    context.mlx5_formats().map(|_| context).ok_or(EOPNOTSUPP)
}

/// `struct mlx5dv_context_attr`.
#[repr(C)]
pub(crate) struct ContextAttr {
    flags: u32,
    comp_mask: u64,
}

/// `MLX5DV_CONTEXT_FLAGS_DEVX`: the context may send commands to the firmware, or there is none.
const DEVX: u32 = 1 << 0;

/// Opens a device.
pub(crate) extern "C" fn open_device(device: Pointer, attr: Option<&ContextAttr>) -> Pointer {
    let refused = match attr {
        Some(ContextAttr { flags: 0, comp_mask: 0 }) if is_known(device) => {
            return context::open_device(device);
        }
        Some(ContextAttr { flags: DEVX, comp_mask: 0 }) if is_known(device) => {
            return context::open_with(device, Devx::Needed);
        }
        Some(ContextAttr { flags: 0 | DEVX, comp_mask: 0 }) => EOPNOTSUPP,
        _ => EINVAL,
    };
    refused.set();
    Pointer::NULL
}

/// The environment variable that makes programs like UCX and NCCL use the calls of libibverbs only, if it is `0`.
const DIRECT: &str = "UVERBS_MLX5_DIRECT";

/// Whether a program may use the calls of libmlx5 on a device. Programs that ask this and hear no go on with those of libibverbs.
pub(crate) extern "C" fn is_supported(device: Pointer) -> bool {
    std::env::var_os(DIRECT).is_none_or(|word| word != "0") && is_known(device)
}

/// Whether a device is one of mlx5.
fn is_known(device: Pointer) -> bool {
    device::share(device).is_ok_and(|device| has_devx(&device))
}

/// Whether a device is one whose firmware may take commands.
pub(crate) fn has_devx(device: &Device) -> bool {
    device.device.driver_id() == driver_id::MLX5
}
