/*
 * Which sizes of queues are possible, what is granted, and whether that can be asked for again. A line for each shape; the lanes compare
 * the lines of two libraries (sizes-compare).
 *
 * usage: sizes DEVICE [KIND]: with a kind, only queues whose kind begins so
 */
#include <errno.h>
#include <fcntl.h>
#include <infiniband/verbs.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define COUNT(list) (sizeof(list) / sizeof(*(list)))
#define MUST(made) ((made) ?: (fprintf(stderr, "%s: %s\n", #made, strerror(errno)), exit(1), (made)))

static struct ibv_context *context;
static struct ibv_pd *pd;
static struct ibv_cq *cq;
static struct ibv_xrcd *xrcd;

/* A kind of queue pair; with the operations of the extended interface, if `is_extended`. */
struct kind {
	const char *name;
	enum ibv_qp_type type;
	int is_extended;
	uint64_t operations;
	uint16_t header;
	int has_srq;
};

#define SENDS IBV_QP_EX_WITH_SEND
#define ATOMICS (SENDS | IBV_QP_EX_WITH_ATOMIC_FETCH_AND_ADD)
static const struct kind kinds[] = {
	{ "rc", IBV_QPT_RC },
	{ "uc", IBV_QPT_UC },
	{ "ud", IBV_QPT_UD },
	{ "raw", IBV_QPT_RAW_PACKET },
	{ "xrc", IBV_QPT_XRC_SEND },
	{ "rc-srq", IBV_QPT_RC, .has_srq = 1 },
	{ "rc-sends", IBV_QPT_RC, 1, SENDS },
	{ "rc-writes", IBV_QPT_RC, 1, SENDS | IBV_QP_EX_WITH_RDMA_WRITE },
	{ "rc-atomics", IBV_QPT_RC, 1, ATOMICS },
	{ "rc-binds", IBV_QPT_RC, 1, SENDS | IBV_QP_EX_WITH_BIND_MW },
	{ "ud-sends", IBV_QPT_UD, 1, SENDS },
	{ "xrc-sends", IBV_QPT_XRC_SEND, 1, SENDS },
	{ "raw-sends", IBV_QPT_RAW_PACKET, 1, SENDS },
	{ "raw-tso-54", IBV_QPT_RAW_PACKET, .header = 54 },
	{ "raw-tso-200", IBV_QPT_RAW_PACKET, .header = 200 },
};

static struct ibv_qp *pair(const struct kind *kind, struct ibv_srq *srq, struct ibv_qp_cap *cap)
{
	struct ibv_qp_init_attr_ex init = {
		.qp_type = kind->type, .send_cq = cq, .recv_cq = cq, .srq = srq, .cap = *cap, .pd = pd,
		.comp_mask = IBV_QP_INIT_ATTR_PD, .send_ops_flags = kind->operations, .max_tso_header = kind->header,
	};
	if (kind->is_extended)
		init.comp_mask |= IBV_QP_INIT_ATTR_SEND_OPS_FLAGS;
	if (kind->header)
		init.comp_mask |= IBV_QP_INIT_ATTR_MAX_TSO_HEADER;
	if (kind->type == IBV_QPT_XRC_SEND)
		init.recv_cq = NULL;
	errno = 0;
	struct ibv_qp *qp = ibv_create_qp_ex(context, &init);
	if (qp)
		*cap = init.cap;
	return qp;
}

static int is_enough(const struct ibv_qp_cap *had, const struct ibv_qp_cap *asked, int receives)
{
	return had->max_send_wr >= asked->max_send_wr && had->max_send_sge >= asked->max_send_sge &&
	       had->max_inline_data >= asked->max_inline_data &&
	       (!receives || (had->max_recv_wr >= asked->max_recv_wr && had->max_recv_sge >= asked->max_recv_sge));
}

static void try_pair(const struct kind *kind, struct ibv_srq *srq, struct ibv_qp_cap asked)
{
	/* It receives nothing, and with libmlx5 none can be asked for. */
	if (kind->type == IBV_QPT_XRC_SEND)
		asked.max_recv_wr = asked.max_recv_sge = 0;
	int receives = !srq && kind->type != IBV_QPT_XRC_SEND && asked.max_recv_wr;
	printf("%s %u %u %u %u %u: ", kind->name, asked.max_send_wr, asked.max_recv_wr, asked.max_send_sge, asked.max_recv_sge,
	       asked.max_inline_data);
	struct ibv_qp_cap granted = asked;
	struct ibv_qp *qp = pair(kind, srq, &granted);
	if (!qp) {
		printf("refused %d\n", errno);
		return;
	}
	ibv_destroy_qp(qp);
	struct ibv_qp_cap again = granted;
	const char *end = "again";
	qp = pair(kind, srq, &again);
	if (!qp)
		end = "not-again";
	else if (!is_enough(&again, &granted, receives))
		end = "again-smaller";
	else if (!is_enough(&granted, &asked, receives))
		end = "smaller";
	if (qp)
		ibv_destroy_qp(qp);
	printf("granted %u %u %u %u %u %s\n", granted.max_send_wr, granted.max_recv_wr, granted.max_send_sge, granted.max_recv_sge,
	       granted.max_inline_data, end);
}

