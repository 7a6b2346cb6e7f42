//! Completion channels, completion queues, completions.

layout! {
    /// Request of `CREATE_COMP_CHANNEL`.
    struct CreateCompChannel = "ib_uverbs_create_comp_channel", 8 {
        0 response: u64, "Address of the response; used only by a write.";
    }

    /// Response of `CREATE_COMP_CHANNEL`.
    struct CreateCompChannelResp = "ib_uverbs_create_comp_channel_resp", 4 {
        0 fd: u32, "File of the channel.";
    }

    /// Request of `CREATE_CQ`.
    struct CreateCq = "ib_uverbs_create_cq", 32 {
        0  response: u64, "Address of the response; used only by a write.";
        8  user_handle: u64, "Value that events of the queue will carry.";
        16 cqe: u32, "Least number of entries.";
        20 comp_vector: u32, "Completion vector, below the context's number of them.";
        24 comp_channel: i32, "File of the channel; -1 for none.";
        28 reserved: u32, "Zero.";
    }

    /// Request of `EX_CREATE_CQ`.
    struct ExCreateCq = "ib_uverbs_ex_create_cq", 32 {
        0  user_handle: u64, "Value that events of the queue will carry.";
        8  cqe: u32, "Least number of entries.";
        12 comp_vector: u32, "Completion vector, below the context's number of them.";
        16 comp_channel: i32, "File of the channel; -1 for none.";
        20 comp_mask: u32, "Zero.";
        24 flags: u32, "See [`crate::types::CqFlags`].";
        28 reserved: u32, "Zero.";
    }

    /// Response of `CREATE_CQ`.
    struct CreateCqResp = "ib_uverbs_create_cq_resp", 8 {
        0 cq_handle: u32, "The new queue.";
        4 cqe: u32, "Real number of entries.";
    }

    /// Response of `EX_CREATE_CQ`.
    struct ExCreateCqResp = "ib_uverbs_ex_create_cq_resp", 16 {
        0  base: CreateCqResp, "The response of the older command.";
        8  comp_mask: u32, "Zero.";
        12 response_length: u32, "Bytes that the kernel filled.";
    }

    /// Request of `RESIZE_CQ`.
    struct ResizeCq = "ib_uverbs_resize_cq", 16 {
        0  response: u64, "Address of the response; used only by a write.";
        8  cq_handle: u32, "The queue.";
        12 cqe: u32, "Least number of entries.";
    }

    /// Response of `RESIZE_CQ`.
    struct ResizeCqResp = "ib_uverbs_resize_cq_resp", 8 {
        0 cqe: u32, "Real number of entries.";
        4 reserved: u32, "Zero.";
    }

    /// Request of `POLL_CQ`.
    struct PollCq = "ib_uverbs_poll_cq", 16 {
        0  response: u64, "Address of the response; used only by a write.";
        8  cq_handle: u32, "The queue.";
        12 ne: u32, "Most completions to take.";
    }

    /// One completion; also the slot of a soft-RoCE completion ring.
    struct Wc = "ib_uverbs_wc", 48 {
        0  wr_id: u64, "Value that was given with the request.";
        8  status: u32, "See [`crate::types::wc_status`].";
        12 opcode: u32, "See [`crate::types::wc_opcode`].";
        16 vendor_err: u32, "Driver's own error code.";
        20 byte_len: u32, "Bytes received.";
        24 ex: u32, "Immediate data, its bytes in network order; or the key that was invalidated.";
        28 qp_num: u32, "Own queue pair number.";
        32 src_qp: u32, "Sender's queue pair number.";
        36 wc_flags: u32, "See [`crate::types::WcFlags`].";
        40 pkey_index: u16, "Index of the partition key.";
        42 slid: u16, "Sender's local identifier.";
        44 sl: u8, "Service level.";
        45 dlid_path_bits: u8, "Low bits of the local identifier it was sent to.";
        46 port_num: u8, "Port it came in.";
        47 reserved: u8, "Zero.";
    }

    /// Response of `POLL_CQ`, followed by `count` completions.
    struct PollCqResp = "ib_uverbs_poll_cq_resp", 8 {
        0 count: u32, "Number of completions.";
        4 reserved: u32, "Zero.";
    }

    /// Request of `REQ_NOTIFY_CQ`.
    struct ReqNotifyCq = "ib_uverbs_req_notify_cq", 8 {
        0 cq_handle: u32, "The queue.";
        4 solicited_only: u32, "1: announce only completions of solicited messages and errors.";
    }

    /// Request of `DESTROY_CQ`.
    struct DestroyCq = "ib_uverbs_destroy_cq", 16 {
        0  response: u64, "Address of the response; used only by a write.";
        8  cq_handle: u32, "The queue.";
        12 reserved: u32, "Zero.";
    }

    /// Response to destroying a completion queue.
    struct DestroyCqResp = "ib_uverbs_destroy_cq_resp", 8 {
        0 comp_events_reported: u32, "Completion events of the queue that were read.";
        4 async_events_reported: u32, "Asynchronous events of the queue that were read.";
    }

    /// Moderation of a completion queue.
    struct CqModeration = "ib_uverbs_cq_moderation", 4 {
        0 cq_count: u16, "Completions to wait for.";
        2 cq_period: u16, "Longest wait in microseconds.";
    }

    /// Request of `EX_MODIFY_CQ`.
    struct ExModifyCq = "ib_uverbs_ex_modify_cq", 16 {
        0  cq_handle: u32, "The queue.";
        4  attr_mask: u32, "Bit 0: moderation.";
        8  attr: CqModeration, "New moderation.";
        12 reserved: u32, "Zero.";
    }
}
