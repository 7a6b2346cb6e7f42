//! eRDMA, the adapter of Alibaba's cloud: driver payloads, and the queues that the device reads and writes.
//!
//! Queues are in memory of the process, in slots of 32 bytes. A request of a send queue takes one to four of them; its first eight bytes
//! are written last. Numbers are little-endian, except that completions, and immediate data of requests, are big-endian.
//!
//! Source: `include/uapi/rdma/erdma-abi.h` and `drivers/infiniband/hw/erdma/erdma_hw.h` of Linux 7.3, which differs from
//! `providers/erdma/erdma_hw.h` of rdma-core 65 only in names.

use zerocopy::big_endian::U32 as BigU32;
use zerocopy::little_endian::{U16, U32, U64};

numbers! {
    u32 "ERDMA_" {
        ABI_VERSION = 1, "Version that the device reports.";
    }
    usize "" {
        SLOT () = 32, "Size of a slot of any queue in bytes.";
        MAX_SLOTS () = 4, "Most slots of a request.";
        MAX_SEND_SGE () = 6, "Most pieces of a message.";
        MAX_RECV_SGE () = 1, "Most pieces of a receive.";
        MAX_INLINE () = 96, "Most bytes of inline data.";
        MIN_CQE () = 64, "Entries of the smallest completion queue that rdma-core makes.";
    }
    u8 "" {
        OP_WRITE () = 0, "Operation: a write.";
        OP_READ () = 1, "Operation: a read.";
        OP_SEND () = 2, "Operation: a message.";
        OP_SEND_WITH_IMM () = 3, "Operation: a message with immediate data.";
        OP_RECEIVE () = 4, "Operation of a completion: a message was received.";
        OP_RECV_IMM () = 5, "Operation of a completion: a write with immediate data was received.";
        OP_RECV_INV () = 6, "Operation of a completion: a message that invalidates a key was received.";
        OP_WRITE_WITH_IMM () = 9, "Operation: a write with immediate data.";
        OP_RSP_SEND_IMM () = 12, "Operation of a completion: a message with immediate data was received.";
        OP_SEND_WITH_INV () = 13, "Operation: a message that invalidates a key.";
        OP_ATOMIC_CAS () = 17, "Operation: an exchange if equal.";
        OP_ATOMIC_FAA () = 18, "Operation: an addition.";
        WC_SUCCESS () = 0, "Status of a completion: done.";
        WC_GENERAL_ERR () = 1, "Status of a completion: an error of another kind.";
        WC_RECV_WQE_FORMAT_ERR () = 2, "Status of a completion: the receive there is malformed or too short.";
        WC_RECV_STAG_INVALID_ERR () = 3, "Status of a completion: no such key there.";
        WC_RECV_ADDR_VIOLATION_ERR () = 4, "Status of a completion: memory there is outside of its region.";
        WC_RECV_RIGHT_VIOLATION_ERR () = 5, "Status of a completion: memory there may not be accessed so.";
        WC_RECV_PDID_ERR () = 6, "Status of a completion: memory there is of another domain.";
        WC_RECV_WARRPING_ERR () = 7, "Status of a completion: an address there overflows.";
        WC_SEND_WQE_FORMAT_ERR () = 8, "Status of a completion: the request is malformed.";
        WC_SEND_WQE_ORD_EXCEED () = 9, "Status of a completion: no reads are allowed.";
        WC_SEND_STAG_INVALID_ERR () = 10, "Status of a completion: no such local key.";
        WC_SEND_ADDR_VIOLATION_ERR () = 11, "Status of a completion: local memory is outside of its region.";
        WC_SEND_RIGHT_VIOLATION_ERR () = 12, "Status of a completion: local memory may not be accessed so.";
        WC_SEND_PDID_ERR () = 13, "Status of a completion: local memory is of another domain.";
        WC_SEND_WARRPING_ERR () = 14, "Status of a completion: a local address overflows.";
        WC_FLUSH_ERR () = 15, "Status of a completion: flushed.";
        WC_RETRY_EXC_ERR () = 16, "Status of a completion: the peer does not answer.";
        CQE_QTYPE_SQ () = 0, "Part [`CQE_QTYPE`] of a completion: of a send.";
        CQE_QTYPE_RQ () = 1, "Part [`CQE_QTYPE`] of a completion: of a receive.";
        SDB_ENTRY () = 1, "[`AllocCtxResp::sdb_type`]: the process has one doorbell for sends, not a page.";
    }
    u32 "" {
        CQE_OWNER () = 1 << 31, "Bit of [`Cqe::hdr`] that turns with every round of the queue; one in the first.";
        CQE_OPCODE () = 0xff_0000, "Part of [`Cqe::hdr`]: the operation.";
        CQE_QTYPE () = 0xff00, "Part of [`Cqe::hdr`]: which queue.";
        CQE_SYNDROME () = 0xff, "Part of [`Cqe::hdr`]: the status.";
    }
    u64 "" {
        SQE_HDR_SGL_LEN () = 0xff << 56, "Part of a request's first eight bytes: number of pieces, or bytes of inline data.";
        SQE_HDR_WQEBB_CNT () = 7 << 52, "Part of a request's first eight bytes: number of slots, minus one.";
        SQE_HDR_QPN () = 0xf_ffff << 32, "Part of a request's first eight bytes, and of the doorbell: number of the queue pair.";
        SQE_HDR_OPCODE () = 0x1f << 27, "Part of a request's first eight bytes: the operation.";
        SQE_HDR_INLINE () = 1 << 25, "Bit of a request's first eight bytes: the data is in the request.";
        SQE_HDR_FENCE () = 1 << 24, "Bit of a request's first eight bytes: wait for earlier reads.";
        SQE_HDR_SE () = 1 << 23, "Bit of a request's first eight bytes: the message is solicited.";
        SQE_HDR_CE () = 1 << 22, "Bit of a request's first eight bytes: create a completion.";
        SQE_HDR_WQEBB_INDEX () = 0xffff, "Part of a request's first eight bytes, and of the doorbell: number of the slot after it.";
        CQDB_IDX () = 0xff << 56, "Part of the doorbell of a completion queue: how often it was rung.";
        CQDB_CQN () = 0xff_ffff << 32, "Part of the doorbell of a completion queue: its number.";
        CQDB_ARM () = 1 << 31, "Bit of the doorbell of a completion queue: make an event.";
        CQDB_SOL () = 1 << 30, "Bit of the doorbell of a completion queue: only for solicited messages, and errors.";
        CQDB_CMDSN () = 3 << 28, "Part of the doorbell of a completion queue: how many events there were.";
        CQDB_CI () = 0xff_ffff, "Part of the doorbell of a completion queue: entries taken.";
    }
}

