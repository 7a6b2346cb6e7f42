//! NVIDIA ConnectX (`mlx5`): driver payloads, rings and doorbells.
//!
//! The structs of this module are passed as UHW_IN and UHW_OUT of the core's calls. [`ids`] has the numbers of the driver's own objects,
//! [`wqe`] the structures that the device itself reads and writes, and [`prm`] commands to its firmware.

pub mod ids;
mod payload;
pub mod prm;
pub mod wqe;

pub use payload::*;

numbers! {
    u32 "MLX5_" {
        ABI_VERSION ("MLX5_IB_UVERBS_ABI_VERSION") = 1, "Version that the device reports.";
        ALLOC_UCTX_DEVX ("MLX5_IB_ALLOC_UCTX_DEVX") = 1, "Flag of [`AllocUcontextReqV2`]: the context may use DEVX.";

        QP_FLAG_SIGNATURE = 0x001, "Flag of [`CreateQp`]: requests carry a check byte.";
        QP_FLAG_SCATTER_CQE = 0x002, "Flag of [`CreateQp`]: small messages come inside the completion.";
        QP_FLAG_TUNNEL_OFFLOADS = 0x004, "Flag of [`CreateQp`]: offloads inside tunnels.";
        QP_FLAG_BFREG_INDEX = 0x008, "Flag of [`CreateQp`]: `bfreg_index` says which doorbell register to use.";
        QP_FLAG_TYPE_DCT = 0x010, "Flag of [`CreateQp`]: dynamically connected target.";
        QP_FLAG_TYPE_DCI = 0x020, "Flag of [`CreateQp`]: dynamically connected initiator.";
        QP_FLAG_TIR_ALLOW_SELF_LB_UC = 0x040, "Flag of [`CreateQp`]: unicast may loop back.";
        QP_FLAG_TIR_ALLOW_SELF_LB_MC = 0x080, "Flag of [`CreateQp`]: multicast may loop back.";
        QP_FLAG_ALLOW_SCATTER_CQE = 0x100,
            "Flag of [`CreateQp`]: small messages may come inside the completion, if possible.";
        QP_FLAG_PACKET_BASED_CREDIT_MODE = 0x200, "Flag of [`CreateQp`]: credits by packet.";
        QP_FLAG_UAR_PAGE_INDEX = 0x400, "Flag of [`CreateQp`]: `bfreg_index` is the page of a UAR object.";
        QP_FLAG_DCI_STREAM = 0x800, "Flag of [`CreateQp`]: `dci_streams` is given.";

        SRQ_FLAG_SIGNATURE = 1, "Flag of [`CreateSrq`]: requests carry a check byte.";
        WQ_FLAG_SIGNATURE = 1, "Flag of [`CreateWq`]: requests carry a check byte.";

        INVALID_BFREG () = 0x8000_0000, "Value of [`CreateQpResp::bfreg_index`]: none.";
    }
    u64 "MLX5_" {
        LIB_CAP_4K_UAR = 1, "Bit of [`AllocUcontextReqV2::lib_caps`]: doorbell pages of 4 KiB are understood.";
        LIB_CAP_DYN_UAR = 2, "Bit of [`AllocUcontextReqV2::lib_caps`]: doorbell pages are created as objects.";
    }
    u32 "MLX5_IB_ALLOC_UCONTEXT_" {
        RESP_MASK_CORE_CLOCK_OFFSET = 0x01, "Bit of [`AllocUcontextResp::comp_mask`]: the clock's offset is valid.";
        RESP_MASK_DUMP_FILL_MKEY = 0x02, "Bit of [`AllocUcontextResp::comp_mask`]: the dump key is valid.";
        RESP_MASK_ECE = 0x04, "Bit of [`AllocUcontextResp::comp_mask`]: connection options are supported.";
        RESP_MASK_SQD2RTS = 0x08, "Bit of [`AllocUcontextResp::comp_mask`]: SQD to RTS may change options.";
        RESP_MASK_REAL_TIME_TS = 0x10, "Bit of [`AllocUcontextResp::comp_mask`]: real-time timestamps are supported.";
        RESP_MASK_MKEY_UPDATE_TAG = 0x20,
            "Bit of [`AllocUcontextResp::comp_mask`]: tags of memory keys can be updated.";
    }
    u8 "MLX5_" {
        USER_INLINE_MODE_NA = 0, "Value of [`AllocUcontextResp::eth_min_inline`]: unknown; assume L2.";
        USER_INLINE_MODE_NONE = 1, "Value of [`AllocUcontextResp::eth_min_inline`]: no inline header needed.";
        USER_INLINE_MODE_L2 = 2, "Value of [`AllocUcontextResp::eth_min_inline`]: Ethernet header.";
        USER_INLINE_MODE_IP = 3, "Value of [`AllocUcontextResp::eth_min_inline`]: IP header too.";
        USER_INLINE_MODE_TCP_UDP = 4, "Value of [`AllocUcontextResp::eth_min_inline`]: TCP or UDP header too.";
        USER_CMDS_SUPP_UHW_QUERY_DEVICE = 1,
            "Bit of [`AllocUcontextResp::cmds_supp_uhw`]: querying the device has a driver part.";
        USER_CMDS_SUPP_UHW_CREATE_AH = 2,
            "Bit of [`AllocUcontextResp::cmds_supp_uhw`]: creating an address handle has a driver part.";
        RX_HASH_FUNC_TOEPLITZ = 1, "Bit of [`CreateQpRss::rx_hash_function`]: Toeplitz.";
    }
    u16 "MLX5_IB_" {
        CREATE_CQ_FLAGS_CQE_128B_PAD = 1, "Flag of [`CreateCq`]: pad small messages to 128 bytes.";
        CREATE_CQ_FLAGS_UAR_PAGE_INDEX = 2, "Flag of [`CreateCq`]: `uar_page_index` is given.";
        CREATE_CQ_FLAGS_REAL_TIME_TS = 4, "Flag of [`CreateCq`]: timestamps in real time.";
    }
    u32 "MLX5_IB_" {
        CREATE_QP_RESP_MASK_TIRN = 0x01, "Bit of [`CreateQpResp::comp_mask`]: `tirn` is valid.";
        CREATE_QP_RESP_MASK_TISN = 0x02, "Bit of [`CreateQpResp::comp_mask`]: `tisn` is valid.";
        CREATE_QP_RESP_MASK_RQN = 0x04, "Bit of [`CreateQpResp::comp_mask`]: `rqn` is valid.";
        CREATE_QP_RESP_MASK_SQN = 0x08, "Bit of [`CreateQpResp::comp_mask`]: `sqn` is valid.";
        CREATE_QP_RESP_MASK_TIR_ICM_ADDR = 0x10, "Bit of [`CreateQpResp::comp_mask`]: `tir_icm_addr` is valid.";
        CREATE_WQ_STRIDING_RQ = 1, "Bit of [`CreateWq::comp_mask`]: a strided receive queue.";
        QUERY_DEV_RESP_FLAGS_CQE_128B_COMP = 1,
            "Bit of [`QueryDeviceResp::flags`]: completions of 128 bytes can be compressed.";
        QUERY_DEV_RESP_FLAGS_CQE_128B_PAD = 2, "Bit of [`QueryDeviceResp::flags`]: small messages can be padded.";
        QUERY_DEV_RESP_PACKET_BASED_CREDIT_MODE = 4, "Bit of [`QueryDeviceResp::flags`]: credits by packet.";
        QUERY_DEV_RESP_FLAGS_SCAT2CQE_DCT = 8,
            "Bit of [`QueryDeviceResp::flags`]: connected targets can scatter to completions.";
        QUERY_DEV_RESP_FLAGS_OOO_DP = 16,
            "Bit of [`QueryDeviceResp::flags`]: data may be placed out of order (after Linux 6.1).";
        ALLOW_MPW = 2, "Bit of [`QueryDeviceResp::mlx5_ib_support_multi_pkt_send_wqes`]: several packets in a request.";
        SUPPORT_EMPW = 4, "Bit of [`QueryDeviceResp::mlx5_ib_support_multi_pkt_send_wqes`]: the enhanced form.";
        MODIFY_QP_OOO_DP = 1, "Bit of [`ModifyQp::comp_mask`]: place data out of order (after Linux 6.1).";
    }
    u64 "MLX5_" {
        RX_HASH_SRC_IPV4 = 0x001, "Bit of [`CreateQpRss::rx_hash_fields_mask`]: IPv4 source.";
        RX_HASH_DST_IPV4 = 0x002, "Bit of [`CreateQpRss::rx_hash_fields_mask`]: IPv4 destination.";
        RX_HASH_SRC_IPV6 = 0x004, "Bit of [`CreateQpRss::rx_hash_fields_mask`]: IPv6 source.";
        RX_HASH_DST_IPV6 = 0x008, "Bit of [`CreateQpRss::rx_hash_fields_mask`]: IPv6 destination.";
        RX_HASH_SRC_PORT_TCP = 0x010, "Bit of [`CreateQpRss::rx_hash_fields_mask`]: TCP source.";
        RX_HASH_DST_PORT_TCP = 0x020, "Bit of [`CreateQpRss::rx_hash_fields_mask`]: TCP destination.";
        RX_HASH_SRC_PORT_UDP = 0x040, "Bit of [`CreateQpRss::rx_hash_fields_mask`]: UDP source.";
        RX_HASH_DST_PORT_UDP = 0x080, "Bit of [`CreateQpRss::rx_hash_fields_mask`]: UDP destination.";
        RX_HASH_IPSEC_SPI = 0x100, "Bit of [`CreateQpRss::rx_hash_fields_mask`]: IPsec security parameter index.";
        RX_HASH_INNER = 0x8000_0000, "Bit of [`CreateQpRss::rx_hash_fields_mask`]: the headers inside a tunnel.";
    }
    u64 "MLX5_IB_" {
        MMAP_REGULAR_PAGE = 0, "Mapping command: doorbell page, write-combining if possible.";
        MMAP_GET_CONTIGUOUS_PAGES = 1, "Mapping command: gone, ENOSYS.";
        MMAP_WC_PAGE = 2, "Mapping command: doorbell page, write-combining.";
        MMAP_NC_PAGE = 3, "Mapping command: doorbell page, not cached.";
        MMAP_CORE_CLOCK = 5, "Mapping command: the device's clock, read only.";
        MMAP_ALLOC_WC = 6, "Mapping command: a new write-combining page.";
        MMAP_CLOCK_INFO = 7, "Mapping command: [`ClockInfo`], read only.";
        MMAP_DEVICE_MEM = 8, "Mapping command: device memory.";
    }
    usize "" {
        UAR_SIZE () = 4096, "Bytes of a UAR, the unit of doorbell pages.";
        UAR_CQ_DOORBELL () = 0x20, "Offset in a UAR of the doorbell that arms completion queues.";
        UAR_BFREG () = 0x800, "Offset in a UAR of the first register for send doorbells.";
    }
}

/// The mmap offset of a page: command, index, and the system's page size in bytes.
pub const fn mmap_offset(command: u64, index: u64, page_size: u64) -> u64 {
    ((command << 8) + index) * page_size
}
