//! Counters of queues and of the port.
//!
//! Bit offset and width of each field, from `include/linux/mlx5/mlx5_ifc.h` of kernel 6.1. For a number of 64 bits that consists of two
//! fields, the upper one is listed.

layouts! {
    alloc_q_counter_out {
        counter_set_id: 0x58 + 8,
    }
    query_q_counter_in {
        clear: 0xc0 + 1,
        counter_set_id: 0xf8 + 8,
    }
    query_q_counter_out {
        rx_write_requests: 0x80 + 32,
        rx_read_requests: 0xc0 + 32,
        rx_atomic_requests: 0x100 + 32,
        rx_dct_connect: 0x140 + 32,
        out_of_buffer: 0x180 + 32,
        out_of_sequence: 0x1c0 + 32,
        duplicate_request: 0x200 + 32,
        rnr_nak_retry_err: 0x240 + 32,
        packet_seq_err: 0x280 + 32,
        implied_nak_seq_err: 0x2c0 + 32,
        local_ack_timeout_err: 0x300 + 32,
        resp_local_length_error: 0x3c0 + 32,
        req_local_length_error: 0x3e0 + 32,
        resp_local_qp_error: 0x400 + 32,
        local_operation_error: 0x420 + 32,
        resp_local_protection: 0x440 + 32,
        req_local_protection: 0x460 + 32,
        resp_cqe_error: 0x480 + 32,
        req_cqe_error: 0x4a0 + 32,
        req_mw_binding: 0x4c0 + 32,
        req_bad_response: 0x4e0 + 32,
        req_remote_invalid_request: 0x500 + 32,
        resp_remote_invalid_request: 0x520 + 32,
        req_remote_access_errors: 0x540 + 32,
        resp_remote_access_errors: 0x560 + 32,
        req_remote_operation_errors: 0x580 + 32,
        req_transport_retries_exceeded: 0x5a0 + 32,
        cq_overflow: 0x5c0 + 32,
        resp_cqe_flush_error: 0x5e0 + 32,
        req_cqe_flush_error: 0x600 + 32,
        roce_adp_retrans: 0x640 + 32,
        roce_adp_retrans_to: 0x660 + 32,
        roce_slow_restart: 0x680 + 32,
        roce_slow_restart_cnps: 0x6a0 + 32,
        roce_slow_restart_trans: 0x6c0 + 32,
    }
    query_vport_counter_in {
        other_vport: 0x40 + 1,
        port_num: 0x4c + 4,
        vport_number: 0x50 + 16,
        clear: 0xc0 + 1,
    }
    query_vport_counter_out {
        received_errors: 0x80 + 128,
        transmit_errors: 0x100 + 128,
        received_ib_unicast: 0x180 + 128,
        transmitted_ib_unicast: 0x200 + 128,
        received_ib_multicast: 0x280 + 128,
        transmitted_ib_multicast: 0x300 + 128,
        received_eth_broadcast: 0x380 + 128,
        transmitted_eth_broadcast: 0x400 + 128,
        received_eth_unicast: 0x480 + 128,
        transmitted_eth_unicast: 0x500 + 128,
        received_eth_multicast: 0x580 + 128,
        transmitted_eth_multicast: 0x600 + 128,
    }
    query_cong_statistics_in {
        clear: 0x40 + 1,
    }
    query_cong_statistics_out {
        rp_cnp_ignored_high: 0xc0 + 32,
        rp_cnp_handled_high: 0x100 + 32,
        np_ecn_marked_roce_packets_high: 0x2a0 + 32,
        np_cnp_sent_high: 0x2e0 + 32,
    }
    ppcnt_reg {
        local_port: 0x8 + 8,
        grp: 0x1a + 6,
        clr: 0x20 + 1,
        prio_tc: 0x3d + 3,
        counter_set: 0x40 + 1984,
    }
    eth_802_3_cntrs_grp_data_layout {
        a_frames_transmitted_ok_high: 0x0 + 32,
        a_frames_received_ok_high: 0x40 + 32,
        a_octets_transmitted_ok_high: 0x100 + 32,
        a_octets_received_ok_high: 0x140 + 32,
        a_multicast_frames_xmitted_ok_high: 0x180 + 32,
        a_broadcast_frames_xmitted_ok_high: 0x1c0 + 32,
        a_multicast_frames_received_ok_high: 0x200 + 32,
        a_broadcast_frames_received_ok_high: 0x240 + 32,
    }
    eth_2863_cntrs_grp_data_layout {
        if_in_octets_high: 0x0 + 32,
        if_in_ucast_pkts_high: 0x40 + 32,
        if_in_errors_high: 0xc0 + 32,
        if_out_octets_high: 0x140 + 32,
        if_out_ucast_pkts_high: 0x180 + 32,
        if_in_multicast_pkts_high: 0x240 + 32,
        if_in_broadcast_pkts_high: 0x280 + 32,
        if_out_multicast_pkts_high: 0x2c0 + 32,
        if_out_broadcast_pkts_high: 0x300 + 32,
    }
    eth_2819_cntrs_grp_data_layout {
        ether_stats_octets_high: 0x40 + 32,
        ether_stats_pkts_high: 0x80 + 32,
        ether_stats_broadcast_pkts_high: 0xc0 + 32,
        ether_stats_multicast_pkts_high: 0x100 + 32,
    }
    eth_extended_cntrs_grp_data_layout {
        rx_icrc_encapsulated_high: 0x1c0 + 32,
    }
    phys_layer_cntrs {
        link_down_events: 0x600 + 32,
    }
    ib_port_cntrs_grp_data_layout {
        symbol_error_counter: 0x0 + 16,
        link_error_recovery_counter: 0x10 + 8,
        link_downed_counter: 0x18 + 8,
        port_rcv_errors: 0x20 + 16,
        port_rcv_remote_physical_errors: 0x30 + 16,
        port_rcv_switch_relay_errors: 0x40 + 16,
        port_xmit_discards: 0x50 + 16,
        port_xmit_constraint_errors: 0x60 + 8,
        port_rcv_constraint_errors: 0x68 + 8,
        link_overrun_errors: 0x78 + 8,
        vl_15_dropped: 0x90 + 16,
        port_xmit_wait: 0x120 + 32,
    }
}
