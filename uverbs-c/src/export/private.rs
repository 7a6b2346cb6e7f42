//! Names that only libibverbs' own driver libraries use: there, so that programs linked with those start, and refusing.
//!
//! They have the version of rdma-core's release as their own: 34 is that of Debian 12, 65 that of rdma-core 65.

use super::{both, one};
use crate::convert::{unsupported, unsupported_object};
use crate::device::register_driver;
use crate::query::query_gid_type;

// What programs use all the same: ibv_devinfo and pyverbs.
both! { query_gid_type => ibv_query_gid_type }

// A driver library calls it when it is loaded.
one! {
    verbs_register_driver_34 => register_driver;
    verbs_register_driver_65 => register_driver;
}

both! { unsupported =>
    __ioctl_final_num_attrs __verbs_log execute_ioctl ibv_cmd_advise_mr ibv_cmd_alloc_dm ibv_cmd_alloc_mw
    ibv_cmd_alloc_pd ibv_cmd_attach_mcast ibv_cmd_close_xrcd ibv_cmd_create_ah ibv_cmd_create_counters
    ibv_cmd_create_cq ibv_cmd_create_cq_ex ibv_cmd_create_flow ibv_cmd_create_flow_action_esp
    ibv_cmd_create_qp ibv_cmd_create_qp_ex ibv_cmd_create_qp_ex2 ibv_cmd_create_rwq_ind_table
    ibv_cmd_create_srq ibv_cmd_create_srq_ex ibv_cmd_create_wq ibv_cmd_dealloc_mw ibv_cmd_dealloc_pd
    ibv_cmd_dereg_mr ibv_cmd_destroy_ah ibv_cmd_destroy_counters ibv_cmd_destroy_cq ibv_cmd_destroy_flow
    ibv_cmd_destroy_flow_action ibv_cmd_destroy_qp ibv_cmd_destroy_rwq_ind_table ibv_cmd_destroy_srq
    ibv_cmd_destroy_wq ibv_cmd_detach_mcast ibv_cmd_free_dm ibv_cmd_get_context ibv_cmd_modify_cq
    ibv_cmd_modify_flow_action_esp ibv_cmd_modify_qp ibv_cmd_modify_qp_ex ibv_cmd_modify_srq
    ibv_cmd_modify_wq ibv_cmd_open_qp ibv_cmd_open_xrcd ibv_cmd_poll_cq ibv_cmd_post_recv ibv_cmd_post_send
    ibv_cmd_post_srq_recv ibv_cmd_query_context ibv_cmd_query_device_any ibv_cmd_query_mr
    ibv_cmd_query_port ibv_cmd_query_qp ibv_cmd_query_srq ibv_cmd_read_counters ibv_cmd_reg_dm_mr
    ibv_cmd_reg_dmabuf_mr ibv_cmd_reg_mr ibv_cmd_req_notify_cq ibv_cmd_rereg_mr ibv_cmd_resize_cq
    ibv_read_ibdev_sysfs_file verbs_init_cq verbs_set_ops verbs_uninit_context
}

both! { unsupported_object => _verbs_init_and_alloc_context verbs_open_device }

one! {
    ibv_cmd_alloc_dmah => unsupported;
    ibv_cmd_create_comp_cntr => unsupported;
    ibv_cmd_create_cq_ex2 => unsupported;
    ibv_cmd_destroy_comp_cntr => unsupported;
    ibv_cmd_export_dmabuf_fd => unsupported;
    ibv_cmd_free_dmah => unsupported;
    ibv_cmd_inc_comp_cntr => unsupported;
    ibv_cmd_inc_err_comp_cntr => unsupported;
    ibv_cmd_qp_attach_comp_cntr => unsupported;
    ibv_cmd_query_comp_cntr_caps => unsupported;
    ibv_cmd_query_port_speed => unsupported;
    ibv_cmd_read_comp_cntr => unsupported;
    ibv_cmd_read_err_comp_cntr => unsupported;
    ibv_cmd_reg_mr_ex => unsupported;
    ibv_cmd_set_comp_cntr => unsupported;
    ibv_cmd_set_err_comp_cntr => unsupported;
    ibv_dmabuf_heap_alloc => unsupported_object;
    ibv_dmabuf_heap_cc_shared_init => unsupported;
    ibv_dmabuf_heap_destroy => unsupported;
    ibv_dmabuf_heap_free => unsupported;
    ibv_wr_opcode_str => unsupported_object;
}

// A variable: whether the destroy of an object of a device that has gone is success.
core::arch::global_asm!(
    ".pushsection .data",
    ".globl uverbs_c_allow_65",
    ".type uverbs_c_allow_65,@object",
    ".globl uverbs_c_allow_34",
    ".type uverbs_c_allow_34,@object",
    "uverbs_c_allow_65:",
    "uverbs_c_allow_34: .byte 0",
    ".size uverbs_c_allow_65,1",
    ".size uverbs_c_allow_34,1",
    ".symver uverbs_c_allow_65,verbs_allow_disassociate_destroy@@IBVERBS_PRIVATE_65",
    ".symver uverbs_c_allow_34,verbs_allow_disassociate_destroy@IBVERBS_PRIVATE_34",
    ".popsection",
);
