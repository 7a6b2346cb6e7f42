//! Counters of errors that have grown while this program looked.
//!
//! Source: the names of the drivers' counters, Linux 6.1 to 7.3 (mlx5/counters.c, rxe_hw_counters.c, efa_verbs.c), and InfiniBand's own.

use crate::doctor::finding::Finding;
use crate::doctor::seen::Seen;

/// Counters, and what their growth means.
const MEANINGS: &[(&[&str], &str, &str)] = &[
    (
        &["local_ack_timeout_err", "retrans_timeout_events", "completer_retry_err"],
        "peers do not acknowledge in time, so requests are repeated",
        "packets are lost (look at discards of the switch, flow control, the peer), or the timeout of the queue pair is too short",
    ),
    (
        &[
            "packet_seq_err",
            "out_of_sequence",
            "rcvd_seq_err",
            "out_of_seq_request",
            "implied_nak_seq_err",
            "duplicate_request",
        ],
        "packets are lost or arrive in another order",
        "flow control (PFC) or congestion control (ECN) of the switches; several paths need a device that accepts another order",
    ),
    (
        &["rnr_nak_retry_err", "rcvd_rnr_err", "send_rnr_err", "retry_rnr_exceeded_err"],
        "receivers have no receive posted when a message arrives",
        "receives must be posted earlier",
    ),
    (
        &["np_cnp_sent", "rp_cnp_handled", "np_ecn_marked_roce_packets", "rp_cnp_ignored"],
        "switches report congestion, and senders slow down",
        "reduce the traffic, or use other routes; no packet is lost yet",
    ),
    (
        &[
            "rx_discards_phy",
            "port_xmit_discards",
            "rx_drops",
            "out_of_buffer",
            "rx_icrc_encapsulated",
            "send_err",
        ],
        "packets are discarded",
        "flow control, buffers of the receiver, the cable",
    ),
    (
        &[
            "symbol_error",
            "link_error_recovery",
            "link_downed",
            "port_rcv_errors",
            "local_link_integrity_errors",
            "excessive_buffer_overrun_errors",
        ],
        "the link has errors",
        "the cable, its plugs, the switch's port",
    ),
    (
        &[
            "retry_exceeded_err",
            "req_cqe_error",
            "resp_cqe_error",
            "req_remote_access_errors",
            "resp_local_length_error",
            "resp_remote_access_errors",
        ],
        "requests of programs fail",
        "the completions of the programs say which, with a status",
    ),
];

pub(super) fn check(seen: &Seen) -> Vec<Finding> {
    let mut found = Vec::new();
    for (names, why, mend) in MEANINGS {
        let grown = seen.grown.iter().filter(|grown| names.contains(&grown.name.as_str()));
        for grown in grown {
            let text = format!("{} has grown by {} while this program looked", grown.name, grown.amount);
            let finding = Finding::warning("errors-grow", text, *why).on(&grown.device).mend(*mend);
            found.push(Finding { port: grown.port, ..finding });
        }
    }
    found
}
