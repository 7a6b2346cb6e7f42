//! The exported names and their functions.
//!
//! # Safety
//! A label and a jump: the assembly here has no other effect. The linker's map (`ibverbs.map`) gives each label its version. rustc does not
//! know these names, so they are not in its own list of exports, which has no versions. The compiler cannot check that a function has the
//! parameters that the header declares: that is left to review.

#![allow(unsafe_code)]

mod archive;
mod private;
mod providers;

/// Names with one version.
macro_rules! one {
    ($($name:ident => $function:path;)*) => {
        $($crate::export::label!(stringify!($name), "", $function);)*
    };
}

/// Names that exist in every private version.
macro_rules! everywhere {
    ($function:path => $($name:ident)*) => {
        $($crate::export::label!(
            concat!("uverbs_c_", stringify!($name)),
            $crate::export::in_private_versions!("function", $name),
            $function
        );)*
    };
}

/// Names for `uverbs_c_NAME` in each private version: a symbol can have only one version.
macro_rules! in_private_versions {
    ($type:literal, $name:ident) => {
        $crate::export::in_private_versions!($type, $name, "34" "@", "57" "@", "59" "@", "64" "@", "65" "@@")
    };
    ($type:literal, $name:ident, $($version:literal $at:literal),*) => {
        concat!($(
            ".globl uverbs_c_", $version, "_", stringify!($name), "\n",
            ".type uverbs_c_", $version, "_", stringify!($name), ",@", $type, "\n",
            ".set uverbs_c_", $version, "_", stringify!($name), ",uverbs_c_", stringify!($name), "\n",
            ".symver uverbs_c_", $version, "_", stringify!($name), ",",
            stringify!($name), $at, "IBVERBS_PRIVATE_", $version, "\n",
        )*)
    };
}

/// A label that jumps to a function.
macro_rules! label {
    ($name:expr, $version:expr, $function:path) => {
        core::arch::global_asm!(
            concat!(".globl ", $name),
            concat!(".type ", $name, ",@function"),
            concat!($name, ": ", $crate::export::jump!(), " {function}"),
            concat!(".size ", $name, ",.-", $name),
            $version,
            function = sym $function,
        );
    };
}

#[cfg(target_arch = "x86_64")]
macro_rules! jump {
    () => {
        "jmp"
    };
}

#[cfg(not(target_arch = "x86_64"))]
macro_rules! jump {
    () => {
        "b"
    };
}

use {everywhere, in_private_versions, jump, label, one};

use crate::convert::{nothing, unsupported, unsupported_minus_one, unsupported_object};
use crate::{buf, channel, comp_cntr, context, convert, cq, device, mr, pd, qp, query, srq, sysfs, words};

