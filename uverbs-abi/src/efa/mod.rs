//! EFA, the adapter of Amazon's cloud: driver payloads, the numbers of the driver's methods and attributes ([`ids`]), and the structures
//! that the device itself reads and writes ([`io`]).

pub mod ids;
pub mod io;

numbers! {
    u32 "EFA_UVERBS_" {
        ABI_VERSION = 1, "Version that the device reports.";
    }
    u32 "EFA_" {
        ALLOC_UCONTEXT_CMD_SUPP_CAPS_TX_BATCH = 1, "Bit of [`AllocUcontext::supported_caps`]: the process knows of a limit of sends per doorbell. Up to Linux 6.12 it is `EFA_ALLOC_UCONTEXT_CMD_COMP_TX_BATCH`.";
        ALLOC_UCONTEXT_CMD_SUPP_CAPS_MIN_SQ_WR = 2, "Bit of [`AllocUcontext::supported_caps`]: the process knows of a least depth of a send queue. Up to Linux 6.12 it is `EFA_ALLOC_UCONTEXT_CMD_COMP_MIN_SQ_WR`.";
        USER_CMDS_SUPP_UDATA_QUERY_DEVICE = 1, "Bit of [`AllocUcontextResp::cmds_supp_udata_mask`]: queries of the device have an answer of the driver's.";
        USER_CMDS_SUPP_UDATA_CREATE_AH = 2, "Bit of [`AllocUcontextResp::cmds_supp_udata_mask`]: address handles have one.";
        CREATE_CQ_RESP_DB_OFF = 1, "Bit of [`CreateCqResp::comp_mask`]: the response contains the offset of the doorbell.";
        QP_DRIVER_TYPE_SRD = 0, "[`CreateQp::driver_qp_type`]: scalable reliable datagrams.";
        QUERY_DEVICE_CAPS_RDMA_READ = 1, "Bit of [`ExQueryDeviceResp::device_caps`]: reads of remote memory.";
        QUERY_DEVICE_CAPS_RNR_RETRY = 2, "Bit of [`ExQueryDeviceResp::device_caps`]: the number of retries can be set.";
        QUERY_DEVICE_CAPS_CQ_NOTIFICATIONS = 4, "Bit of [`ExQueryDeviceResp::device_caps`]: completion channels.";
        QUERY_DEVICE_CAPS_CQ_WITH_SGID = 8, "Bit of [`ExQueryDeviceResp::device_caps`]: completions contain the sender's address.";
        QUERY_DEVICE_CAPS_DATA_POLLING_128 = 0x10, "Bit of [`ExQueryDeviceResp::device_caps`]: data is written in order, 128 bytes at once.";
        QUERY_DEVICE_CAPS_RDMA_WRITE = 0x20, "Bit of [`ExQueryDeviceResp::device_caps`]: writes to remote memory.";
        QUERY_DEVICE_CAPS_UNSOLICITED_WRITE_RECV = 0x40, "Bit of [`ExQueryDeviceResp::device_caps`]: a write with immediate data takes no receive. Not in Linux 6.1.";
        QUERY_DEVICE_CAPS_CQ_WITH_EXT_MEM = 0x80, "Bit of [`ExQueryDeviceResp::device_caps`]: completion queues in the process's own memory. Not in Linux 6.12.";
        QUERY_DEVICE_CAPS_COMP_CNTR = 0x100, "Bit of [`ExQueryDeviceResp::device_caps`]: completion counters. New in Linux 7.3.";
        QUERY_DEVICE_CAPS_SQ_64_BIT_REQ_ID = 0x200, "Bit of [`ExQueryDeviceResp::device_caps`]: numbers of sends have 64 bits. New in Linux 7.3.";
    }
    u8 "EFA_" {
        CREATE_CQ_WITH_COMPLETION_CHANNEL = 1, "Bit of [`CreateCq::flags`]: the queue sends events.";
        CREATE_CQ_WITH_SGID = 2, "Bit of [`CreateCq::flags`]: completions contain the sender's address.";
        CREATE_CQ_WITH_SQ_COMP_64_BIT_REQ_ID = 4, "Bit of [`CreateCq::flags`]: numbers of sends have 64 bits. New in Linux 7.3.";
    }
    u16 "EFA_" {
        CREATE_QP_WITH_UNSOLICITED_WRITE_RECV = 1, "Bit of [`CreateQp::flags`]: a write with immediate data takes no receive.";
        CREATE_QP_WITH_SQ_64_BIT_REQ_ID = 2, "Bit of [`CreateQp::flags`]: numbers of sends have 64 bits. New in Linux 7.3.";
        QUERY_MR_VALIDITY_RECV_IC_ID = 1, "Bit of [`RESP_IC_ID_VALIDITY`](ids::mr::query::RESP_IC_ID_VALIDITY): the interconnect of messages is valid.";
        QUERY_MR_VALIDITY_RDMA_READ_IC_ID = 2, "Bit of [`RESP_IC_ID_VALIDITY`](ids::mr::query::RESP_IC_ID_VALIDITY): the interconnect of reads is valid.";
        QUERY_MR_VALIDITY_RDMA_RECV_IC_ID = 4, "Bit of [`RESP_IC_ID_VALIDITY`](ids::mr::query::RESP_IC_ID_VALIDITY): the interconnect of writes is valid.";
    }
}

