//! The addresses of packets, on Ethernet and on InfiniBand.

/// The source and destination of a packet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Route {
    /// InfiniBand: local identifiers (zero on Ethernet).
    pub(crate) slid: u16,
    pub(crate) dlid: u16,
    /// Ethernet: hardware addresses.
    pub(crate) smac: [u8; 6],
    pub(crate) dmac: [u8; 6],
    /// With a global header; always set on Ethernet.
    pub(crate) has_grh: bool,
    pub(crate) sgid: [u8; 16],
    pub(crate) dgid: [u8; 16],
    pub(crate) traffic_class: u8,
    pub(crate) flow_label: u32,
    pub(crate) hop_limit: u8,
    pub(crate) service_level: u8,
    /// RoCE v2's source port; the destination is 4791.
    pub(crate) udp_source: u16,
}
