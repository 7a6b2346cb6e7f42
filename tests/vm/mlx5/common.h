/*
 * Shared by the programs for the virtual ConnectX: its control line, packets, queues, rules and counters. A check that fails ends
 * the program.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <fcntl.h>
#include <infiniband/verbs.h>
#include <termios.h>
#include <time.h>
#include <unistd.h>

#include "../lib/check.h"

static int control;
static struct ibv_context *context;
static struct ibv_pd *pd;

/* The control line. */

static inline char *ask(const char *format, const char *argument, int times)
{
	static char answer[1 << 16];
	char line[8192];
	size_t len = 0;
	int n = snprintf(line, sizeof(line), format, argument, times);

	line[n++] = '\n';
	CHECK(write(control, line, n) == n);
	for (;;) {
		ssize_t got = read(control, answer + len, sizeof(answer) - 1 - len);
		CHECK(got > 0);
		len += got;
		answer[len] = 0;
		char *last = len > 1 ? memrchr(answer, '\n', len - 1) : NULL;
		last = last ? last + 1 : answer;
		if (answer[len - 1] == '\n' && (!strcmp(last, "ok\n") || !strncmp(last, "error", 5))) {
			if (strcmp(last, "ok\n"))
				fprintf(stderr, "%.60s: %s", line, last);
			CHECK(!strcmp(last, "ok\n"));
			return answer;
		}
	}
}

/* Packets. */

struct packet {
	uint8_t bytes[256];
	int len;
};

static inline struct packet packet(const char *hex)
{
	struct packet p = { .len = 0 };
	for (; *hex; hex++) {
		if (*hex == ' ')
			continue;
		sscanf(hex, "%2hhx", &p.bytes[p.len++]);
		hex++;
	}
	while (p.len < 60)
		p.bytes[p.len++] = 0;
	return p;
}

static inline void inject(const struct packet *p, int times)
{
	char hex[513];
	for (int i = 0; i < p->len; i++)
		sprintf(hex + 2 * i, "%02x", p->bytes[i]);
	ask("send %s %d", hex, times);
}

#define MACS "020000000001 020000000002 "
#define IP4(protocol) "0800 4500002e00000000 40" protocol "0000 0a000001 0a000002 "
#define IP6(next) "86dd 60012345001a" next "40 20010db8000000000000000000000001 20010db8000000000000000000000002 "
#define UDP "1388 1389 001a 0000 "

/* Queues. */

struct queue {
	struct ibv_cq *cq;
	struct ibv_qp *qp;
	struct ibv_mr *mr;
	uint8_t *memory;
};

enum { SLOT = 2048, SLOTS = 64, SENDS = 16 };

static inline void post_receive(struct queue *q, int slot)
{
	struct ibv_sge sge = { (uintptr_t)q->memory + slot * SLOT, SLOT, q->mr->lkey };
	struct ibv_recv_wr wr = { .wr_id = slot, .sg_list = &sge, .num_sge = 1 }, *bad;
	CHECK(!ibv_post_recv(q->qp, &wr, &bad));
}

static inline void make_ready(struct ibv_qp *qp)
{
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_INIT, .port_num = 1 };
	CHECK(!ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_PORT));
	attr.qp_state = IBV_QPS_RTR;
	CHECK(!ibv_modify_qp(qp, &attr, IBV_QP_STATE));
	attr.qp_state = IBV_QPS_RTS;
	CHECK(!ibv_modify_qp(qp, &attr, IBV_QP_STATE));
}

/* Makes everything but the queue pair. */
static inline struct queue make_memory(struct ibv_cq *cq)
{
	struct queue q = { .cq = cq, .memory = aligned_alloc(4096, SLOT * SLOTS) };
	CHECK(q.cq && q.memory);
	CHECK(q.mr = ibv_reg_mr(pd, q.memory, SLOT * SLOTS, IBV_ACCESS_LOCAL_WRITE));
	return q;
}

static inline struct queue make_queue(void)
{
	struct queue q = make_memory(ibv_create_cq(context, 256, NULL, NULL, 0));
	struct ibv_qp_init_attr init = {
		.send_cq = q.cq, .recv_cq = q.cq, .qp_type = IBV_QPT_RAW_PACKET,
		.cap = { .max_send_wr = 16, .max_recv_wr = SLOTS, .max_send_sge = 1, .max_recv_sge = 1 },
	};
	CHECK(q.qp = ibv_create_qp(pd, &init));
	make_ready(q.qp);
	for (int slot = 0; slot < SLOTS; slot++)
		post_receive(&q, slot);
	return q;
}

/* A queue pair that is ready. If `depth` is not zero it has room for receives. */
static inline struct ibv_qp *ready(struct ibv_cq *sends, struct ibv_cq *receives, int depth, struct ibv_qp_init_attr_ex *more)
{
	struct ibv_qp_init_attr_ex init = *more;
	init.send_cq = sends, init.recv_cq = receives, init.qp_type = IBV_QPT_RAW_PACKET, init.pd = pd;
	init.comp_mask |= IBV_QP_INIT_ATTR_PD;
	init.cap = (struct ibv_qp_cap) { SENDS, depth, 2, 1, 64 };
	struct ibv_qp *qp = ibv_create_qp_ex(context, &init);
	CHECK(qp);
	make_ready(qp);
	return qp;
}

