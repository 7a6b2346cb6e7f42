/*
 * What the software iWARP device returns where no connection is needed: objects of all sizes and kinds, and posting to queue pairs
 * that nobody has connected.
 *
 * usage: siw-answers DEVICE
 */
#define _GNU_SOURCE
#include <infiniband/verbs.h>

#include "../../lib/check.h"

static struct ibv_context *context;
static struct ibv_pd *pd;
static struct ibv_cq *cq;
static struct ibv_mr *mr;
static char memory[4096];

static void made(const char *name, const void *object)
{
	if (object)
		printf("%s: made\n", name);
	else
		printf("%s: %s\n", name, strerrorname_np(errno));
}

static void number(const char *name, int answer)
{
	/* Some functions return the errno, some return -1 and set errno. */
	if (answer < 0)
		printf("%s: %d, errno %s\n", name, answer, errno ? strerrorname_np(errno) : "0");
	else
		printf("%s: %s\n", name, answer ? strerrorname_np(answer) : "0");
}

static void cqs(void)
{
	static const int sizes[] = { 0, 1, 3, 4, 1000, 3276800, 3276801 };

	for (unsigned i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
		char name[32];
		struct ibv_cq *made_cq;

		snprintf(name, sizeof(name), "cq of %d", sizes[i]);
		errno = 0;
		made_cq = ibv_create_cq(context, sizes[i], NULL, NULL, 0);
		made(name, made_cq);
		if (made_cq) {
			printf("%s holds: %d\n", name, made_cq->cqe);
			number("destroy cq", ibv_destroy_cq(made_cq));
		}
	}
	errno = 0;
	number("resize cq", ibv_resize_cq(cq, 64));
}

static struct ibv_qp *qp_of(enum ibv_qp_type type, uint32_t sends, uint32_t receives, uint32_t pieces, uint32_t inline_bytes)
{
	struct ibv_qp_init_attr attr = { .send_cq = cq, .recv_cq = cq, .qp_type = type,
		.cap = { sends, receives, pieces, pieces, inline_bytes } };

	errno = 0;
	return ibv_create_qp(pd, &attr);
}

static void qps(void)
{
	static const struct {
		const char *name;
		enum ibv_qp_type type;
		uint32_t sends, receives, pieces, inline_bytes;
	} kinds[] = {
		{ "qp", IBV_QPT_RC, 3, 3, 1, 0 },
		{ "qp with all", IBV_QPT_RC, 32768, 32768, 6, 80 },
		{ "qp without sends", IBV_QPT_RC, 0, 3, 1, 0 },
		{ "qp without receives", IBV_QPT_RC, 3, 0, 1, 0 },
		{ "qp of too many sends", IBV_QPT_RC, 32769, 3, 1, 0 },
		{ "qp of too many receives", IBV_QPT_RC, 3, 32769, 1, 0 },
		{ "qp of too many pieces", IBV_QPT_RC, 3, 3, 7, 0 },
		{ "qp of too much inline", IBV_QPT_RC, 3, 3, 1, 81 },
		{ "uc", IBV_QPT_UC, 3, 3, 1, 0 },
		{ "ud", IBV_QPT_UD, 3, 3, 1, 0 },
		{ "raw packets", IBV_QPT_RAW_PACKET, 3, 3, 1, 0 },
	};

	for (unsigned i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++) {
		struct ibv_qp *qp = qp_of(kinds[i].type, kinds[i].sends, kinds[i].receives, kinds[i].pieces, kinds[i].inline_bytes);

		made(kinds[i].name, qp);
		if (qp)
			CHECK(!ibv_destroy_qp(qp));
	}
}

/* The interface of ibv_wr_start, which libsiw does not have. */
static void extended(void)
{
	struct ibv_qp_init_attr_ex attr = { .send_cq = cq, .recv_cq = cq, .qp_type = IBV_QPT_RC, .cap = { 3, 3, 1, 1, 0 },
		.pd = pd, .comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS, .send_ops_flags = IBV_QP_EX_WITH_SEND };
	struct ibv_qp *qp;

	errno = 0;
	made("extended qp", ibv_create_qp_ex(context, &attr));
	attr.comp_mask = IBV_QP_INIT_ATTR_PD;
	errno = 0;
	qp = ibv_create_qp_ex(context, &attr);
	made("qp by the extended call", qp);
	if (qp) {
		errno = 0;
		made("extended part of a qp", ibv_qp_to_qp_ex(qp));
		CHECK(!ibv_destroy_qp(qp));
	}
}

