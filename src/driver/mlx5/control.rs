//! What mlx5 says about its device.

use std::borrow::Cow;

use nix::errno::Errno;
use uverbs_abi::flow::FlowAttr;
#[cfg(feature = "raw")]
use uverbs_abi::mlx5::AllocUcontextResp;
#[cfg(feature = "raw")]
use uverbs_abi::mlx5::ids::{device::query_context, pd};
use uverbs_abi::mlx5::{ModifyWq, QueryDeviceResp};
use uverbs_abi::write::AhAttr;
use zerocopy::FromZeros;

use super::{State, address, flow, hash, plan_context};
#[cfg(feature = "raw")]
use crate::driver::seam::CompletionFields;
use crate::driver::seam::{
    AhPlan, ContextPlan, Control, Exchange, Kernel, QueryPlan, RefusedBind, SrqChange,
};
use crate::kernel::error::{Error, ErrorKind, Result};

/// Counters of mlx5 that a device keeps in 32 bits, from which the kernel copies them (`mlx5_ib_query_q_counters` and the tables above
/// it, hw/mlx5/counters.c, Linux 6.1 and 7.3). For other functions the name has the prefix `vport_`.
const NARROW: &[&str] = &[
    "rx_write_requests",
    "rx_read_requests",
    "rx_atomic_requests",
    "rx_dct_connect",
    "out_of_buffer",
    "out_of_sequence",
    "duplicate_request",
    "rnr_nak_retry_err",
    "packet_seq_err",
    "implied_nak_seq_err",
    "local_ack_timeout_err",
    "resp_local_length_error",
    "resp_cqe_error",
    "req_cqe_error",
    "req_remote_invalid_request",
    "req_remote_access_errors",
    "resp_remote_access_errors",
    "resp_cqe_flush_error",
    "req_cqe_flush_error",
    "req_transport_retries_exceeded",
    "req_rnr_retries_exceeded",
    "roce_adp_retrans",
    "roce_adp_retrans_to",
    "roce_slow_restart",
    "roce_slow_restart_cnps",
    "roce_slow_restart_trans",
];

/// Those of them that count work requests and completions, also without a packet. The others count at most once per packet that the
/// port sends or receives.
const WITHOUT_PACKETS: &[&str] =
    &["resp_cqe_error", "req_cqe_error", "resp_cqe_flush_error", "req_cqe_flush_error"];

/// The name without the prefix for other functions.
fn own_name(name: &str) -> &str {
    name.strip_prefix("vport_").unwrap_or(name)
}

impl Control for State {
    fn name(&self) -> &'static str {
        "mlx5"
    }

    fn plan_context(&self, devx: bool) -> ContextPlan {
        plan_context(devx)
    }

    fn opened(&mut self, answer: &[u8]) {
        self.read_limits(answer);
    }

    /// `UVERBS_HANDLER(UVERBS_METHOD_QUERY_CONTEXT)` with the driver's attribute (mlx5_ib_query_ucontext, main.c, Linux 6.1).
    #[cfg(feature = "raw")]
    fn answers_again(&self) -> Option<(u16, usize)> {
        Some((query_context::RESP_UCTX, size_of::<AllocUcontextResp>()))
    }

    /// `UVERBS_HANDLER(MLX5_IB_METHOD_PD_QUERY)`, std_types.c, Linux 6.1.
    #[cfg(feature = "raw")]
    fn tells_number(&self) -> Option<[u16; 3]> {
        Some([pd::method::QUERY, pd::query::HANDLE, pd::query::RESP_PDN])
    }

    fn plan_query(&self) -> QueryPlan {
        QueryPlan::Packets(QueryDeviceResp::new_zeroed())
    }

    fn firmware(&self, raw: u64) -> Option<String> {
        let part = |shift: u32| raw >> shift & 0xffff;
        Some(format!("{}.{}.{:04}", part(32), part(16), part(0)))
    }

    fn has_devx(&self) -> bool {
        true
    }

    #[cfg(feature = "raw")]
    fn completion_fields(&self) -> CompletionFields {
        CompletionFields::TIMESTAMP | CompletionFields::VLAN | CompletionFields::FLOW_TAG
    }

    /// The new ring is written before the kernel sees it.
    fn plan_ah(&self, _: &'static str, attr: &AhAttr) -> Result<AhPlan> {
        Ok(address::plan_ah(attr))
    }

    /// Flags of queues, and the format of completions.
    fn has_choices(&self) -> bool {
        true
    }

    /// `mlx5_ib_create_srq`, srq.c, Linux 6.1.
    fn forgets_limit(&self) -> bool {
        true
    }

    fn plan_hash(&self, _: &'static str, fields: u64, key: &[u8; 40], flags: u16) -> Result<Exchange> {
        Ok(hash::plan_hash(fields, key, flags))
    }

    fn may_resize_cq(&self, op: &'static str, entries: u32, kernel: &dyn Kernel) -> Result<()> {
        self.check_cqe(op, entries, kernel)
    }

    fn plan_srq_change(&self, _: &'static str) -> Result<SrqChange> {
        Ok(SrqChange::Nothing(Errno::EINVAL, "mlx5 cannot resize shared receive queues"))
    }

    fn plan_xrcd(&self, _: &'static str) -> Result<()> {
        Ok(())
    }

    fn wq_change(&self) -> Option<&'static [u8]> {
        Some(&[0; size_of::<ModifyWq>()])
    }

    /// `modify_raw_packet_qp` and `sqrq_state_to_qp_state`, mlx5/qp.c, Linux 6.1.
    fn queues_stop_alone(&self) -> bool {
        true
    }

    fn has_flow_counters(&self) -> bool {
        true
    }

    fn refused_bind(&self, error: &Error, priority: u16) -> RefusedBind {
        flow::refused_bind(error, priority)
    }

    fn keeps_damaged_file(&self) -> bool {
        true
    }

    fn flow_hint(&self, kind: ErrorKind, rule: &FlowAttr) -> Option<Cow<'static, str>> {
        flow::flow_hint(kind, rule)
    }

    fn counter_bits(&self, name: &str) -> Option<u8> {
        Some(if NARROW.contains(&own_name(name)) { 32 } else { 64 })
    }

    fn counts_packets(&self, name: &str) -> bool {
        NARROW.contains(&own_name(name)) && !WITHOUT_PACKETS.contains(&own_name(name))
    }

    fn binds_queue_pairs(&self) -> Option<bool> {
        Some(true)
    }
}
