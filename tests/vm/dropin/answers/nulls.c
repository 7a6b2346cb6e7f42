/*
 * What the drop-in does with null for each pointer, and with operations that a queue pair does not have. Each call runs in its own
 * process, so that one that fails does not end the others. Not for libibverbs, which does not check these. Calls that the header reads
 * the pointer for are left out: the program fails before the library is called.
 *
 * usage: nulls DEVICE
 */
#include "robust.h"

static struct pair p;

/* All calls, in the order of this file. */
static struct {
	const char *name;
	void (*call)(const char *name);
} calls[200];
static int count_of_calls;

#define LISTED(id) \
	static void id(const char *name); \
	__attribute__((constructor)) static void list_##id(void) \
	{ \
		calls[count_of_calls].name = #id; \
		calls[count_of_calls++].call = id; \
	} \
	static void id(const char *name)

/* Calls whose answer is a number, an object, or nothing, each with what must be opened before. */
#define CALL(id, ...) \
	LISTED(id) \
	{ \
		open_pair(&p); \
		NUMBER(name, (__VA_ARGS__)); \
	}
#define MAKE(id, ...) \
	LISTED(id) \
	{ \
		open_pair(&p); \
		OBJECT(name, (__VA_ARGS__)); \
	}
#define DO(id, ...) \
	LISTED(id) \
	{ \
		open_pair(&p); \
		__VA_ARGS__; \
		printf("%s: nothing\n", name); \
	}

/* A batch on a queue pair of a type, which is refused and leaves the queue pair as it is. A connected queue pair then sends. */
#define BATCH(id, type, ...) \
	LISTED(id) \
	{ \
		struct ibv_qp_ex *ex = extended(type); \
		ibv_wr_start(ex); \
		ex->wr_id = 66; \
		__VA_ARGS__; \
		told_refused(name, ex); \
	}

static struct ibv_qp_ex *extended(enum ibv_qp_type type)
{
	struct ibv_qp_init_attr_ex init = {
		.qp_type = type, .sq_sig_all = 1,
		.comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS,
		.send_ops_flags = IBV_QP_EX_WITH_SEND | IBV_QP_EX_WITH_SEND_WITH_IMM,
		.cap = { .max_send_wr = 8, .max_recv_wr = 8, .max_send_sge = 2, .max_recv_sge = 1, .max_inline_data = 64 },
	};
	struct ibv_qp_attr attr;

	open_pair(&p);
	init.pd = p.pd, init.send_cq = init.recv_cq = p.one.cq;
	if (type == IBV_QPT_RC)
		init.send_ops_flags |= IBV_QP_EX_WITH_RDMA_WRITE | IBV_QP_EX_WITH_ATOMIC_WRITE;
	MUST((p.one.qp = ibv_create_qp_ex(p.context, &init)) && !to_init(p.one.qp));
	attr = rtr_attr(p.context, p.one.qp->qp_num);
	if (type == IBV_QPT_RC) {
		MUST(!connect_qp(p.one.qp, p.one.qp->qp_num));
	} else {
		int mask = RTR_MASK & ~(IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER);

		MUST(!ibv_modify_qp(p.one.qp, &attr, type == IBV_QPT_UD ? IBV_QP_STATE : mask));
		attr.qp_state = IBV_QPS_RTS;
		MUST(!ibv_modify_qp(p.one.qp, &attr, IBV_QP_STATE | IBV_QP_SQ_PSN));
	}
	return ibv_qp_to_qp_ex(p.one.qp);
}

static void told_refused(const char *name, struct ibv_qp_ex *ex)
{
	struct ibv_qp_init_attr init;
	struct ibv_qp_attr attr;
	struct ibv_wc wc;
	int answer = ibv_wr_complete(ex);

	usleep(10000);
	MUST(!ibv_query_qp(p.one.qp, &attr, IBV_QP_STATE, &init));
	printf("%s: %s, %d completions, state %d", name, error_name(answer), ibv_poll_cq(p.one.cq, 1, &wc), attr.qp_state);
	if (p.one.qp->qp_type == IBV_QPT_RC && answer) {
		MUST(!post_receive(&p.one, 1));
		ibv_wr_start(ex);
		ex->wr_id = 2, ex->wr_flags = IBV_SEND_INLINE;
		ibv_wr_send(ex);
		ibv_wr_set_inline_data(ex, p.two.memory, 9);
		MUST(!ibv_wr_complete(ex));
		for (int i = 0; i < 2; i++) {
			wc = completion(p.one.cq);
			MUST(!wc.status && (wc.wr_id == 1 || wc.wr_id == 2));
			if (wc.wr_id == 1)
				printf(", then %d bytes", (int)wc.byte_len);
		}
	}
	printf("\n");
}

