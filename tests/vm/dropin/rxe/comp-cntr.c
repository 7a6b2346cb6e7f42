/*
 * Completion counters of libibverbs' interface (ibv_create_comp_cntr(3), rdma-core 65). After each poll their values are compared
 * with what was polled.
 *
 * usage: comp-cntr DEVICE GID-INDEX
 *
 * The header of Debian 12 does not have them, so they are declared and looked up here.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <infiniband/verbs.h>
#include <inttypes.h>
#include <stdbool.h>

#include "../../lib/check.h"

#define SAME(got, wanted) \
	do { \
		uint64_t got_ = (got), wanted_ = (wanted); \
		if (got_ != wanted_) { \
			fprintf(stderr, "%s:%d: %s is %" PRIu64 ", not %" PRIu64 "\n", __FILE__, __LINE__, #got, got_, wanted_); \
			exit(1); \
		} \
	} while (0)

struct cntr;
struct cntr_attr { uint32_t comp_mask, type, flags; };
struct cntr_caps { uint64_t max_value; uint32_t max_counters, operations; };
struct attach_attr { uint32_t comp_mask, op_mask; };
enum { WRS, BYTES };
enum { SEND = 1, RECV = 2, READ = 4, REMOTE_READ = 8, WRITE = 16, REMOTE_WRITE = 32 };

static int (*query_caps)(struct ibv_context *, struct cntr_caps *, size_t);
static struct cntr *(*create)(struct ibv_context *, struct cntr_attr *);
static int (*destroy)(struct cntr *);
static int (*set)(struct cntr *, uint64_t), (*set_err)(struct cntr *, uint64_t);
static int (*inc)(struct cntr *, uint64_t), (*inc_err)(struct cntr *, uint64_t);
static int (*read_value)(struct cntr *, uint64_t *), (*read_err)(struct cntr *, uint64_t *);
static int (*attach)(struct ibv_qp *, struct cntr *, struct attach_attr *);

static void look_up(void)
{
	const struct { void *function; const char *name; } calls[] = {
		{ &query_caps, "_ibv_query_comp_cntr_caps" }, { &create, "ibv_create_comp_cntr" },
		{ &destroy, "ibv_destroy_comp_cntr" }, { &set, "ibv_set_comp_cntr" }, { &set_err, "ibv_set_err_comp_cntr" },
		{ &inc, "ibv_inc_comp_cntr" }, { &inc_err, "ibv_inc_err_comp_cntr" }, { &read_value, "ibv_read_comp_cntr" },
		{ &read_err, "ibv_read_err_comp_cntr" }, { &attach, "ibv_qp_attach_comp_cntr" },
	};
	for (size_t i = 0; i < sizeof(calls) / sizeof(*calls); i++) {
		void *found = dlvsym(RTLD_DEFAULT, calls[i].name, "IBVERBS_1.18");
		CHECK(found);
		memcpy(calls[i].function, &found, sizeof(found));
	}
}

static struct ibv_context *context;
static struct ibv_pd *pd;
static struct ibv_mr *mr;
static char memory[8192];
static union ibv_gid gid;
static int gid_index;

static struct cntr *counter(uint32_t type)
{
	struct cntr_attr attr = { .type = type };
	struct cntr *made = create(context, &attr);
	CHECK(made);
	return made;
}

static uint64_t value(struct cntr *counter)
{
	uint64_t value = ~0ull;
	SAME(read_value(counter, &value), 0);
	return value;
}

static uint64_t errors(struct cntr *counter)
{
	uint64_t value = ~0ull;
	SAME(read_err(counter, &value), 0);
	return value;
}

static int attached(struct ibv_qp *qp, struct cntr *counter, uint32_t operations)
{
	struct attach_attr attr = { .op_mask = operations };
	return attach(qp, counter, &attr);
}

/* Queue pairs. */

struct side {
	struct ibv_cq *cq; /* of sends and of receives */
	struct ibv_cq_ex *cq_ex; /* the same queue, if it is polled by the extended interface */
	struct ibv_qp *qp;
	/* What was polled: for each operation how many succeeded and failed, and the bytes received. */
	uint64_t done[WRITE + 1], failed[WRITE + 1], bytes;
};