static void try_kind(const struct kind *kind)
{
	static const unsigned int edges[] = { 812, 813, 828, 829, 940, 941, 956, 957, 972, 973, 988, 989, 1004, 1005, 1008, 1024 };
	static const unsigned int sends[] = { 0, 1, 2, 3, 5, 64, 100, 1000, 2048, 2049, 4096, 8192, 16384, 16385, 32768, 32769 };
	static const unsigned int segments[] = { 1, 2, 3, 4, 8, 16, 27, 28, 29, 30, 32, 33, 48, 52, 53, 59, 60, 61, 62, 63, 64, 65 };
	static const unsigned int receives[] = { 0, 1, 2, 3, 4, 5, 100, 1000, 4097, 16384, 32768, 32769 };
	static const unsigned int pieces[] = { 1, 2, 3, 4, 5, 8, 16, 17, 31, 32, 33 };
	struct ibv_srq_init_attr init = { .attr = { .max_wr = 8, .max_sge = 1 } };
	struct ibv_srq *srq = kind->has_srq ? MUST(ibv_create_srq(pd, &init)) : NULL;

	int has_receives = kind->type != IBV_QPT_XRC_SEND;
	struct ibv_qp_cap first = { 4, has_receives, 1, has_receives, 0 };
	struct ibv_qp *qp = pair(kind, srq, &first);
	if (!qp) {
		/* Not on this device. */
		printf("%s none: refused %d\n", kind->name, errno);
		goto out;
	}
	ibv_destroy_qp(qp);
	for (unsigned int bytes = 0; bytes < 1040; bytes += 12)
		try_pair(kind, srq, (struct ibv_qp_cap){ 4, 4, 1, 1, bytes });
	for (size_t i = 0; i < COUNT(edges); i++)
		for (unsigned int n = 1; n <= 32; n *= 4)
			try_pair(kind, srq, (struct ibv_qp_cap){ n, 4, n, 1, edges[i] });
	for (size_t i = 0; i < COUNT(segments); i++)
		for (unsigned int bytes = 0; bytes <= 800; bytes += 400)
			try_pair(kind, srq, (struct ibv_qp_cap){ 3, 1, segments[i], 1, bytes });
	/* The operations change the size of a send, but neither its limits nor receives. */
	if (kind->is_extended)
		goto out;
	/* It takes long to clear the memory of deep queues. */
	for (size_t i = 0; i < COUNT(sends); i++)
		for (unsigned int bytes = 0; bytes <= 400; bytes += 200)
			for (unsigned int n = 1; n <= (sends[i] < 4096 ? 16 : 1); n *= 4)
				try_pair(kind, srq, (struct ibv_qp_cap){ sends[i], 1, n, 1, bytes });
	for (size_t i = 0; has_receives && i < COUNT(receives); i++)
		for (size_t j = 0; j < COUNT(pieces); j++)
			try_pair(kind, srq, (struct ibv_qp_cap){ 1, receives[i], 1, pieces[j], 0 });
out:
	if (srq)
		ibv_destroy_srq(srq);
}

static struct ibv_srq *shared(int is_xrc, struct ibv_srq_attr *attr)
{
	struct ibv_srq_init_attr_ex init = {
		.attr = *attr, .pd = pd, .srq_type = is_xrc ? IBV_SRQT_XRC : IBV_SRQT_BASIC,
		.comp_mask = IBV_SRQ_INIT_ATTR_PD | IBV_SRQ_INIT_ATTR_TYPE,
	};
	if (is_xrc) {
		init.comp_mask |= IBV_SRQ_INIT_ATTR_XRCD | IBV_SRQ_INIT_ATTR_CQ;
		init.xrcd = xrcd, init.cq = cq;
	}
	errno = 0;
	struct ibv_srq *srq = ibv_create_srq_ex(context, &init);
	if (srq)
		*attr = init.attr;
	return srq;
}

static void try_shared(int is_xrc)
{
	static const unsigned int depths[] = { 0, 1, 2, 3, 4, 5, 64, 100, 1000, 4095, 4096, 8191, 8192, 16382, 16383, 16384, 32767, 32768 };
	static const unsigned int pieces[] = { 0, 1, 2, 3, 4, 7, 8, 15, 16, 26, 27, 28, 30, 31, 33 };
	const char *name = is_xrc ? "xrc-shared" : "shared";
	for (size_t i = 0; i < COUNT(depths); i++)
		for (size_t j = 0; j < COUNT(pieces); j++) {
			struct ibv_srq_attr asked = { .max_wr = depths[i], .max_sge = pieces[j] }, granted = asked;
			printf("%s %u %u: ", name, asked.max_wr, asked.max_sge);
			struct ibv_srq *srq = shared(is_xrc, &granted);
			if (!srq) {
				printf("refused %d\n", errno);
				continue;
			}
			ibv_destroy_srq(srq);
			struct ibv_srq_attr again = granted;
			const char *end = "again";
			srq = shared(is_xrc, &again);
			if (!srq)
				end = "not-again";
			else if (again.max_wr < granted.max_wr || again.max_sge < granted.max_sge)
				end = "again-smaller";
			else if (granted.max_wr < asked.max_wr || granted.max_sge < asked.max_sge)
				end = "smaller";
			if (srq)
				ibv_destroy_srq(srq);
			printf("granted %u %u %s\n", granted.max_wr, granted.max_sge, end);
		}
}

