/*
 * Two cards with a wire between them that loses, repeats and swaps packets. Each message that one side sends must reach the other
 * once, whole and in order. Atomic operations must be done once and in order, and reads must return what is there. On the stock
 * libraries.
 *
 * usage: mlx5-wire DEVICE GID_INDEX DEVICE GID_INDEX MESSAGES TIMEOUT    both sides send so many; the timeout as in struct ibv_qp_attr
 */
#include <errno.h>
#include <infiniband/verbs.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define CHECK(what) \
	do { \
		if (!(what)) { \
			fprintf(stderr, "%s:%d: %s (%s)\n", __FILE__, __LINE__, #what, strerror(errno)); \
			exit(1); \
		} \
	} while (0)

#define LATE 60 /* seconds without a completion after which none comes */
#define QUIET 0.5 /* seconds for which none may come at the end */
#define SENDS 16 /* requests at a time */
#define RECEIVES 64
#define SLOT 4096 /* bytes for a message */
#define RIGHTS (IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC)

/* What the other side can reach: a counter, and bytes to be read. */
#define COUNTER 0
#define SHOWN 64
#define SHOWN_LEN 2500
#define SENT SLOT
#define RECEIVED (SENT + SENDS * SLOT)
#define ROOM (RECEIVED + RECEIVES * SLOT)

static struct side {
	struct ibv_context *context;
	union ibv_gid gid;
	int gid_index;
	struct ibv_cq *cq;
	struct ibv_qp *qp;
	struct ibv_mr *mr;
	uint8_t *bytes;
	long posted, sent, received, added;
} sides[2];

static double now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec + t.tv_nsec * 1e-9;
}

/* Request number n is a send, except that some are atomic operations and some are reads. */
static enum ibv_wr_opcode opcode(long n)
{
	return n % 8 == 3 ? IBV_WR_ATOMIC_FETCH_AND_ADD : n % 8 == 6 ? IBV_WR_RDMA_READ : IBV_WR_SEND;
}

/* The length of message m, which is one to three packets, and its bytes. */
static uint32_t length(long m)
{
	return 8 + m * 977 % 3000;
}

static uint8_t byte(int from, long m, uint32_t at)
{
	uint32_t word = (uint32_t)(m * 2 + from + 1) * 2654435761u + at * 40503u;

	return word >> 13;
}

static void open_side(struct side *s, const char *name, const char *gid_index)
{
	struct ibv_device **list = ibv_get_device_list(NULL);
	struct ibv_pd *pd;

	CHECK(list);
	for (int i = 0; list[i]; i++)
		if (!strcmp(ibv_get_device_name(list[i]), name))
			CHECK(s->context = ibv_open_device(list[i]));
	CHECK(s->context);
	s->gid_index = atoi(gid_index);
	CHECK(!ibv_query_gid(s->context, 1, s->gid_index, &s->gid));
	CHECK(pd = ibv_alloc_pd(s->context));
	CHECK(!posix_memalign((void **)&s->bytes, 4096, ROOM));
	memset(s->bytes, 0, ROOM);
	CHECK(s->mr = ibv_reg_mr(pd, s->bytes, ROOM, RIGHTS));
	CHECK(s->cq = ibv_create_cq(s->context, SENDS + RECEIVES, NULL, NULL, 0));
	struct ibv_qp_init_attr init = {
		.qp_type = IBV_QPT_RC, .send_cq = s->cq, .recv_cq = s->cq, .sq_sig_all = 1,
		.cap = { .max_send_wr = SENDS, .max_recv_wr = RECEIVES, .max_send_sge = 1, .max_recv_sge = 1 },
	};
	CHECK(s->qp = ibv_create_qp(pd, &init));
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_INIT, .port_num = 1, .qp_access_flags = RIGHTS };
	CHECK(!ibv_modify_qp(s->qp, &attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS));
}

static void connect_side(struct side *s, const struct side *other, int timeout)
{
	struct ibv_qp_attr attr = {
		.qp_state = IBV_QPS_RTR, .path_mtu = IBV_MTU_1024, .dest_qp_num = other->qp->qp_num, .max_dest_rd_atomic = 4, .min_rnr_timer = 1,
		.rq_psn = 0xfffff0, /* the numbers soon wrap to zero */
		.ah_attr = { .is_global = 1, .port_num = 1, .grh = { .dgid = other->gid, .sgid_index = s->gid_index, .hop_limit = 2 } },
	};

	CHECK(!ibv_modify_qp(s->qp, &attr, IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
			     IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER));
	attr.qp_state = IBV_QPS_RTS, attr.timeout = timeout, attr.retry_cnt = 7, attr.rnr_retry = 7, attr.max_rd_atomic = 4, attr.sq_psn = 0xfffff0;
	CHECK(!ibv_modify_qp(s->qp, &attr, IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN |
			     IBV_QP_MAX_QP_RD_ATOMIC));
}

static void receive(struct side *s, long n)
{
	uint8_t *slot = s->bytes + RECEIVED + n % RECEIVES * SLOT;
	struct ibv_sge sge = { .addr = (uintptr_t)slot, .length = SLOT, .lkey = s->mr->lkey };
	struct ibv_recv_wr *bad, wr = { .wr_id = n, .sg_list = &sge, .num_sge = 1 };

	memset(slot, 0xee, SLOT);
	CHECK(!ibv_post_recv(s->qp, &wr, &bad));
}

