//! Structures of attributes, which callers pass to the library or receive from it.

use uverbs::abi::write::{AhAttr, CqModeration, QpCap};

use super::Pointer;

c_structs! {
    values;

    struct DeviceAttr = "ibv_device_attr", 232 {
        0 fw_ver: [u8; 64];
        64 node_guid: u64;
        72 sys_image_guid: u64;
        80 max_mr_size: u64;
        88 page_size_cap: u64;
        96 vendor_id: u32;
        100 vendor_part_id: u32;
        104 hw_ver: u32;
        108 max_qp: i32;
        112 max_qp_wr: i32;
        116 device_cap_flags: u32;
        120 max_sge: i32;
        124 max_sge_rd: i32;
        128 max_cq: i32;
        132 max_cqe: i32;
        136 max_mr: i32;
        140 max_pd: i32;
        144 max_qp_rd_atom: i32;
        148 max_ee_rd_atom: i32;
        152 max_res_rd_atom: i32;
        156 max_qp_init_rd_atom: i32;
        160 max_ee_init_rd_atom: i32;
        164 atomic_cap: u32;
        168 max_ee: i32;
        172 max_rdd: i32;
        176 max_mw: i32;
        180 max_raw_ipv6_qp: i32;
        184 max_raw_ethy_qp: i32;
        188 max_mcast_grp: i32;
        192 max_mcast_qp_attach: i32;
        196 max_total_mcast_qp_attach: i32;
        200 max_ah: i32;
        204 max_fmr: i32;
        208 max_map_per_fmr: i32;
        212 max_srq: i32;
        216 max_srq_wr: i32;
        220 max_srq_sge: i32;
        224 max_pkeys: u16;
        226 local_ca_ack_delay: u8;
        227 phys_port_cnt: u8;
    }

    struct DeviceAttrEx = "ibv_device_attr_ex", 400 {
        0 orig_attr: DeviceAttr;
        232 comp_mask: u32;
        240 odp_caps: OdpCaps;
        264 completion_timestamp_mask: u64;
        272 hca_core_clock: u64;
        280 device_cap_flags_ex: u64;
        288 tso_caps: [u32; 2];
        296 rss_caps: RssCaps;
        328 max_wq_type_rq: u32;
        332 packet_pacing_caps: PacketPacingCaps;
        344 raw_packet_caps: u32;
        348 tm_caps: TmCaps;
        368 cq_mod_caps: [u16; 2];
        376 max_dm_size: u64;
        384 pci_atomic_caps: [u16; 3];
        392 xrc_odp_caps: u32;
        396 phys_port_cnt_ex: u32;
    }

    struct OdpCaps = "ibv_odp_caps", 24 {
        0 general_caps: u64;
        8 per_transport_caps: [u32; 3];
    }

    struct RssCaps = "ibv_rss_caps", 32 {
        0 supported_qpts: u32;
        4 max_rwq_indirection_tables: u32;
        8 max_rwq_indirection_table_size: u32;
        16 rx_hash_fields_mask: u64;
        24 rx_hash_function: u8;
    }

    struct TmCaps = "ibv_tm_caps", 20 {
        0 max_rndv_hdr_size: u32;
        4 max_num_tags: u32;
        8 flags: u32;
        12 max_ops: u32;
        16 max_sge: u32;
    }

    struct PacketPacingCaps = "ibv_packet_pacing_caps", 12 {
        0 qp_rate_limit_min: u32;
        4 qp_rate_limit_max: u32;
        8 supported_qpts: u32;
    }

    struct PortAttr = "ibv_port_attr", 56 {
        0 state: u32;
        4 max_mtu: u32;
        8 active_mtu: u32;
        12 gid_tbl_len: i32;
        16 port_cap_flags: u32;
        20 max_msg_sz: u32;
        24 bad_pkey_cntr: u32;
        28 qkey_viol_cntr: u32;
        32 pkey_tbl_len: u16;
        34 lid: u16;
        36 sm_lid: u16;
        38 lmc: u8;
        39 max_vl_num: u8;
        40 sm_sl: u8;
        41 subnet_timeout: u8;
        42 init_type_reply: u8;
        43 active_width: u8;
        44 active_speed: u8;
        45 phys_state: u8;
        46 link_layer: u8;
        47 flags: u8;
        48 port_cap_flags2: u16;
        52 active_speed_ex: u32;
    }

    struct QpAttr = "ibv_qp_attr", 144 {
        0 qp_state: u32;
        4 cur_qp_state: u32;
        8 path_mtu: u32;
        12 path_mig_state: u32;
        16 qkey: u32;
        20 rq_psn: u32;
        24 sq_psn: u32;
        28 dest_qp_num: u32;
        32 qp_access_flags: u32;
        36 cap: QpCap;
        56 ah_attr: AhAttr;
        88 alt_ah_attr: AhAttr;
        120 pkey_index: u16;
        122 alt_pkey_index: u16;
        124 en_sqd_async_notify: u8;
        125 sq_draining: u8;
        126 max_rd_atomic: u8;
        127 max_dest_rd_atomic: u8;
        128 min_rnr_timer: u8;
        129 port_num: u8;
        130 timeout: u8;
        131 retry_cnt: u8;
        132 rnr_retry: u8;
        133 alt_port_num: u8;
        134 alt_timeout: u8;
        136 rate_limit: u32;
        140 _rest: u32;
    }

    struct QpInitAttr = "ibv_qp_init_attr", 64 {
        0 qp_context: Pointer;
        8 send_cq: Pointer;
        16 recv_cq: Pointer;
        24 srq: Pointer;
        32 cap: QpCap;
        52 qp_type: u32;
        56 sq_sig_all: i32;
    }

    struct QpInitAttrEx = "ibv_qp_init_attr_ex", 136 {
        0 qp_context: Pointer;
        8 send_cq: Pointer;
        16 recv_cq: Pointer;
        24 srq: Pointer;
        32 cap: QpCap;
        52 qp_type: u32;
        56 sq_sig_all: i32;
        60 comp_mask: u32;
        64 pd: Pointer;
        72 xrcd: Pointer;
        80 create_flags: u32;
        84 max_tso_header: u16;
        88 rwq_ind_tbl: Pointer;
        96 rx_hash_conf: RxHashConf;
        120 source_qpn: u32;
        128 send_ops_flags: u64;
    }

    struct TdInitAttr = "ibv_td_init_attr", 4 {
        0 comp_mask: u32;
    }

    struct ParentDomainInitAttr = "ibv_parent_domain_init_attr", 48 {
        0 pd: Pointer;
        8 td: Pointer;
        16 comp_mask: u32;
        24 alloc: Pointer;
        32 free: Pointer;
        40 pd_context: Pointer;
    }

    struct QpOpenAttr = "ibv_qp_open_attr", 32 {
        0 comp_mask: u32;
        4 qp_num: u32;
        8 xrcd: Pointer;
        16 qp_context: Pointer;
        24 qp_type: u32;
    }

    struct XrcdInitAttr = "ibv_xrcd_init_attr", 12 {
        0 comp_mask: u32;
        4 fd: i32;
        8 oflags: i32;
    }

    struct SrqAttr = "ibv_srq_attr", 12 {
        0 max_wr: u32;
        4 max_sge: u32;
        8 srq_limit: u32;
    }

    struct SrqInitAttr = "ibv_srq_init_attr", 24 {
        0 srq_context: Pointer;
        8 attr: SrqAttr;
    }

    struct SrqInitAttrEx = "ibv_srq_init_attr_ex", 64 {
        0 srq_context: Pointer;
        8 attr: SrqAttr;
        20 comp_mask: u32;
        24 srq_type: u32;
        32 pd: Pointer;
        40 xrcd: Pointer;
        48 cq: Pointer;
        56 tm_cap: [u32; 2];
    }

    struct CqInitAttrEx = "ibv_cq_init_attr_ex", 56 {
        0 cqe: u32;
        8 cq_context: Pointer;
        16 channel: Pointer;
        24 comp_vector: u32;
        32 wc_flags: u64;
        40 comp_mask: u32;
        44 flags: u32;
        48 parent_domain: Pointer;
    }

    struct RxHashConf = "ibv_rx_hash_conf", 24 {
        0 rx_hash_function: u8;
        1 rx_hash_key_len: u8;
        8 rx_hash_key: Pointer;
        16 rx_hash_fields_mask: u64;
    }

    struct FlowAttr = "ibv_flow_attr", 20 {
        0 comp_mask: u32;
        4 type_: u32;
        8 size: u16;
        10 priority: u16;
        12 num_of_specs: u8;
        13 port: u8;
        16 flags: u32;
    }

    struct CountersInitAttr = "ibv_counters_init_attr", 4 {
        0 comp_mask: u32;
    }

    struct CounterAttachAttr = "ibv_counter_attach_attr", 12 {
        0 counter_desc: u32;
        4 index: u32;
        8 comp_mask: u32;
    }

    struct CompCntrInitAttr = "ibv_comp_cntr_init_attr", 12 {
        0 comp_mask: u32;
        4 type_: u32;
        8 flags: u32;
    }

    struct CompCntrCaps = "ibv_comp_cntr_caps", 16 {
        0 max_value: u64;
        8 max_counters: u32;
        12 supported_qp_attach_ops: u32;
    }

    struct QpAttachCompCntrAttr = "ibv_qp_attach_comp_cntr_attr", 8 {
        0 comp_mask: u32;
        4 op_mask: u32;
    }

    struct WqInitAttr = "ibv_wq_init_attr", 48 {
        0 wq_context: Pointer;
        8 wq_type: u32;
        12 max_wr: u32;
        16 max_sge: u32;
        24 pd: Pointer;
        32 cq: Pointer;
        40 comp_mask: u32;
        44 create_flags: u32;
    }

    struct WqAttr = "ibv_wq_attr", 20 {
        0 attr_mask: u32;
        4 wq_state: u32;
        8 curr_wq_state: u32;
        12 flags: u32;
        16 flags_mask: u32;
    }

    struct RwqIndTableInitAttr = "ibv_rwq_ind_table_init_attr", 24 {
        0 log_ind_tbl_size: u32;
        8 ind_tbl: Pointer;
        16 comp_mask: u32;
    }

    struct Ece = "ibv_ece", 12 {
        0 vendor_id: u32;
        4 options: u32;
        8 comp_mask: u32;
    }

    struct MrInitAttr = "ibv_mr_init_attr", 72 {
        0 length: usize;
        8 access: i32;
        16 comp_mask: u64;
        24 iova: u64;
        32 addr: Pointer;
        40 fd: i32;
        48 fd_offset: u64;
        56 dmah: Pointer;
        64 buf: Pointer;
    }

    struct ModifyCqAttr = "ibv_modify_cq_attr", 8 {
        0 attr_mask: u32;
        4 moderate: CqModeration;
    }

    struct SaPathRec = "ibv_sa_path_rec", 64 {
        0 dgid: [u8; 16];
        16 sgid: [u8; 16];
        32 dlid: u16;
        34 slid: u16;
        36 raw_traffic: u32;
        40 flow_label: u32;
        44 hop_limit: u8;
        45 traffic_class: u8;
        48 reversible: u32;
        52 numb_path: u8;
        54 pkey: u16;
        56 sl: u8;
        57 mtu_selector: u8;
        58 mtu: u8;
        59 rate_selector: u8;
        60 rate: u8;
        61 packet_life_time_selector: u8;
        62 packet_life_time: u8;
        63 preference: u8;
    }

    struct UserPathRec = "ib_user_path_rec", 64 {
        0 dgid: [u8; 16];
        16 sgid: [u8; 16];
        32 dlid: u16;
        34 slid: u16;
        36 raw_traffic: u32;
        40 flow_label: u32;
        44 reversible: u32;
        48 mtu: u32;
        52 pkey: u16;
        54 hop_limit: u8;
        55 traffic_class: u8;
        56 numb_path: u8;
        57 sl: u8;
        58 mtu_selector: u8;
        59 rate_selector: u8;
        60 rate: u8;
        61 packet_life_time_selector: u8;
        62 packet_life_time: u8;
        63 preference: u8;
    }
}
