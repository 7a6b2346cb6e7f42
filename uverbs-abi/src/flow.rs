//! Flow rules: the request of `CREATE_FLOW` and the specs that follow it, in the kernel's layout.
//!
//! A request is [`CreateFlow`] and then `num_of_specs` specs, back to back. A filter spec is [`FlowSpecHdr`], the values to match, and the
//! mask of the bits that are compared. Header fields are in host order, packet fields in network order, as their types show.

use zerocopy::big_endian::{U16, U32};

numbers! {
    u32 "" {
        SPEC_ETH ("IBV_FLOW_SPEC_ETH") = 0x20, "Ethernet header, [`FlowSpecEth`].";
        SPEC_IPV4 ("IBV_FLOW_SPEC_IPV4") = 0x30, "IPv4 header, [`FlowSpecIpv4`].";
        SPEC_IPV6 ("IBV_FLOW_SPEC_IPV6") = 0x31, "IPv6 header, [`FlowSpecIpv6`].";
        SPEC_ESP ("IBV_FLOW_SPEC_ESP") = 0x34, "IPsec payload header, [`FlowSpecEsp`].";
        SPEC_TCP ("IBV_FLOW_SPEC_TCP") = 0x40, "TCP ports, [`FlowSpecTcpUdp`].";
        SPEC_UDP ("IBV_FLOW_SPEC_UDP") = 0x41, "UDP ports, [`FlowSpecTcpUdp`].";
        SPEC_VXLAN_TUNNEL ("IBV_FLOW_SPEC_VXLAN_TUNNEL") = 0x50,
            "VXLAN network, [`FlowSpecTunnel`]; never with [`SPEC_INNER`].";
        SPEC_GRE ("IBV_FLOW_SPEC_GRE") = 0x51, "GRE header, [`FlowSpecGre`].";
        SPEC_MPLS ("IBV_FLOW_SPEC_MPLS") = 0x60, "MPLS label, [`FlowSpecMpls`].";
        SPEC_INNER ("IBV_FLOW_SPEC_INNER") = 0x100, "Added to a filter's type: match the header inside a tunnel.";
        SPEC_ACTION_TAG ("IBV_FLOW_SPEC_ACTION_TAG") = 0x1000, "Mark packets, [`FlowSpecActionTag`].";
        SPEC_ACTION_DROP ("IBV_FLOW_SPEC_ACTION_DROP") = 0x1001, "Drop packets, [`FlowSpecActionDrop`].";
        SPEC_ACTION_HANDLE ("IBV_FLOW_SPEC_ACTION_HANDLE") = 0x1002, "Apply a flow action, [`FlowSpecActionHandle`].";
        SPEC_ACTION_COUNT ("IBV_FLOW_SPEC_ACTION_COUNT") = 0x1003, "Count packets, [`FlowSpecActionCount`].";

        ATTR_NORMAL ("IBV_FLOW_ATTR_NORMAL") = 0, "Match by the specs; the only type that may count.";
        ATTR_ALL_DEFAULT ("IBV_FLOW_ATTR_ALL_DEFAULT") = 1, "Take what no other rule takes.";
        ATTR_MC_DEFAULT ("IBV_FLOW_ATTR_MC_DEFAULT") = 2, "Take multicast that no other rule takes.";
        ATTR_SNIFFER ("IBV_FLOW_ATTR_SNIFFER") = 3, "Take a copy of everything, received and sent.";

        FLAG_ALLOW_LOOP_BACK () = 1, "Reserved by the library; mlx5 refuses it.";
        FLAG_DONT_TRAP ("IBV_FLOW_ATTR_FLAGS_DONT_TRAP") = 2, "Let the packet also go on to rules of lower priority.";
        FLAG_EGRESS ("IBV_FLOW_ATTR_FLAGS_EGRESS") = 4, "Match what the host sends.";
    }
    usize "" {
        MAX_SPECS () = 10, "Most specs of one rule.";
        MAX_SPEC_SIZE () = 88, "Bytes of the largest spec, [`FlowSpecIpv6`].";
    }
}