#define ATTR(type) (&(struct type){ 0 })

MAKE(open_nothing, ibv_open_device(NULL))
CALL(close_nothing, ibv_close_device(NULL))
MAKE(name_of_nothing, ibv_get_device_name(NULL))
CALL(guid_of_nothing, (int)ibv_get_device_guid(NULL))
CALL(index_of_nothing, ibv_get_device_index(NULL))
DO(free_no_list, ibv_free_device_list(NULL))
DO(list_without_count, ibv_free_device_list(ibv_get_device_list(NULL)))
CALL(event_of_nothing, ibv_get_async_event(NULL, ATTR(ibv_async_event)))
DO(ack_nothing, ibv_ack_async_event(NULL))
DO(ack_no_queue, ibv_ack_cq_events(NULL, 1))
DO(ack_no_events, ibv_ack_cq_events(p.one.cq, 0))
CALL(query_device_nothing, ibv_query_device(NULL, ATTR(ibv_device_attr)))
CALL(query_device_nowhere, ibv_query_device(p.context, NULL))
CALL(query_gid_nothing, ibv_query_gid(NULL, 1, 0, (union ibv_gid *)p.one.memory))
CALL(query_gid_nowhere, ibv_query_gid(p.context, 1, 0, NULL))
CALL(query_gid_ex_nowhere, ibv_query_gid_ex(p.context, 1, 0, NULL, 0))
CALL(query_gid_table_nowhere, ibv_query_gid_table(p.context, NULL, 8, 0))
CALL(query_pkey_nothing, ibv_query_pkey(NULL, 1, 0, (__be16 *)p.one.memory))
CALL(query_pkey_nowhere, ibv_query_pkey(p.context, 1, 0, NULL))
CALL(pkey_index_of_nothing, ibv_get_pkey_index(NULL, 1, 0xffff))
MAKE(alloc_pd_nothing, ibv_alloc_pd(NULL))
CALL(dealloc_pd_nothing, ibv_dealloc_pd(NULL))
MAKE(reg_mr_nothing, ibv_reg_mr(NULL, p.one.memory, 8, 1))
MAKE(reg_mr_iova_nothing, ibv_reg_mr_iova(NULL, p.one.memory, 8, 0, 1))
CALL(rereg_mr_nothing, ibv_rereg_mr(NULL, IBV_REREG_MR_CHANGE_ACCESS, NULL, NULL, 0, 1))
CALL(dereg_mr_nothing, ibv_dereg_mr(NULL))
MAKE(channel_of_nothing, ibv_create_comp_channel(NULL))
CALL(destroy_no_channel, ibv_destroy_comp_channel(NULL))
CALL(cq_event_of_nothing, ibv_get_cq_event(NULL, &p.one.cq, (void **)&p.two.cq))
MAKE(create_cq_nothing, ibv_create_cq(NULL, 4, NULL, NULL, 0))
MAKE(create_cq_ex_nowhere, ibv_create_cq_ex(p.context, NULL))
CALL(resize_no_cq, ibv_resize_cq(NULL, 8))
CALL(destroy_no_cq, ibv_destroy_cq(NULL))
MAKE(create_srq_nothing, ibv_create_srq(NULL, ATTR(ibv_srq_init_attr)))
MAKE(create_srq_nowhere, ibv_create_srq(p.pd, NULL))
CALL(modify_no_srq, ibv_modify_srq(NULL, ATTR(ibv_srq_attr), IBV_SRQ_LIMIT))
CALL(query_no_srq, ibv_query_srq(NULL, ATTR(ibv_srq_attr)))
CALL(destroy_no_srq, ibv_destroy_srq(NULL))
MAKE(create_qp_nothing, ibv_create_qp(NULL, ATTR(ibv_qp_init_attr)))
MAKE(create_qp_nowhere, ibv_create_qp(p.pd, NULL))
MAKE(create_qp_no_cq, ibv_create_qp(p.pd, &(struct ibv_qp_init_attr){ .qp_type = IBV_QPT_RC }))
MAKE(no_qp_to_ex, ibv_qp_to_qp_ex(NULL))
MAKE(plain_qp_to_ex, ibv_qp_to_qp_ex(p.one.qp))
CALL(modify_no_qp, ibv_modify_qp(NULL, ATTR(ibv_qp_attr), IBV_QP_STATE))
CALL(modify_qp_nowhere, ibv_modify_qp(p.one.qp, NULL, IBV_QP_STATE))
CALL(query_no_qp, ibv_query_qp(NULL, ATTR(ibv_qp_attr), 0, ATTR(ibv_qp_init_attr)))
CALL(query_qp_nowhere, ibv_query_qp(p.one.qp, NULL, 0, ATTR(ibv_qp_init_attr)))
CALL(query_qp_no_init, ibv_query_qp(p.one.qp, ATTR(ibv_qp_attr), 0, NULL))
CALL(destroy_no_qp, ibv_destroy_qp(NULL))
CALL(attach_no_qp, ibv_attach_mcast(NULL, (union ibv_gid *)p.one.memory, 0))
CALL(attach_no_group, ibv_attach_mcast(p.one.qp, NULL, 0))
CALL(detach_no_group, ibv_detach_mcast(p.one.qp, NULL, 0))
MAKE(create_ah_nothing, ibv_create_ah(NULL, ATTR(ibv_ah_attr)))
MAKE(create_ah_nowhere, ibv_create_ah(p.pd, NULL))
MAKE(create_ah_from_no_wc, ibv_create_ah_from_wc(p.pd, NULL, NULL, 1))
CALL(init_ah_no_header, ibv_init_ah_from_wc(p.context, 1, &(struct ibv_wc){ .wc_flags = IBV_WC_GRH }, NULL, ATTR(ibv_ah_attr)))
CALL(destroy_no_ah, ibv_destroy_ah(NULL))
CALL(query_ece_no_qp, ibv_query_ece(NULL, ATTR(ibv_ece)))
CALL(set_ece_nothing, ibv_set_ece(p.one.qp, NULL))
CALL(set_ece_no_vendor, ibv_set_ece(p.one.qp, ATTR(ibv_ece)))
CALL(post_send_no_list, ibv_post_send(p.one.qp, NULL, &(struct ibv_send_wr *){ NULL }))
CALL(post_recv_no_list, ibv_post_recv(p.one.qp, NULL, &(struct ibv_recv_wr *){ NULL }))
CALL(post_send_bad_nowhere, ibv_post_send(p.one.qp, &(struct ibv_send_wr){ .opcode = 99 }, NULL))
CALL(post_recv_bad_nowhere, ibv_post_recv(p.one.qp, &(struct ibv_recv_wr){ .num_sge = 99 }, NULL))
CALL(post_send_no_pieces, ibv_post_send(p.one.qp, &(struct ibv_send_wr){ .opcode = IBV_WR_RDMA_WRITE, .num_sge = 1 }, &(struct ibv_send_wr *){ NULL }))
CALL(post_recv_no_pieces, ibv_post_recv(p.one.qp, &(struct ibv_recv_wr){ .num_sge = 1 }, &(struct ibv_recv_wr *){ NULL }))
CALL(poll_nowhere, ibv_poll_cq(p.one.cq, 4, NULL))
MAKE(counters_of_nothing, ibv_create_counters(p.context, NULL))
MAKE(create_flow_nowhere, ibv_create_flow(p.one.qp, NULL))
CALL(post_send_inline_nowhere, ibv_post_send(p.one.qp, &(struct ibv_send_wr){ .opcode = IBV_WR_RDMA_WRITE, .send_flags = IBV_SEND_INLINE, .num_sge = 1, .sg_list = &(struct ibv_sge){ 0, 8, 0 } }, &(struct ibv_send_wr *){ NULL }))
CALL(post_send_imm_inline_nowhere, ibv_post_send(p.one.qp, &(struct ibv_send_wr){ .opcode = IBV_WR_SEND_WITH_IMM, .send_flags = IBV_SEND_INLINE, .num_sge = 1, .sg_list = &(struct ibv_sge){ 0, 8, 0 } }, &(struct ibv_send_wr *){ NULL }))
CALL(post_send_inline_nothing, ibv_post_send(p.one.qp, &(struct ibv_send_wr){ .opcode = IBV_WR_RDMA_WRITE, .send_flags = IBV_SEND_INLINE, .num_sge = 1, .sg_list = ATTR(ibv_sge) }, &(struct ibv_send_wr *){ NULL }))
BATCH(inline_nowhere, IBV_QPT_RC, ibv_wr_send(ex); ibv_wr_set_inline_data(ex, NULL, 32))
BATCH(inline_nowhere_of_write, IBV_QPT_RC, ibv_wr_rdma_write(ex, 0, 0); ibv_wr_set_inline_data(ex, NULL, 32))
BATCH(inline_too_long, IBV_QPT_RC, ibv_wr_send(ex); ibv_wr_set_inline_data(ex, p.one.memory, SIZE_MAX))
BATCH(inline_too_long_of_write, IBV_QPT_RC, ibv_wr_rdma_write(ex, 0, 0); ibv_wr_set_inline_data(ex, p.one.memory, SIZE_MAX / 2 + 1))
BATCH(inline_list_nowhere, IBV_QPT_RC, ibv_wr_send(ex); ibv_wr_set_inline_data_list(ex, 1, NULL))
BATCH(inline_endless_list_nowhere, IBV_QPT_RC, ibv_wr_send(ex); ibv_wr_set_inline_data_list(ex, SIZE_MAX, NULL))
BATCH(inline_list_of_nowhere, IBV_QPT_RC, ibv_wr_send(ex); struct ibv_data_buf list[] = { { p.one.memory, 8 }, { NULL, 8 } }; ibv_wr_set_inline_data_list(ex, 2, list))
BATCH(inline_list_around, IBV_QPT_RC, ibv_wr_send(ex); struct ibv_data_buf list[] = { { p.one.memory, SIZE_MAX / 2 }, { p.one.memory, SIZE_MAX / 2 }, { p.one.memory, 10 } }; ibv_wr_set_inline_data_list(ex, 3, list))
BATCH(sge_list_nowhere, IBV_QPT_RC, ibv_wr_send(ex); ibv_wr_set_sge_list(ex, 1, NULL))
BATCH(good_then_sge_list_nowhere, IBV_QPT_RC, ibv_wr_send(ex); ibv_wr_set_inline_data(ex, p.one.memory, 8); ibv_wr_send(ex); ibv_wr_set_sge_list(ex, 1, NULL))
BATCH(atomic_write_nowhere, IBV_QPT_RC, ibv_wr_atomic_write(ex, 0, 0, NULL))
BATCH(ud_write, IBV_QPT_UD, ibv_wr_rdma_write(ex, 0, 0); ibv_wr_set_inline_data(ex, p.one.memory, 8))
BATCH(ud_write_imm, IBV_QPT_UD, ibv_wr_rdma_write_imm(ex, 0, 0, 0); ibv_wr_set_inline_data(ex, p.one.memory, 8))
BATCH(ud_read, IBV_QPT_UD, ibv_wr_rdma_read(ex, 0, 0); ibv_wr_set_sge(ex, 0, 0, 0))
BATCH(ud_compare, IBV_QPT_UD, ibv_wr_atomic_cmp_swp(ex, 0, 0, 0, 0); ibv_wr_set_sge(ex, 0, 0, 0))
BATCH(ud_add, IBV_QPT_UD, ibv_wr_atomic_fetch_add(ex, 0, 0, 0); ibv_wr_set_sge(ex, 0, 0, 0))
BATCH(ud_invalidate, IBV_QPT_UD, ibv_wr_local_inv(ex, 0))
BATCH(ud_send_inv, IBV_QPT_UD, ibv_wr_send_inv(ex, 0); ibv_wr_set_inline_data(ex, p.one.memory, 8))
BATCH(ud_bind, IBV_QPT_UD, struct ibv_mw mw = { 0 }; ibv_wr_bind_mw(ex, &mw, 0, ATTR(ibv_mw_bind_info)))
BATCH(ud_large, IBV_QPT_UD, ibv_wr_send_tso(ex, p.one.memory, 54, 40); ibv_wr_set_sge(ex, 0, 0, 0))
BATCH(uc_read, IBV_QPT_UC, ibv_wr_rdma_read(ex, 0, 0); ibv_wr_set_sge(ex, 0, 0, 0))
BATCH(uc_compare, IBV_QPT_UC, ibv_wr_atomic_cmp_swp(ex, 0, 0, 0, 0); ibv_wr_set_sge(ex, 0, 0, 0))
BATCH(uc_invalidate, IBV_QPT_UC, ibv_wr_local_inv(ex, 0))
BATCH(rc_large, IBV_QPT_RC, ibv_wr_send_tso(ex, p.one.memory, 54, 40); ibv_wr_set_sge(ex, 0, 0, 0))
BATCH(rc_xrc, IBV_QPT_RC, ibv_wr_send(ex); ibv_wr_set_xrc_srqn(ex, 1); ibv_wr_set_sge(ex, 0, 0, 0))
MAKE(status_text, ibv_wc_status_str(-5))
CALL(read_no_file, ibv_read_sysfs_file(NULL, NULL, p.one.memory, 8))

int main(int count, char **arguments)
{
	begin(count, arguments);
	for (int i = 0; i < count_of_calls; i++)
		apart(calls[i].name, calls[i].call);
	return 0;
}
