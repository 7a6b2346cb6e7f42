/*
 * The calls of libmlx5 (mlx5dv_*) on a device, a context and objects of whichever libibverbs the loader finds.
 *
 * usage: mlx5-direct DEVICE ADDRESS, the address being the index of one in the port's table
 *
 * Prints a line for each call: its name, and `refused` if it reports EOPNOTSUPP or that the device is not its own, `done` if it
 * does what is asked, or the errno; and what the device is reported to have. Objects are not destroyed, unless their destroy call
 * is to be tested.
 */
#define _GNU_SOURCE
#include <infiniband/mlx5dv.h>
#include <sys/mman.h>
#include <unistd.h>

#include "../../lib/check.h"

static void tell(const char *call, int code)
{
	printf("%s %s\n", call, !code ? "done" : code == EOPNOTSUPP ? "refused" : strerrorname_np(abs(code)));
}

/* The name is printed first, in case the call does not return. */
#define BEGIN(call) (fprintf(stderr, "%s\n", call), errno = 0)
/* A call that returns 0 or the error. */
#define ASK(call, arguments...) (BEGIN(#call), tell(#call, call(arguments)))
/* A call that returns a pointer, or null and errno. */
#define MAKE(call, arguments...) \
	({ \
		BEGIN(#call); \
		typeof(call(arguments)) made_ = call(arguments); \
		tell(#call, made_ ? 0 : errno); \
		made_; \
	})

static struct ibv_context *context;
static struct ibv_pd *pd;
static struct ibv_cq *cq;
static struct ibv_qp *qp, *raw;
static struct ibv_srq *srq;
static struct ibv_wq *wq;
static struct ibv_rwq_ind_table *table;
static struct ibv_ah *ah;
static uint64_t in[64], out[64];
static void *page;

static void make_objects(int address)
{
	CHECK(pd = ibv_alloc_pd(context));
	CHECK(cq = ibv_create_cq(context, 16, NULL, NULL, 0));
	struct ibv_qp_init_attr init = { .send_cq = cq, .recv_cq = cq, .cap = { 4, 4, 1, 1, 0 }, .qp_type = IBV_QPT_RC };
	CHECK(qp = ibv_create_qp(pd, &init));
	init.qp_type = IBV_QPT_RAW_PACKET;
	CHECK(raw = ibv_create_qp(pd, &init));
	struct ibv_srq_init_attr shared = { .attr = { .max_wr = 4, .max_sge = 1 } };
	CHECK(srq = ibv_create_srq(pd, &shared));
	struct ibv_wq_init_attr work = { .wq_type = IBV_WQT_RQ, .max_wr = 4, .max_sge = 1, .pd = pd, .cq = cq };
	CHECK(wq = ibv_create_wq(context, &work));
	struct ibv_rwq_ind_table_init_attr spread = { .log_ind_tbl_size = 0, .ind_tbl = &wq };
	CHECK(table = ibv_create_rwq_ind_table(context, &spread));
	struct ibv_ah_attr there = { .is_global = 1, .port_num = 1, .grh.sgid_index = address };
	CHECK(!ibv_query_gid(context, 1, address, &there.grh.dgid));
	CHECK(ah = ibv_create_ah(pd, &there));
	page = mmap(NULL, 1 << 16, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	CHECK(page != MAP_FAILED);
}

static void the_device(struct ibv_device *device)
{
	BEGIN("mlx5dv_is_supported");
	tell("mlx5dv_is_supported", mlx5dv_is_supported(device) ? 0 : EOPNOTSUPP);
	struct mlx5dv_context_attr attr = {};
	context = MAKE(mlx5dv_open_device, device, &attr);
	if (!context)
		CHECK(context = ibv_open_device(device));
}

static void the_context(void)
{
	struct mlx5dv_context answer = {};
	struct mlx5dv_ctx_allocators allocators = {};
	struct mlx5dv_clock_info clock = {};
	struct mlx5dv_port port = {};
	uint32_t number = 0;

	/* The fields that the drop-in knows: the lowest five. */
	answer.comp_mask = MLX5DV_CONTEXT_MASK_DYN_BFREGS * 2 - 1;
	ASK(mlx5dv_query_device, context, &answer);
	printf("told:");
	for (size_t at = 0; at < offsetof(struct mlx5dv_context, max_clock_info_update_nsec); at += sizeof(uint32_t))
		printf(" %x", ((uint32_t *)&answer)[at / sizeof(uint32_t)]);
	/* And those that it does not know. */
	answer.comp_mask = MLX5DV_CONTEXT_MASK_NUM_LAG_PORTS | MLX5DV_CONTEXT_MASK_SWP;
	printf("\n%s\n", mlx5dv_query_device(context, &answer) || answer.comp_mask & ~(MLX5DV_CONTEXT_MASK_NUM_LAG_PORTS | MLX5DV_CONTEXT_MASK_SWP) ? "more than asked" : "told what was asked");
	ASK(mlx5dv_query_port, context, 1, &port);
	printf("told: port %lx %x\n", (long)port.flags, port.vport);
	printf("told: a port that is not there %d\n", mlx5dv_query_port(context, 77, &port));
	ASK(mlx5dv_get_clock_info, context, &clock);
	printf("told: clock mult %x shift %u mask %lx, %s\n", clock.mult, clock.shift, (long)clock.mask, clock.nsec ? "a time" : "none");
	ASK(mlx5dv_set_context_attr, context, MLX5DV_CTX_ATTR_BUF_ALLOCATORS, &allocators);
	ASK(mlx5dv_reserved_qpn_alloc, context, &number);
	ASK(mlx5dv_reserved_qpn_dealloc, context, number);

	struct mlx5dv_crypto_login_attr login = {};
	struct mlx5dv_crypto_login_attr_ex login_ex = {};
	enum mlx5dv_crypto_login_state state;
	struct mlx5dv_dek_init_attr key = { .pd = pd };
	ASK(mlx5dv_crypto_login, context, &login);
	ASK(mlx5dv_crypto_login_query_state, context, &state);
	ASK(mlx5dv_crypto_logout, context);
	MAKE(mlx5dv_crypto_login_create, context, &login_ex);
	MAKE(mlx5dv_dek_create, context, &key);

	struct mlx5dv_sched_attr sched = {};
	MAKE(mlx5dv_sched_node_create, context, &sched);
	MAKE(mlx5dv_sched_leaf_create, context, &sched);
	ASK(mlx5dv_modify_qp_sched_elem, qp, NULL, NULL);
}

static void objects(void)
{
	struct ibv_cq_init_attr_ex cq_attr = { .cqe = 16 };
	struct mlx5dv_cq_init_attr cq_more = {};
	MAKE(mlx5dv_create_cq, context, &cq_attr, &cq_more);

	struct ibv_qp_init_attr_ex qp_attr = {
		.send_cq = cq, .recv_cq = cq, .cap = { 4, 4, 1, 1, 0 }, .qp_type = IBV_QPT_RC, .pd = pd, .comp_mask = IBV_QP_INIT_ATTR_PD,
	};
	struct mlx5dv_qp_init_attr qp_more = {};
	MAKE(mlx5dv_create_qp, context, &qp_attr, &qp_more);

	struct ibv_wq_init_attr wq_attr = { .wq_type = IBV_WQT_RQ, .max_wr = 4, .max_sge = 1, .pd = pd, .cq = cq };
	struct mlx5dv_wq_init_attr wq_more = {};
	MAKE(mlx5dv_create_wq, context, &wq_attr, &wq_more);
	/* This card has no strides, whatever their sizes. */
	static const uint32_t sizes[][2] = { { 6, 9 }, { 13, 16 }, { 2, 9 }, { 6, 2 }, { 31, 31 } };
	for (size_t at = 0; at < sizeof(sizes) / sizeof(*sizes); at++) {
		struct mlx5dv_wq_init_attr strides = { .comp_mask = MLX5DV_WQ_INIT_ATTR_MASK_STRIDING_RQ };
		strides.striding_rq_attrs.single_stride_log_num_of_bytes = sizes[at][0];
		strides.striding_rq_attrs.single_wqe_log_num_of_strides = sizes[at][1];
		BEGIN("mlx5dv_create_wq:strides");
		struct ibv_wq *none = mlx5dv_create_wq(context, &wq_attr, &strides);
		tell("mlx5dv_create_wq:strides", none ? 0 : errno);
	}

	struct mlx5dv_mkey_init_attr mkey = { .pd = pd, .create_flags = MLX5DV_MKEY_INIT_ATTR_FLAGS_INDIRECT, .max_entries = 4 };
	MAKE(mlx5dv_create_mkey, &mkey);
	struct ibv_alloc_dm_attr dm = { .length = 64 };
	struct mlx5dv_alloc_dm_attr dm_more = {};
	MAKE(mlx5dv_alloc_dm, context, &dm, &dm_more);
	MAKE(mlx5dv_alloc_var, context, 0);
	MAKE(mlx5dv_pp_alloc, context, sizeof(in), in, 0);

	uint8_t port, active;
	ASK(mlx5dv_query_qp_lag_port, qp, &port, &active);
	ASK(mlx5dv_modify_qp_lag_port, qp, 1);
	ASK(mlx5dv_modify_qp_udp_sport, qp, 50000);
	ASK(mlx5dv_dci_stream_id_reset, qp, 1);
	ASK(mlx5dv_map_ah_to_qp, ah, qp->qp_num);
}

/* What is inside an object. Each kind is tried, as each keeps its context in its own place. */
static void insides(void)
{
	union {
		struct mlx5dv_qp qp;
		struct mlx5dv_cq cq;
		struct mlx5dv_srq srq;
		struct mlx5dv_rwq rwq;
		struct mlx5dv_ah ah;
		struct mlx5dv_pd pd;
	} inside;
	struct mlx5dv_obj object;

#define INSIDE(kind, bit, object_) \
	do { \
		memset(&inside, 0, sizeof(inside)); \
		object = (struct mlx5dv_obj){ .kind = { object_, &inside.kind } }; \
		BEGIN("mlx5dv_init_obj:" #kind); \
		tell("mlx5dv_init_obj:" #kind, mlx5dv_init_obj(&object, bit)); \
	} while (0)
	INSIDE(qp, MLX5DV_OBJ_QP, qp);
	INSIDE(cq, MLX5DV_OBJ_CQ, cq);
	INSIDE(srq, MLX5DV_OBJ_SRQ, srq);
	INSIDE(rwq, MLX5DV_OBJ_RWQ, wq);
	INSIDE(ah, MLX5DV_OBJ_AH, ah);
	INSIDE(pd, MLX5DV_OBJ_PD, pd);
}

/* Firmware commands, all zeros except those that every card carries out. */
static void commands(void)
{
	uint32_t number;
	struct mlx5dv_devx_umem_in memory = { .addr = page, .size = 1 << 12, .access = IBV_ACCESS_LOCAL_WRITE, .pgsz_bitmap = 1 << 12 };

	/* QUERY_HCA_CAP. */
	uint32_t query[4] = { htobe32(0x100 << 16) };
	static uint8_t caps[4112];
	ASK(mlx5dv_devx_general_cmd, context, query, sizeof(query), caps, sizeof(caps));
	MAKE(mlx5dv_devx_obj_create, context, in, sizeof(in), out, sizeof(out));
	MAKE(mlx5dv_devx_umem_reg, context, page, 1 << 12, IBV_ACCESS_LOCAL_WRITE);
	MAKE(mlx5dv_devx_umem_reg_ex, context, &memory);
	MAKE(mlx5dv_devx_alloc_uar, context, MLX5DV_UAR_ALLOC_TYPE_NC);
	ASK(mlx5dv_devx_query_eqn, context, 0, &number);
	ASK(mlx5dv_devx_cq_query, cq, in, sizeof(in), out, sizeof(out));
	ASK(mlx5dv_devx_cq_modify, cq, in, sizeof(in), out, sizeof(out));
	ASK(mlx5dv_devx_qp_query, qp, in, sizeof(in), out, sizeof(out));
	ASK(mlx5dv_devx_qp_modify, qp, in, sizeof(in), out, sizeof(out));
	ASK(mlx5dv_devx_srq_query, srq, in, sizeof(in), out, sizeof(out));
	ASK(mlx5dv_devx_srq_modify, srq, in, sizeof(in), out, sizeof(out));
	ASK(mlx5dv_devx_wq_query, wq, in, sizeof(in), out, sizeof(out));
	ASK(mlx5dv_devx_wq_modify, wq, in, sizeof(in), out, sizeof(out));
	ASK(mlx5dv_devx_ind_tbl_query, table, in, sizeof(in), out, sizeof(out));
	ASK(mlx5dv_devx_ind_tbl_modify, table, in, sizeof(in), out, sizeof(out));
	MAKE(mlx5dv_devx_create_cmd_comp, context);
	MAKE(mlx5dv_devx_create_event_channel, context, MLX5DV_DEVX_CREATE_EVENT_CHANNEL_FLAGS_OMIT_EV_DATA);
	MAKE(mlx5dv_devx_alloc_msi_vector, context);
	MAKE(mlx5dv_devx_create_eq, context, in, sizeof(in), out, sizeof(out));
}

static void flows(void)
{
	struct {
		size_t size;
		uint64_t words[64];
	} mask = { sizeof(mask.words) };
	struct mlx5dv_flow_matcher_attr matcher = { .type = IBV_FLOW_ATTR_NORMAL, .match_mask = (void *)&mask };
	struct mlx5dv_steering_anchor_attr anchor = {};
	struct ibv_flow_action_esp_attr esp = {};
	struct mlx5dv_flow_action_esp esp_more = {};

	MAKE(mlx5dv_create_flow_matcher, context, &matcher);
	MAKE(mlx5dv_create_steering_anchor, context, &anchor);
	MAKE(mlx5dv_create_flow_action_esp, context, &esp, &esp_more);
	MAKE(mlx5dv_create_flow_action_modify_header, context, sizeof(in[0]), in, MLX5DV_FLOW_TABLE_TYPE_NIC_RX);
	MAKE(mlx5dv_create_flow_action_packet_reformat, context, 0, NULL,
	     MLX5DV_FLOW_ACTION_PACKET_REFORMAT_TYPE_L2_TUNNEL_TO_L2, MLX5DV_FLOW_TABLE_TYPE_NIC_RX);

	/*
	 * A domain does not ask whose the context is: it has root tables even where the card answers no commands. A matcher does
	 * ask. A library that makes no domains does not look at them either.
	 */
	struct mlx5dv_dr_domain *domain = MAKE(mlx5dv_dr_domain_create, context, MLX5DV_DR_DOMAIN_TYPE_NIC_RX);
	ASK(mlx5dv_dr_domain_sync, domain, MLX5DV_DR_DOMAIN_SYNC_FLAGS_HW);
	FILE *nowhere = fopen("/dev/null", "w");
	ASK(mlx5dv_dump_dr_domain, nowhere, domain);
	MAKE(mlx5dv_dr_table_create, domain, 1);
	struct mlx5dv_dr_table *root = MAKE(mlx5dv_dr_table_create, domain, 0);
	MAKE(mlx5dv_dr_matcher_create, root, 0, 0, (void *)&mask);
	MAKE(mlx5dv_dr_action_create_dest_vport, domain, 1);
	MAKE(mlx5dv_dr_action_create_dest_ib_port, domain, 1);
	MAKE(mlx5dv_dr_action_create_dest_root_table, root, 0);
	MAKE(mlx5dv_dr_action_create_modify_header, domain, MLX5DV_DR_ACTION_FLAGS_ROOT_LEVEL, sizeof(in[0]), (void *)in);
	MAKE(mlx5dv_dr_action_create_packet_reformat, domain, MLX5DV_DR_ACTION_FLAGS_ROOT_LEVEL,
	     MLX5DV_FLOW_ACTION_PACKET_REFORMAT_TYPE_L2_TUNNEL_TO_L2, 0, NULL);
	struct mlx5dv_dr_action *action = MAKE(mlx5dv_dr_action_create_dest_ibv_qp, raw);
	ASK(mlx5dv_dr_action_destroy, action);
	ASK(mlx5dv_dr_table_destroy, root);
}

int main(int argc, char **argv)
{
	CHECK(argc == 3);
	struct ibv_device **list = ibv_get_device_list(NULL);
	CHECK(list);
	while (*list && strcmp(ibv_get_device_name(*list), argv[1]))
		list++;
	CHECK(*list);
	the_device(*list);
	make_objects(atoi(argv[2]));
	the_context();
	objects();
	insides();
	commands();
	flows();
	/* The device still works. */
	CHECK(!ibv_destroy_qp(raw) && !ibv_destroy_qp(qp));
	CHECK(!ibv_destroy_cq(ibv_create_cq(context, 16, NULL, NULL, 0)));
	fprintf(stderr, "end\n");
	return 0;
}
