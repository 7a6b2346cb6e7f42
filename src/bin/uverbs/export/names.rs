//! The names under which counters are exported.
//!
//! A counter that node_exporter's InfiniBand collector exports (1.11, collector/infiniband_linux.go) keeps that name and the
//! labels `device` and `port`, so that existing dashboards and rules continue to work, including arithmetic between two series.
//! Other counters have the kernel's name with a prefix for the folder: `uverbs_port_` for `ports/P/counters`, `uverbs_hw_` for
//! `ports/P/hw_counters`, `uverbs_device_hw_` for the device's `hw_counters`.

use std::borrow::Cow;

use uverbs::statistics::{Source, Unit};

use super::exposition::{Kind, Metric};

/// The kernel's name; node_exporter's name without `node_infiniband_` and `_total`; a description.
type Known = (&'static str, &'static str, &'static str);

/// InfiniBand's own counters of a port.
const PORT: &[Known] = &[
    (
        "VL15_dropped",
        "vl15_dropped",
        "packets of the management lane that were dropped for want of resources",
    ),
    (
        "excessive_buffer_overrun_errors",
        "excessive_buffer_overrun_errors",
        "overruns of the receive buffers in consecutive periods",
    ),
    ("link_downed", "link_downed", "times that the link did not recover and went down"),
    ("link_error_recovery", "link_error_recovery", "times that the link recovered from errors"),
    (
        "local_link_integrity_errors",
        "local_link_integrity_errors",
        "times that local physical errors went over the threshold",
    ),
    ("multicast_rcv_packets", "multicast_packets_received", "multicast packets received"),
    ("multicast_xmit_packets", "multicast_packets_transmitted", "multicast packets sent"),
    (
        "port_rcv_constraint_errors",
        "port_constraint_errors_received",
        "packets that a switch port received and was not to",
    ),
    ("port_rcv_data", "port_data_received_bytes", "bytes received: the kernel's words times four"),
    ("port_rcv_discards", "port_discards_received", "packets received and discarded"),
    ("port_rcv_errors", "port_errors_received", "packets received with an error"),
    ("port_rcv_packets", "port_packets_received", "packets received"),
    (
        "port_rcv_remote_physical_errors",
        "port_receive_remote_physical_errors",
        "packets that the other side marked as bad",
    ),
    (
        "port_rcv_switch_relay_errors",
        "port_receive_switch_relay_errors",
        "packets that a switch could not forward",
    ),
    (
        "port_xmit_constraint_errors",
        "port_constraint_errors_transmitted",
        "packets that a switch port was not to send",
    ),
    ("port_xmit_data", "port_data_transmitted_bytes", "bytes sent: the kernel's words times four"),
    ("port_xmit_discards", "port_discards_transmitted", "packets to be sent and discarded"),
    ("port_xmit_packets", "port_packets_transmitted", "packets sent"),
    (
        "port_xmit_wait",
        "port_transmit_wait",
        "ticks of the port in which there was data and nothing could be sent",
    ),
    ("symbol_error", "symbol_error", "minor errors on the lanes"),
    ("unicast_rcv_packets", "unicast_packets_received", "unicast packets received"),
    ("unicast_xmit_packets", "unicast_packets_transmitted", "unicast packets sent"),
];

/// A driver's counters of a port.
const HARDWARE: &[Known] = &[
    ("duplicate_request", "duplicate_requests_packets", "requests that had been executed before"),
    (
        "implied_nak_seq_err",
        "implied_nak_seq_errors",
        "acknowledgements beyond what a read or an answer expected",
    ),
    ("local_ack_timeout_err", "local_ack_timeout_errors", "acknowledgements that did not come in time"),
    ("np_cnp_sent", "np_cnp_packets_sent", "notifications of congestion sent"),
    (
        "np_ecn_marked_roce_packets",
        "np_ecn_marked_roce_packets_received",
        "RoCEv2 packets received with a mark of congestion",
    ),
    ("out_of_buffer", "out_of_buffer_drops", "packets dropped for want of a receive"),
    ("out_of_sequence", "out_of_sequence_packets_received", "packets received out of sequence"),
    ("packet_seq_err", "packet_sequence_errors", "refusals for a missing packet received"),
    ("req_cqe_error", "req_cqes_errors", "requests that completed with an error"),
    ("req_cqe_flush_error", "req_cqes_flush_errors", "requests that were flushed"),
    (
        "req_remote_access_errors",
        "req_remote_access_errors",
        "requests that the other side refused for their access",
    ),
    (
        "req_remote_invalid_request",
        "req_remote_invalid_request_errors",
        "requests that the other side called invalid",
    ),
    ("resp_cqe_error", "resp_cqes_errors", "receives that completed with an error"),
    ("resp_cqe_flush_error", "resp_cqes_flush_errors", "receives that were flushed"),
    ("resp_local_length_error", "resp_local_length_errors", "messages that were longer than their receive"),
    (
        "resp_remote_access_errors",
        "resp_remote_access_errors",
        "requests of the other side that were refused for their access",
    ),
    ("rnr_nak_retry_err", "rnr_nak_retry_packets_received", "refusals for want of a receive received"),
    ("roce_adp_retrans", "roce_adp_retransmits", "adaptive retransmissions of RoCE"),
    ("roce_adp_retrans_to", "roce_adp_retransmits_timeout", "timeouts of adaptive retransmission of RoCE"),
    ("roce_slow_restart", "roce_slow_restart_used", "slow restarts of RoCE"),
    (
        "roce_slow_restart_cnps",
        "roce_slow_restart_cnps",
        "notifications of congestion by slow restarts of RoCE",
    ),
    ("roce_slow_restart_trans", "roce_slow_restart", "changes of the state to slow restart of RoCE"),
    ("rp_cnp_handled", "rp_cnp_packets_handled", "notifications of congestion that slowed sending down"),
    ("rp_cnp_ignored", "rp_cnp_ignored_packets_received", "notifications of congestion received and ignored"),
    ("rx_atomic_requests", "rx_atomic_requests", "atomic requests received"),
    ("rx_dct_connect", "rx_dct_connect_requests", "requests to connect to dynamically connected targets"),
    ("rx_icrc_encapsulated", "rx_icrc_encapsulated_errors", "RoCE packets received with a wrong checksum"),
    ("rx_read_requests", "rx_read_requests", "read requests received"),
    ("rx_write_requests", "rx_write_requests", "write requests received"),
];

/// A counter of the kernel.
#[derive(Clone, Copy, Debug)]
pub(super) struct Counter<'a> {
    pub(super) source: Source,
    pub(super) name: &'a str,
    pub(super) unit: Unit,
    pub(super) is_gauge: bool,
    pub(super) is_of_port: bool,
}

