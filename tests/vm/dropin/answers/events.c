/*
 * Threads, signals and event files. Waiting calls are interrupted and refused alike, threads share queues, and a destroy waits
 * until every event was acknowledged, by any thread.
 *
 * usage: events DEVICE
 */
#include "robust.h"
#include <stdatomic.h>
#include <sys/syscall.h>

static struct pair p;
static atomic_int handled;

static void handler(int signal)
{
	(void)signal;
	handled++;
}

/* A thread, its thread ID in the kernel, and what it does. */
struct worker {
	pthread_t thread;
	atomic_int tid;
	int answer, error;
	atomic_int done;
	void (*work)(struct worker *worker);
	void *of;
};

static void *run(void *of)
{
	struct worker *worker = of;

	worker->tid = syscall(SYS_gettid);
	worker->work(worker);
	worker->error = errno;
	worker->done = 1;
	return NULL;
}

static struct worker *start(void (*work)(struct worker *worker), void *of)
{
	struct worker *worker = calloc(1, sizeof(*worker));

	worker->work = work;
	worker->of = of;
	MUST(!pthread_create(&worker->thread, NULL, run, worker));
	return worker;
}

static void join(struct worker *worker) { MUST(!pthread_join(worker->thread, NULL)); }

/* Waits until a thread waits in the given system call. */
static void until_in(struct worker *worker, long call)
{
	char path[64], line[64];

	for (;;) {
		int file, length;

		while (!worker->tid)
			;
		snprintf(path, sizeof(path), "/proc/self/task/%d/syscall", worker->tid);
		MUST((file = open(path, O_RDONLY)) >= 0);
		length = read(file, line, sizeof(line) - 1);
		close(file);
		MUST(length > 0);
		line[length] = 0;
		/* The line can also be "running". */
		if (line[0] >= '0' && line[0] <= '9' && atol(line) == call)
			return;
		usleep(1000);
	}
}

static void wait_for_completion(struct worker *worker)
{
	struct ibv_cq *cq;
	void *of;

	errno = 0;
	worker->answer = ibv_get_cq_event(p.channel, &cq, &of);
	if (!worker->answer) {
		worker->answer = cq == p.one.cq && of == &p.one ? 0 : 99;
		ibv_ack_cq_events(cq, 1);
	}
}

static void wait_for_event(struct worker *worker)
{
	struct ibv_async_event event;

	errno = 0;
	worker->answer = ibv_get_async_event(p.context, &event);
}

static void install(int flags)
{
	struct sigaction action = { .sa_handler = handler, .sa_flags = flags };

	MUST(!sigaction(SIGUSR1, &action, NULL));
	handled = 0;
}

static void interrupted(const char *name, void (*wait)(struct worker *worker))
{
	struct worker *worker;

	install(0);
	worker = start(wait, NULL);
	until_in(worker, SYS_read);
	pthread_kill(worker->thread, SIGUSR1);
	join(worker);
	printf("%s interrupted: %d %s, handled %d\n", name, worker->answer, error_name(worker->error), handled);
}

static void restarted(void)
{
	struct worker *worker;

	install(SA_RESTART);
	MUST(!ibv_req_notify_cq(p.one.cq, 0));
	worker = start(wait_for_completion, NULL);
	until_in(worker, SYS_read);
	pthread_kill(worker->thread, SIGUSR1);
	while (!handled)
		;
	until_in(worker, SYS_read);
	printf("get_cq_event restarted: done %d\n", worker->done);
	NUMBER("write", write_across(&p.one, &p.two, 0, 8));
	join(worker);
	printf("get_cq_event restarted: %d\n", worker->answer);
}

static void not_blocking(void)
{
	struct pollfd ready = { .fd = p.channel->fd, .events = POLLIN };
	struct ibv_async_event event;
	struct ibv_cq *cq = NULL;
	void *of = NULL;

	printf("flags of the files: %d %d\n", !!(fcntl(p.channel->fd, F_GETFL) & O_NONBLOCK),
	       !!(fcntl(p.context->async_fd, F_GETFL) & O_NONBLOCK));
	printf("close on exec: %d %d %d\n", fcntl(p.channel->fd, F_GETFD), fcntl(p.context->async_fd, F_GETFD),
	       fcntl(p.context->cmd_fd, F_GETFD));
	MUST(!fcntl(p.channel->fd, F_SETFL, O_NONBLOCK) && !fcntl(p.context->async_fd, F_SETFL, O_NONBLOCK));
	NUMBER("get_cq_event of none", ibv_get_cq_event(p.channel, &cq, &of));
	NUMBER("get_async_event of none", ibv_get_async_event(p.context, &event));
	printf("written: %d %d\n", cq != NULL, of != NULL);
	MUST(!ibv_req_notify_cq(p.one.cq, 0));
	NUMBER("write", write_across(&p.one, &p.two, 0, 8));
	printf("poll: %d\n", poll(&ready, 1, 10000));
	NUMBER("get_cq_event", ibv_get_cq_event(p.channel, &cq, &of));
	printf("of the queue: %d %d\n", cq == p.one.cq, of == &p.one);
	NUMBER("get_cq_event again", ibv_get_cq_event(p.channel, &cq, &of));
	ibv_ack_cq_events(cq, 1);
	MUST(!fcntl(p.channel->fd, F_SETFL, 0) && !fcntl(p.context->async_fd, F_SETFL, 0));
}

/* Four threads post to one queue pair and poll one completion queue. */

enum { THREADS = 4, EACH = 500 };

static atomic_int seen[THREADS * EACH], left = THREADS * EACH, bad;