/* Several requests with one call, so that packets are followed by others. */
static void send_more(struct side *s, long until)
{
	const struct side *other = &sides[s == sides];
	struct ibv_sge sge[SENDS];
	struct ibv_send_wr *bad, wr[SENDS] = { 0 };
	int n = 0;

	for (; s->posted < until && s->posted - s->sent < SENDS; s->posted++, n++) {
		uint8_t *slot = s->bytes + SENT + s->posted % SENDS * SLOT;
		sge[n] = (struct ibv_sge){ .addr = (uintptr_t)slot, .length = 8, .lkey = s->mr->lkey };
		wr[n].wr_id = s->posted, wr[n].opcode = opcode(s->posted), wr[n].sg_list = &sge[n], wr[n].num_sge = 1;
		if (n)
			wr[n - 1].next = &wr[n];
		memset(slot, 0xee, SLOT);
		switch (wr[n].opcode) {
		case IBV_WR_SEND:
			sge[n].length = length(s->posted);
			for (uint32_t i = 0; i < sge[n].length; i++)
				slot[i] = byte(s - sides, s->posted, i);
			break;
		case IBV_WR_RDMA_READ:
			sge[n].length = SHOWN_LEN;
			wr[n].wr.rdma.remote_addr = (uintptr_t)other->bytes + SHOWN, wr[n].wr.rdma.rkey = other->mr->rkey;
			break;
		default:
			wr[n].wr.atomic.remote_addr = (uintptr_t)other->bytes + COUNTER, wr[n].wr.atomic.rkey = other->mr->rkey;
			wr[n].wr.atomic.compare_add = 1;
		}
	}
	if (n)
		CHECK(!ibv_post_send(s->qp, wr, &bad));
}

static void same(int from, long m, const uint8_t *bytes, uint32_t len)
{
	for (uint32_t i = 0; i < len; i++)
		if (bytes[i] != byte(from, m, i)) {
			fprintf(stderr, "byte %u of message %ld from %d is %#x, not %#x\n", i, m, from, bytes[i], byte(from, m, i));
			exit(1);
		}
}

/* The message that came must be the next one that the other side has sent. Numbers of requests that are not sends are skipped. */
static void came(struct side *s, const struct ibv_wc *wc)
{
	const uint8_t *slot = s->bytes + RECEIVED + wc->wr_id % RECEIVES * SLOT;
	int from = s == sides;
	static long next[2];

	while (opcode(next[from]) != IBV_WR_SEND)
		next[from]++;
	CHECK(wc->wr_id == (uint64_t)s->received);
	CHECK(wc->byte_len == length(next[from]));
	same(from, next[from], slot, wc->byte_len);
	for (uint32_t i = wc->byte_len; i < SLOT; i++)
		CHECK(slot[i] == 0xee);
	next[from]++, s->received++;
	receive(s, s->received + RECEIVES - 1);
}

static void done(struct side *s, const struct ibv_wc *wc)
{
	const uint8_t *slot = s->bytes + SENT + s->sent % SENDS * SLOT;
	uint64_t before;

	CHECK(wc->wr_id == (uint64_t)s->sent);
	switch (opcode(s->sent)) {
	case IBV_WR_SEND:
		break;
	case IBV_WR_RDMA_READ:
		same(s == sides, -1, slot, SHOWN_LEN);
		break;
	default:
		memcpy(&before, slot, 8);
		if (before != (uint64_t)s->added) {
			fprintf(stderr, "addition %ld of %d found %lu\n", s->added, (int)(s - sides), before);
			exit(1);
		}
		s->added++;
	}
	s->sent++;
}

static int poll_side(struct side *s)
{
	struct ibv_wc wc[16];
	int n = ibv_poll_cq(s->cq, 16, wc);

	CHECK(n >= 0);
	for (int i = 0; i < n; i++) {
		if (wc[i].status) {
			fprintf(stderr, "side %d: %s after %ld requests and %ld messages\n", (int)(s - sides), ibv_wc_status_str(wc[i].status), s->sent, s->received);
			exit(1);
		}
		if (wc[i].opcode & IBV_WC_RECV)
			came(s, &wc[i]);
		else
			done(s, &wc[i]);
	}
	return n;
}

int main(int argc, char **argv)
{
	CHECK(argc == 7);
	long requests = 0, messages = atol(argv[5]);
	double begun = now(), last = begun;

	for (long sends = 0; sends < messages; requests++)
		sends += opcode(requests) == IBV_WR_SEND;
	for (int i = 0; i < 2; i++)
		open_side(&sides[i], argv[1 + 2 * i], argv[2 + 2 * i]);
	for (int i = 0; i < 2; i++) {
		connect_side(&sides[i], &sides[!i], atoi(argv[6]));
		for (uint32_t at = 0; at < SHOWN_LEN; at++)
			sides[i].bytes[SHOWN + at] = byte(i, -1, at);
		for (long n = 0; n < RECEIVES; n++)
			receive(&sides[i], n);
	}
	while (now() < last + LATE) {
		int n = 0;

		for (int i = 0; i < 2; i++) {
			send_more(&sides[i], requests);
			n += poll_side(&sides[i]);
		}
		if (n)
			last = now();
		else if (sides[0].sent == requests && sides[1].sent == requests && now() > last + QUIET)
			break;
	}
	for (int i = 0; i < 2; i++) {
		uint64_t counter;

		memcpy(&counter, sides[i].bytes + COUNTER, 8);
		printf("side %d: %ld of %ld requests done, %ld messages of %ld came, %lu additions of %ld\n", i, sides[i].sent, requests,
		       sides[i].received, messages, counter, sides[!i].added);
		CHECK(sides[i].sent == requests && sides[i].received == messages && counter == (uint64_t)sides[!i].added);
	}
	printf("compared: %ld messages each way in %.1f s\n", messages, last - begun);
	return 0;
}
