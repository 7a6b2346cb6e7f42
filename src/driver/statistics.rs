//! What the kernel does not report about a driver's counters.

use super::Driver;

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

impl Driver {
    /// The number of bits after which a hardware counter wraps to zero, where that is known.
    pub(crate) fn counter_bits(&self, name: &str) -> Option<u8> {
        match self {
            Self::Mlx5(_) => Some(if NARROW.contains(&own_name(name)) { 32 } else { 64 }),
            // `rxe_counter_inc` (sw/rxe), `efa_get_hw_stats` (hw/efa/efa_verbs.c), Linux 6.1.
            Self::Rxe | Self::Efa(_) | Self::Soft => Some(64),
            Self::Siw(_) | Self::Other => None,
        }
    }

    /// Whether a counter that wraps counts no faster than its port transports packets.
    pub(crate) fn counts_packets(&self, name: &str) -> bool {
        match self {
            Self::Mlx5(_) => NARROW.contains(&own_name(name)) && !WITHOUT_PACKETS.contains(&own_name(name)),
            // None of these drivers' counters is known to wrap.
            Self::Rxe | Self::Siw(_) | Self::Efa(_) | Self::Soft | Self::Other => false,
        }
    }

    /// Whether the driver counts per queue pair, where that is known (`counter_bind_qp` of its `ib_device_ops`, Linux 6.1 and 7.3).
    pub(crate) fn binds_queue_pairs(&self) -> Option<bool> {
        match self {
            Self::Mlx5(_) => Some(true),
            Self::Rxe | Self::Siw(_) | Self::Efa(_) | Self::Soft => Some(false),
            Self::Other => None,
        }
    }
}