static void srqs(void)
{
	static const uint32_t sizes[][2] = { { 0, 1 }, { 1, 1 }, { 5, 6 }, { 5, 7 }, { 327680, 1 }, { 327681, 1 } };

	for (unsigned i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
		struct ibv_srq_init_attr attr = { .attr = { sizes[i][0], sizes[i][1], 0 } };
		struct ibv_srq_attr limit = { .srq_limit = 2 }, size = { .max_wr = 64 }, found;
		struct ibv_sge piece = { (uintptr_t)memory, 8, mr->lkey };
		struct ibv_recv_wr wr = { .wr_id = 1, .sg_list = &piece, .num_sge = 1 }, *bad;
		char name[48];
		struct ibv_srq *srq;

		snprintf(name, sizeof(name), "srq of %u, %u", sizes[i][0], sizes[i][1]);
		errno = 0;
		srq = ibv_create_srq(pd, &attr);
		made(name, srq);
		if (!srq)
			continue;
		number("post to srq", ibv_post_srq_recv(srq, &wr, &bad));
		wr.num_sge = 0;
		errno = 0;
		number("post nothing to srq", ibv_post_srq_recv(srq, &wr, &bad));
		errno = 0;
		number("limit of srq", ibv_modify_srq(srq, &limit, IBV_SRQ_LIMIT));
		errno = 0;
		number("size of srq", ibv_modify_srq(srq, &size, IBV_SRQ_MAX_WR));
		memset(&found, 0, sizeof(found));
		number("query srq", ibv_query_srq(srq, &found));
		printf("srq says: %u, %u, limit %u\n", found.max_wr, found.max_sge, found.srq_limit);
		number("destroy srq", ibv_destroy_srq(srq));
	}
}

static void states(void)
{
	struct ibv_qp *qp = qp_of(IBV_QPT_RC, 4, 4, 2, 16);
	static const struct {
		const char *name;
		enum ibv_qp_state state;
		int mask;
	} steps[] = {
		{ "to init", IBV_QPS_INIT, IBV_QP_STATE },
		{ "to init with rights", IBV_QPS_INIT, IBV_QP_STATE | IBV_QP_ACCESS_FLAGS | IBV_QP_PORT | IBV_QP_PKEY_INDEX },
		{ "to rtr", IBV_QPS_RTR, IBV_QP_STATE },
		{ "to rts", IBV_QPS_RTS, IBV_QP_STATE },
		{ "to reset", IBV_QPS_RESET, IBV_QP_STATE },
		{ "to error", IBV_QPS_ERR, IBV_QP_STATE },
		{ "to error again", IBV_QPS_ERR, IBV_QP_STATE },
		{ "to reset again", IBV_QPS_RESET, IBV_QP_STATE },
	};
	struct ibv_qp_attr found;
	struct ibv_qp_init_attr init;

	CHECK(qp);
	for (unsigned i = 0; i < sizeof(steps) / sizeof(steps[0]); i++) {
		struct ibv_qp_attr attr = { .qp_state = steps[i].state, .port_num = 1, .qp_access_flags = IBV_ACCESS_REMOTE_WRITE };

		errno = 0;
		number(steps[i].name, ibv_modify_qp(qp, &attr, steps[i].mask));
	}
	number("query qp", ibv_query_qp(qp, &found, IBV_QP_CAP, &init));
	printf("qp says: %u %u %u %u %u\n", found.cap.max_send_wr, found.cap.max_recv_wr, found.cap.max_send_sge,
	       found.cap.max_recv_sge, found.cap.max_inline_data);
	number("destroy qp", ibv_destroy_qp(qp));
}

