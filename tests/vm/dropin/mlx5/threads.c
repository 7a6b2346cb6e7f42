/*
 * Threads that share queues of the virtual ConnectX. Each posted request must be completed once, and its completion polled once.
 * With the extended interface, completions are taken by both interfaces at the same time, while queue pairs are made and destroyed
 * and events are requested.
 *
 * usage: mlx5-threads DEVICE CONTROL
 */
#include "../../mlx5/common.h"
#include <pthread.h>
#include <sched.h>
#include <semaphore.h>

enum { THREADS = 4, EACH = 200 };

struct crew {
	struct queue *q;
	struct ibv_cq_ex *cq;
	int extended, next, takers;
	/* How often each request was completed, and how many requests were. */
	int times[THREADS * EACH], taken;
	sem_t room;
};

static int post_one(struct crew *crew, struct ibv_sge *sge, int id)
{
	struct ibv_qp_ex *qp = ibv_qp_to_qp_ex(crew->q->qp);
	struct ibv_send_wr wr = { .wr_id = id, .sg_list = sge, .num_sge = 1, .opcode = IBV_WR_SEND, .send_flags = IBV_SEND_SIGNALED }, *bad;
	if (!crew->extended)
		return ibv_post_send(crew->q->qp, &wr, &bad);
	ibv_wr_start(qp);
	qp->wr_id = id, qp->wr_flags = IBV_SEND_SIGNALED;
	ibv_wr_send(qp);
	ibv_wr_set_sge(qp, sge->lkey, sge->addr, sge->length);
	return ibv_wr_complete(qp);
}

static void *post_many(void *argument)
{
	struct crew *crew = argument;
	struct ibv_sge sge = { (uintptr_t)crew->q->memory, 60, crew->q->mr->lkey };
	int id, error;
	while ((id = __atomic_fetch_add(&crew->next, 1, __ATOMIC_SEQ_CST)) < THREADS * EACH) {
		/*
		 * The extended interface is used only while there is room. Without room libmlx5 continues in the previous request,
		 * which the device may be reading (_common_wqe_init_op, qp.c, 44).
		 */
		if (crew->extended)
			CHECK(!sem_wait(&crew->room));
		/* The queue is short, so the other threads must take completions meanwhile. */
		while ((error = post_one(crew, &sge, id)) == ENOMEM)
			sched_yield();
		CHECK(!error);
	}
	return NULL;
}

static void took(struct crew *crew, uint64_t wr_id, int status)
{
	CHECK(!status && wr_id < THREADS * EACH);
	__atomic_fetch_add(&crew->times[wr_id], 1, __ATOMIC_SEQ_CST);
	__atomic_fetch_add(&crew->taken, 1, __ATOMIC_SEQ_CST);
	CHECK(!sem_post(&crew->room));
}

static int all_taken(struct crew *crew) { return __atomic_load_n(&crew->taken, __ATOMIC_SEQ_CST) >= THREADS * EACH; }

/* Takes completions field by field; some of the threads do this. */
static void take_by_parts(struct crew *crew)
{
	struct ibv_poll_cq_attr none = { 0 };
	time_t end = time(NULL) + 60;
	while (!all_taken(crew)) {
		CHECK(time(NULL) < end);
		if (!ibv_start_poll(crew->cq, &none)) {
			/*
			 * No more than can be outstanding. The queue gets their places back only at the end of the poll. A poll
			 * that went on while others post would fill it, and the device would then drop completions
			 * (update_cons_index in mlx5_end_poll, cq.c, 44).
			 */
			int left = SENDS;
			do {
				CHECK(ibv_wc_read_qp_num(crew->cq) == crew->q->qp->qp_num && ibv_wc_read_opcode(crew->cq) == IBV_WC_SEND);
				took(crew, crew->cq->wr_id, crew->cq->status);
			} while (--left && !ibv_next_poll(crew->cq));
			ibv_end_poll(crew->cq);
		}
		sched_yield();
	}
}

static void change_pairs(struct crew *crew)
{
	while (!all_taken(crew)) {
		struct ibv_qp *qp = ready(crew->q->cq, crew->q->cq, 4, &(struct ibv_qp_init_attr_ex) { 0 });
		CHECK(!ibv_req_notify_cq(crew->q->cq, 0) && !ibv_destroy_qp(qp));
	}
}

