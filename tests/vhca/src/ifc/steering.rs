//! Flow tables, their groups and entries, and their match values.
//!
//! Bit offset and width of each field, from `include/linux/mlx5/mlx5_ifc.h` of kernel 6.1.

layouts! {
    create_flow_table_in {
        table_type: 0x80 + 8,
        flow_table_context: 0xc0 + 320,
    }
    create_flow_table_out {
        table_id: 0x48 + 24,
    }
    flow_table_context {
        table_miss_action: 0x4 + 4,
        level: 0x8 + 8,
        log_size: 0x18 + 8,
        table_miss_id: 0x28 + 24,
    }
    modify_flow_table_in {
        modify_field_select: 0x70 + 16,
        table_type: 0x80 + 8,
        table_id: 0xa8 + 24,
        flow_table_context: 0xc0 + 320,
    }
    destroy_flow_table_in {
        table_type: 0x80 + 8,
        table_id: 0xa8 + 24,
    }
    query_flow_table_out {
        flow_table_context: 0xc0 + 320,
    }
    set_flow_table_root_in {
        table_type: 0x80 + 8,
        table_id: 0xa8 + 24,
    }
    create_flow_group_in {
        table_type: 0x80 + 8,
        table_id: 0xa8 + 24,
        start_flow_index: 0xe0 + 32,
        end_flow_index: 0x120 + 32,
        match_criteria_enable: 0x1f8 + 8,
        match_criteria: 0x200 + 4096,
    }
    create_flow_group_out {
        group_id: 0x48 + 24,
    }
    destroy_flow_group_in {
        table_type: 0x80 + 8,
        table_id: 0xa8 + 24,
        group_id: 0xc0 + 32,
    }
    set_fte_in {
        table_type: 0x80 + 8,
        table_id: 0xa8 + 24,
        modify_enable_mask: 0xd8 + 8,
        flow_index: 0x100 + 32,
        flow_context: 0x200 + 6144,
    }
    delete_fte_in {
        table_type: 0x80 + 8,
        table_id: 0xa8 + 24,
        flow_index: 0x100 + 32,
    }
    flow_context {
        group_id: 0x20 + 32,
        flow_tag: 0x48 + 24,
        action: 0x70 + 16,
        extended_destination: 0x80 + 1,
        destination_list_size: 0x88 + 24,
        flow_counter_list_size: 0xa8 + 24,
        match_value: 0x200 + 4096,
        destination: 0x1800 + 0,
    }
    dest_format_struct {
        destination_type: 0x0 + 8,
        destination_id: 0x8 + 24,
    }
    flow_counter_list {
        flow_counter_id: 0x0 + 32,
    }
    fte_match_param {
        outer_headers: 0x0 + 512,
        misc_parameters: 0x200 + 512,
        inner_headers: 0x400 + 512,
        misc_parameters_2: 0x600 + 512,
        misc_parameters_3: 0x800 + 512,
    }
    fte_match_set_lyr_2_4 {
        smac_47_16: 0x0 + 32,
        smac_15_0: 0x20 + 16,
        ethertype: 0x30 + 16,
        dmac_47_16: 0x40 + 32,
        dmac_15_0: 0x60 + 16,
        first_prio: 0x70 + 3,
        first_cfi: 0x73 + 1,
        first_vid: 0x74 + 12,
        ip_protocol: 0x80 + 8,
        ip_dscp: 0x88 + 6,
        ip_ecn: 0x8e + 2,
        cvlan_tag: 0x90 + 1,
        svlan_tag: 0x91 + 1,
        frag: 0x92 + 1,
        ip_version: 0x93 + 4,
        tcp_flags: 0x97 + 9,
        tcp_sport: 0xa0 + 16,
        tcp_dport: 0xb0 + 16,
        ipv4_ihl: 0xd0 + 4,
        ttl_hoplimit: 0xd8 + 8,
        udp_sport: 0xe0 + 16,
        udp_dport: 0xf0 + 16,
        src_ipv4_src_ipv6: 0x100 + 128,
        dst_ipv4_dst_ipv6: 0x180 + 128,
    }
    fte_match_set_misc {
        gre_c_present: 0x0 + 1,
        gre_k_present: 0x2 + 1,
        gre_s_present: 0x3 + 1,
        source_sqn: 0x8 + 24,
        outer_second_prio: 0x40 + 3,
        outer_second_cfi: 0x43 + 1,
        outer_second_vid: 0x44 + 12,
        inner_second_prio: 0x50 + 3,
        inner_second_cfi: 0x53 + 1,
        inner_second_vid: 0x54 + 12,
        outer_second_cvlan_tag: 0x60 + 1,
        inner_second_cvlan_tag: 0x61 + 1,
        outer_second_svlan_tag: 0x62 + 1,
        inner_second_svlan_tag: 0x63 + 1,
        gre_protocol: 0x70 + 16,
        gre_key: 0x80 + 32,
        vxlan_vni: 0xa0 + 24,
        outer_ipv6_flow_label: 0xec + 20,
        inner_ipv6_flow_label: 0x10c + 20,
    }
    fte_match_set_misc2 {
        outer_first_mpls: 0x0 + 32,
        inner_first_mpls: 0x20 + 32,
        outer_first_mpls_over_gre: 0x40 + 32,
        outer_first_mpls_over_udp: 0x60 + 32,
    }
}
