/*
 * The extended interface of completion queues: what can be done in the middle of a poll.
 *
 * usage: polls DEVICE
 */
#include "robust.h"

static struct pair p;
static struct ibv_cq_ex *cq;
static struct ibv_poll_cq_attr none;

/* The pair's first queue, opened with the extended interface, with completions 1 to `count` in it. */
static void open_with(int count)
{
	struct ibv_cq_init_attr_ex attr = { .cqe = 4 * DEPTH, .wc_flags = IBV_WC_STANDARD_FLAGS };

	open_pair(&p);
	MUST(!ibv_destroy_qp(p.one.qp) && !ibv_destroy_qp(p.two.qp) && !ibv_destroy_cq(p.one.cq));
	attr.channel = p.channel;
	MUST(cq = ibv_create_cq_ex(p.context, &attr));
	p.one.cq = ibv_cq_ex_to_cq(cq);
	MUST(p.one.qp = make_qp(p.pd, p.one.cq, NULL, IBV_QPT_RC));
	MUST(p.two.qp = make_qp(p.pd, p.two.cq, NULL, IBV_QPT_RC));
	MUST(!to_init(p.one.qp) && !to_init(p.two.qp));
	for (int i = 1; i <= count; i++)
		MUST(!post_receive(&p.one, i));
	if (count)
		MUST(!ibv_modify_qp(p.one.qp, &(struct ibv_qp_attr){ .qp_state = IBV_QPS_ERR }, IBV_QP_STATE));
	usleep(count ? 200000 : 0);
}

/* A queue pair is made and destroyed, and events are requested. */
static void queue_pairs(const char *name)
{
	struct side new;
	struct ibv_cq *of = NULL;
	void *context;

	(void)name;
	open_with(3);
	new = p.one;
	NUMBER("start", ibv_start_poll(cq, &none));
	printf("first: %d\n", (int)cq->wr_id);
	MUST(new.qp = make_qp(p.pd, p.one.cq, NULL, IBV_QPT_RC));
	NUMBER("init", to_init(new.qp));
	NUMBER("destroy_cq in use", ibv_destroy_cq(p.one.cq));
	NUMBER("next", ibv_next_poll(cq));
	printf("second: %d, %d\n", (int)cq->wr_id, ibv_wc_read_qp_num(cq) == p.one.qp->qp_num);
	NUMBER("req_notify_cq", ibv_req_notify_cq(p.one.cq, 0));
	MUST(!fcntl(p.channel->fd, F_SETFL, O_NONBLOCK));
	NUMBER("get_cq_event of what was there", ibv_get_cq_event(p.channel, &of, &context));
	NUMBER("post_recv", post_receive(&new, 70));
	NUMBER("error", ibv_modify_qp(new.qp, &(struct ibv_qp_attr){ .qp_state = IBV_QPS_ERR }, IBV_QP_STATE));
	usleep(200000);
	NUMBER("next", ibv_next_poll(cq));
	printf("third: %d\n", (int)cq->wr_id);
	NUMBER("next that came later", ibv_next_poll(cq));
	printf("of the new one: %d\n", (int)cq->wr_id);
	printf("of the new one: %d, %s\n", ibv_wc_read_qp_num(cq) == new.qp->qp_num, ibv_wc_status_str(cq->status));
	MUST(poll(&(struct pollfd){ .fd = p.channel->fd, .events = POLLIN }, 1, 10000) == 1);
	NUMBER("get_cq_event", ibv_get_cq_event(p.channel, &of, &context));
	ibv_ack_cq_events(of, 1);
	printf("of the queue: %d\n", of == p.one.cq);
	NUMBER("next of none", ibv_next_poll(cq));
	NUMBER("reset", ibv_modify_qp(new.qp, &(struct ibv_qp_attr){ .qp_state = IBV_QPS_RESET }, IBV_QP_STATE));
	NUMBER("destroy_qp", ibv_destroy_qp(new.qp));
	ibv_end_poll(cq);
	close_pair(&p);
}