layout! {
    /// Driver's request to create a context.
    struct AllocUcontext = "efa_ibv_alloc_ucontext_cmd", 8 {
        0 supported_caps: u32, "[`ALLOC_UCONTEXT_CMD_SUPP_CAPS_TX_BATCH`] and others; `comp_mask` up to Linux 6.12.";
        4 reserved_20: [u8; 4], "Zero.";
    }

    /// Driver's response to creating a context.
    struct AllocUcontextResp = "efa_ibv_alloc_ucontext_resp", 24 {
        0  comp_mask: u32, "Zero.";
        4  cmds_supp_udata_mask: u32, "[`USER_CMDS_SUPP_UDATA_QUERY_DEVICE`] and others.";
        8  sub_cqs_per_cq: u16, "Parts of a completion queue.";
        10 inline_buf_size: u16, "Most bytes of inline data.";
        12 max_llq_size: u32, "Most bytes of a send ring.";
        16 max_tx_batch: u16, "Maximum bytes of sends per doorbell, in units of 64; zero for no limit.";
        18 min_sq_wr: u16, "Least depth of a send queue.";
        20 inline_buf_size_ex: u16, "Most bytes of inline data of wide requests; zero on older kernels.";
        22 reserved_b0: [u8; 2], "Zero.";
    }

    /// Driver's response to creating a protection domain.
    struct AllocPdResp = "efa_ibv_alloc_pd_resp", 8 {
        0 comp_mask: u32, "Zero.";
        4 pdn: u16, "Number of the protection domain.";
        6 reserved_30: [u8; 2], "Zero.";
    }

    /// Driver's request to create a completion queue.
    struct CreateCq = "efa_ibv_create_cq", 16 {
        0  comp_mask: u32, "Zero.";
        4  cq_entry_size: u32, "Bytes of an entry: 16 or 32.";
        8  num_sub_cqs: u16, "As many as [`AllocUcontextResp::sub_cqs_per_cq`].";
        10 flags: u8, "[`CREATE_CQ_WITH_COMPLETION_CHANNEL`] and others.";
        11 reserved_58: [u8; 5], "Zero.";
    }

    /// Driver's response to creating a completion queue.
    struct CreateCqResp = "efa_ibv_create_cq_resp", 40 {
        0  comp_mask: u32, "[`CREATE_CQ_RESP_DB_OFF`].";
        4  reserved_20: [u8; 4], "Zero.";
        8  q_mmap_key: u64, "Offset of the ring to pass to mmap.";
        16 q_mmap_size: u64, "Bytes to map.";
        24 cq_idx: u16, "Number of the queue.";
        26 reserved_d0: [u8; 2], "Zero.";
        28 db_off: u32, "Where the doorbell is in its page.";
        32 db_mmap_key: u64, "Offset of that page to pass to mmap.";
    }

    /// Driver's request to create a queue pair.
    struct CreateQp = "efa_ibv_create_qp", 24 {
        0  comp_mask: u32, "Zero.";
        4  rq_ring_size: u32, "Bytes of the receive ring.";
        8  sq_ring_size: u32, "Bytes of the send ring.";
        12 driver_qp_type: u32, "[`QP_DRIVER_TYPE_SRD`], of a queue pair of the driver's own type.";
        16 flags: u16, "[`CREATE_QP_WITH_UNSOLICITED_WRITE_RECV`] and others. Not in Linux 6.1, as all that follows.";
        18 sl: u8, "Service level.";
        19 reserved_98: [u8; 5], "Zero.";
    }

    /// Driver's response to creating a queue pair.
    struct CreateQpResp = "efa_ibv_create_qp_resp", 64 {
        0  comp_mask: u32, "Zero.";
        4  rq_db_offset: u32, "Where the doorbell of receives is in its page.";
        8  sq_db_offset: u32, "Where the doorbell of sends is in its page.";
        12 llq_desc_offset: u32, "Where the send ring begins in its page.";
        16 rq_mmap_key: u64, "Offset of the receive ring to pass to mmap.";
        24 rq_mmap_size: u64, "Bytes to map.";
        32 rq_db_mmap_key: u64, "Offset of the page of the doorbell of receives.";
        40 sq_db_mmap_key: u64, "Offset of the page of the doorbell of sends.";
        48 llq_desc_mmap_key: u64, "Offset of the send ring.";
        56 send_sub_cq_idx: u16, "Part of the completion queue where sends complete.";
        58 recv_sub_cq_idx: u16, "Part of the completion queue where receives complete.";
        60 reserved_1e0: [u8; 4], "Zero.";
    }

    /// Driver's response to creating an address handle.
    struct CreateAhResp = "efa_ibv_create_ah_resp", 8 {
        0 comp_mask: u32, "Zero.";
        4 efa_address_handle: u16, "The device's number for it.";
        6 reserved_30: [u8; 2], "Zero.";
    }

    /// Driver's response to a query of the device.
    struct ExQueryDeviceResp = "efa_ibv_ex_query_device_resp", 24 {
        0  comp_mask: u32, "Zero.";
        4  max_sq_wr: u32, "Most sends in flight.";
        8  max_rq_wr: u32, "Most receives in flight.";
        12 max_sq_sge: u16, "Most pieces of a send.";
        14 max_rq_sge: u16, "Most pieces of a receive.";
        16 max_rdma_size: u32, "Most bytes of a read or write of remote memory.";
        20 device_caps: u32, "[`QUERY_DEVICE_CAPS_RDMA_READ`] and others.";
    }
}
