/*
 * What calls do with null for each pointer, each in a process of its own: a crash is an answer, and libibverbs gives it
 * often.
 *
 * usage: nulls DEVICE
 */
#include "robust.h"

static struct pair p;

/* Every call there is, in the order of this file. */
static struct {
	const char *name;
	void (*call)(const char *name);
} calls[100];
static int count_of_calls;

#define LISTED(id) \
	static void id(const char *name); \
	__attribute__((constructor)) static void list_##id(void) \
	{ \
		calls[count_of_calls].name = #id; \
		calls[count_of_calls++].call = id; \
	} \
	static void id(const char *name)

/* A call whose answer is a number, an object, nothing; with what it needs opened before. */
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
MAKE(alloc_mw_nothing, ibv_alloc_mw(NULL, IBV_MW_TYPE_1))
CALL(dealloc_mw_nothing, ibv_dealloc_mw(NULL))
MAKE(channel_of_nothing, ibv_create_comp_channel(NULL))
CALL(destroy_no_channel, ibv_destroy_comp_channel(NULL))
CALL(cq_event_of_nothing, ibv_get_cq_event(NULL, &p.one.cq, (void **)&p.two.cq))
MAKE(create_cq_nothing, ibv_create_cq(NULL, 4, NULL, NULL, 0))
MAKE(create_cq_ex_nowhere, ibv_create_cq_ex(p.context, NULL))
CALL(resize_no_cq, ibv_resize_cq(NULL, 8))
CALL(destroy_no_cq, ibv_destroy_cq(NULL))
MAKE(create_srq_nothing, ibv_create_srq(NULL, ATTR(ibv_srq_init_attr)))
MAKE(create_srq_nowhere, ibv_create_srq(p.pd, NULL))
MAKE(create_srq_ex_nowhere, ibv_create_srq_ex(p.context, NULL))
CALL(modify_no_srq, ibv_modify_srq(NULL, ATTR(ibv_srq_attr), IBV_SRQ_LIMIT))
CALL(query_no_srq, ibv_query_srq(NULL, ATTR(ibv_srq_attr)))
CALL(destroy_no_srq, ibv_destroy_srq(NULL))
MAKE(create_qp_nothing, ibv_create_qp(NULL, ATTR(ibv_qp_init_attr)))
MAKE(create_qp_nowhere, ibv_create_qp(p.pd, NULL))
MAKE(create_qp_no_cq, ibv_create_qp(p.pd, &(struct ibv_qp_init_attr){ .qp_type = IBV_QPT_RC }))
MAKE(create_qp_ex_nowhere, ibv_create_qp_ex(p.context, NULL))
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
MAKE(status_text, ibv_wc_status_str(-5))
CALL(read_no_file, ibv_read_sysfs_file(NULL, NULL, p.one.memory, 8))

int main(int count, char **arguments)
{
	begin(count, arguments);
	for (int i = 0; i < count_of_calls; i++)
		apart(calls[i].name, calls[i].call);
	return 0;
}
