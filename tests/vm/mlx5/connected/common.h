/*
 * Shared by the parts of mlx5-connected.c: queue pairs that are connected within one card, requests, completions and events. When a
 * check fails only that check ends; what it made stays until the program ends.
 */
#pragma once
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <infiniband/verbs.h>
#include <poll.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

/* Requests and shapes are given by the usual values, followed by what differs. */
#pragma GCC diagnostic ignored "-Woverride-init"

/* Seconds after which something expected is taken as missing, and seconds for which nothing may come. */
#define LATE 10.0
#define QUIET 0.1

#define ROOM 0x10000 /* bytes of memory on each side */
#define ALL_RIGHTS (IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC)
#define NONE (-1) /* zero, in a shape whose default is not zero */

static struct ibv_context *context;
static struct ibv_device_attr device;
static struct ibv_port_attr port;
static union ibv_gid gid;
static struct ibv_pd *pd;
static int gid_index;
static bool is_ib;

static jmp_buf failed;
static char why[512];

__attribute__((format(printf, 1, 2), noreturn)) static void fail(const char *format, ...)
{
	va_list list;

	va_start(list, format);
	vsnprintf(why, sizeof(why), format, list);
	va_end(list);
	longjmp(failed, 1);
}

#define NEED(what) \
	do { \
		if (!(what)) \
			fail("%s:%d: %s (%s)", __FILE__, __LINE__, #what, strerror(errno)); \
	} while (0)
#define EQUAL(is, wanted) \
	do { \
		long long is_ = (is), wanted_ = (wanted); \
		if (is_ != wanted_) \
			fail("%s:%d: %s is %lld (0x%llx), not %lld (0x%llx)", __FILE__, __LINE__, #is, is_, is_, wanted_, wanted_); \
	} while (0)

static inline double now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec + t.tv_nsec * 1e-9;
}

/* Sides of a connection. */

struct shape {
	enum ibv_qp_type type;
	int sends, receives, pieces, inlined; /* 16, 16, 4, 64 */
	bool each; /* every request is signaled */
	int access, reads; /* all, 4 */
	int timeout, retries, rnr; /* 14, 7, 7 */
	enum ibv_mtu mtu; /* 1024 */
	int entries; /* of each completion queue: 64 */
	struct ibv_srq *srq;
	struct ibv_comp_channel *channel; /* of what is received */
	struct ibv_pd *pd;
	int mr_access; /* all */
};

struct end {
	struct shape s;
	struct ibv_cq *out, *in;
	struct ibv_qp *qp;
	uint8_t *bytes;
	struct ibv_mr *mr;
	uint32_t psn;
	int inlined;
};

struct pair {
	struct end a, b;
};

static inline int or_default(int value, int usual)
{
	return value == NONE ? 0 : value ? value : usual;
}

static inline void make_memory(struct end *e, struct ibv_pd *of, int access)
{
	NEED(!posix_memalign((void **)&e->bytes, 4096, ROOM));
	memset(e->bytes, 0xee, ROOM);
	NEED(e->mr = ibv_reg_mr(of, e->bytes, ROOM, access));
}

static inline struct ibv_qp_init_attr init_attr(const struct end *e)
{
	return (struct ibv_qp_init_attr){
		.qp_type = e->s.type, .send_cq = e->out, .recv_cq = e->in, .srq = e->s.srq, .sq_sig_all = e->s.each,
		.cap = { .max_send_wr = or_default(e->s.sends, 16), .max_recv_wr = e->s.srq ? 0 : or_default(e->s.receives, 16),
			 .max_send_sge = or_default(e->s.pieces, 4), .max_recv_sge = e->s.srq ? 0 : or_default(e->s.pieces, 4),
			 .max_inline_data = or_default(e->s.inlined, 64) },
	};
}

static inline void make_queues(struct end *e, struct shape s)
{
	*e = (struct end){ .s = s, .psn = (uint32_t)rand() & 0xffffff };
	NEED(e->out = ibv_create_cq(context, or_default(s.entries, 64), NULL, NULL, 0));
	NEED(e->in = ibv_create_cq(context, or_default(s.entries, 64), NULL, s.channel, 0));
}

static inline void make_end(struct end *e, struct shape s)
{
	struct ibv_pd *of = s.pd ? s.pd : pd;

	make_queues(e, s);
	make_memory(e, of, or_default(s.mr_access, ALL_RIGHTS | IBV_ACCESS_MW_BIND));
	struct ibv_qp_init_attr attr = init_attr(e);
	NEED(e->qp = ibv_create_qp(of, &attr));
	e->inlined = attr.cap.max_inline_data;
}

static inline void to_init(struct end *e)
{
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_INIT, .port_num = 1, .qp_access_flags = or_default(e->s.access, ALL_RIGHTS), .qkey = 0x1234 };
	int last = e->s.type == IBV_QPT_UD ? IBV_QP_QKEY : IBV_QP_ACCESS_FLAGS;

	if (e->s.type == IBV_QPT_UC)
		attr.qp_access_flags &= IBV_ACCESS_REMOTE_WRITE;
	NEED(!ibv_modify_qp(e->qp, &attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | last));
}

