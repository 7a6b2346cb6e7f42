//! The user half of mlx5: completion queues, queue pairs of raw packets and of connections, and receive work queues.
//!
//! Queues are memory of this process that the device reads and writes. Counters in a doorbell record, which is part of the same memory,
//! and writes to a page of device registers (UAR) announce what is ready. Layouts: include/linux/mlx5/qp.h and device.h, Linux 6.1;
//! `uverbs_abi::mlx5`.

mod address;
#[cfg(feature = "raw")]
pub(crate) mod binding;
mod completion_ring;
mod completions;
mod control;
mod data;
mod direct;
mod doorbell;
mod entry;
mod flow;
mod form;
mod frames;
mod hash;
mod known;
mod lead;
mod messages;
mod one_piece;
mod receives;
mod run;
mod segments;
mod sends;
mod shape;
mod shared;
mod sizes;
mod state;
#[cfg(test)]
mod tests;
mod track;
mod uar;
mod windows;
mod work_queue;
mod writing;

use uverbs_abi::mlx5::{
    ALLOC_UCTX_DEVX, AllocUcontextReqV2, AllocUcontextResp, LIB_CAP_4K_UAR, LIB_CAP_DYN_UAR,
    USER_INLINE_MODE_NONE,
};
use zerocopy::IntoBytes;

pub(crate) use self::completions::Completions;
use self::completions::CqPlan;
pub(crate) use self::direct::Unit;
pub(crate) use self::doorbell::Registers;
use self::doorbell::{CQ_DOORBELL, SEND_DOORBELL};
#[cfg(feature = "raw")]
pub use self::entry::Unread;
pub(crate) use self::flow::FlowPayload;
pub(super) use self::flow::{priority_hint, refused_bind};
use self::form::Form;
pub(crate) use self::receives::Receives;
pub(crate) use self::sends::Sends;
use self::shape::QpPlan;
pub(crate) use self::shared::SharedReceives;
use self::shared::{Places, SrqPlan};
pub(crate) use self::state::State;
pub(crate) use self::uar::UarPage;
use self::work_queue::WqPlan;
use super::seam::ContextPlan;
use crate::kernel::mapping::source::BlockSource;

/// The hint for queue pairs that are not supported.
const NO_QUEUES: &str =
    "this version of the crate has queue pairs for raw packets, RC, UC, UD and extended connections on mlx5";

/// The driver's data for a new context, with DEVX or without.
fn plan_context(devx: bool) -> ContextPlan {
    ContextPlan {
        request: context_request(devx).as_bytes().to_vec(),
        older: (!devx).then(|| static_context_request().as_bytes().to_vec()),
        answer: vec![0; size_of::<AllocUcontextResp>()],
    }
}

/// The request for a new context: all 32 bytes of version 2, because Linux 7.2 does not clear what is not sent
/// (mlx5_ib_alloc_ucontext, main.c). It requests a completion entry version of at least 1; otherwise raw packet queue pairs are refused.
fn context_request(devx: bool) -> AllocUcontextReqV2 {
    AllocUcontextReqV2 {
        flags: if devx { ALLOC_UCTX_DEVX } else { 0 },
        max_cqe_version: 1,
        lib_caps: LIB_CAP_4K_UAR | LIB_CAP_DYN_UAR,
        ..AllocUcontextReqV2::default()
    }
}

/// The request for a kernel that refuses the other one because its register pages are not objects (before Linux 5.7). With the context,
/// such a kernel creates one page for all queues.
fn static_context_request() -> AllocUcontextReqV2 {
    AllocUcontextReqV2 {
        total_num_bfregs: REGISTERS_OF_A_PAGE,
        lib_caps: LIB_CAP_4K_UAR,
        ..context_request(false)
    }
}

/// Send doorbells in a page, as the kernel assigns them (`MLX5_NON_FP_BFREGS_PER_UAR`, device.h, Linux 6.1).
const REGISTERS_OF_A_PAGE: u32 = 2;

/// The limits of the device that the kernel returned with the context.
#[derive(Clone, Debug, Default)]
pub(crate) struct Limits {
    /// Where the memory of rings comes from.
    memory: BlockSource,
    /// Maximum size in bytes of a send request and of a receive request.
    max_send: u32,
    max_receive: u32,
    /// Maximum number of blocks of a send ring, and of requests of a receive ring.
    max_send_blocks: u32,
    max_receives: u32,
    /// Maximum number of requests of a shared receive queue.
    max_shared: u32,
    /// Size of an entry of a completion queue in bytes.
    cqe_size: u32,
    /// Number of bytes of each frame that must be copied into the request.
    inline_header: usize,
    /// The kernel has created the page of registers with the context.
    has_registers: bool,
    /// The kernel has a page with the parameters of the device's clock, of the version that is known here (`MLX5_IB_CLOCK_INFO_V1`, bit 0).
    tells_time: bool,
    #[cfg(feature = "raw")]
    pub(crate) formats: Formats,
}

/// Formats that the kernel has returned with the context, and that this crate does not use itself.
#[cfg(feature = "raw")]
#[derive(Clone, Copy, Debug, Default)]
pub struct Formats {
    /// Version of completion entries.
    pub completion_version: u8,
    /// Whether a whole request can be written to the page of registers (BlueFlame).
    pub has_bursts: bool,
    /// Number of registers that can be allocated one by one.
    pub dynamic_registers: u32,
}

impl Limits {
    pub(crate) fn new(answer: &AllocUcontextResp) -> Self {
        Self {
            memory: BlockSource::default(),
            max_send: answer.max_sq_desc_sz.into(),
            max_receive: answer.max_rq_desc_sz.into(),
            max_send_blocks: answer.max_send_wqebb,
            max_receives: answer.max_recv_wr,
            max_shared: answer.max_srq_recv_wr,
            cqe_size: if answer.cache_line_size == 128 { 128 } else { 64 },
            inline_header: match answer.eth_min_inline {
                USER_INLINE_MODE_NONE => 0,
                _ => uverbs_abi::mlx5::wqe::ETH_L2_INLINE_HEADER_SIZE,
            },
            has_registers: answer.tot_bfregs > 0,
            tells_time: answer.clock_info_versions & 1 != 0,
            #[cfg(feature = "raw")]
            formats: Formats {
                completion_version: answer.cqe_version,
                has_bursts: answer.bf_reg_size > 0,
                dynamic_registers: answer.num_dyn_bfregs,
            },
        }
    }
}
