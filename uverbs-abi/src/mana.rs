//! Driver payloads of `mana`, Microsoft's adapter (`rdma/mana-abi.h`): those for queue pairs over RoCE.
//!
//! The process allocates the memory of all rings. A reliable connection has four of them, in this order: the requester's sends, the
//! responder's sends, the requester's receives and the responder's receives. Doorbells are in one page, at offset 0.

numbers! {
    u32 "MANA_IB_" {
        UVERBS_ABI_VERSION = 1, "Version that the device reports.";
    }
    u16 "MANA_IB_" {
        CREATE_RNIC_CQ = 1 << 0, "The queue is for connections; only kernels before 7.x need to know.";
    }
    u64 "MANA_IB_" {
        UCNTX_ALLOC_PDN_SUPPORT = 1 << 0, "Protection domains may have short numbers.";
    }
}

layout! {
    /// Driver's response to creating a context.
    struct AllocUcontextResp = "mana_ib_alloc_ucontext_resp", 8 {
        0 comp_mask: u64, "What the kernel supports; older kernels respond nothing.";
    }

    /// Driver's request to create a completion queue.
    struct CreateCq = "mana_ib_create_cq", 16 {
        0  buf_addr: u64, "Address of the ring.";
        8  comp_mask: u16, "[`CREATE_RNIC_CQ`].";
        10 reserved0: u16, "Zero.";
        12 reserved1: u32, "Zero.";
    }

    /// Driver's response to creating a completion queue.
    struct CreateCqResp = "mana_ib_create_cq_resp", 8 {
        0 cqid: u32, "The device's number of the queue.";
        4 reserved: u32, "Zero.";
    }

    /// Driver's request to create a reliable connection.
    struct CreateRcQp = "mana_ib_create_rc_qp", 48 {
        0  queue_buf: [u64; 4], "Addresses of the rings.";
        32 queue_size: [u32; 4], "Their sizes in bytes.";
    }

    /// Driver's response to creating a reliable connection.
    struct CreateRcQpResp = "mana_ib_create_rc_qp_resp", 16 {
        0 queue_id: [u32; 4], "The device's numbers of the rings.";
    }
}