layout! {
    /// A rule without its specs.
    struct FlowAttr = "ib_uverbs_flow_attr", 16 {
        0  type_ ("type"): u32, "[`ATTR_NORMAL`] or another of its kind.";
        4  size: u16, "Bytes of all specs together, without this header.";
        6  priority: u16, "Rules of a lower number are tried first; mlx5 has 0 to 15.";
        8  num_of_specs: u8, "Number of specs that follow, at most [`MAX_SPECS`].";
        9  reserved: [u8; 2], "Zero.";
        11 port: u8, "Port of the device, from 1.";
        12 flags: u32, "[`FLAG_DONT_TRAP`] and [`FLAG_EGRESS`].";
    }

    /// Request of `EX_CREATE_FLOW`, followed by the specs.
    struct CreateFlow = "ib_uverbs_create_flow", 24 {
        0 comp_mask: u32, "Zero.";
        4 qp_handle: u32, "Queue pair that gets the packets: RAW_PACKET or UD.";
        8 flow_attr: FlowAttr, "The rule.";
    }

    /// Response of `EX_CREATE_FLOW`.
    struct CreateFlowResp = "ib_uverbs_create_flow_resp", 8 {
        0 comp_mask: u32, "Zero.";
        4 flow_handle: u32, "The new flow.";
    }

    /// Request of `EX_DESTROY_FLOW`.
    struct DestroyFlow = "ib_uverbs_destroy_flow", 8 {
        0 comp_mask: u32, "Zero.";
        4 flow_handle: u32, "The flow that ends.";
    }

    /// First bytes of every spec.
    struct FlowSpecHdr = "ib_uverbs_flow_spec_hdr", 8 {
        0 type_ ("type"): u32, "Kind of spec, [`SPEC_ETH`] and so on.";
        4 size: u16, "Bytes of the whole spec, with this header.";
        6 reserved: u16, "Zero.";
    }

    /// Fields of an Ethernet header.
    struct FlowEthFilter = "ib_uverbs_flow_eth_filter", 16 {
        0  dst_mac: [u8; 6], "Destination address.";
        6  src_mac: [u8; 6], "Source address.";
        12 ether_type: U16, "Ethertype; with an IP spec it must name that protocol.";
        14 vlan_tag: U16, "Tag control information of the VLAN; any mask bit also asks for a tag to be there.";
    }

    /// Matches an Ethernet header.
    struct FlowSpecEth = "ib_uverbs_flow_spec_eth", 40 {
        0  hdr: FlowSpecHdr, "[`SPEC_ETH`], 40 bytes.";
        8  val: FlowEthFilter, "What to match.";
        24 mask: FlowEthFilter, "Which bits count.";
    }

    /// Fields of an IPv4 header.
    struct FlowIpv4Filter = "ib_uverbs_flow_ipv4_filter", 12 {
        0  src_ip: U32, "Source address.";
        4  dst_ip: U32, "Destination address.";
        8  proto: u8, "Protocol number.";
        9  tos: u8, "Type of service.";
        10 ttl: u8, "Time to live; mlx5 cannot match it.";
        11 flags: u8, "Fragment flags; mlx5 cannot match them.";
    }

    /// Matches an IPv4 header.
    struct FlowSpecIpv4 = "ib_uverbs_flow_spec_ipv4", 32 {
        0  hdr: FlowSpecHdr, "[`SPEC_IPV4`], 32 bytes.";
        8  val: FlowIpv4Filter, "What to match.";
        20 mask: FlowIpv4Filter, "Which bits count.";
    }

    /// Ports of TCP or UDP.
    struct FlowTcpUdpFilter = "ib_uverbs_flow_tcp_udp_filter", 4 {
        0 dst_port: U16, "Destination port; it comes first, unlike on the wire.";
        2 src_port: U16, "Source port.";
    }

    /// Matches TCP or UDP ports.
    struct FlowSpecTcpUdp = "ib_uverbs_flow_spec_tcp_udp", 16 {
        0  hdr: FlowSpecHdr, "[`SPEC_TCP`] or [`SPEC_UDP`], 16 bytes.";
        8  val: FlowTcpUdpFilter, "What to match.";
        12 mask: FlowTcpUdpFilter, "Which bits count.";
    }

    /// Fields of an IPv6 header.
    struct FlowIpv6Filter = "ib_uverbs_flow_ipv6_filter", 40 {
        0  src_ip: [u8; 16], "Source address.";
        16 dst_ip: [u8; 16], "Destination address.";
        32 flow_label: U32, "Flow label, 20 bits; a higher bit is EINVAL.";
        36 next_hdr: u8, "Next header.";
        37 traffic_class: u8, "Traffic class.";
        38 hop_limit: u8, "Hop limit; mlx5 cannot match it.";
        39 reserved: u8, "Zero; EINVAL if it is set in the mask.";
    }

    /// Matches an IPv6 header.
    struct FlowSpecIpv6 = "ib_uverbs_flow_spec_ipv6", 88 {
        0  hdr: FlowSpecHdr, "[`SPEC_IPV6`], 88 bytes.";
        8  val: FlowIpv6Filter, "What to match.";
        48 mask: FlowIpv6Filter, "Which bits count.";
    }

    /// Marks the packets of a rule.
    struct FlowSpecActionTag = "ib_uverbs_flow_spec_action_tag", 16 {
        0  hdr: FlowSpecHdr, "[`SPEC_ACTION_TAG`], 16 bytes.";
        8  tag_id: u32, "Tag that completions will carry; 24 bits on mlx5.";
        12 reserved1: u32, "Zero.";
    }

    /// Drops the packets of a rule.
    struct FlowSpecActionDrop = "ib_uverbs_flow_spec_action_drop", 8 {
        0 hdr: FlowSpecHdr, "[`SPEC_ACTION_DROP`], 8 bytes.";
    }

    /// Applies a flow action to the packets of a rule.
    struct FlowSpecActionHandle = "ib_uverbs_flow_spec_action_handle", 16 {
        0  hdr: FlowSpecHdr, "[`SPEC_ACTION_HANDLE`], 16 bytes.";
        8  handle: u32, "The flow action.";
        12 reserved1: u32, "Zero.";
    }

    /// Counts the packets of a rule.
    struct FlowSpecActionCount = "ib_uverbs_flow_spec_action_count", 16 {
        0  hdr: FlowSpecHdr, "[`SPEC_ACTION_COUNT`], 16 bytes.";
        8  handle: u32, "The counters object.";
        12 reserved1: u32, "Zero.";
    }

    /// Network of a tunnel.
    struct FlowTunnelFilter = "ib_uverbs_flow_tunnel_filter", 4 {
        0 tunnel_id: U32, "VXLAN network identifier, 24 bits; a higher bit is EINVAL.";
    }

    /// Matches the network of a VXLAN tunnel.
    struct FlowSpecTunnel = "ib_uverbs_flow_spec_tunnel", 16 {
        0  hdr: FlowSpecHdr, "[`SPEC_VXLAN_TUNNEL`], 16 bytes.";
        8  val: FlowTunnelFilter, "What to match.";
        12 mask: FlowTunnelFilter, "Which bits count.";
    }

    /// Fields of an IPsec payload header.
    struct FlowEspFilter = "ib_uverbs_flow_spec_esp_filter", 8 {
        0 spi: U32, "Security parameter index.";
        4 seq: U32, "Sequence number.";
    }

    /// Matches an IPsec payload header.
    struct FlowSpecEsp = "ib_uverbs_flow_spec_esp", 24 {
        0  hdr: FlowSpecHdr, "[`SPEC_ESP`], 24 bytes.";
        8  val: FlowEspFilter, "What to match.";
        16 mask: FlowEspFilter, "Which bits count.";
    }

    /// Fields of a GRE header.
    struct FlowGreFilter = "ib_uverbs_flow_gre_filter", 8 {
        0 c_ks_res0_ver: U16, "First 16 bits: checksum, key and sequence present, version; mlx5 cannot match it.";
        2 protocol: U16, "Ethertype of what is inside.";
        4 key: U32, "Key.";
    }

    /// Matches a GRE header.
    struct FlowSpecGre = "ib_uverbs_flow_spec_gre", 24 {
        0  hdr: FlowSpecHdr, "[`SPEC_GRE`], 24 bytes.";
        8  val: FlowGreFilter, "What to match.";
        16 mask: FlowGreFilter, "Which bits count.";
    }

    /// One entry of an MPLS label stack.
    struct FlowMplsFilter = "ib_uverbs_flow_mpls_filter", 4 {
        0 label: U32, "The whole word: label (20 bits), traffic class (3), bottom of stack (1), time to live (8).";
    }

    /// Matches an MPLS label.
    struct FlowSpecMpls = "ib_uverbs_flow_spec_mpls", 16 {
        0  hdr: FlowSpecHdr, "[`SPEC_MPLS`], 16 bytes.";
        8  val: FlowMplsFilter, "What to match.";
        12 mask: FlowMplsFilter, "Which bits count.";
    }
}
