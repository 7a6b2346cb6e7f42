//! Properties of counters that follow from their names. The kernel returns only names and numbers.

use super::statistic::{Source, Unit, Width};
use crate::driver::Driver;

/// What is known about a counter from its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Meaning {
    pub(super) unit: Unit,
    /// Units of one step of the raw value.
    pub(super) scale: u8,
    pub(super) width: Option<Width>,
    pub(super) gauge: bool,
    /// Whether each count needs a packet of the port.
    pub(super) of_packets: bool,
}

/// One of InfiniBand's own counters: name, unit, bits in the plain set, and in the extended one.
type PortCounter = (&'static str, Unit, u8, u8);

/// `PORT_PMA_ATTR` and `PORT_PMA_ATTR_EXT` (core/sysfs.c, Linux 6.1), in the order of the fields of PortCounters.
const PORT: &[PortCounter] = {
    use Unit::{Bytes, Events, Packets, Ticks};
    &[
        ("port_rcv_packets", Packets, 32, 64),
        ("port_rcv_data", Bytes, 32, 64),
        ("port_xmit_packets", Packets, 32, 64),
        ("port_xmit_data", Bytes, 32, 64),
        ("unicast_rcv_packets", Packets, 64, 64),
        ("unicast_xmit_packets", Packets, 64, 64),
        ("multicast_rcv_packets", Packets, 64, 64),
        ("multicast_xmit_packets", Packets, 64, 64),
        ("symbol_error", Events, 16, 16),
        ("link_error_recovery", Events, 8, 8),
        ("link_downed", Events, 8, 8),
        ("port_rcv_errors", Packets, 16, 16),
        ("port_rcv_remote_physical_errors", Packets, 16, 16),
        ("port_rcv_switch_relay_errors", Packets, 16, 16),
        ("port_xmit_discards", Packets, 16, 16),
        ("port_xmit_constraint_errors", Packets, 8, 8),
        ("port_rcv_constraint_errors", Packets, 8, 8),
        ("local_link_integrity_errors", Events, 4, 4),
        ("excessive_buffer_overrun_errors", Events, 4, 4),
        ("VL15_dropped", Packets, 16, 16),
        ("port_xmit_wait", Ticks, 32, 32),
    ]
};

/// A name that only the extended set has.
pub(super) const EXTENDED: &str = "unicast_rcv_packets";

/// The position of a port's counter in a listing: known counters come first.
pub(super) fn place(name: &str) -> usize {
    PORT.iter().position(|(known, ..)| *known == name).unwrap_or(PORT.len())
}

impl Meaning {
    /// For one of a port's counters. In the extended set, packets and data have 64 bits.
    ///
    /// There is also an extended set without unicast and multicast (`pma_group_noietf`), which has the same names as the plain one:
    /// [`Statistic::width`](super::Statistic::width) distinguishes them by the value.
    fn of_port(name: &str, is_extended: bool) -> Self {
        let known = PORT.iter().find(|(known, ..)| *known == name);
        let Some((_, unit, plain, extended)) = known else {
            return Self { unit: by_name(name), scale: 1, width: None, gauge: false, of_packets: false };
        };
        let bits = if is_extended { *extended } else { *plain };
        // Which counters count words, and which stop at their maximum: InfiniBand, PortCounters and PortCountersExtended.
        let scale = if *unit == Unit::Bytes { 4 } else { 1 };
        let width = Some(Width { bits, saturates: bits < 64 });
        Self { unit: *unit, scale, width, gauge: false, of_packets: false }
    }

    /// For one of a driver's counters.
    fn of_driver(name: &str, driver: &Driver) -> Self {
        let width = driver.counter_bits(name).map(|bits| Width { bits, saturates: false });
        let of_packets = driver.counts_packets(name);
        Self { unit: by_name(name), scale: 1, width, gauge: is_level(name), of_packets }
    }

    pub(super) fn of(source: Source, name: &str, is_extended: bool, driver: &Driver) -> Self {
        match source {
            Source::Port => Self::of_port(name, is_extended),
            Source::Hardware => Self::of_driver(name, driver),
        }
    }
}

/// The unit that a driver's name contains: `tx_bytes`, `rcvd_pkts`, `ip4InOctets`, `np_ecn_marked_roce_packets`.
fn by_name(name: &str) -> Unit {
    let has = |part: &str| {
        name.as_bytes().windows(part.len()).any(|window| window.eq_ignore_ascii_case(part.as_bytes()))
    };
    if has("bytes") || has("octets") {
        Unit::Bytes
    } else if has("pkt") || has("packets") {
        Unit::Packets
    } else {
        Unit::Events
    }
}

/// Names of current levels and of their maxima (hw/bnxt_re/hw_counters.c, Linux 6.1).
fn is_level(name: &str) -> bool {
    name.starts_with("active_") || name.starts_with("watermark_")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_have_their_units() {
        for (name, unit) in [
            ("sent_pkts", Unit::Packets),
            ("rcvd_bytes", Unit::Bytes),
            ("ip4InOctets", Unit::Bytes),
            ("ip6InTruncatedPkts", Unit::Packets),
            ("np_ecn_marked_roce_packets", Unit::Packets),
            ("rdma_read_bytes", Unit::Bytes),
            ("rx_rc_pkt", Unit::Packets),
            ("out_of_buffer", Unit::Events),
            ("ack_deferred", Unit::Events),
            ("", Unit::Events),
        ] {
            assert_eq!(by_name(name), unit, "{name}");
        }
        assert!(is_level("active_qps") && is_level("watermark_mrs") && !is_level("link_downed"));
    }

    #[test]
    fn widths_of_a_port_are_those_of_the_set() {
        let bits = |name, is_extended| Meaning::of_port(name, is_extended).width.map(|width| width.bits);
        assert_eq!(bits("port_rcv_data", true), Some(64));
        assert_eq!(bits("port_rcv_data", false), Some(32));
        assert_eq!(bits("local_link_integrity_errors", true), Some(4));
        assert_eq!(bits("a_new_one", true), None);
        let width = Meaning::of_port("link_downed", true).width.expect("it is known");
        assert!((width.saturates, width.highest()) == (true, 255));
        assert_eq!(Meaning::of_port("port_xmit_data", false).scale, 4);
        assert_eq!(Width { bits: 64, saturates: false }.highest(), u64::MAX);
    }
}