/* Posts to a queue pair that nobody has connected. */
static void posts(void)
{
	struct ibv_qp *qp = qp_of(IBV_QPT_RC, 4, 4, 2, 16);
	struct ibv_sge pieces[7];
	struct ibv_send_wr wr = { .wr_id = 1, .sg_list = pieces, .num_sge = 1, .opcode = IBV_WR_SEND, .send_flags = IBV_SEND_SIGNALED }, *bad;
	struct ibv_recv_wr receive = { .wr_id = 2, .sg_list = pieces, .num_sge = 1 }, *bad_receive;
	struct ibv_qp_attr error = { .qp_state = IBV_QPS_ERR };
	struct ibv_wc wc[8];
	int found;

	CHECK(qp);
	for (int i = 0; i < 7; i++)
		pieces[i] = (struct ibv_sge){ (uintptr_t)memory, 8, mr->lkey };
	for (int i = 0; i < 3; i++) {
		number("post receive", ibv_post_recv(qp, &receive, &bad_receive));
	}
	receive.num_sge = 7;
	errno = 0;
	number("post receive of 7", ibv_post_recv(qp, &receive, &bad_receive));
	receive.num_sge = 1;
	number("post receive", ibv_post_recv(qp, &receive, &bad_receive));
	errno = 0;
	number("post receive to a full queue", ibv_post_recv(qp, &receive, &bad_receive));
	errno = 0;
	number("post send", ibv_post_send(qp, &wr, &bad));
	wr.num_sge = 7;
	errno = 0;
	number("post send of 7", ibv_post_send(qp, &wr, &bad));
	wr.num_sge = 1;
	for (int opcode = IBV_WR_RDMA_WRITE; opcode <= IBV_WR_TSO; opcode++) {
		char name[32];

		/* These operations are tried elsewhere. */
		if (opcode == IBV_WR_RDMA_WRITE || opcode == IBV_WR_SEND || opcode == IBV_WR_RDMA_READ || opcode == IBV_WR_SEND_WITH_INV)
			continue;
		snprintf(name, sizeof(name), "post opcode %d", opcode);
		wr.opcode = opcode;
		errno = 0;
		number(name, ibv_post_send(qp, &wr, &bad));
	}
	wr.opcode = IBV_WR_SEND;
	wr.send_flags |= IBV_SEND_INLINE;
	pieces[0].length = 81;
	errno = 0;
	number("post too much inline", ibv_post_send(qp, &wr, &bad));
	number("to error", ibv_modify_qp(qp, &error, IBV_QP_STATE));
	found = ibv_poll_cq(cq, 8, wc);
	printf("flushed: %d\n", found);
	for (int i = 0; i < found; i++)
		printf("completion: %llu, %s, %d, qp %s\n", (unsigned long long)wc[i].wr_id, ibv_wc_status_str(wc[i].status), wc[i].opcode,
		       wc[i].qp_num == qp->qp_num ? "its own" : "another");
	errno = 0;
	number("post receive after the error", ibv_post_recv(qp, &receive, &bad_receive));
	printf("and flushed: %d\n", ibv_poll_cq(cq, 8, wc));
	number("destroy qp", ibv_destroy_qp(qp));
}

static void regions(void)
{
	static const struct {
		const char *name;
		size_t length;
		int access;
	} kinds[] = {
		{ "region", 4096, IBV_ACCESS_LOCAL_WRITE },
		{ "region to write to", 4096, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ },
		{ "region of nothing", 0, IBV_ACCESS_LOCAL_WRITE },
		{ "region without local write", 4096, IBV_ACCESS_REMOTE_WRITE },
		{ "region on demand", 4096, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_ON_DEMAND },
	};

	for (unsigned i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++) {
		struct ibv_mr *region;

		errno = 0;
		region = ibv_reg_mr(pd, memory, kinds[i].length, kinds[i].access);
		made(kinds[i].name, region);
		if (region) {
			printf("%s has one key: %d\n", kinds[i].name, region->lkey == region->rkey);
			number("deregister", ibv_dereg_mr(region));
		}
	}
}

static void others(void)
{
	struct ibv_ah_attr way = { .port_num = 1, .is_global = 1 };
	struct ibv_xrcd_init_attr domain = { .comp_mask = IBV_XRCD_INIT_ATTR_FD | IBV_XRCD_INIT_ATTR_OFLAGS, .fd = -1 };
	struct ibv_mw *mw;

	errno = 0;
	mw = ibv_alloc_mw(pd, IBV_MW_TYPE_2);
	made("window", mw);
	errno = 0;
	printf("address handle: %s\n", ibv_create_ah(pd, &way) ? "made" : "none");
	errno = 0;
	made("xrcd", ibv_open_xrcd(context, &domain));
	errno = 0;
	number("arm", ibv_req_notify_cq(cq, 0));
	number("arm for solicited", ibv_req_notify_cq(cq, 1));
}

int main(int argc, char **argv)
{
	struct ibv_device **list = ibv_get_device_list(NULL);

	CHECK(argc == 2 && list);
	for (int i = 0; list[i]; i++)
		if (!strcmp(ibv_get_device_name(list[i]), argv[1]))
			CHECK((context = ibv_open_device(list[i])));
	CHECK(context);
	ibv_free_device_list(list);
	CHECK((pd = ibv_alloc_pd(context)));
	CHECK((cq = ibv_create_cq(context, 16, NULL, NULL, 0)));
	CHECK((mr = ibv_reg_mr(pd, memory, sizeof(memory), IBV_ACCESS_LOCAL_WRITE)));
	cqs();
	qps();
	extended();
	srqs();
	states();
	posts();
	regions();
	others();
	CHECK(!ibv_dereg_mr(mr) && !ibv_destroy_cq(cq) && !ibv_dealloc_pd(pd) && !ibv_close_device(context));
	return 0;
}