static inline struct ibv_ah_attr way(void)
{
	struct ibv_ah_attr way = { .dlid = port.lid, .port_num = 1 };

	if (!is_ib)
		way.is_global = 1, way.grh.dgid = gid, way.grh.sgid_index = gid_index, way.grh.hop_limit = 64;
	return way;
}

static inline bool is_reliable(const struct end *e)
{
	return e->s.type == IBV_QPT_RC || e->s.type == IBV_QPT_XRC_SEND || e->s.type == IBV_QPT_XRC_RECV;
}

static inline void to_rtr(struct end *e, uint32_t number, uint32_t psn)
{
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_RTR, .path_mtu = or_default(e->s.mtu, IBV_MTU_1024), .dest_qp_num = number,
				    .rq_psn = psn, .max_dest_rd_atomic = or_default(e->s.reads, 4), .min_rnr_timer = 12, .ah_attr = way() };
	int mask = IBV_QP_STATE;

	if (e->s.type != IBV_QPT_UD)
		mask |= IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN;
	if (e->s.type == IBV_QPT_RC || e->s.type == IBV_QPT_XRC_RECV)
		mask |= IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER;
	NEED(!ibv_modify_qp(e->qp, &attr, mask));
}

static inline void to_rts(struct end *e)
{
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_RTS, .sq_psn = e->psn, .timeout = or_default(e->s.timeout, 14),
				    .retry_cnt = or_default(e->s.retries, 7), .rnr_retry = or_default(e->s.rnr, 7),
				    .max_rd_atomic = or_default(e->s.reads, 4) };
	int mask = IBV_QP_STATE | IBV_QP_SQ_PSN;

	if (is_reliable(e))
		mask |= IBV_QP_TIMEOUT;
	if (e->s.type == IBV_QPT_RC || e->s.type == IBV_QPT_XRC_SEND)
		mask |= IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC;
	NEED(!ibv_modify_qp(e->qp, &attr, mask));
}

static inline void to_state(struct end *e, enum ibv_qp_state state)
{
	struct ibv_qp_attr attr = { .qp_state = state };

	NEED(!ibv_modify_qp(e->qp, &attr, IBV_QP_STATE));
}

static inline void join(struct pair *p)
{
	to_init(&p->a), to_init(&p->b);
	to_rtr(&p->a, p->b.qp->qp_num, p->b.psn), to_rtr(&p->b, p->a.qp->qp_num, p->a.psn);
	to_rts(&p->a), to_rts(&p->b);
}

static inline void make_pair_of(struct pair *p, struct shape a, struct shape b)
{
	make_end(&p->a, a), make_end(&p->b, b);
	join(p);
}

#define MAKE_PAIR(p, ...) make_pair_of(p, (struct shape){ __VA_ARGS__ }, (struct shape){ __VA_ARGS__ })
#define RC .type = IBV_QPT_RC
#define UC .type = IBV_QPT_UC
#define UD .type = IBV_QPT_UD

