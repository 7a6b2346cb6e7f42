//! Structures that the device's firmware reads and writes: commands for flow counters, and the matches of flows.
//!
//! All fields are big-endian; no struct here needs alignment. Names in C are those of `include/linux/mlx5/mlx5_ifc.h` without `mlx5_ifc_`
//! and `_bits`: `struct.field` for a field of another struct; `first..last` for a field that covers several of C, from the beginning of one
//! to the end of another. One of these two names may be missing.

use zerocopy::big_endian::{U16, U32, U64};

numbers! {
    u16 "" {
        CMD_OP_QUERY_HCA_CAP () = 0x100, "Opcode: asks for capabilities, see [`QueryHcaCapIn`].";
        CMD_OP_ALLOC_FLOW_COUNTER () = 0x939, "Opcode: allocates flow counters, see [`AllocFlowCounterIn`].";
        CMD_OP_QUERY_FLOW_COUNTER () = 0x93b, "Opcode: reads flow counters, see [`QueryFlowCounterIn`].";
        CMD_OP_CREATE_GENERAL_OBJECT () = 0xa00, "Opcode: creates an object whose kind the command contains.";
        OBJ_TYPE_RESERVED_QPN () = 0x2c, "Kind of a general object: numbers that no queue pair gets.";
        HCA_CAP_GENERAL () = 0x01, "Value of [`QueryHcaCapIn::op_mod`]: general capabilities, as they are set.";
        HCA_CAP_FLOW_TABLE () = 0x0f, "Value of [`QueryHcaCapIn::op_mod`]: flow tables, as they are set.";
        HCA_CAP_GENERAL_2 () = 0x41, "Value of [`QueryHcaCapIn::op_mod`]: more general capabilities, as they are set.";
    }
    u8 "" {
        QUERY_FLOW_COUNTER_CLEAR () = 0x80, "Bit of [`QueryFlowCounterIn::clear`]: back to zero.";
        MATCH_OUTER () = 1, "Bit of a matcher's criteria: outer headers.";
        MATCH_MISC () = 2, "Bit of a matcher's criteria: [`FteMatchSetMisc`].";
        MATCH_INNER () = 4, "Bit of a matcher's criteria: inner headers.";
        FIRST_CVLAN_TAG () = 0x80, "Bit of [`FteMatchSetLyr24::tags`]: the frame has a VLAN tag.";
        IP_VERSION_4 () = 0x08, "Bits of [`FteMatchSetLyr24::tags`]: IP version 4.";
        IP_VERSION_6 () = 0x0c, "Bits of [`FteMatchSetLyr24::tags`]: IP version 6.";
        IP_VERSION_MASK () = 0x1e, "Bits of [`FteMatchSetLyr24::tags`]: the IP version.";
    }
    usize "" {
        HCA_CAP_SIZE () = 4096, "Bytes of one kind of capabilities.";
        CAP_HAS_GENERAL_2 () = 4, "Byte of the general capabilities with the bit [`CAP_HAS_2`].";
        CAP_GENERAL_OBJ_TYPES () = 128, "First of eight bytes of the general capabilities: a bit for each kind of general object.";
        CAP_2_LOG_RESERVED_QPNS () = 18,
            "Byte of [`HCA_CAP_GENERAL_2`] in whose lowest five bits is the number of reserved queue pair numbers in a block, as a power of two.";
        CAP_FLOW_COUNTER_BULK_ALLOC () = 98,
            "Byte of the general capabilities `flow_counter_bulk_alloc`: a bit for each row of 128 counters times a power of two.";
        CAP_LOG_MAX_FLOW_COUNTER_BULK () = 105,
            "Byte of the general capabilities `log_max_flow_counter_bulk`: most counters of one query, as a power of two.";
        CAP_OUTER_IP_VERSION () = 96,
            "Byte of the flow tables' capabilities with the bit [`CAP_IP_VERSION`] for outer headers.";
        CAP_INNER_IP_VERSION () = 100, "As [`CAP_OUTER_IP_VERSION`], for inner headers.";
        MAX_FLOW_COUNTERS () = 4092,
            "Most counters of one query: the answer has to be shorter than 64 KiB, and the number a multiple of 4.";
    }
    u8 "" {
        CAP_HAS_2 () = 0x80, "Bit of the general capabilities: there are [`HCA_CAP_GENERAL_2`].";
        CAP_IP_VERSION () = 0x10, "Bit of the flow tables' capabilities: the IP version can be matched.";
    }
}

