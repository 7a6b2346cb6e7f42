//! The beginning of every command, and the commands that only name an object.
//!
//! Bit offset and width of each field, from `include/linux/mlx5/mlx5_ifc.h` of kernel 6.1.

layouts! {
    alloc_pd_in {
        opcode: 0x0 + 16,
        uid: 0x10 + 16,
        op_mod: 0x30 + 16,
    }
    alloc_pd_out {
        status: 0x0 + 8,
        syndrome: 0x20 + 32,
        pd: 0x48 + 24,
    }
    dealloc_pd_in {
        pd: 0x48 + 24,
    }
    alloc_uar_out {
        uar: 0x48 + 24,
    }
    alloc_transport_domain_out {
        transport_domain: 0x48 + 24,
    }
    alloc_xrcd_out {
        xrcd: 0x48 + 24,
    }
    query_hca_cap_in {
        other_function: 0x40 + 1,
    }
    query_hca_cap_out {
        capability: 0x80 + 32768,
    }
    set_hca_cap_in {
        capability: 0x80 + 32768,
    }
    query_issi_out {
        current_issi: 0x50 + 16,
        supported_issi_dw0: 0x360 + 32,
    }
    set_issi_in {
        current_issi: 0x50 + 16,
    }
    query_pages_out {
        num_pages: 0x60 + 32,
    }
    query_adapter_out {
        query_adapter_struct: 0x80 + 2048,
    }
    query_adapter_param_block {
        ieee_vendor_id: 0xc8 + 24,
        vsd_contd_psid: 0x780 + 128,
    }
    query_vport_state_out {
        admin_state: 0x78 + 4,
        state: 0x7c + 4,
    }
    query_nic_vport_context_out {
        nic_vport_context: 0x80 + 2048,
    }
    nic_vport_context {
        min_wqe_inline_mode: 0x5 + 3,
        roce_en: 0x1f + 1,
        mtu: 0x130 + 16,
        system_image_guid: 0x140 + 64,
        port_guid: 0x180 + 64,
        node_guid: 0x1c0 + 64,
        permanent_address: 0x7a0 + 64,
    }
    modify_nic_vport_field_select {
        mtu: 0x19 + 1,
        permanent_address: 0x1c + 1,
        roce_en: 0x1e + 1,
    }
    modify_nic_vport_context_in {
        field_select: 0x60 + 32,
        nic_vport_context: 0x800 + 2048,
    }
    set_roce_address_in {
        roce_address_index: 0x40 + 16,
        roce_address: 0x80 + 256,
    }
    roce_addr_layout {
        source_l3_address: 0x0 + 128,
        vlan_valid: 0x83 + 1,
        vlan_id: 0x84 + 12,
        source_mac_47_32: 0x90 + 16,
        source_mac_31_0: 0xa0 + 32,
        roce_l3_type: 0xd4 + 4,
        roce_version: 0xd8 + 8,
    }
    hca_vport_context {
        has_smi: 0x101 + 1,
        port_physical_state: 0x110 + 4,
        port_state: 0x118 + 4,
        vport_state: 0x11c + 4,
        system_image_guid: 0x140 + 64,
        port_guid: 0x180 + 64,
        node_guid: 0x1c0 + 64,
        cap_mask1: 0x200 + 32,
        lid: 0x300 + 16,
        subnet_timeout: 0x31b + 5,
        sm_lid: 0x320 + 16,
    }
    query_hca_vport_context_out {
        hca_vport_context: 0x80 + 4096,
    }
    query_hca_vport_gid_in {
        gid_index: 0x70 + 16,
    }
    query_hca_vport_gid_out {
        gids_num: 0x60 + 16,
        gid: 0x80 + 0,
    }
    query_hca_vport_pkey_in {
        pkey_index: 0x70 + 16,
    }
    pvlc_reg {
        vl_hw_cap: 0x3c + 4,
        vl_admin: 0x5c + 4,
        vl_operational: 0x7c + 4,
    }
    query_hca_vport_pkey_out {
        pkey: 0x80 + 0,
    }
    access_register_in {
        register_id: 0x50 + 16,
        register_data: 0x80 + 0,
    }
    access_register_out {
        register_data: 0x80 + 0,
    }
    ptys_reg {
        local_port: 0x8 + 8,
        proto_mask: 0x1d + 3,
        eth_proto_capability: 0x60 + 32,
        eth_proto_admin: 0xc0 + 32,
        eth_proto_oper: 0x120 + 32,
        ib_link_width_capability: 0x80 + 16,
        ib_proto_capability: 0x90 + 16,
        ib_link_width_admin: 0xe0 + 16,
        ib_proto_admin: 0xf0 + 16,
        ib_link_width_oper: 0x140 + 16,
        ib_proto_oper: 0x150 + 16,
    }
    pmtu_reg {
        local_port: 0x8 + 8,
        max_mtu: 0x20 + 16,
        admin_mtu: 0x40 + 16,
        oper_mtu: 0x60 + 16,
    }
    paos_reg {
        local_port: 0x8 + 8,
        admin_status: 0x14 + 4,
        oper_status: 0x1c + 4,
    }
    query_special_contexts_out {
        dump_fill_mkey: 0x40 + 32,
        resd_lkey: 0x60 + 32,
        null_mkey: 0x80 + 32,
    }
    create_eq_in {
        eq_context_entry: 0x80 + 512,
        event_bitmask: 0x2c0 + 256,
        pas: 0x880 + 0,
    }
    create_eq_out {
        eq_number: 0x58 + 8,
    }
    destroy_eq_in {
        eq_number: 0x58 + 8,
    }
    query_eq_out {
        eq_context_entry: 0x80 + 512,
    }
    create_cq_in {
        cq_context: 0x80 + 512,
        pas: 0x880 + 0,
    }
    create_cq_out {
        cqn: 0x48 + 24,
    }
    destroy_cq_in {
        cqn: 0x48 + 24,
    }
    query_cq_out {
        cq_context: 0x80 + 512,
    }
    modify_cq_in {
        modify_field_select_resize_field_select: 0x60 + 32,
        cq_context: 0x80 + 512,
        pas: 0x880 + 0,
    }
    create_mkey_in {
        memory_key_mkey_entry: 0x80 + 512,
        translations_octword_actual_size: 0x300 + 32,
        klm_pas_mtt: 0x880 + 0,
    }
    create_mkey_out {
        mkey_index: 0x48 + 24,
    }
    query_mkey_out {
        memory_key_mkey_entry: 0x80 + 512,
    }
    create_sq_in {
        ctx: 0x100 + 1920,
    }
    create_sq_out {
        sqn: 0x48 + 24,
    }
    modify_sq_in {
        sq_state: 0x40 + 4,
        modify_bitmask: 0x80 + 64,
        ctx: 0x100 + 1920,
    }
    query_sq_out {
        sq_context: 0x100 + 1920,
    }
    create_rq_in {
        ctx: 0x100 + 1920,
    }
    modify_rq_in {
        rq_state: 0x40 + 4,
        modify_bitmask: 0x80 + 64,
        ctx: 0x100 + 1920,
    }
    query_rq_out {
        rq_context: 0x100 + 1920,
    }
    create_rmp_in {
        ctx: 0x100 + 1920,
    }
    modify_rmp_in {
        rmpn: 0x48 + 24,
        bitmask: 0x80 + 64,
        ctx: 0x100 + 1920,
    }
    arm_xrc_srq_in {
        xrc_srqn: 0x48 + 24,
        lwm: 0x70 + 16,
    }
    attach_to_mcg_in {
        qpn: 0x48 + 24,
        multicast_gid: 0x80 + 128,
    }
    create_srq_in {
        srq_context_entry: 0x80 + 512,
        pas: 0x880 + 0,
    }
    create_xrc_srq_in {
        xrc_srq_context_entry: 0x80 + 512,
        pas: 0x880 + 0,
    }
    create_tis_in {
        ctx: 0x100 + 1280,
    }
    create_tir_in {
        ctx: 0x100 + 1920,
    }
    modify_tir_in {
        bitmask: 0x80 + 64,
        ctx: 0x100 + 1920,
    }
    create_rqt_in {
        rqt_context: 0x100 + 1920,
    }
    modify_rqt_in {
        ctx: 0x100 + 1920,
    }
    create_qp_in {
        opt_param_mask: 0x80 + 32,
        qpc: 0xc0 + 1856,
        pas: 0x880 + 0,
    }
    query_qp_out {
        opt_param_mask: 0x80 + 32,
        qpc: 0xc0 + 1856,
    }
    query_tir_out {
        tir_context: 0x100 + 1920,
    }
    query_tis_out {
        tis_context: 0x80 + 1280,
    }
    query_rqt_out {
        rqt_context: 0x100 + 1920,
    }
    query_srq_out {
        srq_context_entry: 0x80 + 512,
    }
    query_rmp_out {
        rmp_context: 0x100 + 1920,
    }
    query_xrc_srq_out {
        xrc_srq_context_entry: 0x80 + 512,
    }
    rst2init_qp_in {
        opt_param_mask: 0x80 + 32,
        qpc: 0xc0 + 1856,
    }
    create_uctx_out {
        uid: 0x50 + 16,
    }
    destroy_uctx_in {
        uid: 0x50 + 16,
    }
    create_umem_in {
        umem: 0x80 + 256,
    }
    umem {
        log_page_size: 0x9b + 5,
        page_offset: 0xa0 + 32,
        num_of_mtt: 0xc0 + 64,
        mtt: 0x100 + 0,
    }
    add_vxlan_udp_dport_in {
        vxlan_udp_port: 0x70 + 16,
    }
    alloc_flow_counter_in {
        flow_counter_bulk_log_size: 0x73 + 5,
        flow_counter_bulk: 0x78 + 8,
    }
    alloc_flow_counter_out {
        flow_counter_id: 0x40 + 32,
    }
    query_flow_counter_in {
        clear: 0xc0 + 1,
        num_of_counters: 0xd0 + 16,
        flow_counter_id: 0xe0 + 32,
    }
    query_flow_counter_out {
        flow_statistics: 0x80 + 0,
    }
    traffic_counter {
        packets: 0x0 + 64,
        octets: 0x40 + 64,
    }
    general_obj_in_cmd_hdr {
        obj_type: 0x30 + 16,
        obj_id: 0x40 + 32,
        op_param: 0x60 + 32,
    }
    general_obj_create_param {
        log_obj_range: 0x3 + 5,
    }
    general_obj_out_cmd_hdr {
        obj_id: 0x40 + 32,
    }
    set_pp_rate_limit_in {
        rate_limit_index: 0x50 + 16,
        ctx: 0x80 + 384,
    }
    set_pp_rate_limit_context {
        rate_limit: 0x0 + 32,
    }
}
