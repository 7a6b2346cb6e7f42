//! The names of libefa with one version, and where each jumps to. The archive of libibverbs has them, too: a program that is linked statically needs
//! no other one.

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