static void *take_many(void *argument)
{
	struct crew *crew = argument;
	int place = crew->extended ? __atomic_fetch_add(&crew->takers, 1, __ATOMIC_SEQ_CST) : THREADS;
	if (place < 2)
		return take_by_parts(crew), NULL;
	if (place == 2)
		return change_pairs(crew), NULL;
	struct ibv_wc wc[4];
	time_t end = time(NULL) + 60;
	while (!all_taken(crew)) {
		int got = ibv_poll_cq(crew->q->cq, 4, wc);
		CHECK(got >= 0 && time(NULL) < end);
		for (int i = 0; i < got; i++)
			took(crew, wc[i].wr_id, wc[i].status);
		sched_yield();
	}
	return NULL;
}

static void *post_receives(void *q)
{
	static int slot;
	int mine;
	while ((mine = __atomic_fetch_add(&slot, 1, __ATOMIC_SEQ_CST)) < SLOTS)
		post_receive(q, mine);
	return NULL;
}

static void together(void *(*work)(void *), void *(*more)(void *), void *argument)
{
	pthread_t threads[2 * THREADS];
	int count = more ? 2 * THREADS : THREADS;
	for (int i = 0; i < count; i++)
		CHECK(!pthread_create(&threads[i], NULL, i < THREADS ? work : more, argument));
	for (int i = 0; i < count; i++)
		CHECK(!pthread_join(threads[i], NULL));
}

static void threads(int extended)
{
	struct ibv_qp_init_attr_ex init = { .comp_mask = extended ? IBV_QP_INIT_ATTR_SEND_OPS_FLAGS : 0, .send_ops_flags = IBV_QP_EX_WITH_SEND };
	struct ibv_cq_init_attr_ex cq_attr = { .cqe = 256, .wc_flags = IBV_WC_STANDARD_FLAGS };
	struct ibv_cq_ex *cq = ibv_create_cq_ex(context, &cq_attr);
	CHECK(cq);
	struct queue q = make_memory(ibv_cq_ex_to_cq(cq));
	q.qp = ready(q.cq, q.cq, SLOTS, &init);
	struct packet p = packet("020000000009 020000000002 88b5");
	memcpy(q.memory, p.bytes, p.len);
	struct ibv_counters *counters = make_counters();
	struct rule r = rule(0);
	ADD(&r, ibv_flow_spec_eth, IBV_FLOW_SPEC_ETH, .val.dst_mac = { 2, 0, 0, 0, 0, 9 }, .mask.dst_mac = { 255, 255, 255, 255, 255, 255 });
	add_count(&r, counters);
	ADD(&r, ibv_flow_spec_action_drop, IBV_FLOW_SPEC_ACTION_DROP, );
	struct ibv_flow *flow = ibv_create_flow(q.qp, &r.attr);
	CHECK(flow);
	struct crew *crew = calloc(1, sizeof(*crew));
	crew->q = &q, crew->cq = cq, crew->extended = extended;
	CHECK(!sem_init(&crew->room, 0, SENDS));
	together(post_many, take_many, crew);
	for (int id = 0; id < THREADS * EACH; id++)
		CHECK(crew->times[id] == 1);
	expect_nothing(&q);
	expect_count(counters, THREADS * EACH, THREADS * EACH * p.len);
	CHECK(!ibv_destroy_flow(flow) && !ibv_destroy_counters(counters));
	free(crew);
	if (!extended) {
		struct packet each = packet(MACS "88b5");
		struct rule all = rule(0);
		add_mac(&all);
		CHECK(flow = ibv_create_flow(q.qp, &all.attr));
		together(post_receives, NULL, &q);
		inject(&each, SLOTS);
		int times[SLOTS] = { 0 };
		struct ibv_wc wc[SLOTS];
		CHECK(ibv_poll_cq(q.cq, SLOTS, wc) == SLOTS);
		for (int i = 0; i < SLOTS; i++)
			CHECK(!wc[i].status && wc[i].wr_id < SLOTS && !times[wc[i].wr_id]++);
		CHECK(!ibv_destroy_flow(flow));
	}
	destroy_queue(&q);
	printf("pass threads, %s\n", extended ? "part by part" : "lists");
}

int main(int argc, char **argv)
{
	open_device(argc, argv);
	ask("loop %s", "on", 0);
	threads(0), threads(1);
	ask("loop %s", "off", 0);
	close_device();
	return 0;
}