layout! {
    /// Driver's response to creating a context.
    struct AllocCtxResp = "erdma_uresp_alloc_ctx", 40 {
        0  dev_id: u32, "Number of the device.";
        4  pad: u32, "Zero.";
        8  sdb_type: u32, "Zero for a page of doorbells for sends, or [`SDB_ENTRY`].";
        12 sdb_offset: u32, "With [`SDB_ENTRY`]: which pair of doorbells.";
        16 sdb: u64, "Offset of the page of doorbells for sends to pass to mmap.";
        24 rdb: u64, "Offset of the page of doorbells for receives.";
        32 cdb: u64, "Offset of the page of doorbells for completion queues.";
    }

    /// Driver's request to create a completion queue.
    struct CreateCqReq = "erdma_ureq_create_cq", 24 {
        0  db_record_va: u64, "Address of the doorbell record.";
        8  qbuf_va: u64, "Address of the entries.";
        16 qbuf_len: u32, "Size of their memory in bytes.";
        20 rsvd0: u32, "Zero.";
    }

    /// Driver's response to creating a completion queue.
    struct CreateCqResp = "erdma_uresp_create_cq", 8 {
        0 cq_id: u32, "Number of the queue.";
        4 num_cqe: u32, "Number of entries.";
    }

    /// Driver's request to create a queue pair.
    struct CreateQpReq = "erdma_ureq_create_qp", 24 {
        0  db_record_va: u64, "Address of the doorbell records: of sends, then of receives.";
        8  qbuf_va: u64, "Address of the queues: that of sends, and on the next page that of receives.";
        16 qbuf_len: u32, "Size of their memory in bytes.";
        20 rsvd0: u32, "Zero.";
    }

    /// Driver's response to creating a queue pair.
    struct CreateQpResp = "erdma_uresp_create_qp", 16 {
        0  qp_id: u32, "Number of the queue pair.";
        4  num_sqe: u32, "Slots of the send queue.";
        8  num_rqe: u32, "Slots of the receive queue.";
        12 rq_offset: u32, "Offset of the receive queue in the memory.";
    }

    /// Completion.
    struct Cqe = "erdma_cqe", 32 {
        0  hdr: BigU32, "[`CQE_OWNER`] and others; loaded first.";
        4  qe_idx: BigU32, "Number of the slot, which counts on after the last slot of the ring.";
        8  qpn: BigU32, "Number of the queue pair.";
        12 imm_data: U32, "Immediate data as a number; or, big-endian, the key that was invalidated.";
        16 size: BigU32, "Bytes received.";
        20 rsvd: [BigU32; 3], "Not used.";
    }

    /// A piece of memory.
    struct Sge = "erdma_sge", 16 {
        0  addr: U64, "Address.";
        8  length: U32, "Bytes.";
        12 key: U32, "Key of the region.";
    }

    /// Slot of a receive queue. Its first eight bytes are also its doorbell.
    struct Rqe = "erdma_rqe", 32 {
        0  qe_idx: U16, "Number of the slot after it.";
        2  rsvd0: U16, "Zero.";
        4  qpn: U32, "Number of the queue pair.";
        8  rsvd1: U32, "Zero.";
        12 rsvd2: U32, "Zero.";
        16 to: U64, "Address of the memory.";
        24 length: U32, "Its size in bytes.";
        28 stag: U32, "Its key.";
    }

    /// First slot of a write; the pieces, or the inline data, follow it.
    struct WriteSqe = "erdma_write_sqe", 32 {
        0  hdr: U64, "[`SQE_HDR_OPCODE`] and others.";
        8  imm_data: BigU32, "Immediate data.";
        12 length: U32, "Bytes.";
        16 sink_stag: U32, "Remote key.";
        20 sink_to_l: U32, "Remote address, lower half.";
        24 sink_to_h: U32, "Upper half.";
        28 rsvd: U32, "Zero.";
    }

    /// Beginning of a message; the pieces, or the inline data, follow it.
    struct SendSqe = "erdma_send_sqe_rc", 16 {
        0  hdr: U64, "[`SQE_HDR_OPCODE`] and others.";
        8  imm_data: BigU32, "Immediate data; or, little-endian, the key to invalidate.";
        12 length: U32, "Bytes.";
    }

    /// First slot of a read; the remote memory follows it.
    struct ReadSqe = "erdma_readreq_sqe", 32 {
        0  hdr: U64, "[`SQE_HDR_OPCODE`] and others.";
        8  invalid_stag: U32, "Zero.";
        12 length: U32, "Bytes.";
        16 sink_stag: U32, "Local key.";
        20 sink_to_l: U32, "Local address, lower half.";
        24 sink_to_h: U32, "Upper half.";
        28 rsvd: U32, "Zero.";
    }

    /// An atomic operation.
    struct AtomicSqe = "erdma_atomic_sqe", 64 {
        0  hdr: U64, "[`SQE_HDR_OPCODE`] and others.";
        8  rsvd: U64, "Zero.";
        16 fetchadd_swap_data: U64, "The number to add, or the new value.";
        24 cmp_data: U64, "The expected value.";
        32 remote: Sge, "The memory there; its length means nothing.";
        48 sgl: Sge, "Where the old value is written.";
    }
}
