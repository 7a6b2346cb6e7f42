//! The names of libmlx5 with one version, and where each jumps to. The archive of libibverbs has them, too: a program that is linked statically needs
//! no other one.

names! { uverbs_mlx5_query_device => mlx5dv_query_device }

names! { uverbs_mlx5_get_clock_info => mlx5dv_get_clock_info }
names! { uverbs_mlx5_query_port => _mlx5dv_query_port }

names! { uverbs_mlx5_alloc_var => mlx5dv_alloc_var }
names! { uverbs_mlx5_free_var => mlx5dv_free_var }
names! { uverbs_mlx5_create_flow => mlx5dv_create_flow }
names! { uverbs_mlx5_create_flow_matcher => mlx5dv_create_flow_matcher }
names! { uverbs_mlx5_create_flow_sized => __mlx5dv_create_flow }
names! { uverbs_mlx5_create_modify_header => mlx5dv_create_flow_action_modify_header }
names! { uverbs_mlx5_create_packet_reformat => mlx5dv_create_flow_action_packet_reformat }
names! { uverbs_mlx5_destroy_flow_matcher => mlx5dv_destroy_flow_matcher }
names! { uverbs_mlx5_devx_alloc_uar => mlx5dv_devx_alloc_uar }
names! { uverbs_mlx5_devx_cq_modify => mlx5dv_devx_cq_modify }
names! { uverbs_mlx5_devx_cq_query => mlx5dv_devx_cq_query }
names! { uverbs_mlx5_devx_create_cmd_comp => mlx5dv_devx_create_cmd_comp }
names! { uverbs_mlx5_devx_create_event_channel => mlx5dv_devx_create_event_channel }
names! { uverbs_mlx5_devx_destroy_cmd_comp => mlx5dv_devx_destroy_cmd_comp }
names! { uverbs_mlx5_devx_destroy_event_channel => mlx5dv_devx_destroy_event_channel }
names! { uverbs_mlx5_devx_free_uar => mlx5dv_devx_free_uar }
names! { uverbs_mlx5_devx_general_cmd => mlx5dv_devx_general_cmd }
names! { uverbs_mlx5_devx_get_cmd_comp => mlx5dv_devx_get_async_cmd_comp }
names! { uverbs_mlx5_devx_get_event => mlx5dv_devx_get_event }
names! { uverbs_mlx5_devx_ind_tbl_modify => mlx5dv_devx_ind_tbl_modify }
names! { uverbs_mlx5_devx_ind_tbl_query => mlx5dv_devx_ind_tbl_query }
names! { uverbs_mlx5_devx_obj_create => mlx5dv_devx_obj_create }
names! { uverbs_mlx5_devx_obj_destroy => mlx5dv_devx_obj_destroy }
names! { uverbs_mlx5_devx_obj_modify => mlx5dv_devx_obj_modify }
names! { uverbs_mlx5_devx_obj_query => mlx5dv_devx_obj_query }
names! { uverbs_mlx5_devx_qp_modify => mlx5dv_devx_qp_modify }
names! { uverbs_mlx5_devx_qp_query => mlx5dv_devx_qp_query }
names! { uverbs_mlx5_devx_query_async => mlx5dv_devx_obj_query_async }
names! { uverbs_mlx5_devx_query_eqn => mlx5dv_devx_query_eqn }
names! { uverbs_mlx5_devx_srq_modify => mlx5dv_devx_srq_modify }
names! { uverbs_mlx5_devx_srq_query => mlx5dv_devx_srq_query }
names! { uverbs_mlx5_devx_subscribe => mlx5dv_devx_subscribe_devx_event }
names! { uverbs_mlx5_devx_subscribe_fd => mlx5dv_devx_subscribe_devx_event_fd }
names! { uverbs_mlx5_devx_umem_dereg => mlx5dv_devx_umem_dereg }
names! { uverbs_mlx5_devx_umem_reg => mlx5dv_devx_umem_reg }
names! { uverbs_mlx5_devx_umem_reg_ex => mlx5dv_devx_umem_reg_ex }
names! { uverbs_mlx5_devx_wq_modify => mlx5dv_devx_wq_modify }
names! { uverbs_mlx5_devx_wq_query => mlx5dv_devx_wq_query }

names! { uverbs_mlx5_pp_alloc => mlx5dv_pp_alloc }
names! { uverbs_mlx5_pp_free => mlx5dv_pp_free }
names! { uverbs_mlx5_reserved_qpn_alloc => mlx5dv_reserved_qpn_alloc }
names! { uverbs_mlx5_reserved_qpn_dealloc => mlx5dv_reserved_qpn_dealloc }