layout! {
    /// The beginning of every answer.
    struct CmdOut = "alloc_pd_out", 16 {
        0 status: u8, "Zero for success.";
        1 reserved1 (): [u8; 3], "Zero.";
        4 syndrome: U32, "The firmware's number for what went wrong.";
        8 reserved2 (): [u8; 8], "Used by some commands.";
    }

    /// Asks for capabilities; [`HCA_CAP_SIZE`] bytes of them follow a [`CmdOut`].
    struct QueryHcaCapIn = "query_hca_cap_in", 16 {
        0 opcode ("alloc_pd_in.opcode"): U16, "[`CMD_OP_QUERY_HCA_CAP`].";
        2 uid ("alloc_pd_in.uid"): U16, "The user context; the kernel fills it in.";
        4 reserved1 (): U16, "Zero.";
        6 op_mod ("alloc_pd_in.op_mod"): U16, "Which: [`HCA_CAP_GENERAL`] or [`HCA_CAP_FLOW_TABLE`].";
        8 reserved2 (): [u8; 8], "Zero.";
    }

    /// Allocates flow counters with consecutive numbers.
    struct AllocFlowCounterIn = "alloc_flow_counter_in", 16 {
        0  opcode ("alloc_pd_in.opcode"): U16, "[`CMD_OP_ALLOC_FLOW_COUNTER`].";
        2  uid ("alloc_pd_in.uid"): U16, "The user context; the kernel fills it in.";
        4  reserved1 (): U16, "Zero.";
        6  op_mod ("alloc_pd_in.op_mod"): U16, "Zero.";
        8  reserved2 (): [u8; 7], "Zero.";
        15 flow_counter_bulk: u8, "How many, in units of 128: a power of two; zero for a single one.";
    }

    /// Answer to [`AllocFlowCounterIn`].
    struct AllocFlowCounterOut = "alloc_flow_counter_out", 16 {
        0  status ("alloc_pd_out.status"): u8, "Zero for success.";
        1  reserved1 (): [u8; 3], "Zero.";
        4  syndrome ("alloc_pd_out.syndrome"): U32, "The firmware's number for what went wrong.";
        8  flow_counter_id: U32, "The first of them.";
        12 reserved2 (): [u8; 4], "Zero.";
    }

    /// Reads flow counters; a [`TrafficCounter`] for each follows a [`CmdOut`].
    struct QueryFlowCounterIn = "query_flow_counter_in", 32 {
        0  opcode ("alloc_pd_in.opcode"): U16, "[`CMD_OP_QUERY_FLOW_COUNTER`].";
        2  uid ("alloc_pd_in.uid"): U16, "The user context; the kernel fills it in.";
        4  reserved1 (): U16, "Zero.";
        6  op_mod ("alloc_pd_in.op_mod"): U16, "Zero.";
        8  reserved2 (): [u8; 16], "Zero.";
        24 clear ("clear.."): u8, "[`QUERY_FLOW_COUNTER_CLEAR`] or zero.";
        25 reserved3 (): u8, "Zero.";
        26 num_of_counters: U16, "How many, a multiple of 4; zero for a single one.";
        28 flow_counter_id: U32, "The first of them.";
    }

    /// The values of a counter.
    struct TrafficCounter = "traffic_counter", 16 {
        0 packets: U64, "Packets.";
        8 octets: U64, "Their bytes.";
    }

    /// Headers that a flow matches, outer or inner.
    struct FteMatchSetLyr24 = "fte_match_set_lyr_2_4", 64 {
        0  smac ("smac_47_16..smac_15_0"): [u8; 6], "Source address.";
        6  ethertype: U16, "Ethertype.";
        8  dmac ("dmac_47_16..dmac_15_0"): [u8; 6], "Destination address.";
        14 vlan_tci ("first_prio..first_vid"): U16, "Tag control information of the first VLAN tag.";
        16 ip_protocol: u8, "Protocol behind the IP header.";
        17 tos ("ip_dscp..ip_ecn"): u8, "Type of service or traffic class.";
        18 tags ("cvlan_tag.."): u8, "[`FIRST_CVLAN_TAG`] and the IP version; the last bit is a TCP flag.";
        19 tcp_flags (): u8, "Flags of TCP.";
        20 tcp_sport: U16, "Source port of TCP.";
        22 tcp_dport: U16, "Destination port of TCP.";
        24 reserved1 (): [u8; 4], "Not used here.";
        28 udp_sport: U16, "Source port of UDP.";
        30 udp_dport: U16, "Destination port of UDP.";
        32 src_ip ("src_ipv4_src_ipv6"): [u8; 16], "Source address; of IPv4 in the last four bytes.";
        48 dst_ip ("dst_ipv4_dst_ipv6"): [u8; 16], "Destination address; of IPv4 in the last four bytes.";
    }

    /// Further fields that a flow matches.
    struct FteMatchSetMisc = "fte_match_set_misc", 64 {
        0  reserved1 (): [u8; 14], "Not used here.";
        14 gre_protocol: U16, "Ethertype of what is in a GRE tunnel.";
        16 gre_key: U32, "Key of a GRE tunnel.";
        20 vxlan_vni ("vxlan_vni.."): U32, "VXLAN network identifier, in the upper 24 bits.";
        24 reserved2 (): [u8; 4], "Not used here.";
        28 outer_ipv6_flow_label ("..outer_ipv6_flow_label"): U32, "Flow label of the outer header, 20 bits.";
        32 inner_ipv6_flow_label ("..inner_ipv6_flow_label"): U32, "Flow label of the inner header, 20 bits.";
        36 reserved3 (): [u8; 28], "Not used here.";
    }

    /// The match parameters of a flow that are used here. The device has more, which may be omitted.
    struct FteMatchParam = "fte_match_param", 192 {
        0   outer ("outer_headers"): FteMatchSetLyr24, "Outer headers.";
        64  misc ("misc_parameters"): FteMatchSetMisc, "Tunnels and flow labels.";
        128 inner ("inner_headers"): FteMatchSetLyr24, "Headers in a tunnel.";
    }
}