static struct side make(bool extended)
{
	struct side side = { 0 };
	if (extended) {
		struct ibv_cq_init_attr_ex attr = { .cqe = 256, .wc_flags = IBV_WC_STANDARD_FLAGS };
		CHECK(side.cq_ex = ibv_create_cq_ex(context, &attr));
		side.cq = ibv_cq_ex_to_cq(side.cq_ex);
	} else {
		CHECK(side.cq = ibv_create_cq(context, 256, NULL, NULL, 0));
	}
	struct ibv_qp_init_attr_ex attr = {
		.send_cq = side.cq, .recv_cq = side.cq, .qp_type = IBV_QPT_RC, .pd = pd, .comp_mask = IBV_QP_INIT_ATTR_PD,
		.cap = { .max_send_wr = 64, .max_recv_wr = 64, .max_send_sge = 2, .max_recv_sge = 1, .max_inline_data = 32 },
	};
	if (extended) {
		attr.comp_mask |= IBV_QP_INIT_ATTR_SEND_OPS_FLAGS;
		attr.send_ops_flags = IBV_QP_EX_WITH_SEND | IBV_QP_EX_WITH_RDMA_WRITE | IBV_QP_EX_WITH_RDMA_READ;
	}
	CHECK(side.qp = ibv_create_qp_ex(context, &attr));
	return side;
}

static void change(struct ibv_qp *qp, enum ibv_qp_state state, uint32_t peer)
{
	struct ibv_qp_attr attr = {
		.qp_state = state, .port_num = 1, .path_mtu = IBV_MTU_1024, .dest_qp_num = peer, .max_dest_rd_atomic = 4,
		.max_rd_atomic = 4, .min_rnr_timer = 12, .timeout = 14, .retry_cnt = 7, .rnr_retry = 7,
		.qp_access_flags = IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC,
		.ah_attr = { .is_global = 1, .port_num = 1, .grh = { .dgid = gid, .sgid_index = gid_index, .hop_limit = 1 } },
	};
	const int masks[] = {
		[IBV_QPS_RESET] = IBV_QP_STATE,
		[IBV_QPS_ERR] = IBV_QP_STATE,
		[IBV_QPS_INIT] = IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS,
		[IBV_QPS_RTR] = IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
				IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER,
		[IBV_QPS_RTS] = IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN |
				IBV_QP_MAX_QP_RD_ATOMIC,
	};
	SAME(ibv_modify_qp(qp, &attr, masks[state]), 0);
}

static void connect_pair(struct side *a, struct side *b)
{
	for (enum ibv_qp_state state = IBV_QPS_INIT; state <= IBV_QPS_RTS; state++) {
		change(a->qp, state, b->qp->qp_num);
		change(b->qp, state, a->qp->qp_num);
	}
}

static void unmake(struct side *side)
{
	SAME(ibv_destroy_qp(side->qp), 0);
	SAME(ibv_destroy_cq(side->cq), 0);
}

/* Requests. A request's number has its operation, and how many requests of that operation there were: `operation << 32 | count`. */

static uint64_t number(uint32_t operation)
{
	static uint32_t count;
	return (uint64_t)operation << 32 | count++;
}

static void receive(struct side *side, int times)
{
	while (times--) {
		struct ibv_sge sge = { .addr = (uintptr_t)memory, .length = 1024, .lkey = mr->lkey };
		struct ibv_recv_wr wr = { .wr_id = number(RECV), .sg_list = &sge, .num_sge = 1 }, *bad;
		SAME(ibv_post_recv(side->qp, &wr, &bad), 0);
	}
}

static uint32_t operation_of(enum ibv_wr_opcode opcode)
{
	switch (opcode) {
	case IBV_WR_SEND: case IBV_WR_SEND_WITH_IMM: return SEND;
	case IBV_WR_RDMA_WRITE: case IBV_WR_RDMA_WRITE_WITH_IMM: return WRITE;
	default: return READ;
	}
}

