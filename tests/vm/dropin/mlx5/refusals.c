/*
 * What is refused, and how: work queues, tables of them, and queue pairs on those, on the virtual ConnectX.
 *
 * usage: mlx5-refusals DEVICE CONTROL
 */
#include "../../mlx5/common.h"

#define TELL_MADE(what, make) tell(what, (errno = 0, make) ? 0 : errno)

static struct ibv_qp *spread(struct ibv_rwq_ind_table *table, int function, int key_len, uint64_t fields)
{
	static uint8_t key[64];
	struct ibv_qp_init_attr_ex init = {
		.qp_type = IBV_QPT_RAW_PACKET, .pd = pd, .rwq_ind_tbl = table,
		.comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_IND_TABLE | IBV_QP_INIT_ATTR_RX_HASH,
		.rx_hash_conf = { function, key_len, key, fields },
	};
	return ibv_create_qp_ex(context, &init);
}

int main(int argc, char **argv)
{
	open_device(argc, argv);
	struct ibv_cq *cq = ibv_create_cq(context, 16, NULL, NULL, 0);
	struct ibv_wq_init_attr init = { .wq_type = IBV_WQT_RQ, .max_wr = 4, .max_sge = 1, .pd = pd, .cq = cq };
	struct ibv_wq *wq = ibv_create_wq(context, &init), *wqs[4] = { wq, wq, wq, wq };
	CHECK(cq && wq);
	init.max_wr = 1 << 20;
	TELL_MADE("work queue of a million", ibv_create_wq(context, &init));
	init.max_wr = 4, init.max_sge = 1000;
	TELL_MADE("work queue of a thousand pieces", ibv_create_wq(context, &init));
	struct ibv_rwq_ind_table_init_attr few = { .log_ind_tbl_size = 2, .ind_tbl = wqs };
	struct ibv_rwq_ind_table *table = ibv_create_rwq_ind_table(context, &few);
	CHECK(table);
	struct ibv_wq_attr attr = { IBV_WQ_ATTR_STATE | IBV_WQ_ATTR_CURR_STATE, IBV_WQS_RDY, IBV_WQS_ERR, 0, 0 };
	tell("from a state it is not in", ibv_modify_wq(wq, &attr));
	attr.attr_mask = IBV_WQ_ATTR_STATE;
	tell("to ready", ibv_modify_wq(wq, &attr));
	const uint64_t four = IBV_RX_HASH_SRC_IPV4 | IBV_RX_HASH_DST_IPV4;
	TELL_MADE("key of 39 bytes", spread(table, IBV_RX_HASH_FUNC_TOEPLITZ, 39, four));
	TELL_MADE("no hash function", spread(table, 0, 40, four));
	TELL_MADE("addresses of both kinds", spread(table, IBV_RX_HASH_FUNC_TOEPLITZ, 40, four | IBV_RX_HASH_SRC_IPV6));
	TELL_MADE("ports of both kinds", spread(table, IBV_RX_HASH_FUNC_TOEPLITZ, 40, four | IBV_RX_HASH_SRC_PORT_TCP | IBV_RX_HASH_SRC_PORT_UDP));
	struct ibv_qp *unknown = spread(table, IBV_RX_HASH_FUNC_TOEPLITZ, 40, four | 1ULL << 40);
	tell("an unknown field", unknown ? 0 : errno);
	CHECK(!unknown || !ibv_destroy_qp(unknown));
	TELL_MADE("no field", spread(table, IBV_RX_HASH_FUNC_TOEPLITZ, 40, 0));
	struct ibv_qp *qp = spread(table, IBV_RX_HASH_FUNC_TOEPLITZ, 40, four);
	CHECK(qp);
	struct ibv_qp_attr state = { .qp_state = IBV_QPS_RTR };
	struct ibv_qp_init_attr made;
	tell("state of a queue pair on a table", ibv_modify_qp(qp, &state, IBV_QP_STATE));
	tell("query of it", ibv_query_qp(qp, &state, IBV_QP_STATE, &made));
	tell("work queue in use", ibv_destroy_wq(wq));
	tell("table in use", ibv_destroy_rwq_ind_table(table));
	tell("completion queue in use", ibv_destroy_cq(cq));
	struct queue q = make_queue();
	struct ibv_sge sge = { (uintptr_t)q.memory, 60, q.mr->lkey };
	struct ibv_send_wr wr = { .sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_RDMA_WRITE }, *bad;
	tell("a write over raw packets", ibv_post_send(q.qp, &wr, &bad));
	wr.opcode = IBV_WR_TSO, wr.tso.hdr = q.memory, wr.tso.hdr_sz = 54, wr.tso.mss = 40;
	tell("a large send of a queue pair without room for its header", ibv_post_send(q.qp, &wr, &bad));
	CHECK(!ibv_query_qp(q.qp, &state, IBV_QP_CAP, &made));
	printf("room of a queue pair: %u %u %u %u %u, %u %u %u\n", state.cap.max_send_wr, state.cap.max_recv_wr, state.cap.max_send_sge,
	       state.cap.max_recv_sge, state.cap.max_inline_data, made.cap.max_send_wr, made.cap.max_send_sge, made.cap.max_inline_data);
	state.qp_state = IBV_QPS_RESET;
	CHECK(!ibv_modify_qp(q.qp, &state, IBV_QP_STATE));
	struct ibv_recv_wr receive = { .sg_list = &sge, .num_sge = 1 }, *first = NULL;
	tell("a receive in reset", ibv_post_recv(q.qp, &receive, &first));
	printf("which is told: %d\n", first == &receive);
	destroy_queue(&q);
	CHECK(!ibv_destroy_qp(qp) && !ibv_destroy_rwq_ind_table(table) && !ibv_destroy_wq(wq) && !ibv_destroy_cq(cq));
	close_device();
	return 0;
}
