/*
 * What posting returns: which request of a list is reported as bad, what was posted before it, and which states and flags are
 * refused. Also how a request completes whose fault cannot be seen before it is posted.
 *
 * usage: posts DEVICE
 */
#include "robust.h"

static struct pair p;

/* A receive on a queue pair that sends to itself. */
#define RECEIVE 10

/* Prints the completions, after waiting for this many. It does not matter when a receive is told among the sends, so it comes last. */
static void told_completions(const char *name, struct ibv_cq *cq, int count)
{
	struct ibv_wc each[8];

	MUST(count <= 8);
	for (int i = 0; i < count; i++)
		each[i] = completion(cq);
	printf("%s completes:", name);
	for (int is_receive = 0; is_receive < 2; is_receive++)
		for (int i = 0; i < count; i++)
			if ((each[i].wr_id == RECEIVE) == is_receive)
				printf(" %d/%s", (int)each[i].wr_id, ibv_wc_status_str(each[i].status));
	printf("\n");
}

/* A list of three writes whose second one is changed, on a pair of its own. */
static void list_of_three(const char *name, void (*change)(struct ibv_send_wr *wr))
{
	struct ibv_sge sge[100];
	struct ibv_send_wr wr[3], *bad = NULL;
	int error, posted;

	open_pair(&p);
	for (int i = 0; i < 100; i++)
		sge[i] = (struct ibv_sge){ (uintptr_t)p.one.memory, 8, p.one.mr->lkey };
	for (int i = 0; i < 3; i++) {
		wr[i] = (struct ibv_send_wr){ .wr_id = i, .next = i < 2 ? &wr[i + 1] : NULL, .sg_list = sge, .num_sge = 1,
					      .opcode = IBV_WR_RDMA_WRITE };
		wr[i].wr.rdma.remote_addr = (uintptr_t)p.two.memory;
		wr[i].wr.rdma.rkey = p.two.mr->rkey;
	}
	change(&wr[1]);
	errno = 0;
	error = ibv_post_send(p.one.qp, wr, &bad);
	number(name, error, errno);
	posted = error ? bad - wr : 3;
	printf("%s: posted %d\n", name, posted);
	told_completions(name, p.one.cq, posted);
	close_pair(&p);
}

static void unchanged(struct ibv_send_wr *wr) { wr->wr_id = 1; }
static void unknown_opcode(struct ibv_send_wr *wr) { wr->opcode = 99; }
static void large_send(struct ibv_send_wr *wr) { wr->opcode = IBV_WR_TSO; }
static void too_many_pieces(struct ibv_send_wr *wr) { wr->num_sge = 100; }
static void pieces_nowhere(struct ibv_send_wr *wr) { wr->num_sge = 0, wr->sg_list = NULL; }
static void too_much_inline(struct ibv_send_wr *wr) { wr->sg_list[0].length = 65, wr->send_flags = IBV_SEND_INLINE; }
static void short_atomic(struct ibv_send_wr *wr)
{
	wr->opcode = IBV_WR_ATOMIC_FETCH_AND_ADD;
	wr->wr.atomic.remote_addr = (uintptr_t)p.two.memory + 1;
	wr->wr.atomic.rkey = p.two.mr->rkey;
}
static void bind(struct ibv_send_wr *wr) { wr->opcode = IBV_WR_BIND_MW; }
static void driver_opcode(struct ibv_send_wr *wr) { wr->opcode = IBV_WR_DRIVER1; }

static void requests(void)
{
	list_of_three("three", unchanged);
	list_of_three("unknown opcode", unknown_opcode);
	list_of_three("large send", large_send);
	list_of_three("driver's opcode", driver_opcode);
	list_of_three("too many pieces", too_many_pieces);
	list_of_three("no pieces", pieces_nowhere);
	list_of_three("too much inline", too_much_inline);
	list_of_three("atomic between words", short_atomic);
	list_of_three("bind with pieces", bind);
}

static void full_queues(void)
{
	struct ibv_sge sge = { (uintptr_t)p.one.memory, 8, p.one.mr->lkey };
	struct ibv_recv_wr wr[2 * DEPTH], *bad = NULL;

	for (int i = 0; i < 2 * DEPTH; i++)
		wr[i] = (struct ibv_recv_wr){ i, i + 1 < 2 * DEPTH ? &wr[i + 1] : NULL, &sge, 1 };
	wr[2].num_sge = 100;
	NUMBER("post_recv too many pieces", ibv_post_recv(p.one.qp, wr, &bad));
	printf("bad is: %d\n", (int)(bad - wr));
	wr[2].num_sge = 1;
	NUMBER("post_recv full", ibv_post_recv(p.one.qp, wr, &bad));
	printf("bad is: %d\n", (int)(bad - wr));
}