names! { uverbs_mlx5_create_cq => mlx5dv_create_cq }
names! { uverbs_mlx5_create_dest_qp => mlx5dv_dr_action_create_dest_ibv_qp }
names! { uverbs_mlx5_create_qp => mlx5dv_create_qp }
names! { uverbs_mlx5_create_wq => mlx5dv_create_wq }
names! { uverbs_mlx5_destroy_action => mlx5dv_dr_action_destroy }
names! { uverbs_mlx5_is_supported => mlx5dv_is_supported }
names! { uverbs_mlx5_set_context_attr => mlx5dv_set_context_attr }
names! { uverbs_mlx5_open_device => mlx5dv_open_device }

names! { uverbs_mlx5_export_sizes => _mlx5dv_get_export_sizes }

names! { uverbs_unsupported_object =>
    mlx5dv_alloc_dm mlx5dv_create_flow_action_esp mlx5dv_create_mkey
    mlx5dv_create_steering_anchor mlx5dv_crypto_login_create mlx5dv_dek_create mlx5dv_devx_alloc_msi_vector
    mlx5dv_devx_create_eq mlx5dv_devx_obj_import mlx5dv_devx_umem_import
    mlx5dv_dm_map_op_addr mlx5dv_dr_action_create_aso mlx5dv_dr_action_create_default_miss
    mlx5dv_dr_action_create_dest_array mlx5dv_dr_action_create_dest_devx_tir mlx5dv_dr_action_create_dest_ib_port
    mlx5dv_dr_action_create_dest_root_table mlx5dv_dr_action_create_dest_table
    mlx5dv_dr_action_create_dest_vport mlx5dv_dr_action_create_drop mlx5dv_dr_action_create_flow_counter
    mlx5dv_dr_action_create_flow_meter mlx5dv_dr_action_create_flow_sampler mlx5dv_dr_action_create_modify_header
    mlx5dv_dr_action_create_packet_reformat mlx5dv_dr_action_create_pop_vlan mlx5dv_dr_action_create_push_vlan
    mlx5dv_dr_action_create_tag mlx5dv_dr_domain_create mlx5dv_dr_matcher_create mlx5dv_dr_rule_create
    mlx5dv_dr_table_create mlx5dv_get_vfio_device_list
    mlx5dv_qp_ex_from_ibv_qp_ex mlx5dv_reg_dmabuf_mr mlx5dv_sched_leaf_create mlx5dv_sched_node_create
    mlx5dv_var_import
}

names! { uverbs_unsupported =>
    _mlx5dv_mkey_check mlx5dv_crypto_login mlx5dv_crypto_login_destroy mlx5dv_crypto_login_query
    mlx5dv_crypto_login_query_state mlx5dv_crypto_logout mlx5dv_dci_stream_id_reset mlx5dv_dek_destroy
    mlx5dv_dek_query mlx5dv_destroy_mkey mlx5dv_destroy_steering_anchor mlx5dv_devx_destroy_eq
    mlx5dv_devx_free_msi_vector mlx5dv_devx_obj_export mlx5dv_devx_uar_export_dmabuf_fd mlx5dv_devx_umem_export
    mlx5dv_dr_action_modify_aso mlx5dv_dr_action_modify_flow_meter mlx5dv_dr_aso_other_domain_link
    mlx5dv_dr_aso_other_domain_unlink mlx5dv_dr_domain_destroy mlx5dv_dr_domain_sync mlx5dv_dr_matcher_destroy
    mlx5dv_dr_matcher_set_layout mlx5dv_dr_rule_destroy mlx5dv_dr_table_destroy mlx5dv_dump_dr_domain
    mlx5dv_dump_dr_matcher mlx5dv_dump_dr_rule mlx5dv_dump_dr_table
    mlx5dv_get_data_direct_sysfs_path mlx5dv_map_ah_to_qp mlx5dv_modify_qp_lag_port mlx5dv_modify_qp_sched_elem
    mlx5dv_modify_qp_udp_sport mlx5dv_qp_cancel_posted_send_wrs mlx5dv_query_qp_lag_port
    mlx5dv_sched_leaf_destroy mlx5dv_sched_leaf_modify mlx5dv_sched_node_destroy
    mlx5dv_sched_node_modify mlx5dv_var_export mlx5dv_vfio_get_events_fd
    mlx5dv_vfio_process_events
}

names! { uverbs_nothing =>
    mlx5dv_devx_obj_unimport
    mlx5dv_devx_umem_unimport mlx5dv_dr_domain_allow_duplicate_rules mlx5dv_dr_domain_set_reclaim_device_memory
    mlx5dv_var_unimport
}
