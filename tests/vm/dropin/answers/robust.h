/*
 * Shared by the programs that run with libibverbs and with the drop-in: a line for each answer, "name: answer", and two connected
 * queue pairs in one process. Output that is not to be compared goes to standard error.
 */
#pragma once
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <infiniband/verbs.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>
#ifndef __GLIBC__
#include "musl.h"
#endif

/* What the program is about. */
static const char *asked = "the program";

#define MUST(what) \
	do { \
		if (!(what)) { \
			fprintf(stderr, "%s:%d: %s: %s\n", __FILE__, __LINE__, #what, strerror(errno)); \
			printf("%s: fails\n", asked); \
			fflush(stdout); \
			_exit(1); \
		} \
	} while (0)

/* The index of the GID that everything uses: RoCE version 2, IPv4. */
#ifndef GID_INDEX
#define GID_INDEX 1
#endif
enum { GID = GID_INDEX, BYTES = 4096, DEPTH = 16 };

/* Declared in the header for drivers, which is not installed. */
int ibv_read_sysfs_file(const char *directory, const char *file, char *text, size_t size);

static const char *device_name;

static inline const char *error_name(int error)
{
	const char *name = error ? strerrorname_np(error) : "0";

	return name ? name : "?";
}

/* An answer that is zero, an errno, or negative with errno set. */
static inline void number(const char *name, int answer, int error)
{
	if (answer < 0)
		printf("%s: %d, errno %s\n", name, answer, error_name(error));
	else
		printf("%s: %s\n", name, error_name(answer));
}

/* The result of a call that makes an object. */
static inline void object(const char *name, const void *made, int error)
{
	printf("%s: %s\n", name, made ? "made" : error_name(error));
}

#define NUMBER(name, call) \
	do { \
		int answer_; \
		errno = 0; \
		answer_ = call; \
		number(name, answer_, errno); \
	} while (0)
#define OBJECT(name, call) \
	do { \
		const void *made_; \
		errno = 0; \
		made_ = call; \
		object(name, made_, errno); \
	} while (0)

static inline struct ibv_context *open_device(void)
{
	int count;
	struct ibv_device **list = ibv_get_device_list(&count);
	struct ibv_context *context = NULL;

	MUST(list);
	for (int i = 0; i < count && !context; i++)
		if (!strcmp(ibv_get_device_name(list[i]), device_name))
			context = ibv_open_device(list[i]);
	MUST(context);
	ibv_free_device_list(list);
	return context;
}

/* A queue pair with everything that it needs, and its peer. */
struct side {
	struct ibv_cq *cq;
	struct ibv_qp *qp;
	struct ibv_mr *mr;
	char *memory;
};

struct pair {
	struct ibv_context *context;
	struct ibv_comp_channel *channel;
	struct ibv_pd *pd;
	struct side one, two;
};

static inline struct ibv_qp *make_qp(struct ibv_pd *pd, struct ibv_cq *cq, struct ibv_srq *srq, enum ibv_qp_type type)
{
	struct ibv_qp_init_attr init = {
		.send_cq = cq, .recv_cq = cq, .srq = srq, .qp_type = type, .sq_sig_all = 1,
		.cap = { .max_send_wr = DEPTH, .max_recv_wr = srq ? 0 : DEPTH, .max_send_sge = 2, .max_recv_sge = srq ? 0 : 2,
			 .max_inline_data = 64 },
	};

	return ibv_create_qp(pd, &init);
}

static inline int to_init(struct ibv_qp *qp)
{
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_INIT, .port_num = 1, .qp_access_flags = 15, .qkey = 7 };
	int last = qp->qp_type == IBV_QPT_UD ? IBV_QP_QKEY : IBV_QP_ACCESS_FLAGS;

	return ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | last);
}

enum {
	RTR_MASK = IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
		   IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER,
	RTS_MASK = IBV_QP_STATE | IBV_QP_SQ_PSN | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
		   IBV_QP_MAX_QP_RD_ATOMIC,
};

static inline struct ibv_qp_attr rtr_attr(struct ibv_context *context, uint32_t dest)
{
	struct ibv_qp_attr attr = {
		.qp_state = IBV_QPS_RTR, .path_mtu = IBV_MTU_1024, .dest_qp_num = dest, .max_dest_rd_atomic = 1,
		.min_rnr_timer = 1,
		.ah_attr = { .is_global = 1, .port_num = 1, .grh = { .sgid_index = GID, .hop_limit = 1 } },
	};

	MUST(!ibv_query_gid(context, 1, GID, &attr.ah_attr.grh.dgid));
	return attr;
}