/* Takes one completion and compares it with the packet. */
static inline void expect_packet(struct queue *q, const struct packet *p)
{
	struct ibv_wc wc;
	CHECK(ibv_poll_cq(q->cq, 1, &wc) == 1);
	CHECK(wc.status == IBV_WC_SUCCESS && wc.opcode == IBV_WC_RECV);
	CHECK((int)wc.byte_len == p->len);
	CHECK(!memcmp(q->memory + wc.wr_id * SLOT, p->bytes, p->len));
	post_receive(q, wc.wr_id);
}

static inline void expect_nothing(struct queue *q)
{
	struct ibv_wc wc;
	CHECK(ibv_poll_cq(q->cq, 1, &wc) == 0);
}

static inline void destroy_queue(struct queue *q)
{
	CHECK(!ibv_destroy_qp(q->qp));
	CHECK(!ibv_dereg_mr(q->mr));
	CHECK(!ibv_destroy_cq(q->cq));
	free(q->memory);
}

/* Flows. */

struct rule {
	struct ibv_flow_attr attr;
	uint8_t specs[512];
} __attribute__((packed));

static inline struct rule rule(int priority)
{
	struct rule r = { .attr = { .type = IBV_FLOW_ATTR_NORMAL, .size = sizeof(r.attr), .priority = priority, .port = 1 } };
	return r;
}

static inline void add(struct rule *r, const void *spec, int size)
{
	memcpy((uint8_t *)r + r->attr.size, spec, size);
	r->attr.size += size;
	r->attr.num_of_specs++;
}

#define ADD(rule, kind, spec_type, ...) \
	do { \
		struct kind spec_ = { .type = (spec_type), .size = sizeof(spec_), __VA_ARGS__ }; \
		add(rule, &spec_, sizeof(spec_)); \
	} while (0)

static inline struct ibv_counters *make_counters(void)
{
	struct ibv_counters_init_attr init = { 0 };
	struct ibv_counters *counters = ibv_create_counters(context, &init);
	CHECK(counters);
	struct ibv_counter_attach_attr packets = { .counter_desc = IBV_COUNTER_PACKETS, .index = 0 };
	struct ibv_counter_attach_attr bytes = { .counter_desc = IBV_COUNTER_BYTES, .index = 1 };
	CHECK(!ibv_attach_counters_point_flow(counters, &packets, NULL));
	CHECK(!ibv_attach_counters_point_flow(counters, &bytes, NULL));
	return counters;
}

static inline void expect_count(struct ibv_counters *counters, uint64_t packets, uint64_t bytes)
{
	uint64_t values[2] = { 0, 0 };
	CHECK(!ibv_read_counters(counters, values, 2, IBV_READ_COUNTERS_ATTR_PREFER_CACHED));
	if (values[0] != packets || values[1] != bytes)
		fprintf(stderr, "%ju packets, %ju bytes\n", (uintmax_t)values[0], (uintmax_t)values[1]);
	CHECK(values[0] == packets && values[1] == bytes);
}

static inline void add_count(struct rule *r, struct ibv_counters *counters)
{
	ADD(r, ibv_flow_spec_counter_action, IBV_FLOW_SPEC_ACTION_COUNT, .counters = counters);
}

static inline void add_mac(struct rule *r)
{
	struct ibv_flow_spec_eth spec = { .type = IBV_FLOW_SPEC_ETH, .size = sizeof(spec) };
	memcpy(spec.val.dst_mac, "\x02\0\0\0\0\x01", 6);
	memset(spec.mask.dst_mac, 0xff, 6);
	add(r, &spec, sizeof(spec));
}

/* Waits for a completion. The device is a process on a machine that may be busy, so it may take a while. */
static inline struct ibv_wc await(struct ibv_cq *cq)
{
	struct ibv_wc wc;
	int polled = 0;
	for (time_t end = time(NULL) + 20; !polled && time(NULL) < end;)
		polled = ibv_poll_cq(cq, 1, &wc);
	CHECK(polled == 1);
	return wc;
}

/* Prints what a call returned: zero, or an errno. */
static inline void tell(const char *what, int error)
{
	printf("%s: %s%s\n", what, error < 0 ? "-" : "", strerrorname_np(abs(error)));
}

/* The program's beginning and end. */

static inline void open_device(int argc, char **argv)
{
	CHECK(argc == 3);
	setvbuf(stdout, NULL, _IOLBF, 0);
	CHECK((control = open(argv[2], O_RDWR | O_NOCTTY)) >= 0);
	struct termios raw;
	if (!tcgetattr(control, &raw)) {
		cfmakeraw(&raw);
		CHECK(!tcsetattr(control, TCSANOW, &raw));
	}
	struct ibv_device **list = ibv_get_device_list(NULL);
	CHECK(list);
	for (int i = 0; list[i] && !context; i++)
		if (!strcmp(ibv_get_device_name(list[i]), argv[1]))
			context = ibv_open_device(list[i]);
	CHECK(context);
	ibv_free_device_list(list);
	CHECK(pd = ibv_alloc_pd(context));
}

static inline void close_device(void)
{
	CHECK(!ibv_dealloc_pd(pd));
	CHECK(!ibv_close_device(context));
	printf("pass all\n");
}
