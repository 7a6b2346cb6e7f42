//! The targets of the jumps in the driver libraries that belong to this one (`../../mlx5/`, `../../efa/`).

use super::one;
use crate::convert::{nothing, unsupported, unsupported_minus_one, unsupported_object};
use crate::providers::{efa, mlx5};

one! {
    uverbs_efa_cq_from_ibv_cq_ex => efa::cq_from_ibv_cq_ex;
    uverbs_efa_create_comp_cntr => efa::create_comp_cntr;
    uverbs_efa_create_cq => efa::create_cq;
    uverbs_efa_create_driver_qp => efa::create_driver_qp;
    uverbs_efa_create_qp_ex => efa::create_qp_ex;
    uverbs_efa_get_max_rq_depth => efa::get_max_rq_depth;
    uverbs_efa_get_max_sq_depth => efa::get_max_sq_depth;
    uverbs_efa_qp_from_ibv_qp_ex => efa::qp_from_ibv_qp_ex;
    uverbs_efa_query_ah => efa::query_ah;
    uverbs_efa_query_cq => efa::query_cq;
    uverbs_efa_query_device => efa::query_device;
    uverbs_efa_query_mr => efa::query_mr;
    uverbs_efa_query_qp_wqs => efa::query_qp_wqs;
    uverbs_mlx5_create_cq => mlx5::create_cq;
    uverbs_mlx5_create_dest_qp => mlx5::create_dest_qp;
    uverbs_mlx5_create_qp => mlx5::create_qp;
    uverbs_mlx5_create_wq => mlx5::create_wq;
    uverbs_mlx5_destroy_action => mlx5::destroy_action;
    uverbs_mlx5_export_sizes => mlx5::export_sizes;
    uverbs_mlx5_init_obj => mlx5::init_obj;
    uverbs_mlx5_init_obj_0 => mlx5::init_obj_0;
    uverbs_mlx5_is_supported => mlx5::is_supported;
    uverbs_mlx5_open_device => mlx5::open_device;
    uverbs_mlx5_query_device => mlx5::query_device;
    uverbs_mlx5_set_context_attr => mlx5::set_context_attr;
    uverbs_nothing => nothing;
    uverbs_unsupported => unsupported;
    uverbs_unsupported_minus_one => unsupported_minus_one;
    uverbs_unsupported_object => unsupported_object;
}
