//! The function tables of a context. Inline functions of `infiniband/verbs.h` call their entries: those of today's header call only the
//! entries without `_compat_` in their names; those of older headers call others too.
//!
//! Every entry is set, as in libibverbs (`verbs_set_ops`, dummy_ops.c and `set_lib_ops`, device.c, rdma-core 44 to 65): programs that were
//! compiled with older headers call some of them without a check for null.

use crate::abi::{ContextOps, Function};
use crate::convert::{nothing, unsupported, unsupported_minus_one, unsupported_object};
use crate::providers::rings::Rings;
use crate::{
    abi, buf, counters, cq, cq_ex, domain, flow, mr, mw, pd, post, qp, query, receive, srq, wq, xrcd,
};

/// Words of `verbs_context` before its `context`.
pub(crate) const FRONT: usize = 46;

/// Functions by their offset in a table.
macro_rules! table {
    ($len:expr; $($offset:literal $function:expr;)*) => {{
        let mut table = [std::ptr::null(); $len];
        $(table[$offset / size_of::<Function>()] = $function as Function;)*
        table
    }};
}

/// The functions of `verbs_context`. Entries that only return an error are for features that no driver here has; the inline functions would
/// return the same error if these entries were null.
pub(crate) fn front() -> [Function; FRONT] {
    let mut front = table! {
        FRONT;
        0 buf::free_buf;
        8 buf::alloc_buf;
        16 unsupported_minus_one; // dm_export_dmabuf_fd
        24 mr::reg_mr_ex;
        32 unsupported; // dealloc_dmah
        40 unsupported_object; // alloc_dmah
        48 query::query_port_sized;
        56 mr::advise_mr;
        64 unsupported_object; // alloc_null_mr
        72 counters::read_counters;
        80 counters::attach_counters_point_flow;
        88 counters::create_counters;
        96 counters::destroy_counters;
        104 unsupported_object; // reg_dm_mr
        112 unsupported_object; // alloc_dm
        120 unsupported; // free_dm
        128 unsupported; // modify_flow_action_esp
        136 unsupported; // destroy_flow_action
        144 unsupported_object; // create_flow_action_esp
        152 unsupported; // modify_qp_rate_limit
        160 domain::alloc_parent_domain;
        168 domain::dealloc_td;
        176 domain::alloc_td;
        184 cq::modify_cq;
        192 unsupported; // post_srq_ops
        200 wq::destroy_rwq_ind_table;
        208 wq::create_rwq_ind_table;
        216 wq::destroy_wq;
        224 wq::modify_wq;
        232 wq::create_wq;
        240 unsupported; // query_rt_values
        248 cq_ex::create_cq_ex;
        264 query::query_device_ex;
        272 flow::destroy_flow;
        280 flow::destroy_flow; // for programs compiled with libibverbs 1.1.8
        288 flow::create_flow;
        296 flow::create_flow; // likewise
        304 qp::open_qp;
        312 qp::create_qp_ex;
        320 srq::get_srq_num;
        328 srq::create_srq_ex;
        336 xrcd::open_xrcd;
        344 xrcd::close_xrcd;
    };
    // The size of the whole `verbs_context`.
    front[360 / size_of::<Function>()] =
        std::ptr::without_provenance(FRONT * size_of::<Function>() + size_of::<abi::Context>());
    front
}

/// Replaces the function that polls.
pub(crate) fn set_poll(operations: &mut ContextOps, poll: Function) {
    operations[88 / size_of::<Function>()] = poll;
}

/// The functions of `ibv_context_ops`. Today's header calls its entries without a check for null. The other entries are called like the
/// exported functions of the same names, and all but two are these functions.
pub(crate) fn operations<R: Rings>() -> ContextOps {
    table! {
        32;
        0 query::query_device;
        8 query::query_port;
        16 pd::alloc_pd;
        24 pd::dealloc_pd;
        32 mr::reg_mr;
        40 mr::rereg_mr;
        48 mr::dereg_mr;
        56 mw::alloc_mw;
        64 mw::bind_mw;
        72 mw::dealloc_mw;
        80 cq::create_plain_cq;
        88 cq::poll_cq::<R>;
        96 cq::req_notify_cq;
        104 nothing; // `cq_event`: a driver's handler of completion events
        112 cq::resize_cq;
        120 cq::destroy_cq;
        128 srq::create_srq;
        136 srq::modify_srq;
        144 srq::query_srq;
        152 srq::destroy_srq;
        160 receive::post_srq_recv::<R>;
        168 qp::create_qp;
        176 qp::query_qp;
        184 qp::modify_qp;
        192 qp::destroy_qp;
        200 post::post_send::<R>;
        208 receive::post_recv::<R>;
        216 pd::create_ah;
        224 pd::destroy_ah;
        232 qp::attach_mcast;
        240 qp::detach_mcast;
        248 nothing; // `async_event`: a driver's handler of asynchronous events
    }
}