static struct ibv_wq *work(uint32_t *depth, uint32_t *pieces)
{
	struct ibv_wq_init_attr init = { .wq_type = IBV_WQT_RQ, .max_wr = *depth, .max_sge = *pieces, .pd = pd, .cq = cq };
	errno = 0;
	struct ibv_wq *wq = ibv_create_wq(context, &init);
	if (wq)
		*depth = init.max_wr, *pieces = init.max_sge;
	return wq;
}

static void try_work(void)
{
	static const unsigned int depths[] = { 0, 1, 2, 3, 4, 5, 100, 1000, 4097, 16384, 16385, 32767, 32768, 32769 };
	static const unsigned int sizes[] = { 0, 1, 2, 3, 4, 5, 8, 9, 16, 17, 31, 32, 33, 64 };
	for (size_t i = 0; i < COUNT(depths); i++)
		for (size_t j = 0; j < COUNT(sizes); j++) {
			uint32_t depth = depths[i], pieces = sizes[j];
			printf("work %u %u: ", depth, pieces);
			struct ibv_wq *wq = work(&depth, &pieces);
			if (!wq) {
				printf("refused %d\n", errno);
				continue;
			}
			ibv_destroy_wq(wq);
			uint32_t depth_again = depth, pieces_again = pieces;
			const char *end = "again";
			wq = work(&depth_again, &pieces_again);
			if (!wq)
				end = "not-again";
			else if (depth < depths[i] || pieces < sizes[j])
				end = "smaller";
			if (wq)
				ibv_destroy_wq(wq);
			printf("granted %u %u %s\n", depth, pieces, end);
		}
}

static void try_completions(int resizes)
{
	static const int entries[] = { 0, 1, 2, 3, 4, 5, 64, 100, 255, 256, 1000, 4096, 16384, 32766, 32767, 32768, 65535, 65536, 100000 };
	for (size_t i = 0; i < COUNT(entries); i++) {
		struct ibv_cq *made = NULL;
		int status = 0, granted = 0;
		printf("%s %d: ", resizes ? "resized" : "completions", entries[i]);
		errno = 0;
		made = ibv_create_cq(context, resizes ? 7 : entries[i], NULL, NULL, 0);
		if (made && resizes)
			status = ibv_resize_cq(made, entries[i]);
		if (!made || status) {
			printf("refused %d\n", status ?: errno);
			if (made)
				ibv_destroy_cq(made);
			continue;
		}
		granted = made->cqe;
		const char *end = "again";
		if (resizes)
			status = ibv_resize_cq(made, granted);
		ibv_destroy_cq(made);
		if (!resizes) {
			made = ibv_create_cq(context, granted, NULL, NULL, 0);
			status = !made;
			if (made)
				ibv_destroy_cq(made);
		}
		if (status)
			end = "not-again";
		else if (granted < entries[i])
			end = "smaller";
		printf("granted %d %s\n", granted, end);
	}
}

/* Whether queues of this kind are asked for. */
static int is_wanted(const char *kind, char **argv)
{
	return !argv[2] || !strncmp(kind, argv[2], strlen(argv[2]));
}

int main(int argc, char **argv)
{
	int count, found = 0;
	struct ibv_device **list = MUST(ibv_get_device_list(&count));
	while (found < count && argc > 1 && strcmp(ibv_get_device_name(list[found]), argv[1]))
		found++;
	if (argc < 2 || found == count)
		return 2;
	context = MUST(ibv_open_device(list[found]));
	pd = MUST(ibv_alloc_pd(context));
	cq = MUST(ibv_create_cq(context, 16, NULL, NULL, 0));
	struct ibv_xrcd_init_attr domain = {
		.comp_mask = IBV_XRCD_INIT_ATTR_FD | IBV_XRCD_INIT_ATTR_OFLAGS, .fd = -1, .oflags = O_CREAT,
	};
	xrcd = ibv_open_xrcd(context, &domain);
	for (size_t i = 0; i < COUNT(kinds); i++)
		if (is_wanted(kinds[i].name, argv))
			try_kind(&kinds[i]);
	if (is_wanted("shared", argv))
		try_shared(0);
	if (xrcd && is_wanted("xrc-shared", argv))
		try_shared(1);
	if (is_wanted("work", argv))
		try_work();
	if (is_wanted("completions", argv))
		try_completions(0);
	if (is_wanted("resized", argv))
		try_completions(1);
	return 0;
}
