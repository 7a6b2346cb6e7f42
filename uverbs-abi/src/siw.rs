//! Software iWARP (`siw`): driver payloads and the rings that process and kernel share.
//!
//! Rings are plain arrays of [`Sqe`], [`Rqe`] or [`Cqe`]. [`CqCtrl`] follows the last completion entry. The bit [`WQE_VALID`] of an entry's
//! flags shows which side owns it.

numbers! {
    u32 "SIW_" {
        ABI_VERSION = 1, "Version that the device reports.";
        INVAL_UOBJ_KEY = 0x9_0000, "Key that means: no such ring. A ring can have it too.";
    }
    usize "SIW_" {
        MAX_SGE = 6, "Most pieces of memory of a request.";
        MAX_INLINE = 80, "Most bytes of inline data; they overlay all pieces but the first.";
    }
    u16 "SIW_" {
        WQE_VALID = 1, "Entry flag: the entry belongs to the consumer.";
        WQE_INLINE = 2, "Entry flag: the data is inside the entry.";
        WQE_SIGNALLED = 4, "Entry flag: create a completion.";
        WQE_SOLICITED = 8, "Entry flag: the message is solicited.";
        WQE_READ_FENCE = 16, "Entry flag: wait for earlier reads.";
        WQE_REM_INVAL = 32, "Entry flag: a remote key was invalidated.";
        WQE_COMPLETED = 64, "Entry flag: the request is complete.";
    }
    u8 "SIW_" {
        OP_WRITE = 0, "Opcode: write.";
        OP_READ = 1, "Opcode: read.";
        OP_READ_LOCAL_INV = 2, "Opcode: read, then invalidate the local key.";
        OP_SEND = 3, "Opcode: send.";
        OP_SEND_WITH_IMM = 4, "Opcode: send with immediate data.";
        OP_SEND_REMOTE_INV = 5, "Opcode: send, then invalidate a remote key.";
        OP_FETCH_AND_ADD = 6, "Opcode: not supported.";
        OP_COMP_AND_SWAP = 7, "Opcode: not supported.";
        OP_RECEIVE = 8, "Opcode: receive.";
        OP_READ_RESPONSE = 9, "Opcode: answer to a read, inside the driver.";
        OP_INVAL_STAG = 10, "Opcode: invalidate a key, kernel only.";
        OP_REG_MR = 11, "Opcode: register memory, kernel only.";
    }
    u32 "SIW_" {
        NOTIFY_NOT = 0, "Arming: never.";
        NOTIFY_SOLICITED = 1, "Arming: at a solicited message or an error.";
        NOTIFY_NEXT_COMPLETION = 2, "Arming: at any completion.";
        NOTIFY_MISSED_EVENTS = 4, "Arming: also at what came in meanwhile.";
        NOTIFY_ALL = 7, "Arming: all of it.";
    }
    u16 "SIW_" {
        WC_SUCCESS = 0, "Completion status: done.";
        WC_LOC_LEN_ERR = 1, "Completion status: local length error.";
        WC_LOC_PROT_ERR = 2, "Completion status: local protection error.";
        WC_LOC_QP_OP_ERR = 3, "Completion status: local operation error.";
        WC_WR_FLUSH_ERR = 4, "Completion status: flushed.";
        WC_BAD_RESP_ERR = 5, "Completion status: bad response.";
        WC_LOC_ACCESS_ERR = 6, "Completion status: local access error.";
        WC_REM_ACCESS_ERR = 7, "Completion status: remote access error.";
        WC_REM_INV_REQ_ERR = 8, "Completion status: remote invalid request.";
        WC_GENERAL_ERR = 9, "Completion status: any other error.";
    }
}

layout! {
    /// Driver's response to creating a context.
    struct AllocCtxResp = "siw_uresp_alloc_ctx", 8 {
        0 dev_id: u32, "Number of the device.";
        4 pad: u32, "Zero.";
    }

    /// Driver's response to creating a completion queue.
    struct CreateCqResp = "siw_uresp_create_cq", 16 {
        0 cq_id: u32, "Number of the queue.";
        4 num_cqe: u32, "Entries of the ring.";
        8 cq_key: u64, "Offset to pass to mmap, or [`INVAL_UOBJ_KEY`].";
    }

    /// Driver's response to creating a queue pair.
    struct CreateQpResp = "siw_uresp_create_qp", 32 {
        0  qp_id: u32, "Number of the queue pair.";
        4  num_sqe: u32, "Entries of the send ring.";
        8  num_rqe: u32, "Entries of the receive ring.";
        12 pad: u32, "Zero.";
        16 sq_key: u64, "Offset of the send ring to pass to mmap, or [`INVAL_UOBJ_KEY`].";
        24 rq_key: u64, "Offset of the receive ring to pass to mmap, or [`INVAL_UOBJ_KEY`].";
    }

    /// Driver's request to register memory.
    struct RegMrReq = "siw_ureq_reg_mr", 8 {
        0 stag_key: u8, "Low byte of the key.";
        1 reserved: [u8; 3], "Zero.";
        4 pad: u32, "Zero.";
    }

    /// Driver's response to registering memory.
    struct RegMrResp = "siw_uresp_reg_mr", 8 {
        0 stag: u32, "The key, local and remote.";
        4 pad: u32, "Zero.";
    }

    /// Driver's response to creating a shared receive queue.
    struct CreateSrqResp = "siw_uresp_create_srq", 16 {
        0 num_rqe: u32, "Entries of the ring.";
        4 pad: u32, "Zero.";
        8 srq_key: u64, "Offset to pass to mmap, or [`INVAL_UOBJ_KEY`].";
    }

    /// One piece of registered memory.
    struct Sge = "siw_sge", 16 {
        0  laddr: u64, "Address in the process.";
        8  length: u32, "Bytes.";
        12 lkey: u32, "Local key of the region.";
    }

    /// Entry of a send ring.
    struct Sqe = "siw_sqe", 120 {
        0  id: u64, "Value that the completion will carry.";
        8  flags: u16, "[`WQE_VALID`] and others; written last, with release order.";
        10 num_sge: u8, "Number of pieces of memory; with inline data 1 if there is any.";
        11 opcode: u8, "[`OP_SEND`] or another.";
        12 rkey: u32, "Remote key.";
        16 raddr: u64, "Remote address.";
        24 sge: [Sge; 6], "The pieces; inline data starts at the second.";
    }

    /// Entry of a receive ring.
    struct Rqe = "siw_rqe", 112 {
        0  id: u64, "Value that the completion will carry.";
        8  flags: u16, "[`WQE_VALID`]; written last, with release order.";
        10 num_sge: u8, "Number of pieces of memory.";
        11 opcode: u8, "Not looked at.";
        12 unused: u32, "Zero.";
        16 sge: [Sge; 6], "The pieces.";
    }

    /// Entry of a completion ring.
    struct Cqe = "siw_cqe", 32 {
        0  id: u64, "Value that was given with the request.";
        8  flags: u8, "[`WQE_VALID`] when the kernel has written the entry, and others.";
        9  opcode: u8, "[`OP_RECEIVE`] or another.";
        10 status: u16, "[`WC_SUCCESS`] or another.";
        12 bytes: u32, "Bytes received.";
        16 imm_data: u64, "Immediate data, or in its first half the key that was invalidated.";
        24 qp_id: u64, "Number of the queue pair.";
    }

    /// Control word after the last completion entry.
    struct CqCtrl = "siw_cq_ctrl", 8 {
        0 flags: u32, "[`NOTIFY_SOLICITED`] and others, written by user space to arm the queue.";
        4 pad: u32, "Zero.";
    }
}