/* Two polls one after the other; the second continues where the first ended. Then around the ring. */
static void in_turn(const char *name)
{
	struct ibv_wc wc[2];
	int wrong = 0;

	(void)name;
	open_with(6);
	for (int i = 1; i <= 4; i += 3) {
		MUST(!ibv_start_poll(cq, &none));
		printf("start: %d\n", (int)cq->wr_id);
		MUST(!ibv_next_poll(cq));
		printf("next: %d\n", (int)cq->wr_id);
		ibv_end_poll(cq);
		MUST(ibv_poll_cq(p.one.cq, 1, wc) == 1);
		printf("poll_cq: %d\n", (int)wc[0].wr_id);
	}
	for (int i = 0; i < 500; i++) {
		struct ibv_qp_attr to = { .qp_state = IBV_QPS_RESET };

		MUST(!ibv_modify_qp(p.one.qp, &to, IBV_QP_STATE) && !to_init(p.one.qp));
		MUST(!post_receive(&p.one, 2 * i) && !post_receive(&p.one, 2 * i + 1));
		to.qp_state = IBV_QPS_ERR;
		MUST(!ibv_modify_qp(p.one.qp, &to, IBV_QP_STATE));
		while (ibv_start_poll(cq, &none))
			;
		wrong += (int)cq->wr_id != 2 * i;
		while (ibv_next_poll(cq))
			;
		wrong += (int)cq->wr_id != 2 * i + 1;
		ibv_end_poll(cq);
	}
	printf("wrong: %d\n", wrong);
	close_pair(&p);
}

/*
 * A poll that continues while there is more, for longer than the ring is. sideway's rc_pingpong polls this way, while its other
 * side sends as fast as it can. Here there is a flushed receive for each round.
 */
static void long_poll(const char *name)
{
	int wrong = 0;

	open_with(1);
	MUST(!ibv_start_poll(cq, &none));
	for (int i = 0; i < 10 * DEPTH && !wrong; i++) {
		struct ibv_qp_attr to = { .qp_state = IBV_QPS_RESET };
		int tries = 1000;

		MUST(!ibv_modify_qp(p.one.qp, &to, IBV_QP_STATE) && !to_init(p.one.qp) && !post_receive(&p.one, i));
		to.qp_state = IBV_QPS_ERR;
		MUST(!ibv_modify_qp(p.one.qp, &to, IBV_QP_STATE));
		while (ibv_next_poll(cq) && tries-- > 0)
			usleep(1000);
		wrong += (int)cq->wr_id != i;
	}
	ibv_end_poll(cq);
	printf("%s: %d wrong\n", name, wrong);
	close_pair(&p);
}

/* A child of a process that is in the middle of a poll. */
static void forked(const char *name)
{
	pid_t child;
	int status;

	open_with(3);
	MUST(!ibv_start_poll(cq, &none) && !ibv_next_poll(cq));
	child = fork();
	MUST(child >= 0);
	if (child == 0) {
		int next = ibv_next_poll(cq);

		ibv_end_poll(cq);
		ibv_end_poll(cq);
		_exit(next == 0 || ibv_start_poll(cq, &none) == 0);
	}
	MUST(waitpid(child, &status, 0) == child);
	printf("%s: %s\n", name, WIFEXITED(status) && !WEXITSTATUS(status) ? "nothing" : "the parent's");
	printf("%s, the parent: %d", name, (int)cq->wr_id);
	printf(" next %d", ibv_next_poll(cq));
	printf(" is %d", (int)cq->wr_id);
	ibv_end_poll(cq);
	printf(" then %d\n", ibv_poll_cq(p.one.cq, 1, &(struct ibv_wc){ 0 }));
	close_pair(&p);
}

/* Threads: two poll with the extended interface, one with the plain one. */
enum { TOTAL = 400 };
static int seen[TOTAL], taken, bad;

