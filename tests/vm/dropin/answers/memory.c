/*
 * Sizes for which no machine has memory, and sizes that this process may not have. The call must return an error, and the process
 * must live.
 *
 * usage: memory DEVICE
 */
#include "robust.h"
#include <sys/resource.h>

static struct ibv_context *context;
static struct ibv_pd *pd;
static struct ibv_cq *cq;
static struct ibv_qp *qp;

enum { HUGE_NUMBER = 1 << 30 };

/* Limits the memory that the process may take from here on. */
static void limit(size_t more)
{
	struct rlimit room;
	size_t pages;
	FILE *file = fopen("/proc/self/statm", "r");

	MUST(file && fscanf(file, "%zu", &pages) == 1 && !fclose(file));
	room.rlim_cur = room.rlim_max = pages * 4096 + more;
	MUST(!setrlimit(RLIMIT_AS, &room));
}

static void prepare(void)
{
	MUST(context = open_device());
	MUST(pd = ibv_alloc_pd(context));
	MUST(cq = ibv_create_cq(context, 16, NULL, NULL, 0));
	MUST(qp = make_qp(pd, cq, NULL, IBV_QPT_RC));
}

/* Prints the result of a call that makes something, and whether the device can still make small objects. */
static void made(const char *name, const void *object)
{
	int error = errno;
	struct ibv_cq *small;

	printf("%s: %s", name, object ? "made" : error_name(error));
	small = ibv_create_cq(context, 4, NULL, NULL, 0);
	printf(", then %s\n", small ? "made" : error_name(errno));
}

static struct ibv_qp *sized_qp(uint32_t sends, uint32_t receives, uint32_t pieces, uint32_t inlined)
{
	struct ibv_qp_init_attr init = {
		.send_cq = cq, .recv_cq = cq, .qp_type = IBV_QPT_RC,
		.cap = { .max_send_wr = sends, .max_recv_wr = receives, .max_send_sge = pieces, .max_recv_sge = pieces,
			 .max_inline_data = inlined },
	};

	errno = 0;
	return ibv_create_qp(pd, &init);
}

static struct ibv_srq *sized_srq(uint32_t requests, uint32_t pieces)
{
	struct ibv_srq_init_attr init = { .attr = { .max_wr = requests, .max_sge = pieces } };

	errno = 0;
	return ibv_create_srq(pd, &init);
}

static struct ibv_wq *sized_wq(uint32_t requests, uint32_t pieces)
{
	struct ibv_wq_init_attr init = { .wq_type = IBV_WQT_RQ, .max_wr = requests, .max_sge = pieces, .pd = pd, .cq = cq };

	errno = 0;
	return ibv_create_wq(context, &init);
}

static struct ibv_cq *sized_cq(int entries)
{
	errno = 0;
	return ibv_create_cq(context, entries, NULL, NULL, 0);
}

static struct ibv_cq_ex *sized_cq_ex(uint32_t entries)
{
	struct ibv_cq_init_attr_ex init = { .cqe = entries };

	errno = 0;
	return ibv_create_cq_ex(context, &init);
}

#define LARGE(name, call) \
	static void name(const char *what) { prepare(); limit(64 << 20); made(what, call); }
LARGE(large_cq, sized_cq(INT32_MAX))
LARGE(larger_cq, sized_cq(HUGE_NUMBER))
LARGE(large_cq_ex, sized_cq_ex(UINT32_MAX))
LARGE(large_sends, sized_qp(HUGE_NUMBER, 1, 1, 0))
LARGE(large_receives, sized_qp(1, HUGE_NUMBER, 1, 0))
LARGE(large_pieces, sized_qp(1, 1, HUGE_NUMBER, 0))
LARGE(large_inline, sized_qp(1, 1, 1, HUGE_NUMBER))
LARGE(large_all, sized_qp(UINT32_MAX, UINT32_MAX, UINT32_MAX, UINT32_MAX))
LARGE(large_srq, sized_srq(HUGE_NUMBER, 1))
LARGE(large_srq_pieces, sized_srq(1, HUGE_NUMBER))
LARGE(large_wq, sized_wq(HUGE_NUMBER, 1))
LARGE(large_wq_pieces, sized_wq(1, HUGE_NUMBER))

/*
 * Objects as large as the device allows, when there is memory for the objects themselves but not for the ring; and then with no
 * memory at all.
 */
static struct ibv_device_attr attr;
#define NO_ROOM(name, left, call) \
	static void name(const char *what) { prepare(); MUST(!ibv_query_device(context, &attr)); limit(left); made(what, call); }
NO_ROOM(no_room_cq, 256 << 10, sized_cq(attr.max_cqe))
NO_ROOM(no_room_qp, 256 << 10, sized_qp(attr.max_qp_wr, attr.max_qp_wr, 1, 0))
NO_ROOM(no_room_srq, 256 << 10, sized_srq(attr.max_srq_wr, 1))
NO_ROOM(no_room_list, 0, ibv_get_device_list(NULL))

static void resized(const char *name)
{
	prepare();
	limit(64 << 20);
	NUMBER(name, ibv_resize_cq(cq, INT32_MAX));
}