static int post(struct side *side, enum ibv_wr_opcode opcode, uint32_t length, int flags, uint32_t rkey)
{
	struct ibv_sge sge[2] = {
		{ .addr = (uintptr_t)memory, .length = length / 2, .lkey = mr->lkey },
		{ .addr = (uintptr_t)memory + 1024, .length = length - length / 2, .lkey = mr->lkey },
	};
	struct ibv_send_wr wr = {
		.wr_id = number(operation_of(opcode)), .opcode = opcode, .sg_list = sge, .num_sge = 2, .send_flags = flags,
		.wr.rdma = { .remote_addr = (uintptr_t)memory + 4096, .rkey = rkey },
	}, *bad;
	if (opcode == IBV_WR_ATOMIC_FETCH_AND_ADD) {
		sge[0].length = 8;
		wr.num_sge = 1;
		wr.wr.atomic.remote_addr = (uintptr_t)memory + 4096;
		wr.wr.atomic.rkey = rkey;
	}
	if (!side->cq_ex || opcode == IBV_WR_ATOMIC_FETCH_AND_ADD)
		return ibv_post_send(side->qp, &wr, &bad);
	struct ibv_qp_ex *qp = ibv_qp_to_qp_ex(side->qp);
	ibv_wr_start(qp);
	qp->wr_id = wr.wr_id;
	qp->wr_flags = flags;
	switch (opcode) {
	case IBV_WR_SEND: case IBV_WR_SEND_WITH_IMM: ibv_wr_send(qp); break;
	case IBV_WR_RDMA_WRITE: case IBV_WR_RDMA_WRITE_WITH_IMM: ibv_wr_rdma_write(qp, rkey, wr.wr.rdma.remote_addr); break;
	default: ibv_wr_rdma_read(qp, rkey, wr.wr.rdma.remote_addr);
	}
	if (flags & IBV_SEND_INLINE)
		ibv_wr_set_inline_data(qp, memory, length);
	else
		ibv_wr_set_sge_list(qp, 2, sge);
	return ibv_wr_complete(qp);
}

static void note(struct side *side, uint64_t wr_id, enum ibv_wc_status status, uint32_t bytes)
{
	uint32_t operation = wr_id >> 32;
	if (status != IBV_WC_SUCCESS) {
		side->failed[operation]++;
	} else {
		side->done[operation]++;
		side->bytes += operation == RECV ? bytes : 0;
	}
}

/* Takes at most `most` completions, and returns how many. */
static int poll_some(struct side *side, int most)
{
	struct ibv_poll_cq_attr attr = { 0 };
	struct ibv_wc wc[4];
	int count;

	if (!side->cq_ex) {
		CHECK((count = ibv_poll_cq(side->cq, most < 4 ? most : 4, wc)) >= 0);
		for (int i = 0; i < count; i++)
			note(side, wc[i].wr_id, wc[i].status, wc[i].byte_len);
		return count;
	}
	if (ibv_start_poll(side->cq_ex, &attr))
		return 0;
	count = 0;
	do
		note(side, side->cq_ex->wr_id, side->cq_ex->status, ibv_wc_read_byte_len(side->cq_ex));
	while (++count < most && !ibv_next_poll(side->cq_ex));
	ibv_end_poll(side->cq_ex);
	return count;
}

static void poll_all(struct side *side, int count)
{
	while (count > 0)
		count -= poll_some(side, count);
}

static uint64_t all(const uint64_t *of)
{
	return of[SEND] + of[RECV] + of[READ] + of[WRITE];
}

/* On one side each operation has its own counter; on the other, one counter serves all. */
static void counts_what_is_polled(bool extended)
{
	const enum ibv_wr_opcode opcodes[] = {
		IBV_WR_SEND, IBV_WR_RDMA_WRITE, IBV_WR_RDMA_READ, IBV_WR_SEND_WITH_IMM, IBV_WR_RDMA_WRITE_WITH_IMM,
		IBV_WR_ATOMIC_FETCH_AND_ADD,
	};
	const uint32_t operations[] = { SEND, RECV, READ, WRITE };
	struct side a = make(extended), b = make(extended);
	struct cntr *counters[4], *together = counter(WRS);

	for (int i = 0; i < 4; i++) {
		counters[i] = counter(WRS);
		SAME(attached(a.qp, counters[i], operations[i]), 0);
	}
	/* Counters can be attached in INIT too. */
	change(b.qp, IBV_QPS_INIT, 0);
	SAME(attached(b.qp, together, SEND | RECV | READ | WRITE), 0);
	connect_pair(&a, &b);
	for (int round = 0; round < 50; round++) {
		struct side *from = round % 2 ? &b : &a, *to = round % 2 ? &a : &b;
		int receives = 0;
		for (int i = 0; i < 6; i++) {
			bool with_imm = opcodes[i] == IBV_WR_SEND_WITH_IMM || opcodes[i] == IBV_WR_RDMA_WRITE_WITH_IMM;
			receives += opcodes[i] == IBV_WR_SEND || (with_imm && (!extended || opcodes[i] == IBV_WR_SEND_WITH_IMM));
		}
		receive(to, receives);
		for (int i = 0; i < 6; i++)
			SAME(post(from, opcodes[i], 100, IBV_SEND_SIGNALED, mr->rkey), 0);
		for (int sends = 6; sends > 0 || receives > 0;) {
			sends -= poll_some(from, 1 + round % 3);
			receives -= poll_some(to, 1 + round % 3);
			for (int i = 0; i < 4; i++)
				SAME(value(counters[i]), a.done[operations[i]]);
			SAME(value(together), all(b.done));
		}
	}
	for (int i = 0; i < 4; i++)
		SAME(errors(counters[i]), 0);
	SAME(all(a.done), 25 * (6 + (extended ? 2 : 3)));
	SAME(a.done[SEND], 50);
	SAME(a.done[READ], 50);
	SAME(destroy(together), EBUSY);
	unmake(&b);
	SAME(value(together), all(b.done));
	SAME(destroy(together), 0);
	unmake(&a);
	for (int i = 0; i < 4; i++)
		SAME(destroy(counters[i]), 0);
}