/// How the counters of a folder in sysfs are named.
struct Place {
    /// The folder itself.
    folder: &'static str,
    /// The prefix of names that node_exporter does not have.
    prefix: &'static str,
    /// The counters that node_exporter has.
    known: &'static [Known],
}

impl<'a> Counter<'a> {
    fn place(&self) -> Place {
        match (self.source, self.is_of_port) {
            (Source::Port, _) => Place { folder: "ports/P/counters", prefix: "uverbs_port_", known: PORT },
            (_, true) => Place { folder: "ports/P/hw_counters", prefix: "uverbs_hw_", known: HARDWARE },
            (_, false) => Place { folder: "hw_counters", prefix: "uverbs_device_hw_", known: &[] },
        }
    }

    fn known(&self) -> Option<&'static Known> {
        self.place().known.iter().find(|(kernel, ..)| *kernel == self.name)
    }

    /// Whether another counter of the same folder already has the name that this one would get from its unit: `x` is exported as
    /// `x_bytes`.
    pub(super) fn is_twin_of(&self, other: &str) -> bool {
        self.unit == Unit::Bytes && !self.is_renamed() && other.strip_suffix("_bytes") == Some(self.name)
    }

    /// Whether the name of its series differs from the kernel's name.
    pub(super) fn is_renamed(&self) -> bool {
        self.known().is_some()
    }

    /// Its family, and the label with the kernel's name if the family's name cannot contain it.
    pub(super) fn metric(&self) -> (Metric<'static>, Option<&'a str>) {
        let place = self.place();
        let is_bytes = self.unit == Unit::Bytes;
        let kind = if self.is_gauge { Kind::Gauge } else { Kind::Counter };
        if let Some((kernel, node, what)) = self.known() {
            let help = format!("{kernel} of {}: {what}.", place.folder);
            let name = format!("node_infiniband_{node}");
            let unit = is_bytes.then_some("bytes");
            return (Metric { name: name.into(), kind, unit, help: help.into() }, None);
        }
        let is_valid = |c: char| c.is_ascii_alphanumeric() || c == '_';
        let mut name = place.prefix.to_owned();
        name.extend(self.name.chars().map(|c| if is_valid(c) { c } else { '_' }));
        // Two names of the kernel must not become the same series.
        let is_changed = !self.name.chars().all(is_valid) || self.name.ends_with("_total");
        if name.ends_with("_total") {
            name.truncate(name.len() - "_total".len());
        }
        if is_bytes && !name.ends_with("_bytes") {
            name.push_str("_bytes");
        }
        let unit = is_bytes.then_some("bytes");
        let help: Cow<'_, str> = if is_changed {
            // The label distinguishes them.
            format!(
                "A counter of {}, whose name is in the label `counter`, in {}.",
                place.folder,
                self.unit.as_str()
            )
            .into()
        } else {
            format!("{} of {}, in {}.", self.name, place.folder, self.unit.as_str()).into()
        };
        (Metric { name: name.into(), kind, unit, help }, is_changed.then_some(self.name))
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    fn counter(source: Source, name: &str, unit: Unit) -> Counter<'_> {
        Counter { source, name, unit, is_gauge: false, is_of_port: true }
    }

    #[test]
    fn what_node_exporter_has_keeps_its_name() {
        let (metric, label) = counter(Source::Port, "port_rcv_data", Unit::Bytes).metric();
        assert_eq!(metric.name, "node_infiniband_port_data_received_bytes");
        assert_eq!((metric.unit, metric.kind, label), (Some("bytes"), Kind::Counter, None));
        assert!(metric.help.starts_with("port_rcv_data of ports/P/counters: "), "{}", metric.help);
        let (metric, _) = counter(Source::Hardware, "out_of_buffer", Unit::Events).metric();
        assert_eq!(metric.name, "node_infiniband_out_of_buffer_drops");
        // rxe has a counter of this name in both folders.
        let (metric, _) = counter(Source::Hardware, "link_downed", Unit::Events).metric();
        assert_eq!(metric.name, "uverbs_hw_link_downed");
    }

    #[test]
    fn all_else_keeps_the_kernels_name() {
        for (source, name, unit, wanted) in [
            (Source::Hardware, "sent_pkts", Unit::Packets, "uverbs_hw_sent_pkts"),
            (Source::Hardware, "sent_bytes", Unit::Bytes, "uverbs_hw_sent_bytes"),
            (Source::Hardware, "ip4InOctets", Unit::Bytes, "uverbs_hw_ip4InOctets_bytes"),
            (Source::Port, "a_new_one", Unit::Events, "uverbs_port_a_new_one"),
        ] {
            let (metric, label) = counter(source, name, unit).metric();
            assert_eq!((&*metric.name, label), (wanted, None));
            assert_eq!(metric.unit, (unit == Unit::Bytes).then_some("bytes"));
        }
        let of_device =
            Counter { is_of_port: false, ..counter(Source::Hardware, "duplicate_request", Unit::Events) };
        assert_eq!(of_device.metric().0.name, "uverbs_device_hw_duplicate_request");
        let level = Counter { is_gauge: true, ..counter(Source::Hardware, "active_qps", Unit::Events) };
        assert_eq!(level.metric().0.kind, Kind::Gauge);
    }

    #[test]
    fn names_that_cannot_be_names_stand_in_a_label() {
        for (name, wanted) in [
            ("a.b", "uverbs_hw_a_b"),
            ("a b", "uverbs_hw_a_b"),
            ("odd \"name\"\n", "uverbs_hw_odd__name__"),
            ("a_total", "uverbs_hw_a"),
            ("ä", "uverbs_hw__"),
        ] {
            let (metric, label) = counter(Source::Hardware, name, Unit::Events).metric();
            assert_eq!((&*metric.name, label), (wanted, Some(name)));
            assert!(!metric.help.contains(name));
        }
    }

    #[test]
    fn no_two_counters_share_a_name() {
        let names: BTreeSet<_> = PORT.iter().chain(HARDWARE).map(|(_, node, _)| node).collect();
        assert_eq!(names.len(), PORT.len() + HARDWARE.len());
        assert!(PORT.is_sorted() && HARDWARE.is_sorted());
    }

    /// Each counter has a row in the documentation.
    #[test]
    fn the_guide_has_each_name() {
        let guide = include_str!("../../../../docs/guide/prometheus.md");
        for (kernel, node, _) in PORT.iter().chain(HARDWARE) {
            let row = format!("| `{kernel}` | `node_infiniband_{node}_total` |");
            assert!(guide.contains(&row), "{row}");
        }
    }

    /// Every series that the dashboard and the guide use is exported.
    #[test]
    fn the_dashboard_asks_for_names_that_are_there() {
        let guide = include_str!("../../../../docs/guide/prometheus.md");
        let dashboard = include_str!("../../../../docs/monitoring/dashboard.json");
        let is_name = |c: char| c.is_ascii_alphanumeric() || c == '_';
        let words: BTreeSet<_> = dashboard.split(|c| !is_name(c)).collect();
        let is_ours = |word: &&str| word.starts_with("node_infiniband_") || word.starts_with("uverbs_");
        let mut count = 0;
        for name in words.into_iter().filter(is_ours) {
            count += 1;
            let is_drivers = name.starts_with("uverbs_hw_") && name.ends_with("_total");
            assert!(is_drivers || guide.contains(&format!("`{name}`")), "{name}");
        }
        assert!(count > 15, "{count}");
    }
}