/* A queue pair in each state that does not allow work, with a receive and a send. */
static void states(void)
{
	static const char *const NAMES[] = { "RESET", "INIT", "RTR", [IBV_QPS_ERR] = "ERR" };
	char name[40];

	for (int state = IBV_QPS_RESET; state <= IBV_QPS_ERR; state++) {
		struct side side = p.two;
		struct ibv_qp_attr attr = { .qp_state = IBV_QPS_ERR }, rtr = rtr_attr(p.context, p.one.qp->qp_num);

		if (!NAMES[state])
			continue;
		MUST(side.cq = ibv_create_cq(p.context, 4, NULL, NULL, 0));
		MUST(side.qp = make_qp(p.pd, side.cq, NULL, IBV_QPT_RC));
		if (state != IBV_QPS_RESET)
			MUST(!to_init(side.qp));
		if (state == IBV_QPS_RTR)
			MUST(!ibv_modify_qp(side.qp, &rtr, RTR_MASK));
		if (state == IBV_QPS_ERR)
			MUST(!ibv_modify_qp(side.qp, &attr, IBV_QP_STATE));
		snprintf(name, sizeof(name), "post_recv in %s", NAMES[state]);
		NUMBER(name, post_receive(&side, 2));
		snprintf(name, sizeof(name), "post_send in %s", NAMES[state]);
		NUMBER(name, post(&side, (struct ibv_send_wr){ .wr_id = 1, .opcode = IBV_WR_SEND }, 0, 8));
		if (state == IBV_QPS_ERR)
			printf("flushed: %d\n", completion(side.cq).status == IBV_WC_WR_FLUSH_ERR);
		MUST(!ibv_destroy_qp(side.qp) && !ibv_destroy_cq(side.cq));
	}
}

static void shared(void)
{
	struct ibv_srq_init_attr init = { .attr = { 2, 1, 0 } };
	struct ibv_srq *srq = ibv_create_srq(p.pd, &init);
	struct ibv_sge sge = { (uintptr_t)p.one.memory, 8, p.one.mr->lkey };
	struct ibv_recv_wr wr[4], *bad = NULL;
	struct side side = p.one;

	MUST(srq && (side.qp = make_qp(p.pd, side.cq, srq, IBV_QPT_RC)));
	MUST(!to_init(side.qp));
	NUMBER("post_recv on a shared queue", post_receive(&side, 1));
	printf("room of srq: %u %u\n", init.attr.max_wr, init.attr.max_sge);
	for (int i = 0; i < 4; i++)
		wr[i] = (struct ibv_recv_wr){ i, i < 3 ? &wr[i + 1] : NULL, &sge, i == 1 ? 9 : 1 };
	NUMBER("post_srq_recv too many pieces", ibv_post_srq_recv(srq, wr, &bad));
	printf("bad is: %d\n", (int)(bad - wr));
	MUST(!ibv_destroy_qp(side.qp) && !ibv_destroy_srq(srq));
}

/* Each failure that the peer reports ends in the state ERR. Each has its own pair. */
static void failing(const char *name, enum ibv_wr_opcode opcode, uint64_t away, uint32_t key, uint32_t local_key)
{
	struct pair pair;
	struct ibv_send_wr wr = { .wr_id = 3, .opcode = opcode };
	struct ibv_sge sge;
	struct ibv_send_wr *bad;

	open_pair(&pair);
	sge = (struct ibv_sge){ (uintptr_t)pair.one.memory, 8, pair.one.mr->lkey ^ local_key };
	wr.sg_list = &sge;
	wr.num_sge = 1;
	wr.wr.rdma.remote_addr = (uintptr_t)pair.two.memory + away;
	wr.wr.rdma.rkey = pair.two.mr->rkey ^ key;
	MUST(!ibv_post_send(pair.one.qp, &wr, &bad));
	told_completions(name, pair.one.cq, 1);
	close_pair(&pair);
}

static void windows(void)
{
	struct ibv_mw *mw = ibv_alloc_mw(p.pd, IBV_MW_TYPE_1);
	struct ibv_mw_bind bind = { .bind_info = { .mr = p.one.mr, .addr = (uintptr_t)p.one.memory, .length = 8 } };

	if (!mw)
		return;
	bind.bind_info.mw_access_flags = IBV_ACCESS_ZERO_BASED;
	NUMBER("bind_mw zero based", ibv_bind_mw(p.one.qp, mw, &bind));
	bind.bind_info.mw_access_flags = IBV_ACCESS_REMOTE_READ;
	bind.bind_info.mr = NULL;
	NUMBER("bind_mw without region", ibv_bind_mw(p.one.qp, mw, &bind));
	MUST(!ibv_dealloc_mw(mw));
}