/* Requests without a completion are counted when a later one proves that they are done. One counter serves several queue pairs. */
static void counts_what_has_no_completion(bool extended)
{
	struct side a = make(extended), b = make(extended);
	struct cntr *sent = counter(WRS), *sent_bytes = counter(BYTES), *received_bytes = counter(BYTES);
	uint64_t bytes = 0;

	SAME(attached(a.qp, sent, SEND), 0);
	SAME(attached(b.qp, sent, SEND), 0);
	SAME(attached(a.qp, sent_bytes, WRITE), 0);
	SAME(attached(b.qp, received_bytes, RECV), 0);
	connect_pair(&a, &b);
	for (int round = 1; round <= 40; round++) {
		receive(&b, 3);
		for (int i = 0; i < 3; i++)
			SAME(post(&a, IBV_WR_SEND, 7 * i, i == 0 ? IBV_SEND_INLINE : 0, 0), 0);
		SAME(post(&a, IBV_WR_RDMA_WRITE, round, IBV_SEND_SIGNALED, mr->rkey), 0);
		bytes += round;
		SAME(value(sent), 4 * (round - 1));
		poll_all(&a, 1);
		SAME(value(sent), 4 * round - 1);
		SAME(value(sent_bytes), bytes);
		poll_all(&b, 3);
		receive(&a, 1);
		SAME(post(&b, IBV_WR_SEND, 1, IBV_SEND_SIGNALED, 0), 0);
		poll_all(&b, 1);
		poll_all(&a, 1);
		SAME(value(sent), 4 * round);
	}
	SAME(value(received_bytes), b.bytes);
	SAME(b.bytes, 40 * (0 + 7 + 14));
	SAME(errors(sent) + errors(sent_bytes) + errors(received_bytes), 0);
	unmake(&a);
	SAME(destroy(sent), EBUSY);
	unmake(&b);
	SAME(destroy(sent) | destroy(sent_bytes) | destroy(received_bytes), 0);
}

/* Failed and flushed requests count in the error value. A queue pair that was reset goes on counting. */
static void counts_failures_apart(bool extended)
{
	const uint32_t operations[] = { SEND, RECV, READ, WRITE };
	struct side a = make(extended), b = make(extended);
	struct cntr *counters[4];

	for (int i = 0; i < 4; i++) {
		counters[i] = counter(WRS);
		SAME(attached(a.qp, counters[i], operations[i]), 0);
	}
	for (int life = 0; life < 2; life++) {
		connect_pair(&a, &b);
		receive(&b, 2);
		receive(&a, 3);
		SAME(post(&a, IBV_WR_SEND, 10, 0, 0), 0);
		SAME(post(&a, IBV_WR_SEND, 10, IBV_SEND_SIGNALED, 0), 0);
		poll_all(&a, 1);
		poll_all(&b, 2);
		/* The first fails because of its key. The requests after it are flushed, and so are three receives. */
		SAME(post(&a, IBV_WR_RDMA_WRITE, 10, IBV_SEND_SIGNALED, mr->rkey ^ 0x5a00), 0);
		SAME(post(&a, IBV_WR_SEND, 10, 0, 0), 0);
		SAME(post(&a, IBV_WR_SEND, 10, IBV_SEND_SIGNALED, 0), 0);
		SAME(post(&a, IBV_WR_RDMA_READ, 10, IBV_SEND_SIGNALED, mr->rkey), 0);
		poll_all(&a, 1);
		SAME(a.failed[WRITE], life + 1);
		SAME(errors(counters[3]), life + 1);
		change(a.qp, IBV_QPS_ERR, 0);
		poll_all(&a, 6);
		SAME(a.failed[SEND], 2 * (life + 1));
		SAME(a.failed[RECV], 3 * (life + 1));
		for (int i = 0; i < 4; i++) {
			SAME(errors(counters[i]), a.failed[operations[i]]);
			SAME(value(counters[i]), i == 0 ? 2ull * (life + 1) : a.done[operations[i]]);
		}
		change(a.qp, IBV_QPS_RESET, 0);
		change(b.qp, IBV_QPS_RESET, 0);
	}
	unmake(&a);
	unmake(&b);
	for (int i = 0; i < 4; i++)
		SAME(destroy(counters[i]), 0);
}

