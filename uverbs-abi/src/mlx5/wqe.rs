//! Structures that the device itself reads and writes: completion entries, segments of work requests.
//!
//! All fields are big-endian, as in the device; no struct here needs alignment.

use zerocopy::big_endian::{U16, U32, U64};

numbers! {
    u8 "MLX5_" {
        CQE_REQ = 0, "Opcode of [`Cqe64`]: a send is complete.";
        CQE_RESP_WR_IMM = 1, "Opcode of [`Cqe64`]: a write with immediate data came in.";
        CQE_RESP_SEND = 2, "Opcode of [`Cqe64`]: a message came in.";
        CQE_RESP_SEND_IMM = 3, "Opcode of [`Cqe64`]: a message with immediate data came in.";
        CQE_RESP_SEND_INV = 4, "Opcode of [`Cqe64`]: a message came in and invalidated a key.";
        CQE_RESIZE_CQ = 5, "Opcode of [`Cqe64`]: the queue was resized.";
        CQE_REQ_ERR = 13, "Opcode of [`Cqe64`]: a send failed.";
        CQE_RESP_ERR = 14, "Opcode of [`Cqe64`]: a receive failed.";
        CQE_INVALID = 15, "Opcode of [`Cqe64`]: the entry was never written.";
        CQE_OWNER_MASK = 1, "Bit of [`Cqe64::op_own`] that flips with every turn of the ring.";

        CQE_L2_OK = 1, "Bit of [`Cqe64::hds_ip_ext`]: Ethernet header is good.";
        CQE_L3_OK = 2, "Bit of [`Cqe64::hds_ip_ext`]: IP checksum is good.";
        CQE_L4_OK = 4, "Bit of [`Cqe64::hds_ip_ext`]: TCP or UDP checksum is good.";

        OPCODE_NOP = 0x00, "Opcode of [`WqeCtrlSeg`]: nothing.";
        OPCODE_SEND_INVAL = 0x01, "Opcode of [`WqeCtrlSeg`]: send, and invalidate a key of the other side.";
        OPCODE_RDMA_WRITE = 0x08, "Opcode of [`WqeCtrlSeg`]: write.";
        OPCODE_RDMA_WRITE_IMM = 0x09, "Opcode of [`WqeCtrlSeg`]: write with immediate data.";
        OPCODE_SEND = 0x0a, "Opcode of [`WqeCtrlSeg`]: send.";
        OPCODE_SEND_IMM = 0x0b, "Opcode of [`WqeCtrlSeg`]: send with immediate data.";
        OPCODE_RDMA_READ = 0x10, "Opcode of [`WqeCtrlSeg`]: read.";
        OPCODE_ATOMIC_CS = 0x11, "Opcode of [`WqeCtrlSeg`]: compare and swap.";
        OPCODE_ATOMIC_FA = 0x12, "Opcode of [`WqeCtrlSeg`]: fetch and add.";
        OPCODE_UMR = 0x25, "Opcode of [`WqeCtrlSeg`]: change what the device keeps of a memory key.";
        OPCODE_TSO = 0x0e, "Opcode of [`WqeCtrlSeg`]: a large send, which the device cuts.";
        WQE_CTRL_SOLICITED = 0x02, "Bit of [`WqeCtrlSeg::fm_ce_se`]: the message is solicited.";
        WQE_CTRL_CQ_UPDATE = 0x08, "Bit of [`WqeCtrlSeg::fm_ce_se`]: create a completion.";
        WQE_CTRL_FENCE = 0x80, "Bit of [`WqeCtrlSeg::fm_ce_se`]: wait for reads and atomic operations before.";
        WQE_CTRL_INITIATOR_SMALL_FENCE = 0x20, "Bit of [`WqeCtrlSeg::fm_ce_se`]: wait for changes of keys before.";
        WQE_UMR_CTRL_FLAG_CHECK_QPN = 0x08, "Bit of [`WqeUmrCtrlSeg::flags`]: the key must be of this queue pair.";
        WQE_UMR_CTRL_FLAG_TRNSLATION_OFFSET = 0x10, "Bit of [`WqeUmrCtrlSeg::flags`]: there is an offset into the list.";
        WQE_UMR_CTRL_FLAG_CHECK_FREE = 0x20, "Bit of [`WqeUmrCtrlSeg::flags`]: the key must be free.";
        WQE_UMR_CTRL_FLAG_INLINE = 0x80, "Bit of [`WqeUmrCtrlSeg::flags`]: the list is in the request.";
        WQE_MKEY_CONTEXT_FREE = 0x40, "Bit of [`WqeMkeyContextSeg::free`]: nobody has the key.";
        WQE_MKEY_CONTEXT_ACCESS_FLAGS_LOCAL_WRITE = 0x08, "Bit of [`WqeMkeyContextSeg::access_flags`]: local writes.";
        WQE_MKEY_CONTEXT_ACCESS_FLAGS_REMOTE_READ = 0x10, "Bit of [`WqeMkeyContextSeg::access_flags`]: reads from the other side.";
        WQE_MKEY_CONTEXT_ACCESS_FLAGS_REMOTE_WRITE = 0x20, "Bit of [`WqeMkeyContextSeg::access_flags`]: writes from the other side.";
        WQE_MKEY_CONTEXT_ACCESS_FLAGS_ATOMIC = 0x40, "Bit of [`WqeMkeyContextSeg::access_flags`]: atomic operations from the other side.";
        ETH_WQE_L3_CSUM = 0x40, "Bit of [`WqeEthSeg::cs_flags`]: fill in the IP checksum.";
        ETH_WQE_L4_CSUM = 0x80, "Bit of [`WqeEthSeg::cs_flags`]: fill in the TCP or UDP checksum.";
    }
    u8 "MLX5_CQE_" {
        SYNDROME_LOCAL_LENGTH_ERR = 0x01, "Value of [`ErrCqe::syndrome`]: local length.";
        SYNDROME_LOCAL_QP_OP_ERR = 0x02, "Value of [`ErrCqe::syndrome`]: local operation.";
        SYNDROME_LOCAL_PROT_ERR = 0x04, "Value of [`ErrCqe::syndrome`]: local protection.";
        SYNDROME_WR_FLUSH_ERR = 0x05, "Value of [`ErrCqe::syndrome`]: flushed.";
        SYNDROME_MW_BIND_ERR = 0x06, "Value of [`ErrCqe::syndrome`]: binding a window.";
        SYNDROME_BAD_RESP_ERR = 0x10, "Value of [`ErrCqe::syndrome`]: bad response.";
        SYNDROME_LOCAL_ACCESS_ERR = 0x11, "Value of [`ErrCqe::syndrome`]: local access.";
        SYNDROME_REMOTE_INVAL_REQ_ERR = 0x12, "Value of [`ErrCqe::syndrome`]: remote invalid request.";
        SYNDROME_REMOTE_ACCESS_ERR = 0x13, "Value of [`ErrCqe::syndrome`]: remote access.";
        SYNDROME_REMOTE_OP_ERR = 0x14, "Value of [`ErrCqe::syndrome`]: remote operation.";
        SYNDROME_TRANSPORT_RETRY_EXC_ERR = 0x15, "Value of [`ErrCqe::syndrome`]: out of retries.";
        SYNDROME_RNR_RETRY_EXC_ERR = 0x16, "Value of [`ErrCqe::syndrome`]: out of retries, receiver not ready.";
        SYNDROME_REMOTE_ABORTED_ERR = 0x22, "Value of [`ErrCqe::syndrome`]: remote side aborted.";
    }
    u64 "MLX5_" {
        WQE_UMR_CTRL_MKEY_MASK_LEN = 1 << 0, "Bit of [`WqeUmrCtrlSeg::mkey_mask`]: the length.";
        WQE_UMR_CTRL_MKEY_MASK_START_ADDR = 1 << 6, "Bit of [`WqeUmrCtrlSeg::mkey_mask`]: where it begins.";
        WQE_UMR_CTRL_MKEY_MASK_MKEY = 1 << 13, "Bit of [`WqeUmrCtrlSeg::mkey_mask`]: the lowest byte of the key.";
        WQE_UMR_CTRL_MKEY_MASK_QPN = 1 << 14, "Bit of [`WqeUmrCtrlSeg::mkey_mask`]: the queue pair that owns the key.";
        WQE_UMR_CTRL_MKEY_MASK_ACCESS_LOCAL_WRITE = 1 << 18, "Bit of [`WqeUmrCtrlSeg::mkey_mask`]: local writes.";
        WQE_UMR_CTRL_MKEY_MASK_ACCESS_REMOTE_READ = 1 << 19, "Bit of [`WqeUmrCtrlSeg::mkey_mask`]: reads from the other side.";
        WQE_UMR_CTRL_MKEY_MASK_ACCESS_REMOTE_WRITE = 1 << 20, "Bit of [`WqeUmrCtrlSeg::mkey_mask`]: writes from the other side.";
        WQE_UMR_CTRL_MKEY_MASK_ACCESS_ATOMIC = 1 << 21, "Bit of [`WqeUmrCtrlSeg::mkey_mask`]: atomic operations from the other side.";
        WQE_UMR_CTRL_MKEY_MASK_FREE = 1 << 29, "Bit of [`WqeUmrCtrlSeg::mkey_mask`]: whether it is free.";
    }
    u32 "MLX5_" {
        INVALID_LKEY = 0x100, "Local key that ends a list of data segments.";
        EXTENDED_UD_AV = 0x8000_0000, "Bit of [`WqeAv::dqp_dct`]: the vector has 48 bytes.";
        INLINE_SEG = 0x8000_0000, "Bit of the length of a segment that holds the data itself.";
    }
    usize "MLX5_" {
        SEND_WQE_BB = 64, "Bytes of a block of the send ring.";
        ETH_L2_INLINE_HEADER_SIZE () = 18,
            "Bytes of the header that is copied into the request when the device asks for it.";
        RCV_DBR = 0, "Index of the receive counter in a doorbell record of a queue pair.";
        SND_DBR = 1, "Index of the send counter in it.";
    }
}

