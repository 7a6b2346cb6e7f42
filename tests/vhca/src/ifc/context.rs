//! Contexts of queues, memory keys and what hangs on them.
//!
//! Bit offset and width of each field, from `include/linux/mlx5/mlx5_ifc.h` of kernel 6.1.

layouts! {
    eqc {
        status: 0x0 + 4,
        oi: 0xe + 1,
        st: 0x14 + 4,
        page_offset: 0x54 + 6,
        log_eq_size: 0x63 + 5,
        uar_page: 0x68 + 24,
        intr: 0xb4 + 12,
        log_page_size: 0xc3 + 5,
        consumer_counter: 0x148 + 24,
        producer_counter: 0x168 + 24,
    }
    cqc {
        status: 0x0 + 4,
        cqe_sz: 0x8 + 3,
        cc: 0xb + 1,
        oi: 0xe + 1,
        cqe_comp_en: 0x11 + 1,
        st: 0x14 + 4,
        page_offset: 0x54 + 6,
        log_cq_size: 0x63 + 5,
        uar_page: 0x68 + 24,
        cq_period: 0x84 + 12,
        cq_max_count: 0x90 + 16,
        c_eqn_or_apu_element: 0xa0 + 32,
        log_page_size: 0xc3 + 5,
        consumer_counter: 0x148 + 24,
        producer_counter: 0x168 + 24,
        dbr_addr: 0x1c0 + 64,
    }
    wq {
        wq_type: 0x0 + 4,
        end_padding_mode: 0x5 + 2,
        page_offset: 0x2b + 5,
        lwm: 0x30 + 16,
        pd: 0x48 + 24,
        uar_page: 0x68 + 24,
        dbr_addr: 0x80 + 64,
        hw_counter: 0xc0 + 32,
        sw_counter: 0xe0 + 32,
        log_wq_stride: 0x10c + 4,
        log_wq_pg_sz: 0x113 + 5,
        log_wq_sz: 0x11b + 5,
        pas: 0x600 + 0,
    }
    sqc {
        rlky: 0x0 + 1,
        flush_in_error_en: 0x3 + 1,
        state: 0x8 + 4,
        user_index: 0x28 + 24,
        cqn: 0x48 + 24,
        tis_lst_sz: 0x100 + 16,
        tis_num_0: 0x168 + 24,
        wq: 0x180 + 1536,
    }
    rqc {
        rlky: 0x0 + 1,
        scatter_fcs: 0x2 + 1,
        vsd: 0x3 + 1,
        mem_rq_type: 0x4 + 4,
        state: 0x8 + 4,
        flush_in_error_en: 0xd + 1,
        user_index: 0x28 + 24,
        cqn: 0x48 + 24,
        rmpn: 0x88 + 24,
        wq: 0x180 + 1536,
    }
    rmpc {
        state: 0x8 + 4,
        wq: 0x180 + 1536,
    }
    srqc {
        state: 0x0 + 4,
        log_srq_size: 0x4 + 4,
        log_rq_stride: 0x25 + 3,
        xrcd: 0x28 + 24,
        page_offset: 0x40 + 6,
        cqn: 0x48 + 24,
        log_page_size: 0x82 + 6,
        pd: 0xc8 + 24,
        lwm: 0xe0 + 16,
        wqe_cnt: 0xf0 + 16,
        dbr_addr: 0x140 + 64,
    }
    xrc_srqc {
        state: 0x0 + 4,
        log_xrc_srq_size: 0x4 + 4,
        log_rq_stride: 0x25 + 3,
        xrcd: 0x28 + 24,
        page_offset: 0x40 + 6,
        cqn: 0x48 + 24,
        log_page_size: 0x82 + 6,
        user_index: 0x88 + 24,
        pd: 0xc8 + 24,
        lwm: 0xe0 + 16,
        wqe_cnt: 0xf0 + 16,
        db_record_addr_h: 0x140 + 32,
        db_record_addr_l: 0x160 + 30,
    }
    tisc {
        transport_domain: 0x128 + 24,
        pd: 0x168 + 24,
    }
    tirc {
        disp_type: 0x20 + 4,
        inline_rqn: 0xe8 + 24,
        rx_hash_symmetric: 0x100 + 1,
        indirect_table: 0x108 + 24,
        rx_hash_fn: 0x120 + 4,
        self_lb_block: 0x126 + 2,
        transport_domain: 0x128 + 24,
        rx_hash_toeplitz_key: 0x140 + 320,
        rx_hash_field_selector_outer: 0x280 + 32,
        rx_hash_field_selector_inner: 0x2a0 + 32,
    }
    rx_hash_field_select {
        l3_prot_type: 0x0 + 1,
        l4_prot_type: 0x1 + 1,
        selected_fields: 0x2 + 30,
    }
    rqtc {
        rqt_max_size: 0xb0 + 16,
        rqt_actual_size: 0xd0 + 16,
        rq_num: 0x780 + 0,
    }
    rq_num {
        rq_num: 0x8 + 24,
    }
    mkc {
        free: 0x1 + 1,
        access_mode_4_2: 0x3 + 3,
        umr_en: 0x10 + 1,
        a: 0x11 + 1,
        rw: 0x12 + 1,
        rr: 0x13 + 1,
        lw: 0x14 + 1,
        lr: 0x15 + 1,
        access_mode_1_0: 0x16 + 2,
        qpn: 0x20 + 24,
        mkey_7_0: 0x38 + 8,
        length64: 0x60 + 1,
        en_rinval: 0x67 + 1,
        pd: 0x68 + 24,
        start_addr: 0x80 + 64,
        len: 0xc0 + 64,
        translations_octword_size: 0x1a0 + 32,
        log_page_size: 0x1db + 5,
    }
    qpc {
        state: 0x0 + 4,
        st: 0x8 + 8,
        pd: 0x28 + 24,
        no_sq: 0x50 + 1,
        cqn_snd: 0x3e8 + 24,
        cqn_rcv: 0x4e8 + 24,
        rq_type: 0x565 + 3,
        srqn_rmpn_xrqn: 0x568 + 24,
        user_index: 0x88 + 24,
        uar_page: 0x68 + 24,
        dbr_addr: 0x500 + 64,
        xrcd: 0x4c8 + 24,
    }
}
