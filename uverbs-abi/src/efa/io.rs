//! Structures that the device itself reads and writes: requests, descriptors of receives, completions, doorbells.
//!
//! All fields are little-endian, as in the device; no struct here needs alignment. A request is a slot of 64 or 128
//! bytes: a [`TxMetaDesc`], and from byte 32 on pieces of memory, or a [`RemoteMemAddr`] and one piece, or bytes.
//!
//! Source: `providers/efa/efa_io_defs.h` and `efa_io_regs_defs.h` of rdma-core 65. The kernel does not use them.

use zerocopy::little_endian::{U16, U32};

numbers! {
    u8 "EFA_IO_" {
        SEND_QUEUE = 1, "Part [`CDESC_Q_TYPE`] of a completion: of a send.";
        RECV_QUEUE = 2, "Part [`CDESC_Q_TYPE`] of a completion: of a receive.";
        SEND = 0, "Operation: a message.";
        RDMA_READ = 1, "Operation: a read.";
        RDMA_WRITE = 2, "Operation: a write.";
        COMP_STATUS_OK = 0, "Status of a completion: done.";
        COMP_STATUS_FLUSHED = 1, "Status of a completion: flushed.";
        COMP_STATUS_LOCAL_ERROR_QP_INTERNAL_ERROR = 2, "Status of a completion: error inside the queue pair.";
        COMP_STATUS_LOCAL_ERROR_UNSUPPORTED_OP = 3, "Status of a completion: no such operation.";
        COMP_STATUS_LOCAL_ERROR_INVALID_AH = 4, "Status of a completion: no such address handle.";
        COMP_STATUS_LOCAL_ERROR_INVALID_LKEY = 5, "Status of a completion: local key not registered, or not for this memory.";
        COMP_STATUS_LOCAL_ERROR_BAD_LENGTH = 6, "Status of a completion: message too long.";
        COMP_STATUS_REMOTE_ERROR_BAD_ADDRESS = 7, "Status of a completion: remote key not registered, or not for this memory.";
        COMP_STATUS_REMOTE_ERROR_ABORT = 8, "Status of a completion: the other side has reset the connection.";
        COMP_STATUS_REMOTE_ERROR_BAD_DEST_QPN = 9, "Status of a completion: no such queue pair there, or it is in the error state.";
        COMP_STATUS_REMOTE_ERROR_RNR = 10, "Status of a completion: no receive posted there.";
        COMP_STATUS_REMOTE_ERROR_BAD_LENGTH = 11, "Status of a completion: the receive there is too short.";
        COMP_STATUS_REMOTE_ERROR_BAD_STATUS = 12, "Status of a completion: unexpected answer.";
        COMP_STATUS_LOCAL_ERROR_UNRESP_REMOTE = 13, "Status of a completion: the other side does not answer any more.";
        COMP_STATUS_REMOTE_ERROR_UNKNOWN_PEER = 14, "Status of a completion: the other side has no address handle of this one.";
        COMP_STATUS_LOCAL_ERROR_UNREACH_REMOTE = 15, "Status of a completion: the other side never answered.";
        COMP_STATUS_REMOTE_ERROR_FEATURE_MISMATCH = 18, "Status of a completion: the two sides differ in a feature.";
    }
    usize "EFA_IO_" {
        TX_DESC_NUM_BUFS = 2, "Most pieces of a message.";
        TX_DESC_NUM_RDMA_BUFS = 1, "Most pieces of a read or write.";
        TX_DESC_INLINE_MAX_SIZE = 32, "Most bytes of inline data in a slot of 64 bytes.";
        TX_DESC_INLINE_MAX_SIZE_128 = 80, "Most bytes of inline data in a slot of 128 bytes.";
    }
    u8 "" {
        TX_OP_TYPE () = 0x0f, "Part of [`TxMetaDesc::ctrl1`]: the operation.";
        TX_HAS_IMM () = 0x10, "Bit of [`TxMetaDesc::ctrl1`]: there is immediate data.";
        TX_INLINE_MSG () = 0x20, "Bit of [`TxMetaDesc::ctrl1`]: the data is in the request.";
        TX_META_DESC () = 0x80, "Bit of [`TxMetaDesc::ctrl1`]: always set.";
        TX_PHASE () = 0x01, "Bit of [`TxMetaDesc::ctrl2`] that turns with every round of the ring; zero in the first.";
        TX_FIRST () = 0x04, "Bit of [`TxMetaDesc::ctrl2`]: the first slot of the request.";
        TX_LAST () = 0x08, "Bit of [`TxMetaDesc::ctrl2`]: the last one.";
        TX_COMP_REQ () = 0x10, "Bit of [`TxMetaDesc::ctrl2`]: create a completion.";
        CDESC_PHASE () = 0x01, "Bit of [`CdescCommon::flags`] that turns with every round of the ring; one in the first.";
        CDESC_Q_TYPE () = 0x06, "Part of [`CdescCommon::flags`]: which queue, from bit 1 on.";
        CDESC_HAS_IMM () = 0x08, "Bit of [`CdescCommon::flags`]: there is immediate data.";
        CDESC_OP_TYPE () = 0x70, "Part of [`CdescCommon::flags`]: the operation, from bit 4 on.";
        CDESC_UNSOLICITED () = 0x80, "Bit of [`CdescCommon::flags`]: no receive was taken for it, and the number means nothing.";
    }
    u32 "" {
        LKEY () = 0xff_ffff, "Part of [`TxBufDesc::lkey`] and [`RxDesc::lkey_ctrl`]: the local key.";
        RX_FIRST () = 1 << 30, "Bit of [`RxDesc::lkey_ctrl`]: the first piece of the request.";
        RX_LAST () = 1 << 31, "Bit of [`RxDesc::lkey_ctrl`]: the last one.";
        CQ_DB_CONSUMER_INDEX () = 0xffff, "Part of the doorbell of a completion queue: entries taken.";
        CQ_DB_CMD_SN () = 3 << 29, "Part of that doorbell: events taken.";
        CQ_DB_ARM () = 1 << 31, "Bit of that doorbell: request an event.";
    }
    u16 "" {
        UNKNOWN_AH () = 0xffff, "[`RxCdesc::ah`]: this side has no address handle of the sender.";
    }
}