static void resized_srq(const char *name)
{
	struct ibv_srq_attr wanted = { .max_wr = HUGE_NUMBER };
	struct ibv_srq *srq;

	prepare();
	MUST(srq = sized_srq(4, 1));
	limit(64 << 20);
	NUMBER(name, ibv_modify_srq(srq, &wanted, IBV_SRQ_MAX_WR));
}

static void table(const char *name)
{
	static struct ibv_gid_entry entries[64];

	prepare();
	limit(64 << 20);
	printf("%s: %d\n", name, ibv_query_gid_table(context, entries, (size_t)1 << 40, 0) > 0);
}

static void tables(const char *name)
{
	static struct ibv_wq *queues[1 << 16];
	struct ibv_rwq_ind_table_init_attr init = { .log_ind_tbl_size = 15, .ind_tbl = queues };

	prepare();
	limit(64 << 20);
	OBJECT(name, ibv_create_rwq_ind_table(context, &init));
	init.log_ind_tbl_size = 63;
	OBJECT(name, ibv_create_rwq_ind_table(context, &init));
}

/* A list of the given length, longer than any request may be. */
static struct ibv_sge *long_list(size_t count)
{
	struct ibv_sge *list = mmap(NULL, count * sizeof(*list), PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

	MUST(list != MAP_FAILED);
	return list;
}

static void long_send(const char *name)
{
	struct ibv_send_wr wr = { .opcode = IBV_WR_SEND, .num_sge = 1 << 24 }, *bad;

	prepare();
	MUST(!to_init(qp) && !connect_qp(qp, qp->qp_num));
	wr.sg_list = long_list(wr.num_sge);
	limit(64 << 20);
	NUMBER(name, ibv_post_send(qp, &wr, &bad) != 0);
}

static void long_receive(const char *name)
{
	struct ibv_recv_wr wr = { .num_sge = 1 << 24 }, *bad;

	prepare();
	MUST(!to_init(qp));
	wr.sg_list = long_list(wr.num_sge);
	limit(64 << 20);
	NUMBER(name, ibv_post_recv(qp, &wr, &bad) != 0);
}

static void long_advice(const char *name)
{
	struct ibv_sge *list = long_list(1 << 24);

	prepare();
	limit(64 << 20);
	NUMBER(name, ibv_advise_mr(pd, IBV_ADVISE_MR_ADVICE_PREFETCH, 0, list, 1 << 24) != 0);
}

static void extended_list(const char *name, int one_by_one)
{
	struct ibv_qp_init_attr_ex init = {
		.qp_type = IBV_QPT_RC, .cap = { 4, 4, 2, 2, 0 }, .comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS,
		.send_ops_flags = IBV_QP_EX_WITH_SEND,
	};
	struct ibv_sge *list = long_list(1 << 24);
	struct ibv_qp_ex *ex;

	prepare();
	init.send_cq = init.recv_cq = cq;
	init.pd = pd;
	MUST(qp = ibv_create_qp_ex(context, &init));
	MUST(!to_init(qp) && !connect_qp(qp, qp->qp_num));
	MUST(ex = ibv_qp_to_qp_ex(qp));
	limit(64 << 20);
	ibv_wr_start(ex);
	ibv_wr_send(ex);
	if (one_by_one)
		for (int i = 0; i < 1 << 24; i++)
			ibv_wr_set_sge(ex, 1, 1, 1);
	else
		ibv_wr_set_sge_list(ex, 1 << 24, list);
	NUMBER(name, ibv_wr_complete(ex) != 0);
}
static void set_list(const char *name) { extended_list(name, 0); }
static void set_each(const char *name) { extended_list(name, 1); }

static void long_file(const char *name)
{
	char *text = mmap(NULL, HUGE_NUMBER, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

	MUST(text != MAP_FAILED);
	limit(64 << 20);
	printf("%s: %d\n", name, ibv_read_sysfs_file("/proc/self", "statm", text, HUGE_NUMBER) > 0);
}

int main(int count, char **arguments)
{
	begin(count, arguments);
	apart("cq", large_cq);
	apart("cq of 2^30", larger_cq);
	apart("cq_ex", large_cq_ex);
	apart("qp with sends", large_sends);
	apart("qp with receives", large_receives);
	apart("qp with pieces", large_pieces);
	apart("qp with inline data", large_inline);
	apart("qp with all", large_all);
	apart("srq", large_srq);
	apart("srq with pieces", large_srq_pieces);
	apart("wq", large_wq);
	apart("wq with pieces", large_wq_pieces);
	apart("cq without room", no_room_cq);
	apart("qp without room", no_room_qp);
	apart("srq without room", no_room_srq);
	apart("list without room", no_room_list);
	apart("resize", resized);
	apart("resized srq", resized_srq);
	apart("table of GIDs", table);
	apart("tables of queues", tables);
	apart("long send", long_send);
	apart("long receive", long_receive);
	apart("long advice", long_advice);
	apart("set_sge_list", set_list);
	apart("set_sge", set_each);
	apart("long file", long_file);
	return 0;
}