one! {
    ibv_get_device_list => device::get_device_list;
    ibv_free_device_list => device::free_device_list;
    ibv_get_device_name => device::get_device_name;
    ibv_get_device_guid => device::get_device_guid;
    ibv_get_device_index => device::get_device_index;
    ibv_fork_init => device::fork_init;
    ibv_is_fork_initialized => device::is_fork_initialized;
    ibv_dofork_range => device::dofork_range;
    ibv_dontfork_range => device::dontfork_range;
    ibv_register_driver => nothing;
    ibv_get_sysfs_path => sysfs::get_sysfs_path;
    ibv_read_sysfs_file => sysfs::read_sysfs_file;

    ibv_open_device => context::open_device;
    ibv_close_device => context::close_device;
    ibv_get_async_event => context::get_async_event;
    ibv_ack_async_event => channel::ack_async_event;
    ibv_query_device => query::query_device;
    ibv_query_port => query::query_port;
    ibv_query_port_speed => query::query_port_speed;
    ibv_query_gid => query::query_gid;
    _ibv_query_gid_ex => query::query_gid_ex;
    _ibv_query_gid_table => query::query_gid_table;
    ibv_query_pkey => query::query_pkey;
    ibv_get_pkey_index => query::get_pkey_index;

    ibv_alloc_pd => pd::alloc_pd;
    ibv_dealloc_pd => pd::dealloc_pd;
    ibv_reg_mr => mr::reg_mr;
    ibv_reg_mr_iova => mr::reg_mr_iova;
    ibv_reg_mr_iova2 => mr::reg_mr_iova2;
    ibv_reg_mr_ex => mr::reg_mr_ex;
    ibv_reg_dmabuf_mr => mr::reg_dmabuf_mr;
    ibv_reg_buf_mr => mr::reg_buf_mr;
    ibv_alloc_buf => buf::alloc_buf;
    ibv_free_buf => buf::free_buf;
    ibv_export_buf_dmabuf_fd => buf::export_buf_dmabuf_fd;
    ibv_rereg_mr => mr::rereg_mr;
    ibv_dereg_mr => mr::dereg_mr;
    ibv_create_ah => pd::create_ah;
    ibv_create_ah_from_wc => convert::create_ah_from_wc;
    ibv_init_ah_from_wc => convert::init_ah_from_wc;
    ibv_destroy_ah => pd::destroy_ah;

    ibv_create_comp_channel => channel::create_comp_channel;
    ibv_destroy_comp_channel => channel::destroy_comp_channel;
    ibv_get_cq_event => channel::get_cq_event;
    ibv_ack_cq_events => channel::ack_cq_events;
    ibv_create_cq => cq::create_cq;
    ibv_resize_cq => cq::resize_cq;
    ibv_destroy_cq => cq::destroy_cq;
    ibv_create_srq => srq::create_srq;
    ibv_modify_srq => srq::modify_srq;
    ibv_query_srq => srq::query_srq;
    ibv_destroy_srq => srq::destroy_srq;

    ibv_create_qp => qp::create_qp;
    ibv_qp_to_qp_ex => qp::qp_to_qp_ex;
    ibv_modify_qp => qp::modify_qp;
    ibv_query_qp => qp::query_qp;
    ibv_query_qp_data_in_order => qp::query_qp_data_in_order;
    ibv_destroy_qp => qp::destroy_qp;
    ibv_attach_mcast => qp::attach_mcast;
    ibv_detach_mcast => qp::detach_mcast;
    ibv_query_ece => convert::query_ece;
    ibv_set_ece => convert::set_ece;

    _ibv_query_comp_cntr_caps => comp_cntr::query_comp_cntr_caps;
    ibv_create_comp_cntr => comp_cntr::create_comp_cntr;
    ibv_destroy_comp_cntr => comp_cntr::destroy_comp_cntr;
    ibv_set_comp_cntr => comp_cntr::set_comp_cntr;
    ibv_set_err_comp_cntr => comp_cntr::set_err_comp_cntr;
    ibv_inc_comp_cntr => comp_cntr::inc_comp_cntr;
    ibv_inc_err_comp_cntr => comp_cntr::inc_err_comp_cntr;
    ibv_read_comp_cntr => comp_cntr::read_comp_cntr;
    ibv_read_err_comp_cntr => comp_cntr::read_err_comp_cntr;
    ibv_qp_attach_comp_cntr => comp_cntr::qp_attach_comp_cntr;

    ibv_copy_ah_attr_from_kern => convert::copy_ah_attr_from_kern;
    ibv_copy_qp_attr_from_kern => convert::copy_qp_attr_from_kern;
    ibv_copy_path_rec_from_kern => convert::copy_path_rec_from_kern;
    ibv_copy_path_rec_to_kern => convert::copy_path_rec_to_kern;

    ibv_wc_status_str => words::wc_status_str;
    ibv_event_type_str => words::event_type_str;
    ibv_node_type_str => words::node_type_str;
    ibv_port_state_str => words::port_state_str;
    ibv_rate_to_mult => words::rate_to_mult;
    mult_to_ibv_rate => words::mult_to_rate;
    ibv_rate_to_mbps => words::rate_to_mbps;
    mbps_to_ibv_rate => words::mbps_to_rate;
}

// Functions that are not implemented.
one! {
    ibv_resolve_eth_l2_from_gid => unsupported;
    ibv_import_device => context::import_device;
    ibv_import_pd => pd::import_pd;
    ibv_unimport_pd => pd::unimport_pd;
    ibv_import_mr => mr::import_mr;
    ibv_unimport_mr => mr::unimport_mr;
    ibv_import_dm => unsupported_object;
    ibv_unimport_dm => nothing;
    ibv_alloc_dmah => unsupported_object;
    ibv_dealloc_dmah => unsupported;
    ibv_dm_export_dmabuf_fd => unsupported_minus_one;
}