static volatile int steps;

static void *sends(void *ex)
{
	ibv_wr_start(ex);
	steps++;
	((struct ibv_qp_ex *)ex)->wr_id = 2;
	ibv_wr_rdma_write(ex, p.two.mr->rkey, (uintptr_t)p.two.memory);
	ibv_wr_set_sge(ex, p.one.mr->lkey, (uintptr_t)p.one.memory, 8);
	NUMBER("wr_complete of another thread", ibv_wr_complete(ex));
	return NULL;
}

/* Another thread's batch waits until this one has ended, and is no part of it. */
static void waits(struct ibv_qp_ex *ex)
{
	pthread_t thread;

	ibv_wr_start(ex);
	ex->wr_id = 77;
	ibv_wr_rdma_write(ex, p.two.mr->rkey, (uintptr_t)p.two.memory);
	ibv_wr_set_sge(ex, p.one.mr->lkey, (uintptr_t)p.one.memory, 8);
	MUST(!pthread_create(&thread, NULL, sends, ex));
	usleep(50000);
	printf("before wr_abort: %d\n", steps);
	ibv_wr_abort(ex);
	MUST(!pthread_join(thread, NULL));
	told_completions("wr_complete of another thread", p.one.cq, 1);
}

/* The extended interface. */
static void extended(void)
{
	struct ibv_qp_init_attr_ex init = {
		.send_cq = p.one.cq, .recv_cq = p.one.cq, .qp_type = IBV_QPT_RC, .pd = p.pd, .sq_sig_all = 1,
		.comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS, .send_ops_flags = 0x3ff,
		.cap = { .max_send_wr = 4, .max_recv_wr = 4, .max_send_sge = 1, .max_recv_sge = 1, .max_inline_data = 16 },
	};
	char bytes[4096] = { 0 };
	struct ibv_sge sge[9] = { { 0 } };
	struct ibv_qp *qp = ibv_create_qp_ex(p.context, &init);
	struct ibv_qp_ex *ex = qp ? ibv_qp_to_qp_ex(qp) : NULL;

	MUST(ex && !to_init(qp) && !connect_qp(qp, qp->qp_num));
	ibv_wr_start(ex);
	ibv_wr_abort(ex);
	ibv_wr_start(ex);
	NUMBER("wr_complete of nothing", ibv_wr_complete(ex));
	ibv_wr_start(ex);
	ibv_wr_send(ex);
	ibv_wr_set_inline_data(ex, bytes, sizeof(bytes));
	NUMBER("wr_set_inline_data too much", ibv_wr_complete(ex));
	ibv_wr_start(ex);
	ibv_wr_send(ex);
	ibv_wr_set_sge_list(ex, 9, sge);
	NUMBER("wr_set_sge_list too many", ibv_wr_complete(ex));
	ibv_wr_start(ex);
	for (int i = 0; i < 5 * DEPTH; i++) {
		ibv_wr_rdma_write(ex, 0, 0);
		ibv_wr_set_sge(ex, 0, 0, 0);
	}
	NUMBER("wr_rdma_write too many", ibv_wr_complete(ex));
	printf("completions: %d\n", ibv_poll_cq(p.one.cq, 1, &(struct ibv_wc){ 0 }));
	ibv_wr_start(ex);
	ex->wr_id = 1;
	ibv_wr_rdma_write(ex, p.two.mr->rkey, (uintptr_t)p.two.memory);
	ibv_wr_set_sge(ex, p.one.mr->lkey, (uintptr_t)p.one.memory, 8);
	NUMBER("wr_complete behind too many", ibv_wr_complete(ex));
	told_completions("wr_complete behind too many", p.one.cq, 1);
	waits(ex);
	MUST(!ibv_destroy_qp(qp));
}

