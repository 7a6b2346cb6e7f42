//! Names that only the driver libraries of libibverbs use. They exist so that programs linked with those libraries start, and they only
//! return errors.
//!
//! Their version changes when one of the functions changes: 34 is that of rdma-core 34 to 56, 57 that of 57 and 58, 59 that of 59 to 63, 64
//! and 65 those of the same releases. Names were added without a new version, and distributions add some to old releases, so each version
//! has all names. `tests/releases.list` has the names of each release.

use super::{everywhere, in_private_versions, one};
use crate::convert::{nothing, unsupported, unsupported_object};
use crate::device::register_driver;
use crate::query::query_gid_type;
use crate::words::wr_opcode_str;

// Programs use this one too: ibv_devinfo and pyverbs.
everywhere! { query_gid_type => ibv_query_gid_type }

// This one needs no device.
everywhere! { wr_opcode_str => ibv_wr_opcode_str }

// A driver library calls it when it is loaded.
one! {
    verbs_register_driver_34 => register_driver;
    verbs_register_driver_57 => register_driver;
    verbs_register_driver_59 => register_driver;
    verbs_register_driver_64 => register_driver;
    verbs_register_driver_65 => register_driver;
}

// These return nothing.
everywhere! { nothing => __verbs_log verbs_init_cq verbs_set_ops verbs_uninit_context }

everywhere! { unsupported =>
    __ioctl_final_num_attrs execute_ioctl ibv_cmd_advise_mr ibv_cmd_alloc_dm ibv_cmd_alloc_dmah
    ibv_cmd_alloc_mw ibv_cmd_alloc_pd ibv_cmd_attach_mcast ibv_cmd_close_xrcd ibv_cmd_create_ah
    ibv_cmd_create_comp_cntr ibv_cmd_create_counters ibv_cmd_create_cq ibv_cmd_create_cq_ex
    ibv_cmd_create_cq_ex2 ibv_cmd_create_flow ibv_cmd_create_flow_action_esp ibv_cmd_create_qp
    ibv_cmd_create_qp_ex ibv_cmd_create_qp_ex2 ibv_cmd_create_rwq_ind_table ibv_cmd_create_srq
    ibv_cmd_create_srq_ex ibv_cmd_create_wq ibv_cmd_dealloc_mw ibv_cmd_dealloc_pd ibv_cmd_dereg_mr
    ibv_cmd_destroy_ah ibv_cmd_destroy_comp_cntr ibv_cmd_destroy_counters ibv_cmd_destroy_cq
    ibv_cmd_destroy_flow ibv_cmd_destroy_flow_action ibv_cmd_destroy_qp ibv_cmd_destroy_rwq_ind_table
    ibv_cmd_destroy_srq ibv_cmd_destroy_wq ibv_cmd_detach_mcast ibv_cmd_export_dmabuf_fd ibv_cmd_free_dm
    ibv_cmd_free_dmah ibv_cmd_get_context ibv_cmd_inc_comp_cntr ibv_cmd_inc_err_comp_cntr
    ibv_cmd_modify_cq ibv_cmd_modify_flow_action_esp ibv_cmd_modify_qp ibv_cmd_modify_qp_ex
    ibv_cmd_modify_srq ibv_cmd_modify_wq ibv_cmd_open_qp ibv_cmd_open_xrcd ibv_cmd_poll_cq
    ibv_cmd_post_recv ibv_cmd_post_send ibv_cmd_post_srq_recv ibv_cmd_qp_attach_comp_cntr
    ibv_cmd_query_comp_cntr_caps ibv_cmd_query_context ibv_cmd_query_device_any ibv_cmd_query_mr
    ibv_cmd_query_port ibv_cmd_query_port_speed ibv_cmd_query_qp ibv_cmd_query_srq ibv_cmd_read_comp_cntr
    ibv_cmd_read_counters ibv_cmd_read_err_comp_cntr ibv_cmd_reg_dm_mr ibv_cmd_reg_dmabuf_mr
    ibv_cmd_reg_mr ibv_cmd_reg_mr_ex ibv_cmd_req_notify_cq ibv_cmd_rereg_mr ibv_cmd_resize_cq
    ibv_cmd_set_comp_cntr ibv_cmd_set_err_comp_cntr ibv_dmabuf_heap_cc_shared_init ibv_dmabuf_heap_destroy
    ibv_dmabuf_heap_free ibv_read_ibdev_sysfs_file
}

everywhere! { unsupported_object =>
    _verbs_init_and_alloc_context ibv_dmabuf_heap_alloc verbs_open_device
}

// A variable: whether destroying an object of a removed device succeeds.
core::arch::global_asm!(
    ".pushsection .data",
    ".globl uverbs_c_verbs_allow_disassociate_destroy",
    ".type uverbs_c_verbs_allow_disassociate_destroy,@object",
    "uverbs_c_verbs_allow_disassociate_destroy: .byte 0",
    ".size uverbs_c_verbs_allow_disassociate_destroy,1",
    in_private_versions!("object", verbs_allow_disassociate_destroy),
    ".popsection",
);