static void saw(uint64_t wr_id, int status, uint32_t opcode)
{
	if (wr_id >= TOTAL || status || opcode != IBV_WC_RDMA_WRITE) {
		if (!__atomic_fetch_add(&bad, 1, __ATOMIC_SEQ_CST))
			fprintf(stderr, "%d: status %d, opcode %u\n", (int)wr_id, status, opcode);
	} else {
		__atomic_fetch_add(&seen[wr_id], 1, __ATOMIC_SEQ_CST);
	}
	__atomic_fetch_add(&taken, 1, __ATOMIC_SEQ_CST);
}

static int all_taken(void) { return __atomic_load_n(&taken, __ATOMIC_SEQ_CST) >= TOTAL; }

static void *by_parts(void *unused)
{
	while (!all_taken()) {
		if (ibv_start_poll(cq, &none)) {
			sched_yield();
			continue;
		}
		do
			saw(cq->wr_id, cq->status, ibv_wc_read_opcode(cq));
		while (!ibv_next_poll(cq));
		ibv_end_poll(cq);
	}
	return unused;
}

static void *by_lists(void *unused)
{
	struct ibv_wc wc[3];

	while (!all_taken()) {
		int got = ibv_poll_cq(p.one.cq, 3, wc);

		for (int i = 0; i < got; i++)
			saw(wc[i].wr_id, wc[i].status, wc[i].opcode);
		sched_yield();
	}
	return unused;
}

/* Queue pairs are made and destroyed on the queue that is being polled, and events are requested. */
static void *around(void *unused)
{
	while (!all_taken()) {
		struct ibv_qp *qp = make_qp(p.pd, p.one.cq, NULL, IBV_QPT_RC);

		MUST(qp && !to_init(qp) && !ibv_req_notify_cq(p.one.cq, 0));
		MUST(!ibv_modify_qp(qp, &(struct ibv_qp_attr){ .qp_state = IBV_QPS_RESET }, IBV_QP_STATE));
		MUST(!ibv_destroy_qp(qp));
		usleep(5000);
	}
	return unused;
}

static void threads(const char *name)
{
	pthread_t all[4];
	int once = 0;

	open_with(0);
	MUST(!connect_qp(p.one.qp, p.two.qp->qp_num) && !connect_qp(p.two.qp, p.one.qp->qp_num));
	MUST(!pthread_create(&all[0], NULL, by_parts, NULL) && !pthread_create(&all[1], NULL, by_parts, NULL));
	MUST(!pthread_create(&all[2], NULL, by_lists, NULL) && !pthread_create(&all[3], NULL, around, NULL));
	for (int id = 0; id < TOTAL; id++) {
		struct ibv_send_wr wr = { .wr_id = id, .opcode = IBV_WR_RDMA_WRITE };
		int error;

		wr.wr.rdma.remote_addr = (uintptr_t)p.two.memory;
		wr.wr.rdma.rkey = p.two.mr->rkey;
		/* No more than the queue has room for: completions that overflow it are lost. */
		while (id - __atomic_load_n(&taken, __ATOMIC_SEQ_CST) >= 2 * DEPTH)
			sched_yield();
		while ((error = post(&p.one, wr, 0, 8)) == ENOMEM)
			sched_yield();
		MUST(!error);
	}
	for (int i = 0; i < 4; i++)
		MUST(!pthread_join(all[i], NULL));
	for (int id = 0; id < TOTAL; id++)
		once += seen[id] == 1;
	printf("%s: %d once, %d bad\n", name, once, bad);
	/* Events that were announced were not read; they go away with the queues. */
	close_pair(&p);
}


int main(int count, char **arguments)
{
	begin(count, arguments);
	apart("queue pairs in a poll", queue_pairs);
	apart("in turn", in_turn);
	apart("long poll", long_poll);
	apart("a child in a poll", forked);
	apart("threads", threads);
	return 0;
}
