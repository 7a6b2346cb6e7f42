//! Driver payloads.

layout! {
    /// Oldest request to create a context.
    struct AllocUcontextReq = "mlx5_ib_alloc_ucontext_req", 8 {
        0 total_num_bfregs: u32, "Wanted doorbell registers.";
        4 num_low_latency_bfregs: u32, "How many of them for one queue pair each.";
    }

    /// Request to create a context; send all of it.
    struct AllocUcontextReqV2 = "mlx5_ib_alloc_ucontext_req_v2", 32 {
        0  total_num_bfregs: u32, "Wanted doorbell registers; not used with [`super::LIB_CAP_DYN_UAR`].";
        4  num_low_latency_bfregs: u32, "How many of them for one queue pair each.";
        8  flags: u32, "[`super::ALLOC_UCTX_DEVX`].";
        12 comp_mask: u32, "Zero.";
        16 max_cqe_version: u8, "Newest version of completion entries understood; RAW_PACKET needs 1.";
        17 reserved0: u8, "Zero.";
        18 reserved1: u16, "Zero.";
        20 reserved2: u32, "Zero.";
        24 lib_caps: u64, "[`super::LIB_CAP_4K_UAR`] and [`super::LIB_CAP_DYN_UAR`].";
    }

    /// Response to creating a context.
    struct AllocUcontextResp = "mlx5_ib_alloc_ucontext_resp", 72 {
        0  qp_tab_size: u32, "Most queue pairs.";
        4  bf_reg_size: u32, "Bytes of a register's two halves for bursts; zero without write-combining.";
        8  tot_bfregs: u32, "Doorbell registers; zero with [`super::LIB_CAP_DYN_UAR`].";
        12 cache_line_size: u32, "Bytes of a cache line.";
        16 max_sq_desc_sz: u16, "Most bytes of a send request.";
        18 max_rq_desc_sz: u16, "Most bytes of a receive request.";
        20 max_send_wqebb: u32, "Most blocks of a send ring.";
        24 max_recv_wr: u32, "Most requests of a receive ring.";
        28 max_srq_recv_wr: u32, "Most requests of a shared receive ring.";
        32 num_ports: u16, "Number of ports.";
        34 flow_action_flags: u16, "Supported IPsec actions.";
        36 comp_mask: u32, "[`super::RESP_MASK_CORE_CLOCK_OFFSET`] and others.";
        40 response_length: u32, "Bytes that the driver filled.";
        44 cqe_version: u8, "Version of completion entries in use.";
        45 cmds_supp_uhw: u8, "[`super::USER_CMDS_SUPP_UHW_QUERY_DEVICE`] and others.";
        46 eth_min_inline: u8, "Header that sends must carry inside: [`super::USER_INLINE_MODE_L2`] and others.";
        47 clock_info_versions: u8, "Supported versions of [`ClockInfo`], one bit each.";
        48 hca_core_clock_offset: u64, "Offset of the clock in its page.";
        56 log_uar_size: u32, "Bytes of a UAR as a power of two.";
        60 num_uars_per_page: u32, "UARs in a page of the system.";
        64 num_dyn_bfregs: u32, "Registers that can be created individually.";
        68 dump_fill_mkey: u32, "Memory key that swallows writes.";
    }

    /// Response to allocating a protection domain.
    struct AllocPdResp = "mlx5_ib_alloc_pd_resp", 4 {
        0 pdn: u32, "Number of the protection domain.";
    }

    /// Large sends that the device segments.
    struct TsoCaps = "mlx5_ib_tso_caps", 8 {
        0 max_tso: u32, "Most bytes of payload.";
        4 supported_qpts: u32, "Queue pair types, bit 1 << type.";
    }

    /// Receive-side scaling.
    struct RssCaps = "mlx5_ib_rss_caps", 16 {
        0 rx_hash_fields_mask: u64, "[`super::RX_HASH_SRC_IPV4`] and others.";
        8 rx_hash_function: u8, "[`super::RX_HASH_FUNC_TOEPLITZ`].";
        9 reserved: [u8; 7], "Zero.";
    }

    /// Compression of completions.
    struct CqeCompCaps = "mlx5_ib_cqe_comp_caps", 8 {
        0 max_num: u32, "Most completions in one.";
        4 supported_format: u32, "Bit 0 hash, 1 checksum, 2 checksum and stride index.";
    }

    /// Limits of sending rates.
    struct PacketPacingCaps = "mlx5_packet_pacing_caps", 16 {
        0  qp_rate_limit_min: u32, "Lowest rate in kb/s.";
        4  qp_rate_limit_max: u32, "Highest rate in kb/s.";
        8  supported_qpts: u32, "Queue pair types, bit 1 << type.";
        12 cap_flags: u8, "Bit 0: bursts can be set.";
        13 reserved: [u8; 3], "Zero.";
    }

    /// Headers that software parses for the device.
    struct SwParsingCaps = "mlx5_ib_sw_parsing_caps", 8 {
        0 sw_parsing_offloads: u32, "Bit 0 supported, 1 checksum, 2 large sends.";
        4 supported_qpts: u32, "Queue pair types, bit 1 << type.";
    }

    /// Strided receive queues.
    struct StridingRqCaps = "mlx5_ib_striding_rq_caps", 24 {
        0  min_single_stride_log_num_of_bytes: u32, "Smallest stride, bytes as a power of two.";
        4  max_single_stride_log_num_of_bytes: u32, "Largest stride, bytes as a power of two.";
        8  min_single_wqe_log_num_of_strides: u32, "Fewest strides of a request as a power of two.";
        12 max_single_wqe_log_num_of_strides: u32, "Most strides of a request as a power of two.";
        16 supported_qpts: u32, "Queue pair types, bit 1 << type.";
        20 reserved: u32, "Zero.";
    }

    /// Streams of a dynamically connected initiator: limits.
    struct DciStreamsCaps = "mlx5_ib_dci_streams_caps", 2 {
        0 max_log_num_concurent: u8, "Most streams as a power of two.";
        1 max_log_num_errored: u8, "Most failed streams as a power of two.";
    }

    /// A register's value under a mask.
    struct UapiReg = "mlx5_ib_uapi_reg", 8 {
        0 value: u32, "Value.";
        4 mask: u32, "Which bits count.";
    }

    /// Response to `EX_QUERY_DEVICE`.
    struct QueryDeviceResp = "mlx5_ib_query_device_resp", 112 {
        0   comp_mask: u32, "Zero.";
        4   response_length: u32, "Bytes that the driver filled.";
        8   tso_caps: TsoCaps, "Large sends.";
        16  rss_caps: RssCaps, "Receive-side scaling.";
        32  cqe_comp_caps: CqeCompCaps, "Compression of completions.";
        40  packet_pacing_caps: PacketPacingCaps, "Sending rates.";
        56  mlx5_ib_support_multi_pkt_send_wqes: u32, "Bit 1 several packets per request, 2 the enhanced form.";
        60  flags: u32, "[`super::QUERY_DEV_RESP_FLAGS_CQE_128B_COMP`] and others.";
        64  sw_parsing_caps: SwParsingCaps, "Parsing by software.";
        72  striding_rq_caps: StridingRqCaps, "Strided receive queues.";
        96  tunnel_offloads_caps: u32, "Bit 0 VXLAN, 1 GRE, 2 Geneve, 3 MPLS over GRE, 4 MPLS over UDP.";
        100 dci_streams_caps: DciStreamsCaps, "Streams.";
        102 reserved: u16, "Zero.";
        104 reg_c0: UapiReg, "Register C0 of steering (Linux 6.12; absent in 6.1).";
    }

    /// Request to create a completion queue.
    struct CreateCq = "mlx5_ib_create_cq", 32 {
        0  buf_addr: u64, "Address of the ring; page-aligned is best.";
        8  db_addr: u64, "Address of the doorbell record: 8 bytes, 8-aligned.";
        16 cqe_size: u32, "Bytes of an entry: 64 or 128.";
        20 cqe_comp_en: u8, "1: compress completions.";
        21 cqe_comp_res_format: u8, "Format of compressed completions.";
        22 flags: u16, "[`super::CREATE_CQ_FLAGS_UAR_PAGE_INDEX`] and others.";
        24 uar_page_index: u16, "Page of a UAR object.";
        26 reserved0: u16, "Zero.";
        28 reserved1: u32, "Zero.";
    }

    /// Response to creating a completion queue.
    struct CreateCqResp = "mlx5_ib_create_cq_resp", 8 {
        0 cqn: u32, "Number of the queue.";
        4 reserved: u32, "Zero.";
    }

    /// Request to resize a completion queue.
    struct ResizeCq = "mlx5_ib_resize_cq", 16 {
        0  buf_addr: u64, "Address of the new ring.";
        8  cqe_size: u16, "Bytes of an entry.";
        10 reserved0: u16, "Zero.";
        12 reserved1: u32, "Zero.";
    }

    /// Request to create a shared receive queue.
    struct CreateSrq = "mlx5_ib_create_srq", 32 {
        0  buf_addr: u64, "Address of the ring.";
        8  db_addr: u64, "Address of the doorbell record.";
        16 flags: u32, "[`super::SRQ_FLAG_SIGNATURE`].";
        20 reserved0: u32, "Zero.";
        24 uidx: u32, "Index that completions carry.";
        28 reserved1: u32, "Zero.";
    }

    /// Response to creating a shared receive queue.
    struct CreateSrqResp = "mlx5_ib_create_srq_resp", 8 {
        0 srqn: u32, "Number of the queue.";
        4 reserved: u32, "Zero.";
    }

    /// Streams of a dynamically connected initiator.
    struct CreateQpDciStreams = "mlx5_ib_create_qp_dci_streams", 2 {
        0 log_num_concurent: u8, "Streams as a power of two.";
        1 log_num_errored: u8, "Number of failed streams to tolerate, as a power of two.";
    }

    /// Request to create a queue pair.
    struct CreateQp = "mlx5_ib_create_qp", 56 {
        0  buf_addr: u64, "Address of both rings; for RAW_PACKET of the receive ring.";
        8  db_addr: u64, "Address of the doorbell record: 8 bytes, 8-aligned.";
        16 sq_wqe_count: u32, "Blocks of 64 bytes in the send ring, a power of two or zero.";
        20 rq_wqe_count: u32, "Entries of the receive ring, a power of two or zero.";
        24 rq_wqe_shift: u32, "Bytes of such an entry as a power of two, at least 4.";
        28 flags: u32, "[`super::QP_FLAG_UAR_PAGE_INDEX`] and others.";
        32 uidx: u32, "Index that completions carry: 24 bits, not all ones.";
        36 bfreg_index: u32, "Doorbell register or UAR page, by the flags.";
        40 sq_buf_addr: u64, "RAW_PACKET: address of the send ring; connected target: access key.";
        48 ece_options: u32, "Connection options.";
        52 dci_streams: CreateQpDciStreams, "Streams.";
        54 reserved: u16, "Zero.";
    }

    /// Request to create a queue pair with an indirection table.
    struct CreateQpRss = "mlx5_ib_create_qp_rss", 152 {
        0   rx_hash_fields_mask: u64, "[`super::RX_HASH_SRC_IPV4`] and others.";
        8   rx_hash_function: u8, "[`super::RX_HASH_FUNC_TOEPLITZ`].";
        9   rx_key_len: u8, "Bytes of the key.";
        10  reserved: [u8; 6], "Zero.";
        16  rx_hash_key: [u8; 128], "The key.";
        144 comp_mask: u32, "Zero.";
        148 flags: u32, "[`super::QP_FLAG_TUNNEL_OFFLOADS`] and the two for loopback.";
    }

    /// Response to creating a queue pair.
    struct CreateQpResp = "mlx5_ib_create_qp_resp", 40 {
        0  bfreg_index: u32, "Doorbell register: UAR * 4 + register in it, or [`super::INVALID_BFREG`].";
        4  ece_options: u32, "Connection options.";
        8  comp_mask: u32, "[`super::CREATE_QP_RESP_MASK_TIRN`] and others.";
        12 tirn: u32, "Number of the transport receive object.";
        16 tisn: u32, "Number of the transport send object.";
        20 rqn: u32, "Number of the receive queue.";
        24 sqn: u32, "Number of the send queue.";
        28 reserved1: u32, "Zero.";
        32 tir_icm_addr: u64, "Steering address of the transport receive object.";
    }

    /// Request to allocate a memory window.
    struct AllocMw = "mlx5_ib_alloc_mw", 8 {
        0 comp_mask: u32, "Zero.";
        4 num_klms: u8, "Number of entries.";
        5 reserved1: u8, "Zero.";
        6 reserved2: u16, "Zero.";
    }

    /// Request to create a work queue.
    struct CreateWq = "mlx5_ib_create_wq", 48 {
        0  buf_addr: u64, "Address of the ring.";
        8  db_addr: u64, "Address of the doorbell record.";
        16 rq_wqe_count: u32, "Entries of the ring.";
        20 rq_wqe_shift: u32, "Bytes of an entry as a power of two.";
        24 user_index: u32, "Index that completions carry.";
        28 flags: u32, "[`super::WQ_FLAG_SIGNATURE`].";
        32 comp_mask: u32, "[`super::CREATE_WQ_STRIDING_RQ`].";
        36 single_stride_log_num_of_bytes: u32, "Bytes of a stride as a power of two.";
        40 single_wqe_log_num_of_strides: u32, "Strides of an entry as a power of two.";
        44 two_byte_shift_en: u32, "1: leave two bytes before each packet.";
    }

    /// Response to creating an address handle.
    struct CreateAhResp = "mlx5_ib_create_ah_resp", 16 {
        0  response_length: u32, "Bytes that the driver filled.";
        4  dmac: [u8; 6], "Ethernet address of the next hop.";
        10 reserved: [u8; 6], "Zero.";
    }

    /// Bursts of a rate-limited queue pair.
    struct BurstInfo = "mlx5_ib_burst_info", 8 {
        0 max_burst_sz: u32, "Most bytes at once.";
        4 typical_pkt_sz: u16, "Usual bytes of a packet.";
        6 reserved: u16, "Zero.";
    }

    /// Request to modify a queue pair.
    struct ModifyQp = "mlx5_ib_modify_qp", 16 {
        0  comp_mask: u32, "[`super::MODIFY_QP_OOO_DP`].";
        4  burst_info: BurstInfo, "Bursts.";
        12 ece_options: u32, "Connection options.";
    }

    /// Response to modifying a queue pair.
    struct ModifyQpResp = "mlx5_ib_modify_qp_resp", 16 {
        0  response_length: u32, "Bytes that the driver filled.";
        4  dctn: u32, "Number of a connected target.";
        8  ece_options: u32, "Connection options.";
        12 reserved: u32, "Zero.";
    }

    /// Response to creating a work queue.
    struct CreateWqResp = "mlx5_ib_create_wq_resp", 8 {
        0 response_length: u32, "Bytes that the driver filled.";
        4 reserved: u32, "Zero.";
    }

    /// Response to creating an indirection table.
    struct CreateRwqIndTblResp = "mlx5_ib_create_rwq_ind_tbl_resp", 8 {
        0 response_length: u32, "Bytes that the driver filled.";
        4 reserved: u32, "Zero.";
    }

    /// Request to modify a work queue.
    struct ModifyWq = "mlx5_ib_modify_wq", 8 {
        0 comp_mask: u32, "Zero.";
        4 reserved: u32, "Zero.";
    }

    /// Page with the parameters that convert the device's clock into time.
    struct ClockInfo = "mlx5_ib_clock_info", 56 {
        0  sign: u32, "Odd while the kernel writes; unchanged around a good read.";
        4  resv: u32, "Zero.";
        8  nsec: u64, "Time in nanoseconds at `cycles`.";
        16 cycles: u64, "Clock at the last update.";
        24 frac: u64, "Fraction of a nanosecond, scaled.";
        32 mult: u32, "Nanoseconds per cycle, scaled.";
        36 shift: u32, "Scale of `mult` as a power of two.";
        40 mask: u64, "Valid bits of the clock.";
        48 overflow_period: u64, "Longest time between updates.";
    }

    /// The position in the read buffer of one value of the device.
    struct FlowCountersDesc = "mlx5_ib_flow_counters_desc", 8 {
        0 description: u32, "0 packets, 1 bytes, see [`crate::types::counter_description`].";
        4 index: u32, "Place in the read buffer; the kernel does not check it: stay below 8191.";
    }

    /// The map of one counters object.
    struct FlowCountersData = "mlx5_ib_flow_counters_data", 16 {
        0  counters_data: u64, "Address of the [`FlowCountersDesc`]s.";
        8  ncounters: u32, "Their number, 1 to 8191.";
        12 reserved: u32, "Zero.";
    }

    /// Request for `EX_CREATE_FLOW`, followed by `ncounters_data` [`FlowCountersData`].
    struct CreateFlow = "mlx5_ib_create_flow", 8 {
        0 ncounters_data: u32, "0 or 1.";
        4 reserved: u32, "Zero.";
    }

    /// Head of the answer to an asynchronous DEVX command; the answer follows.
    struct DevxAsyncCmdHdr = "mlx5_ib_uapi_devx_async_cmd_hdr", 8 {
        0 wr_id: u64, "Value that was given with the command.";
    }

    /// Head of a DEVX event; its data follows.
    struct DevxAsyncEventHdr = "mlx5_ib_uapi_devx_async_event_hdr", 8 {
        0 cookie: u64, "Value that was given with the subscription.";
    }

    /// Output of the driver's own port query.
    struct UapiQueryPort = "mlx5_ib_uapi_query_port", 40 {
        0  flags: u64, "Which fields are valid, one bit each.";
        8  vport: u16, "Virtual port.";
        10 vport_vhca_id: u16, "Function of that port.";
        12 esw_owner_vhca_id: u16, "Function that owns the switch.";
        14 rsvd0: u16, "Zero.";
        16 vport_steering_icm_rx: u64, "Steering address, receive.";
        24 vport_steering_icm_tx: u64, "Steering address, send.";
        32 reg_c0: UapiReg, "Register C0 of steering.";
    }

    /// Match value or mask of the driver's own flow rules.
    struct MatchParams = "mlx5_ib_match_params", 640 {
        0 match_params: [u32; 160], "Headers, in the device's layout.";
    }
}
