/*
 * The extended interface of completion queues: what can be done in the middle of a poll.
 *
 * usage: polls DEVICE
 */
#include "robust.h"

static struct pair p;
static struct ibv_cq_ex *cq;
static struct ibv_poll_cq_attr none;

/* The pair's first queue, as the extended interface knows it, with completions 1 to `count` in it. */
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

/* A queue pair comes and goes, and events are asked for. */
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

/* Two polls on end, and each goes on where the one before ended. Then round the ring. */
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

int main(int count, char **arguments)
{
	begin(count, arguments);
	apart("queue pairs in a poll", queue_pairs);
	apart("in turn", in_turn);
	apart("a child in a poll", forked);
	return 0;
}