static inline void drop_end(struct end *e)
{
	if (e->qp)
		EQUAL(ibv_destroy_qp(e->qp), 0);
	if (e->mr)
		EQUAL(ibv_dereg_mr(e->mr), 0);
	EQUAL(ibv_destroy_cq(e->out), 0);
	EQUAL(ibv_destroy_cq(e->in), 0);
	free(e->bytes);
}

static inline void drop(struct pair *p)
{
	drop_end(&p->a), drop_end(&p->b);
}

static inline enum ibv_qp_state state_of(struct end *e)
{
	struct ibv_qp_attr attr;
	struct ibv_qp_init_attr init;

	NEED(!ibv_query_qp(e->qp, &attr, IBV_QP_STATE, &init));
	return attr.qp_state;
}

/* Contents: each byte depends on its place and a seed. */

static inline uint8_t byte_at(uint32_t seed, size_t at)
{
	return (uint8_t)((at + 1) * 2654435761u >> 13 ^ seed * 40503u >> 5 ^ seed);
}

static inline void fill(struct end *e, size_t at, size_t len, uint32_t seed)
{
	for (size_t i = 0; i < len; i++)
		e->bytes[at + i] = byte_at(seed, i);
}

static inline void same(struct end *e, size_t at, size_t from, size_t len, uint32_t seed)
{
	for (size_t i = 0; i < len; i++)
		if (e->bytes[at + i] != byte_at(seed, from + i))
			fail("byte %zu of %zu is %02x, not %02x", i, len, e->bytes[at + i], byte_at(seed, from + i));
}

static inline void untouched(struct end *e, size_t at, size_t len)
{
	for (size_t i = 0; i < len; i++)
		if (e->bytes[at + i] != 0xee)
			fail("byte %zu was written, where none was to be", at + i);
}

/* Requests. */

static inline struct ibv_sge piece(struct end *e, size_t at, size_t len)
{
	return (struct ibv_sge){ .addr = (uintptr_t)e->bytes + at, .length = len, .lkey = e->mr->lkey };
}

static inline void post_receive(struct end *e, uint64_t id, size_t at, size_t len)
{
	struct ibv_sge sge = piece(e, at, len);
	struct ibv_recv_wr *wrong, wr = { .wr_id = id, .sg_list = &sge, .num_sge = len ? 1 : 0 };

	EQUAL(ibv_post_recv(e->qp, &wr, &wrong), 0);
}

static inline void post(struct end *e, struct ibv_send_wr *wr)
{
	struct ibv_send_wr *wrong;

	EQUAL(ibv_post_send(e->qp, wr, &wrong), 0);
}

/* A request with one piece of memory, or with none. */
static inline void post_one(struct end *e, struct ibv_send_wr wr, size_t at, size_t len)
{
	struct ibv_sge sge = piece(e, at, len);

	wr.sg_list = &sge, wr.num_sge = len ? 1 : 0;
	post(e, &wr);
}

#define SEND(e, id, at, len, ...) \
	post_one(e, (struct ibv_send_wr){ .wr_id = id, .opcode = IBV_WR_SEND, .send_flags = IBV_SEND_SIGNALED, __VA_ARGS__ }, at, len)

/* RDMA or an atomic operation on a place of the other side's memory. */
#define REMOTE(e, id, op, at, len, other, to, ...) \
	post_one(e, (struct ibv_send_wr){ .wr_id = id, .opcode = op, .send_flags = IBV_SEND_SIGNALED, \
		 .wr.rdma = { .remote_addr = (uintptr_t)(other)->bytes + (to), .rkey = (other)->mr->rkey }, __VA_ARGS__ }, at, len)

/* Completions. */

static inline struct ibv_wc completion(struct ibv_cq *cq)
{
	struct ibv_wc wc;
	double until = now() + LATE;
	int n;

	while (!(n = ibv_poll_cq(cq, 1, &wc)))
		if (now() > until)
			fail("no completion came");
	EQUAL(n, 1);
	return wc;
}

