//! Shared receive queues, work queues, indirection tables.

layout! {
    /// Request of `CREATE_SRQ`.
    struct CreateSrq = "ib_uverbs_create_srq", 32 {
        0  response: u64, "Address of the response; used only by a write.";
        8  user_handle: u64, "Value that events of the queue will carry.";
        16 pd_handle: u32, "Protection domain.";
        20 max_wr: u32, "Wanted number of requests.";
        24 max_sge: u32, "Wanted pieces of memory per request.";
        28 srq_limit: u32, "Fill level below which an event is raised; zero for never.";
    }

    /// Request of `CREATE_XSRQ`.
    struct CreateXsrq = "ib_uverbs_create_xsrq", 48 {
        0  response: u64, "Address of the response; used only by a write.";
        8  user_handle: u64, "Value that events of the queue will carry.";
        16 srq_type: u32, "See [`crate::types::srq_type`].";
        20 pd_handle: u32, "Protection domain.";
        24 max_wr: u32, "Wanted number of requests.";
        28 max_sge: u32, "Wanted pieces of memory per request.";
        32 srq_limit: u32, "Fill level below which an event is raised; zero for never.";
        36 max_num_tags: u32, "Entries of the tag list, for tag matching.";
        40 xrcd_handle: u32, "Domain of extended reliable connections.";
        44 cq_handle: u32, "Completion queue, for types that have one.";
    }

    /// Response of `CREATE_SRQ` and `CREATE_XSRQ`.
    struct CreateSrqResp = "ib_uverbs_create_srq_resp", 16 {
        0  srq_handle: u32, "The new queue.";
        4  max_wr: u32, "Real number of requests.";
        8  max_sge: u32, "Real pieces of memory per request.";
        12 srqn: u32, "The queue's number, for extended reliable connections.";
    }

    /// Request of `MODIFY_SRQ`.
    struct ModifySrq = "ib_uverbs_modify_srq", 16 {
        0  srq_handle: u32, "The queue.";
        4  attr_mask: u32, "Bit 0: `max_wr`; bit 1: `srq_limit`.";
        8  max_wr: u32, "New number of requests.";
        12 srq_limit: u32, "New limit.";
    }

    /// Request of `QUERY_SRQ`.
    struct QuerySrq = "ib_uverbs_query_srq", 16 {
        0  response: u64, "Address of the response; used only by a write.";
        8  srq_handle: u32, "The queue.";
        12 reserved: u32, "Zero.";
    }

    /// Response of `QUERY_SRQ`.
    struct QuerySrqResp = "ib_uverbs_query_srq_resp", 16 {
        0  max_wr: u32, "Number of requests.";
        4  max_sge: u32, "Pieces of memory per request.";
        8  srq_limit: u32, "Limit.";
        12 reserved: u32, "Zero.";
    }

    /// Request of `DESTROY_SRQ`.
    struct DestroySrq = "ib_uverbs_destroy_srq", 16 {
        0  response: u64, "Address of the response; used only by a write.";
        8  srq_handle: u32, "The queue.";
        12 reserved: u32, "Zero.";
    }

    /// Response to destroying a shared receive queue.
    struct DestroySrqResp = "ib_uverbs_destroy_srq_resp", 4 {
        0 events_reported: u32, "Asynchronous events of the queue that were read.";
    }

    /// Request of `POST_SRQ_RECV`, followed by requests ([`super::RecvWr`]) and pieces of memory.
    struct PostSrqRecv = "ib_uverbs_post_srq_recv", 24 {
        0  response: u64, "Address of the response; used only by a write.";
        8  srq_handle: u32, "The queue.";
        12 wr_count: u32, "Number of requests.";
        16 sge_count: u32, "Number of pieces of memory of all requests.";
        20 wqe_size: u32, "Bytes of a request.";
    }

    /// Response of `POST_SRQ_RECV`.
    struct PostSrqRecvResp = "ib_uverbs_post_srq_recv_resp", 4 {
        0 bad_wr: u32, "Number of the first request that was not posted, from 1.";
    }

    /// Request of `EX_CREATE_WQ`.
    struct ExCreateWq = "ib_uverbs_ex_create_wq", 40 {
        0  comp_mask: u32, "Zero.";
        4  wq_type: u32, "Zero: a receive queue.";
        8  user_handle: u64, "Value that events of the queue will carry.";
        16 pd_handle: u32, "Protection domain.";
        20 cq_handle: u32, "Where its work completes.";
        24 max_wr: u32, "Wanted number of requests.";
        28 max_sge: u32, "Wanted pieces of memory per request.";
        32 create_flags: u32, "See [`crate::types::WqFlags`].";
        36 reserved: u32, "Zero.";
    }

    /// Response of `EX_CREATE_WQ`.
    struct ExCreateWqResp = "ib_uverbs_ex_create_wq_resp", 24 {
        0  comp_mask: u32, "Zero.";
        4  response_length: u32, "Bytes that the kernel filled.";
        8  wq_handle: u32, "The new queue.";
        12 max_wr: u32, "Real number of requests.";
        16 max_sge: u32, "Real pieces of memory per request.";
        20 wqn: u32, "The queue's number.";
    }

    /// Request of `EX_DESTROY_WQ`.
    struct ExDestroyWq = "ib_uverbs_ex_destroy_wq", 8 {
        0 comp_mask: u32, "Zero.";
        4 wq_handle: u32, "The queue.";
    }

    /// Response of `EX_DESTROY_WQ`.
    struct ExDestroyWqResp = "ib_uverbs_ex_destroy_wq_resp", 16 {
        0  comp_mask: u32, "Zero.";
        4  response_length: u32, "Bytes that the kernel filled.";
        8  events_reported: u32, "Asynchronous events of the queue that were read.";
        12 reserved: u32, "Zero.";
    }

    /// Request of `EX_MODIFY_WQ`.
    struct ExModifyWq = "ib_uverbs_ex_modify_wq", 24 {
        0  attr_mask: u32, "Bit 0: `wq_state`; bit 1: `curr_wq_state`; bit 2: `flags`.";
        4  wq_handle: u32, "The queue.";
        8  wq_state: u32, "State to go to: 0 reset, 1 ready, 2 error.";
        12 curr_wq_state: u32, "State that is assumed.";
        16 flags: u32, "New flags, see [`crate::types::WqFlags`].";
        20 flags_mask: u32, "Which flags change.";
    }

    /// Request of `EX_CREATE_RWQ_IND_TBL`, followed by `1 << log_ind_tbl_size` handles of work queues.
    struct ExCreateRwqIndTable = "ib_uverbs_ex_create_rwq_ind_table", 8 {
        0 comp_mask: u32, "Zero.";
        4 log_ind_tbl_size: u32, "Number of entries as a power of two, at most 13.";
    }

    /// Response of `EX_CREATE_RWQ_IND_TBL`.
    struct ExCreateRwqIndTableResp = "ib_uverbs_ex_create_rwq_ind_table_resp", 16 {
        0  comp_mask: u32, "Zero.";
        4  response_length: u32, "Bytes that the kernel filled.";
        8  ind_tbl_handle: u32, "The new table.";
        12 ind_tbl_num: u32, "Its number.";
    }

    /// Request of `EX_DESTROY_RWQ_IND_TBL`.
    struct ExDestroyRwqIndTable = "ib_uverbs_ex_destroy_rwq_ind_table", 8 {
        0 comp_mask: u32, "Zero.";
        4 ind_tbl_handle: u32, "The table.";
    }
}
