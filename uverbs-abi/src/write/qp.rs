//! Queue pairs and the requests posted to them.

use super::AhAttr;

layout! {
    /// Capacities of a queue pair.
    struct QpCap = "ib_uverbs_qp_cap", 20 {
        0  max_send_wr: u32, "Send requests in flight.";
        4  max_recv_wr: u32, "Receive requests in flight.";
        8  max_send_sge: u32, "Pieces of memory of a send request.";
        12 max_recv_sge: u32, "Pieces of memory of a receive request.";
        16 max_inline_data: u32, "Bytes that travel inside a send request.";
    }

    /// Attributes of a queue pair, as the connection manager returns them.
    struct QpAttr = "ib_uverbs_qp_attr", 144 {
        0   qp_attr_mask: u32, "Which fields count, see [`crate::types::QpAttrMask`].";
        4   qp_state: u32, "State to go to, see [`crate::types::qp_state`].";
        8   cur_qp_state: u32, "State that is assumed.";
        12  path_mtu: u32, "See [`crate::types::mtu`].";
        16  path_mig_state: u32, "State of path migration.";
        20  qkey: u32, "Queue key.";
        24  rq_psn: u32, "First sequence number expected.";
        28  sq_psn: u32, "First sequence number sent.";
        32  dest_qp_num: u32, "Remote queue pair number.";
        36  qp_access_flags: u32, "What the remote side may do.";
        40  ah_attr: AhAttr, "Path.";
        72  alt_ah_attr: AhAttr, "Alternate path.";
        104 max_send_wr: u32, "Send requests in flight.";
        108 max_recv_wr: u32, "Receive requests in flight.";
        112 max_send_sge: u32, "Pieces of memory of a send request.";
        116 max_recv_sge: u32, "Pieces of memory of a receive request.";
        120 max_inline_data: u32, "Bytes that travel inside a send request.";
        124 pkey_index: u16, "Index of the partition key.";
        126 alt_pkey_index: u16, "The same for the alternate path.";
        128 en_sqd_async_notify: u8, "1: tell when the send queue is drained.";
        129 sq_draining: u8, "1: the send queue is draining.";
        130 max_rd_atomic: u8, "Outgoing reads and atomic operations in flight.";
        131 max_dest_rd_atomic: u8, "Incoming reads and atomic operations in flight.";
        132 min_rnr_timer: u8, "Wait asked of a sender without a receiver, coded.";
        133 port_num: u8, "Port, from 1.";
        134 timeout: u8, "Wait for an acknowledgement: 4.096 us * 2^n; zero for ever.";
        135 retry_cnt: u8, "Retries after such a timeout.";
        136 rnr_retry: u8, "Retries when the receiver is not ready; 7 for ever.";
        137 alt_port_num: u8, "Port of the alternate path.";
        138 alt_timeout: u8, "Timeout of the alternate path.";
        139 reserved: [u8; 5], "Zero.";
    }

    /// Request of `CREATE_QP`.
    struct CreateQp = "ib_uverbs_create_qp", 56 {
        0  response: u64, "Address of the response; used only by a write.";
        8  user_handle: u64, "Value that events of the queue pair will carry.";
        16 pd_handle: u32, "Protection domain; for type XRC_TGT the domain of extended connections.";
        20 send_cq_handle: u32, "Where sends complete.";
        24 recv_cq_handle: u32, "Where receives complete.";
        28 srq_handle: u32, "Shared receive queue, if `is_srq`.";
        32 max_send_wr: u32, "Wanted send requests in flight.";
        36 max_recv_wr: u32, "Wanted receive requests in flight.";
        40 max_send_sge: u32, "Wanted pieces of memory of a send request.";
        44 max_recv_sge: u32, "Wanted pieces of memory of a receive request.";
        48 max_inline_data: u32, "Wanted bytes inside a send request.";
        52 sq_sig_all: u8, "1: every send request makes a completion.";
        53 qp_type: u8, "See [`crate::types::qp_type`].";
        54 is_srq: u8, "1: receives come from a shared queue.";
        55 reserved: u8, "Zero.";
    }

    /// Request of `EX_CREATE_QP`.
    struct ExCreateQp = "ib_uverbs_ex_create_qp", 64 {
        0  user_handle: u64, "Value that events of the queue pair will carry.";
        8  pd_handle: u32, "Protection domain.";
        12 send_cq_handle: u32, "Where sends complete.";
        16 recv_cq_handle: u32, "Where receives complete.";
        20 srq_handle: u32, "Shared receive queue, if `is_srq`.";
        24 max_send_wr: u32, "Wanted send requests in flight.";
        28 max_recv_wr: u32, "Wanted receive requests in flight.";
        32 max_send_sge: u32, "Wanted pieces of memory of a send request.";
        36 max_recv_sge: u32, "Wanted pieces of memory of a receive request.";
        40 max_inline_data: u32, "Wanted bytes inside a send request.";
        44 sq_sig_all: u8, "1: every send request makes a completion.";
        45 qp_type: u8, "See [`crate::types::qp_type`].";
        46 is_srq: u8, "1: receives come from a shared queue.";
        47 reserved: u8, "Zero.";
        48 comp_mask: u32, "See [`crate::types::ExCreateQpMask`].";
        52 create_flags: u32, "See [`crate::types::QpCreateFlags`].";
        56 rwq_ind_tbl_handle: u32, "Indirection table, for receive-side scaling.";
        60 source_qpn: u32, "Queue pair number that packets shall show.";
    }

    /// Request of `OPEN_QP`.
    struct OpenQp = "ib_uverbs_open_qp", 32 {
        0  response: u64, "Address of the response; used only by a write.";
        8  user_handle: u64, "Value that events of the queue pair will carry.";
        16 pd_handle: u32, "Domain of extended reliable connections.";
        20 qpn: u32, "Number of the queue pair.";
        24 qp_type: u8, "10, XRC_TGT.";
        25 reserved: [u8; 7], "Zero.";
    }

    /// Response of `CREATE_QP` and `OPEN_QP`.
    struct CreateQpResp = "ib_uverbs_create_qp_resp", 32 {
        0  qp_handle: u32, "The queue pair.";
        4  qpn: u32, "Its number.";
        8  max_send_wr: u32, "Real send requests in flight.";
        12 max_recv_wr: u32, "Real receive requests in flight.";
        16 max_send_sge: u32, "Real pieces of memory of a send request.";
        20 max_recv_sge: u32, "Real pieces of memory of a receive request.";
        24 max_inline_data: u32, "Real bytes inside a send request.";
        28 reserved: u32, "Zero.";
    }

    /// Response of `EX_CREATE_QP`.
    struct ExCreateQpResp = "ib_uverbs_ex_create_qp_resp", 40 {
        0  base: CreateQpResp, "The response of the older command.";
        32 comp_mask: u32, "Zero.";
        36 response_length: u32, "Bytes that the kernel filled.";
    }

    /// A path, inside the commands that change and query a queue pair.
    struct QpDest = "ib_uverbs_qp_dest", 32 {
        0  dgid: [u8; 16], "GID of the destination.";
        16 flow_label: u32, "Flow label.";
        20 dlid: u16, "Local identifier of the destination.";
        22 reserved: u16, "Zero.";
        24 sgid_index: u8, "Index of the own GID.";
        25 hop_limit: u8, "Hop limit.";
        26 traffic_class: u8, "Traffic class.";
        27 sl: u8, "Service level.";
        28 src_path_bits: u8, "Low bits of the own local identifier.";
        29 static_rate: u8, "Limit of the rate, coded.";
        30 is_global: u8, "1 if there is a routing header.";
        31 port_num: u8, "Port, from 1.";
    }

    /// Request of `QUERY_QP`.
    struct QueryQp = "ib_uverbs_query_qp", 16 {
        0  response: u64, "Address of the response; used only by a write.";
        8  qp_handle: u32, "The queue pair.";
        12 attr_mask: u32, "What is asked for, see [`crate::types::QpAttrMask`].";
    }

    /// Response of `QUERY_QP`.
    struct QueryQpResp = "ib_uverbs_query_qp_resp", 128 {
        0   dest: QpDest, "Path.";
        32  alt_dest: QpDest, "Alternate path.";
        64  max_send_wr: u32, "Send requests in flight.";
        68  max_recv_wr: u32, "Receive requests in flight.";
        72  max_send_sge: u32, "Pieces of memory of a send request.";
        76  max_recv_sge: u32, "Pieces of memory of a receive request.";
        80  max_inline_data: u32, "Bytes that travel inside a send request.";
        84  qkey: u32, "Queue key.";
        88  rq_psn: u32, "First sequence number expected.";
        92  sq_psn: u32, "First sequence number sent.";
        96  dest_qp_num: u32, "Remote queue pair number.";
        100 qp_access_flags: u32, "What the remote side may do.";
        104 pkey_index: u16, "Index of the partition key.";
        106 alt_pkey_index: u16, "The same for the alternate path.";
        108 qp_state: u8, "See [`crate::types::qp_state`].";
        109 cur_qp_state: u8, "The same; both are the state now.";
        110 path_mtu: u8, "See [`crate::types::mtu`].";
        111 path_mig_state: u8, "State of path migration.";
        112 sq_draining: u8, "1: the send queue is draining.";
        113 max_rd_atomic: u8, "Outgoing reads and atomic operations in flight.";
        114 max_dest_rd_atomic: u8, "Incoming reads and atomic operations in flight.";
        115 min_rnr_timer: u8, "Wait asked of a sender without a receiver, coded.";
        116 port_num: u8, "Port, from 1.";
        117 timeout: u8, "Wait for an acknowledgement: 4.096 us * 2^n; zero for ever.";
        118 retry_cnt: u8, "Retries after such a timeout.";
        119 rnr_retry: u8, "Retries when the receiver is not ready; 7 for ever.";
        120 alt_port_num: u8, "Port of the alternate path.";
        121 alt_timeout: u8, "Timeout of the alternate path.";
        122 sq_sig_all: u8, "1: every send request makes a completion.";
        123 reserved: [u8; 5], "Zero.";
    }

    /// Request of `MODIFY_QP`.
    struct ModifyQp = "ib_uverbs_modify_qp", 112 {
        0   dest: QpDest, "Path.";
        32  alt_dest: QpDest, "Alternate path.";
        64  qp_handle: u32, "The queue pair.";
        68  attr_mask: u32, "Which fields count, see [`crate::types::QpAttrMask`].";
        72  qkey: u32, "Queue key.";
        76  rq_psn: u32, "First sequence number expected.";
        80  sq_psn: u32, "First sequence number sent.";
        84  dest_qp_num: u32, "Remote queue pair number.";
        88  qp_access_flags: u32, "What the remote side may do.";
        92  pkey_index: u16, "Index of the partition key.";
        94  alt_pkey_index: u16, "The same for the alternate path.";
        96  qp_state: u8, "State to go to, see [`crate::types::qp_state`].";
        97  cur_qp_state: u8, "State that is assumed.";
        98  path_mtu: u8, "See [`crate::types::mtu`].";
        99  path_mig_state: u8, "State of path migration.";
        100 en_sqd_async_notify: u8, "1: tell when the send queue is drained.";
        101 max_rd_atomic: u8, "Outgoing reads and atomic operations in flight.";
        102 max_dest_rd_atomic: u8, "Incoming reads and atomic operations in flight.";
        103 min_rnr_timer: u8, "Wait asked of a sender without a receiver, coded.";
        104 port_num: u8, "Port, from 1.";
        105 timeout: u8, "Wait for an acknowledgement: 4.096 us * 2^n; zero for ever.";
        106 retry_cnt: u8, "Retries after such a timeout.";
        107 rnr_retry: u8, "Retries when the receiver is not ready; 7 for ever.";
        108 alt_port_num: u8, "Port of the alternate path.";
        109 alt_timeout: u8, "Timeout of the alternate path.";
        110 reserved: [u8; 2], "Zero.";
    }

    /// Request of `EX_MODIFY_QP`.
    struct ExModifyQp = "ib_uverbs_ex_modify_qp", 120 {
        0   base: ModifyQp, "What the older command has.";
        112 rate_limit: u32, "Limit of the rate in kb/s.";
        116 reserved: u32, "Zero.";
    }

    /// Response of `EX_MODIFY_QP`.
    struct ExModifyQpResp = "ib_uverbs_ex_modify_qp_resp", 8 {
        0 comp_mask: u32, "Zero.";
        4 response_length: u32, "Bytes that the kernel filled.";
    }

    /// Request of `DESTROY_QP`.
    struct DestroyQp = "ib_uverbs_destroy_qp", 16 {
        0  response: u64, "Address of the response; used only by a write.";
        8  qp_handle: u32, "The queue pair.";
        12 reserved: u32, "Zero.";
    }

    /// Response to destroying a queue pair.
    struct DestroyQpResp = "ib_uverbs_destroy_qp_resp", 4 {
        0 events_reported: u32, "Asynchronous events of the queue pair that were read.";
    }

    /// One piece of registered memory.
    struct Sge = "ib_uverbs_sge", 16 {
        0  addr: u64, "Address, as the region was registered.";
        8  length: u32, "Bytes.";
        12 lkey: u32, "Local key of the region.";
    }

    /// A send request in `POST_SEND`.
    struct SendWr = "ib_uverbs_send_wr", 56 {
        0  wr_id: u64, "Value that the completion will carry.";
        8  num_sge: u32, "Number of pieces of memory.";
        12 opcode: u32, "See [`crate::types::wr_opcode`].";
        16 send_flags: u32, "See [`crate::types::SendFlags`].";
        20 ex: u32, "Immediate data, its bytes in network order; or the remote key to invalidate.";
        24 wr: [u8; 32], "By opcode: [`RdmaWr`], [`AtomicWr`] or [`UdWr`] at its start.";
    }

    /// Part of [`SendWr`] for reads and writes.
    struct RdmaWr = "ib_uverbs_send_wr.wr.rdma", 16 {
        0  remote_addr: u64, "Remote address.";
        8  rkey: u32, "Remote key.";
        12 reserved: u32, "Zero.";
    }

    /// Part of [`SendWr`] for atomic operations.
    struct AtomicWr = "ib_uverbs_send_wr.wr.atomic", 32 {
        0  remote_addr: u64, "Remote address, a multiple of 8.";
        8  compare_add: u64, "Value to compare with, or to add.";
        16 swap: u64, "Value to store if the comparison holds.";
        24 rkey: u32, "Remote key.";
        28 reserved: u32, "Zero.";
    }

    /// Part of [`SendWr`] for datagrams.
    struct UdWr = "ib_uverbs_send_wr.wr.ud", 16 {
        0  ah: u32, "Address handle.";
        4  remote_qpn: u32, "Remote queue pair number.";
        8  remote_qkey: u32, "Remote queue key.";
        12 reserved: u32, "Zero.";
    }

    /// Request of `POST_SEND`, followed by requests and pieces of memory.
    ///
    /// With no requests it is a doorbell: a software device then reads the shared ring.
    struct PostSend = "ib_uverbs_post_send", 24 {
        0  response: u64, "Address of the response; used only by a write.";
        8  qp_handle: u32, "The queue pair.";
        12 wr_count: u32, "Number of requests.";
        16 sge_count: u32, "Number of pieces of memory of all requests.";
        20 wqe_size: u32, "Bytes of a request, at least those of [`SendWr`].";
    }

    /// Response of `POST_SEND`.
    struct PostSendResp = "ib_uverbs_post_send_resp", 4 {
        0 bad_wr: u32, "Number of the first request that was not posted, from 1.";
    }

    /// A receive request in `POST_RECV` and `POST_SRQ_RECV`.
    struct RecvWr = "ib_uverbs_recv_wr", 16 {
        0  wr_id: u64, "Value that the completion will carry.";
        8  num_sge: u32, "Number of pieces of memory.";
        12 reserved: u32, "Zero.";
    }

    /// Request of `POST_RECV`, followed by requests and pieces of memory.
    struct PostRecv = "ib_uverbs_post_recv", 24 {
        0  response: u64, "Address of the response; used only by a write.";
        8  qp_handle: u32, "The queue pair.";
        12 wr_count: u32, "Number of requests.";
        16 sge_count: u32, "Number of pieces of memory of all requests.";
        20 wqe_size: u32, "Bytes of a request, at least those of [`RecvWr`].";
    }

    /// Response of `POST_RECV`.
    struct PostRecvResp = "ib_uverbs_post_recv_resp", 4 {
        0 bad_wr: u32, "Number of the first request that was not posted, from 1.";
    }
}