static inline struct ibv_wc good(struct ibv_cq *cq, uint64_t id, enum ibv_wc_opcode opcode)
{
	struct ibv_wc wc = completion(cq);

	if (wc.status != IBV_WC_SUCCESS)
		fail("request %llu: %s (vendor 0x%x)", (unsigned long long)wc.wr_id, ibv_wc_status_str(wc.status), wc.vendor_err);
	EQUAL(wc.wr_id, id);
	EQUAL(wc.opcode, opcode);
	return wc;
}

/* A completion with an error status. */
static inline void bad(struct ibv_cq *cq, uint64_t id, enum ibv_wc_status status)
{
	struct ibv_wc wc = completion(cq);

	EQUAL(wc.wr_id, id);
	if (wc.status != status)
		fail("request %llu: %s, not %s", (unsigned long long)id, ibv_wc_status_str(wc.status), ibv_wc_status_str(status));
}

static inline struct ibv_wc received(struct end *e, uint64_t id, enum ibv_wc_opcode opcode, size_t len)
{
	struct ibv_wc wc = good(e->in, id, opcode);

	EQUAL(wc.byte_len, len);
	if (e->qp)
		EQUAL(wc.qp_num, e->qp->qp_num);
	return wc;
}

static inline void quiet(struct ibv_cq *cq)
{
	struct ibv_wc wc;

	for (double until = now() + QUIET; now() < until;)
		if (ibv_poll_cq(cq, 1, &wc))
			fail("a completion came that none asked for: request %llu, %s", (unsigned long long)wc.wr_id, ibv_wc_status_str(wc.status));
}

/* Asynchronous events. */

static inline bool next_event(struct ibv_async_event *event, double seconds)
{
	struct pollfd fd = { .fd = context->async_fd, .events = POLLIN };

	for (double until = now() + seconds;;) {
		double left = until - now();
		if (poll(&fd, 1, left > 0 ? (int)(left * 1000) + 1 : 0) > 0 && !ibv_get_async_event(context, event)) {
			ibv_ack_async_event(event);
			switch (event->event_type) {
			case IBV_EVENT_COMM_EST: case IBV_EVENT_GID_CHANGE: case IBV_EVENT_PORT_ACTIVE: case IBV_EVENT_PKEY_CHANGE:
			case IBV_EVENT_LID_CHANGE: case IBV_EVENT_SM_CHANGE: case IBV_EVENT_CLIENT_REREGISTER:
				continue;
			case IBV_EVENT_DEVICE_FATAL:
				printf("FAIL all: %s\n", ibv_event_type_str(event->event_type));
				fflush(stdout);
				_exit(1);
			default:
				return true;
			}
		}
		if (left <= 0)
			return false;
	}
}

static inline void event(enum ibv_event_type type, void *of)
{
	struct ibv_async_event event;

	if (!next_event(&event, LATE))
		fail("no event came, where %s was to come", ibv_event_type_str(type));
	if (event.event_type != type)
		fail("the event is: %s", ibv_event_type_str(event.event_type));
	NEED(event.element.qp == of);
}

static inline void no_event(double seconds)
{
	struct ibv_async_event event;

	if (next_event(&event, seconds))
		fail("an event came that none asked for: %s", ibv_event_type_str(event.event_type));
}

static inline bool channel_has(struct ibv_comp_channel *channel, double seconds)
{
	struct pollfd fd = { .fd = channel->fd, .events = POLLIN };

	return poll(&fd, 1, (int)(seconds * 1000)) > 0;
}

static inline void channel_event(struct ibv_comp_channel *channel, struct ibv_cq *wanted)
{
	struct ibv_cq *cq;
	void *of;

	if (!channel_has(channel, LATE))
		fail("no event of a completion came");
	NEED(!ibv_get_cq_event(channel, &cq, &of));
	ibv_ack_cq_events(cq, 1);
	NEED(cq == wanted);
}