layout! {
    /// A completion entry. In an entry of 128 bytes it is the second half.
    struct Cqe64 = "mlx5_cqe64", 64 {
        0  rsvd0: [u8; 2], "Not used here.";
        2  wqe_id: U16, "Number of the request, for strided receive queues.";
        4  rsvd4: [u8; 13], "Not used here.";
        17 ml_path: u8, "Low bits of the local identifier it was sent to.";
        18 rsvd20: [u8; 4], "Not used here.";
        22 slid: U16, "Sender's local identifier.";
        24 flags_rqpn: U32, "Flags, and in the low 24 bits the sender's queue pair number.";
        28 hds_ip_ext: u8, "Which checks were good: [`CQE_L2_OK`] and others.";
        29 l4_hdr_type_etc: u8, "Kinds of header; bits 2 and 3: 1 IPv6, 2 IPv4.";
        30 vlan_info: U16, "VLAN tag that was stripped.";
        32 srqn_uidx: U32, "Low 24 bits: the index that was given when the queue pair was created.";
        36 imm_inval_pkey: U32, "Immediate data, invalidated key, or partition key.";
        40 app: u8, "Used for tag matching.";
        41 app_op: u8, "Used for tag matching.";
        42 app_info: U16, "Used for tag matching.";
        44 byte_cnt: U32, "Bytes received.";
        48 timestamp: U64, "Time of the completion.";
        56 sop_drop_qpn: U32, "Received: flow tag in the low 24 bits; sent: opcode in the top 8, queue pair below.";
        60 wqe_counter: U16, "Index of the request, before masking.";
        62 signature: u8, "Check byte, if signatures are on.";
        63 op_own: u8, "Bits 4 to 7 opcode, 2 to 3 format, bit 0 owner.";
    }

    /// A completion entry of opcode [`CQE_REQ_ERR`] or [`CQE_RESP_ERR`].
    struct ErrCqe = "mlx5_err_cqe", 64 {
        0  rsvd0: [u8; 32], "Not used.";
        32 srqn: U32, "As in [`Cqe64::srqn_uidx`].";
        36 rsvd1: [u8; 18], "Not used.";
        54 vendor_err_synd: u8, "Vendor's error code.";
        55 syndrome: u8, "What went wrong: [`SYNDROME_WR_FLUSH_ERR`] and others.";
        56 s_wqe_opcode_qpn: U32, "Opcode in the top 8 bits, queue pair below.";
        60 wqe_counter: U16, "Index of the request, before masking.";
        62 signature: u8, "Check byte, if signatures are on.";
        63 op_own: u8, "As in [`Cqe64::op_own`].";
    }

    /// Segment that names a piece of memory.
    struct WqeDataSeg = "mlx5_wqe_data_seg", 16 {
        0 byte_count: U32, "Bytes.";
        4 lkey: U32, "Local key.";
        8 addr: U64, "Address.";
    }

    /// First segment of a send request.
    struct WqeCtrlSeg = "mlx5_wqe_ctrl_seg", 16 {
        0  opmod_idx_opcode: U32, "Modifier in the top 8 bits, index of the request (16), opcode (8).";
        4  qpn_ds: U32, "Number of the send queue (24 bits), length in units of 16 bytes (8).";
        8  signature: u8, "Check byte, if signatures are on.";
        9  dci_stream_channel_id: U16, "Stream, for dynamically connected transport.";
        11 fm_ce_se: u8, "[`WQE_CTRL_CQ_UPDATE`], [`WQE_CTRL_SOLICITED`] and [`WQE_CTRL_FENCE`].";
        12 imm: U32, "Immediate data, or the key to invalidate.";
    }

    /// Segment of a send request that specifies an address in the peer's memory.
    struct WqeRaddrSeg = "mlx5_wqe_raddr_seg", 16 {
        0  raddr: U64, "Address.";
        8  rkey: U32, "Remote key.";
        12 reserved: U32, "Zero.";
    }

    /// Segment of a request over an extended connection.
    struct WqeXrcSeg = "mlx5_wqe_xrc_seg", 16 {
        0 xrc_srqn: U32, "Number of the shared receive queue there.";
        4 rsvd: [u8; 12], "Zero.";
    }

    /// Segment of a request that changes a memory key: what changes.
    struct WqeUmrCtrlSeg = "mlx5_wqe_umr_ctrl_seg", 48 {
        0  flags: u8, "[`WQE_UMR_CTRL_FLAG_INLINE`] and others.";
        1  rsvd0: [u8; 3], "Zero.";
        4  klm_octowords: U16, "Entries of the list of memory behind it, of 16 bytes.";
        6  translation_offset: U16, "Where in the key's list they go.";
        8  mkey_mask: U64, "What of the context counts: [`WQE_UMR_CTRL_MKEY_MASK_LEN`] and others.";
        16 rsvd1: [u8; 32], "Zero.";
    }

    /// The device's context of a memory key.
    struct WqeMkeyContextSeg = "mlx5_wqe_mkey_context_seg", 64 {
        0  free: u8, "[`WQE_MKEY_CONTEXT_FREE`].";
        1  reserved1: u8, "Zero.";
        2  access_flags: u8, "[`WQE_MKEY_CONTEXT_ACCESS_FLAGS_LOCAL_WRITE`] and others.";
        3  sf: u8, "Zero.";
        4  qpn_mkey: U32, "Queue pair that may use it, all ones for any, and the lowest byte of the key.";
        8  reserved2: U32, "Zero.";
        12 flags_pd: U32, "Protection domain.";
        16 start_addr: U64, "Where it begins.";
        24 len: U64, "Bytes.";
        32 bsf_octword_size: U32, "Zero.";
        36 reserved3: [U32; 4], "Zero.";
        52 translations_octword_size: U32, "Length of the list of memory.";
        56 reserved4: [u8; 3], "Zero.";
        59 log_page_size: u8, "Size of its pages as a power of two.";
        60 reserved: U32, "Zero.";
    }

    /// An entry of a list of memory: a part of another region.
    struct WqeUmrKlmSeg = "mlx5_wqe_umr_klm_seg", 16 {
        0 byte_count: U32, "Bytes.";
        4 mkey: U32, "Key of the region.";
        8 address: U64, "Where it begins there.";
    }

    /// Segment of an atomic operation.
    struct WqeAtomicSeg = "mlx5_wqe_atomic_seg", 16 {
        0 swap_add: U64, "What is put there, or added.";
        8 compare: U64, "What must be there.";
    }

    /// Address vector: the destination of a datagram.
    struct WqeAv = "mlx5_wqe_av", 48 {
        0  qkey ("key.qkey.qkey"): U32, "Queue key.";
        4  reserved ("key.qkey.reserved"): U32, "Zero.";
        8  dqp_dct: U32, "Queue pair there, with [`EXTENDED_UD_AV`].";
        12 stat_rate_sl: u8, "Rate (4 bits) and service level.";
        13 fl_mlid: u8, "Low bits of the own local identifier.";
        14 rlid: U16, "Local identifier there; on Ethernet the UDP port it is sent from.";
        16 reserved0: [u8; 4], "Zero.";
        20 rmac: [u8; 6], "Hardware address there, on Ethernet.";
        26 tclass: u8, "Traffic class.";
        27 hop_limit: u8, "Hop limit.";
        28 grh_gid_fl: U32, "Whether there is a global header (bit 30), index of the own GID (8 bits), flow label (20).";
        32 rgid: [u8; 16], "GID there.";
    }

    /// Segment of a send request that a RAW_PACKET queue pair needs.
    struct WqeEthSeg = "mlx5_wqe_eth_seg", 32 {
        0  rsvd0: U32, "Zero.";
        4  cs_flags: u8, "[`ETH_WQE_L3_CSUM`] and [`ETH_WQE_L4_CSUM`].";
        5  rsvd1: u8, "Zero.";
        6  mss: U16, "Segment size of large sends; zero without them.";
        8  rsvd2: U32, "Zero.";
        12 inline_hdr_sz: U16, "Bytes of header that are inside the request: 0, 18, or those of a large send.";
        14 inline_hdr_start: [u8; 2], "First bytes of that header.";
        16 inline_hdr: [u8; 16], "The rest, in as many bytes; without inline header there is none.";
    }

    /// First segment of an entry of a shared receive queue.
    struct WqeSrqNextSeg = "mlx5_wqe_srq_next_seg", 16 {
        0 rsvd0: [u8; 2], "Zero.";
        2 next_wqe_index: U16, "Next free entry.";
        4 signature: u8, "Check byte, if signatures are on.";
        5 rsvd1: [u8; 11], "Zero.";
    }
}