/* The parts of an operation in every order, and operations that lack some. */
static void parts(void)
{
	struct ibv_qp_init_attr_ex init = {
		.send_cq = p.one.cq, .recv_cq = p.one.cq, .qp_type = IBV_QPT_UD, .pd = p.pd, .sq_sig_all = 1,
		.comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS,
		.send_ops_flags = IBV_QP_EX_WITH_SEND | IBV_QP_EX_WITH_SEND_WITH_IMM,
		.cap = { .max_send_wr = 4, .max_recv_wr = 4, .max_send_sge = 2, .max_recv_sge = 1, .max_inline_data = 16 },
	};
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_RTR }, peer = rtr_attr(p.context, 0);
	struct ibv_sge room = { (uintptr_t)p.one.memory, 100, p.one.mr->lkey };
	struct ibv_sge two[] = { { (uintptr_t)p.two.memory, 3, p.two.mr->lkey }, { (uintptr_t)p.two.memory + 3, 4, p.two.mr->lkey } };
	struct side side = p.one;
	struct ibv_ah *ah = ibv_create_ah(p.pd, &peer.ah_attr);
	struct ibv_qp_ex *ex;

	MUST(ah && (side.qp = ibv_create_qp_ex(p.context, &init)) && (ex = ibv_qp_to_qp_ex(side.qp)) && !to_init(side.qp));
	MUST(!ibv_modify_qp(side.qp, &attr, IBV_QP_STATE));
	attr.qp_state = IBV_QPS_RTS;
	MUST(!ibv_modify_qp(side.qp, &attr, IBV_QP_STATE | IBV_QP_SQ_PSN));
	strcpy(p.two.memory, "abcdefg");
	for (int i = 0; i < 4; i++) {
		struct ibv_recv_wr wr = { .wr_id = 10, .sg_list = &room, .num_sge = 1 }, *bad;

		MUST(!ibv_post_recv(side.qp, &wr, &bad));
		ibv_wr_start(ex);
		ex->wr_id = i;
		ex->wr_flags = i < 2 ? 0 : IBV_SEND_INLINE;
		if (i % 2)
			ibv_wr_send_imm(ex, htobe32(77));
		else
			ibv_wr_send(ex);
		if (i % 2)
			ibv_wr_set_ud_addr(ex, ah, side.qp->qp_num, 7);
		if (i < 2)
			ibv_wr_set_sge_list(ex, 2, two);
		else
			ibv_wr_set_inline_data(ex, p.two.memory, 7);
		if (i % 2 == 0)
			ibv_wr_set_ud_addr(ex, ah, side.qp->qp_num, 7);
		printf("datagram %d: %s\n", i, error_name(ibv_wr_complete(ex)));
		struct ibv_wc both[2] = { completion(p.one.cq), completion(p.one.cq) };

		/* It does not matter which of the two sides is told first. */
		for (int j = 0; j < 2; j++) {
			struct ibv_wc wc = both[(both[0].wr_id == RECEIVE) ^ j];

			printf("datagram %d ends: %d/%s", i, (int)wc.wr_id, ibv_wc_status_str(wc.status));
			if (wc.wr_id == RECEIVE)
				printf(" of %d bytes, %.7s, number %d", wc.byte_len, p.one.memory + 40,
				       wc.wc_flags & IBV_WC_WITH_IMM ? (int)be32toh(wc.imm_data) : 0);
			printf("\n");
		}
	}
	MUST(!ibv_destroy_qp(side.qp));

	init.qp_type = IBV_QPT_RC;
	init.send_ops_flags = IBV_QP_EX_WITH_SEND | IBV_QP_EX_WITH_RDMA_WRITE | IBV_QP_EX_WITH_RDMA_READ;
	MUST((side.qp = ibv_create_qp_ex(p.context, &init)) && (ex = ibv_qp_to_qp_ex(side.qp)) && !to_init(side.qp));
	MUST(!connect_qp(side.qp, side.qp->qp_num) && !post_receive(&side, RECEIVE));
	strcpy(p.one.memory, "........");
	ibv_wr_start(ex);
	ex->wr_id = 1, ex->wr_flags = 0;
	ibv_wr_rdma_write(ex, p.one.mr->rkey, (uintptr_t)p.one.memory);
	ibv_wr_set_sge(ex, two[0].lkey, two[0].addr, two[0].length);
	ex->wr_id = 2;
	ibv_wr_rdma_write(ex, p.one.mr->rkey, (uintptr_t)p.one.memory);
	ex->wr_id = 3, ex->wr_flags = IBV_SEND_INLINE;
	ibv_wr_rdma_write(ex, p.one.mr->rkey, (uintptr_t)p.one.memory + 5);
	ibv_wr_set_inline_data(ex, "12", 2);
	ex->wr_id = 4, ex->wr_flags = 0;
	ibv_wr_send(ex);
	NUMBER("operations without data", ibv_wr_complete(ex));
	told_completions("operations without data", p.one.cq, 5);
	printf("written: %.8s\n", p.one.memory);
	MUST(!ibv_destroy_qp(side.qp) && !ibv_destroy_ah(ah));
}

int main(int count, char **arguments)
{
	begin(count, arguments);
	requests();
	open_pair(&p);
	full_queues();
	states();
	shared();
	windows();
	extended();
	parts();
	failing("remote key", IBV_WR_RDMA_WRITE, 0, 0xff00, 0);
	failing("remote bounds", IBV_WR_RDMA_READ, BYTES, 0, 0);
	failing("local key", IBV_WR_RDMA_WRITE, 0, 0, 0xff00);
	close_pair(&p);
	return 0;
}