layout! {
    /// Head of a request.
    struct TxMetaDesc = "efa_io_tx_meta_desc", 32 {
        0  req_id: U16, "Number that the completion will carry.";
        2  ctrl1: u8, "[`TX_META_DESC`] and others.";
        3  ctrl2: u8, "[`TX_PHASE`] and others.";
        4  dest_qp_num: U16, "The queue pair there.";
        6  length: U16, "Bytes of inline data, or number of pieces.";
        8  immediate_data: U32, "Immediate data, as the number that it is.";
        12 ah: U16, "The device's number of the address handle.";
        14 ctrl3: u8, "Hints at what is optimized for; zero.";
        15 reserved: u8, "Zero.";
        16 qkey: U32, "The queue key that the queue pair there expects.";
        20 reserved2: [u8; 6], "Zero.";
        26 req_id_ex: [u8; 6], "The number's other bits where it has 64; zero.";
    }

    /// A piece of memory of a request.
    struct TxBufDesc = "efa_io_tx_buf_desc", 16 {
        0  length: U32, "Bytes.";
        4  lkey: U32, "Local key of the region, [`LKEY`].";
        8  buf_addr_lo: U32, "Address, low half.";
        12 buf_addr_hi: U32, "Address, high half.";
    }

    /// Memory of the peer.
    struct RemoteMemAddr = "efa_io_remote_mem_addr", 16 {
        0  length: U32, "Bytes.";
        4  rkey: U32, "Remote key of the region.";
        8  buf_addr_lo: U32, "Address, low half.";
        12 buf_addr_hi: U32, "Address, high half.";
    }

    /// A piece of memory of a receive.
    struct RxDesc = "efa_io_rx_desc", 16 {
        0  buf_addr_lo: U32, "Address, low half.";
        4  buf_addr_hi: U32, "Address, high half.";
        8  req_id: U16, "Number that the completion will carry.";
        10 length: U16, "Bytes.";
        12 lkey_ctrl: U32, "Local key, and [`RX_FIRST`] and [`RX_LAST`].";
    }

    /// The first fields of every completion.
    struct CdescCommon = "efa_io_cdesc_common", 6 {
        0 req_id: U16, "Number that was given with the request.";
        2 status: u8, "[`COMP_STATUS_OK`] or another.";
        3 flags: u8, "[`CDESC_PHASE`] and others; written last.";
        4 qp_num: U16, "The own queue pair.";
    }

    /// Completion of a receive, of 16 bytes.
    struct RxCdesc = "efa_io_rx_cdesc", 16 {
        0  common: CdescCommon, "Its begin.";
        6  length: U16, "Bytes received, bits 15 to 0.";
        8  ah: U16, "Address handle of the sender, or [`UNKNOWN_AH`].";
        10 src_qp_num: U16, "The sender's queue pair.";
        12 imm: U32, "Immediate data, as the number that it is.";
    }

    /// Completion of a receive, of 32 bytes.
    struct RxCdescEx = "efa_io_rx_cdesc_ex", 32 {
        0  base: RxCdesc, "Its begin.";
        16 src_addr ("u.src_addr"): [u8; 16], "The sender's GID, if asked for and its address handle is unknown; of a write in the first two bytes bits 31 to 16 of the length.";
    }
}
