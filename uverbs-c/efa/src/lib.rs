//! `libefa.so.1`, for programs that call it themselves (`efadv_*`): libfabric, perftest, pyverbs.
//!
//! rdma-core's libefa does not recognise this library's devices as its own. This library has the same names in the same versions, with the
//! same behaviour. All of it is implemented in `libibverbs.so.1`, under names with their own version (`UVERBS_1` in `ibverbs.map`); here
//! are only jumps.
//!
//! # Safety
//! A label and a jump: the assembly here has no other effect. The target has the parameters that the header `efadv.h` of rdma-core 65
//! declares.

#![allow(unsafe_code)]
// Without the standard library it has 4 kB, with it 280. A profile whose panics unwind needs it.
#![cfg_attr(panic = "abort", no_std)]

#[path = "../../beside/jumps.rs"]
#[macro_use]
mod jumps;

names! { uverbs_efa_cq_from_ibv_cq_ex => efadv_cq_from_ibv_cq_ex }
names! { uverbs_efa_create_comp_cntr => efadv_create_comp_cntr }
names! { uverbs_efa_create_cq => efadv_create_cq }
names! { uverbs_efa_create_driver_qp => efadv_create_driver_qp }
names! { uverbs_efa_create_qp_ex => efadv_create_qp_ex }
names! { uverbs_efa_get_max_rq_depth => efadv_get_max_rq_depth }
names! { uverbs_efa_get_max_sq_depth => efadv_get_max_sq_depth }
names! { uverbs_efa_qp_from_ibv_qp_ex => efadv_qp_from_ibv_qp_ex }
names! { uverbs_efa_query_ah => efadv_query_ah }
names! { uverbs_efa_query_cq => efadv_query_cq }
names! { uverbs_efa_query_device => efadv_query_device }
names! { uverbs_efa_query_mr => efadv_query_mr }
names! { uverbs_efa_query_qp_wqs => efadv_query_qp_wqs }