static void post_and_poll(struct worker *worker)
{
	int first = (int)(intptr_t)worker->of * EACH, posted = 0;
	struct ibv_wc wc[3];

	while (left > 0) {
		struct ibv_send_wr wr = { .wr_id = first + posted, .opcode = IBV_WR_RDMA_WRITE };
		int got;

		wr.wr.rdma.remote_addr = (uintptr_t)p.two.memory;
		wr.wr.rdma.rkey = p.two.mr->rkey;
		if (posted < EACH) {
			int error = post(&p.one, wr, 0, 8);

			posted += !error;
			bad += error && error != ENOMEM;
		}
		got = ibv_poll_cq(p.one.cq, 3, wc);
		for (int i = 0; i < got; i++) {
			seen[wc[i].wr_id]++;
			bad += wc[i].status != IBV_WC_SUCCESS;
		}
		bad += got < 0;
		left -= got;
	}
}

static void shared_queues(void)
{
	struct worker *workers[THREADS];
	int once = 0;

	for (int i = 0; i < THREADS; i++)
		workers[i] = start(post_and_poll, (void *)(intptr_t)i);
	for (int i = 0; i < THREADS; i++)
		join(workers[i]);
	for (int i = 0; i < THREADS * EACH; i++)
		once += seen[i] == 1;
	printf("four threads: %d once, %d bad, %d left\n", once, bad, left);
}

/* Objects are made and destroyed while a thread waits for an event of another object. */
static void destroyed_beside(void)
{
	struct worker *worker;

	MUST(!ibv_req_notify_cq(p.one.cq, 0));
	worker = start(wait_for_completion, NULL);
	until_in(worker, SYS_read);
	for (int i = 0; i < 50; i++) {
		struct ibv_cq *cq = ibv_create_cq(p.context, 4, NULL, p.channel, 0);
		struct ibv_qp *qp = make_qp(p.pd, cq, NULL, IBV_QPT_RC);

		MUST(!to_init(qp) && !ibv_destroy_qp(qp) && !ibv_destroy_cq(cq));
	}
	NUMBER("write", write_across(&p.one, &p.two, 0, 8));
	join(worker);
	printf("waited beside destroys: %d\n", worker->answer);
}

static void destroy_cq(struct worker *worker) { worker->answer = ibv_destroy_cq(worker->of); }
static void destroy_srq(struct worker *worker) { worker->answer = ibv_destroy_srq(worker->of); }
static void acknowledge(struct worker *worker) { ibv_ack_cq_events(worker->of, 1); }

static void destroy_waits(void)
{
	struct side side = p.one;
	struct ibv_cq *cq;
	struct worker *worker, *helper;
	void *of;

	MUST(side.cq = ibv_create_cq(p.context, 4, &side, p.channel, 0));
	MUST(side.qp = make_qp(p.pd, side.cq, NULL, IBV_QPT_RC));
	MUST(!to_init(side.qp) && !connect_qp(side.qp, side.qp->qp_num));
	for (int i = 0; i < 2; i++) {
		MUST(!ibv_req_notify_cq(side.cq, 0));
		NUMBER("write", write_across(&side, &side, 0, 8));
		MUST(!ibv_get_cq_event(p.channel, &cq, &of) && cq == side.cq);
	}
	NUMBER("destroy_cq in use, events not acknowledged", ibv_destroy_cq(side.cq));
	MUST(!ibv_destroy_qp(side.qp));
	worker = start(destroy_cq, side.cq);
	until_in(worker, SYS_futex);
	helper = start(acknowledge, side.cq);
	join(helper);
	printf("destroy_cq after one of two: %d\n", worker->done);
	ibv_ack_cq_events(side.cq, 1);
	join(worker);
	printf("destroy_cq after both: %d\n", worker->answer);
}

static void destroy_waits_for_event(void)
{
	struct ibv_srq_init_attr init = { .attr = { 4, 1, 0 } };
	struct ibv_srq_attr attr = { .srq_limit = 2 };
	struct ibv_srq *srq = ibv_create_srq(p.pd, &init);
	struct ibv_sge sge = { (uintptr_t)p.two.memory, 8, p.two.mr->lkey };
	struct ibv_recv_wr wr = { .sg_list = &sge, .num_sge = 1 }, *bad_wr;
	struct ibv_async_event event;
	struct worker *worker;
	struct side side = p.one;

	MUST(srq && (side.qp = make_qp(p.pd, side.cq, srq, IBV_QPT_RC)));
	MUST(!to_init(side.qp) && !connect_qp(side.qp, side.qp->qp_num));
	MUST(!ibv_post_srq_recv(srq, &wr, &bad_wr) && !ibv_post_srq_recv(srq, &wr, &bad_wr));
	MUST(!ibv_modify_srq(srq, &attr, IBV_SRQ_LIMIT));
	MUST(!post(&side, (struct ibv_send_wr){ .opcode = IBV_WR_SEND }, 0, 8));
	completion(side.cq);
	completion(side.cq);
	NUMBER("get_async_event", ibv_get_async_event(p.context, &event));
	printf("event: %s, of the queue: %d\n", ibv_event_type_str(event.event_type), event.element.srq == srq);
	MUST(!ibv_destroy_qp(side.qp));
	worker = start(destroy_srq, srq);
	until_in(worker, SYS_futex);
	printf("destroy_srq before: %d\n", worker->done);
	ibv_ack_async_event(&event);
	join(worker);
	printf("destroy_srq after: %d\n", worker->answer);
}

int main(int count, char **arguments)
{
	begin(count, arguments);
	open_pair(&p);
	interrupted("get_cq_event", wait_for_completion);
	interrupted("get_async_event", wait_for_event);
	restarted();
	not_blocking();
	shared_queues();
	destroyed_beside();
	destroy_waits();
	destroy_waits_for_event();
	close_pair(&p);
	return 0;
}