static inline int connect_qp(struct ibv_qp *qp, uint32_t dest)
{
	struct ibv_qp_attr attr = rtr_attr(qp->context, dest);
	int error = ibv_modify_qp(qp, &attr, RTR_MASK);

	attr.qp_state = IBV_QPS_RTS;
	attr.timeout = 14;
	attr.retry_cnt = attr.rnr_retry = 7;
	attr.max_rd_atomic = 1;
	return error ? error : ibv_modify_qp(qp, &attr, RTS_MASK);
}

static inline void make_side(struct pair *pair, struct side *side)
{
	int access = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC;

	side->memory = mmap(NULL, BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	MUST(side->memory != MAP_FAILED);
	MUST(side->mr = ibv_reg_mr(pair->pd, side->memory, BYTES, access));
	MUST(side->cq = ibv_create_cq(pair->context, 2 * DEPTH, side, pair->channel, 0));
	MUST(side->qp = make_qp(pair->pd, side->cq, NULL, IBV_QPT_RC));
	MUST(!to_init(side->qp));
}

static inline void pair_on(struct pair *pair, struct ibv_context *context, struct ibv_pd *pd)
{
	pair->context = context;
	pair->pd = pd;
	MUST(pair->channel = ibv_create_comp_channel(pair->context));
	make_side(pair, &pair->one);
	make_side(pair, &pair->two);
	MUST(!connect_qp(pair->one.qp, pair->two.qp->qp_num));
	MUST(!connect_qp(pair->two.qp, pair->one.qp->qp_num));
}

static inline void open_pair(struct pair *pair)
{
	struct ibv_context *context = open_device();
	struct ibv_pd *pd = ibv_alloc_pd(context);

	MUST(pd);
	pair_on(pair, context, pd);
}

static inline void close_side(struct side *side)
{
	MUST(!ibv_destroy_qp(side->qp));
	MUST(!ibv_destroy_cq(side->cq));
	MUST(!ibv_dereg_mr(side->mr));
	MUST(!munmap(side->memory, BYTES));
}

static inline void close_pair(struct pair *pair)
{
	close_side(&pair->one);
	close_side(&pair->two);
	MUST(!ibv_dealloc_pd(pair->pd));
	MUST(!ibv_destroy_comp_channel(pair->channel));
	MUST(!ibv_close_device(pair->context));
}

/* Waits for the next completion. */
static inline struct ibv_wc completion(struct ibv_cq *cq)
{
	struct ibv_wc wc;
	int got;

	while ((got = ibv_poll_cq(cq, 1, &wc)) == 0)
		;
	MUST(got == 1);
	return wc;
}

static inline int post(struct side *from, struct ibv_send_wr wr, size_t at, uint32_t length)
{
	struct ibv_sge sge = { (uintptr_t)from->memory + at, length, from->mr->lkey };
	struct ibv_send_wr *bad;

	wr.sg_list = &sge;
	wr.num_sge = 1;
	return ibv_post_send(from->qp, &wr, &bad);
}

static inline int post_receive(struct side *to, uint64_t wr_id)
{
	struct ibv_sge sge = { (uintptr_t)to->memory, BYTES, to->mr->lkey };
	struct ibv_recv_wr wr = { .wr_id = wr_id, .sg_list = &sge, .num_sge = 1 }, *bad;

	return ibv_post_recv(to->qp, &wr, &bad);
}

/* Writes bytes of one memory to the same place in the other side's. */
static inline enum ibv_wc_status write_across(struct side *from, struct side *to, size_t at, uint32_t length)
{
	struct ibv_send_wr wr = { .opcode = IBV_WR_RDMA_WRITE };

	wr.wr.rdma.remote_addr = (uintptr_t)to->memory + at;
	wr.wr.rdma.rkey = to->mr->rkey;
	MUST(!post(from, wr, at, length));
	return completion(from->cq).status;
}

/* Runs a call in a child process, so that a crash, or a call that never returns, is an answer too. The child prints the answer. */
static inline void apart(const char *name, void (*call)(const char *name))
{
	int status;
	pid_t child;

	fflush(stdout);
	child = fork();
	MUST(child >= 0);
	if (child == 0) {
		asked = name;
		alarm(20);
		call(name);
		fflush(stdout);
		_exit(0);
	}
	MUST(waitpid(child, &status, 0) == child);
	if (WIFSIGNALED(status))
		printf("%s: %s\n", name, WTERMSIG(status) == SIGALRM ? "hangs" : sigabbrev_np(WTERMSIG(status)));
}

static inline void begin(int count, char **arguments)
{
	device_name = count > 1 ? arguments[1] : "rxe0";
	setvbuf(stdout, NULL, _IOLBF, 0);
}