static void sets_and_adds(void)
{
	struct cntr *counter_ = counter(WRS);

	SAME(value(counter_), 0);
	SAME(inc(counter_, 5) | inc_err(counter_, 3), 0);
	SAME(inc(counter_, 5) | inc_err(counter_, 3), 0);
	SAME(value(counter_), 10);
	SAME(errors(counter_), 6);
	SAME(set(counter_, UINT64_MAX) | set_err(counter_, 1), 0);
	SAME(value(counter_), UINT64_MAX);
	SAME(errors(counter_), 1);
	SAME(inc(counter_, 3), 0);
	SAME(value(counter_), 2); /* After max_value it begins again. */
	SAME(destroy(counter_), 0);
}

static void refuses_what_the_manual_says(void)
{
	struct { struct cntr_caps caps; uint64_t newer; } caps = { .newer = 7 };
	struct cntr_attr bytes_of_newer = { .comp_mask = 1 }, unknown = { .type = 2 }, flags = { .flags = 1 };
	struct side a = make(false), b = make(false);
	struct cntr *one = counter(WRS), *other = counter(WRS);
	struct attach_attr newer = { .comp_mask = 1, .op_mask = SEND };

	SAME(query_caps(context, &caps.caps, sizeof(caps)), 0);
	SAME(caps.caps.operations, SEND | RECV | READ | WRITE);
	SAME(caps.caps.max_value, UINT64_MAX);
	CHECK(caps.caps.max_counters > 0);
	SAME(caps.newer, 0);
	CHECK(!create(context, &bytes_of_newer) && errno == EOPNOTSUPP);
	CHECK(!create(context, &unknown) && errno == EOPNOTSUPP);
	CHECK(!create(context, &flags) && errno == EOPNOTSUPP);
	SAME(attach(a.qp, one, &newer), EOPNOTSUPP);
	SAME(attached(a.qp, one, 0), EINVAL);
	SAME(attached(a.qp, one, REMOTE_READ), EOPNOTSUPP);
	SAME(attached(a.qp, one, SEND | REMOTE_WRITE), EOPNOTSUPP);
	SAME(attached(a.qp, one, SEND), 0);
	SAME(attached(a.qp, other, SEND | RECV), EBUSY);
	SAME(attached(a.qp, one, SEND), EBUSY);
	SAME(attached(a.qp, other, RECV), 0);
	connect_pair(&a, &b);
	SAME(attached(a.qp, one, WRITE), EINVAL);
	SAME(attached(b.qp, one, SEND), EINVAL);
	SAME(destroy(one), EBUSY);
	unmake(&a);
	SAME(destroy(one) | destroy(other), 0);
	unmake(&b);
}

int main(int argc, char **argv)
{
	int count;
	struct ibv_device **list = ibv_get_device_list(&count);

	CHECK(argc == 3 && list);
	for (int i = 0; i < count && !context; i++)
		if (!strcmp(ibv_get_device_name(list[i]), argv[1]))
			context = ibv_open_device(list[i]);
	CHECK(context);
	ibv_free_device_list(list);
	look_up();
	gid_index = atoi(argv[2]);
	SAME(ibv_query_gid(context, 1, gid_index, &gid), 0);
	CHECK(pd = ibv_alloc_pd(context));
	CHECK(mr = ibv_reg_mr(pd, memory, sizeof(memory), IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE |
			      IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC));
	sets_and_adds();
	refuses_what_the_manual_says();
	for (int extended = 0; extended < 2; extended++) {
		counts_what_is_polled(extended);
		counts_what_has_no_completion(extended);
		counts_failures_apart(extended);
	}
	SAME(ibv_dereg_mr(mr), 0);
	SAME(ibv_dealloc_pd(pd), 0);
	SAME(ibv_close_device(context), 0);
	printf("compared: everything that was polled was counted\n");
	return 0;
}
