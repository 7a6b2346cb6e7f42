/*
 * Completion counters on an EFA through libibverbs and libefa of rdma-core 65. The calls are looked up by name, since the machine's
 * headers are older. The counters must agree with what was polled.
 *
 * usage: efa-comp-cntr DEVICE [efadv]
 *
 * With the second word efadv_create_comp_cntr makes the counters.
 */
#include <dlfcn.h>
#include <infiniband/efadv.h>
#include <infiniband/verbs.h>
#include <stdint.h>

#include "../lib/check.h"

/* As in infiniband/verbs.h of rdma-core 65. */
enum { SEND = 1, RECEIVE = 2, READ = 4, REMOTE_READ = 8, WRITE = 16, REMOTE_WRITE = 32 };
struct caps { uint64_t max_value; uint32_t max_counters, operations; };
struct init { uint32_t comp_mask, type, flags; };
struct attach { uint32_t comp_mask, operations; };
struct counter;

static int (*query)(struct ibv_context *, struct caps *, size_t);
static struct counter *(*create)(struct ibv_context *, struct init *), *(*create_own)(struct ibv_context *, struct init *, void *, uint32_t);
static int (*destroy)(struct counter *), (*set)(struct counter *, uint64_t), (*set_error)(struct counter *, uint64_t);
static int (*increase)(struct counter *, uint64_t), (*get)(struct counter *, uint64_t *), (*get_error)(struct counter *, uint64_t *);
static int (*attach_to)(struct ibv_qp *, struct counter *, struct attach *);
static struct ibv_qp *(*create_srd)(struct ibv_context *, struct ibv_qp_init_attr_ex *, struct efadv_qp_init_attr *, uint32_t);

static struct ibv_pd *pd;
static struct ibv_cq *cq;
static struct ibv_mr *mr;
static struct ibv_ah *ah;
static char memory[8192];

static void *named(void *library, const char *name)
{
	void *found = dlsym(library, name);

	if (!found)
		printf("skip: there is no %s\n", name), exit(0);
	return found;
}

static struct ibv_qp *make_qp(void)
{
	struct ibv_qp_init_attr_ex init = { .send_cq = cq, .recv_cq = cq, .qp_type = IBV_QPT_DRIVER, .cap = { 16, 16, 1, 1, 0 } };
	struct efadv_qp_init_attr srd = { .driver_qp_type = EFADV_QP_DRIVER_TYPE_SRD };
	struct ibv_qp *qp;
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_INIT, .port_num = 1, .qkey = 0x1234 };

	init.comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS, init.pd = pd;
	init.send_ops_flags = IBV_QP_EX_WITH_SEND | IBV_QP_EX_WITH_RDMA_READ | IBV_QP_EX_WITH_RDMA_WRITE;
	CHECK(qp = create_srd(pd->context, &init, &srd, sizeof(srd)));
	CHECK(!ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_PORT | IBV_QP_PKEY_INDEX | IBV_QP_QKEY));
	attr.qp_state = IBV_QPS_RTR;
	CHECK(!ibv_modify_qp(qp, &attr, IBV_QP_STATE));
	attr.qp_state = IBV_QPS_RTS;
	CHECK(!ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_SQ_PSN));
	return qp;
}

static struct counter *make_counter(struct ibv_context *context)
{
	uint64_t own[10] = { 0 };
	struct init init = { 0 };
	struct counter *counter = create_own ? create_own(context, &init, own, sizeof(own)) : create(context, &init);

	CHECK(counter);
	CHECK(!set(counter, 0) && !set_error(counter, 0));
	return counter;
}

static void receive(struct ibv_qp *qp)
{
	struct ibv_sge piece = { (uintptr_t)memory + 4096, 4096, mr->lkey };
	struct ibv_recv_wr wr = { .sg_list = &piece, .num_sge = 1 }, *bad;

	CHECK(!ibv_post_recv(qp, &wr, &bad));
}

/* Posts a request and waits for this many completions. Returns how many of them are errors. */
static int post(struct ibv_qp *from, struct ibv_qp *to, enum ibv_wr_opcode opcode, int completions)
{
	struct ibv_qp_ex *qp = ibv_qp_to_qp_ex(from);
	int errors = 0;

	ibv_wr_start(qp);
	qp->wr_flags = IBV_SEND_SIGNALED;
	if (opcode == IBV_WR_SEND)
		ibv_wr_send(qp);
	else if (opcode == IBV_WR_RDMA_READ)
		ibv_wr_rdma_read(qp, mr->rkey, (uintptr_t)memory + 4096);
	else
		ibv_wr_rdma_write(qp, mr->rkey, (uintptr_t)memory + 4096);
	ibv_wr_set_ud_addr(qp, ah, to->qp_num, 0x1234);
	ibv_wr_set_sge(qp, mr->lkey, (uintptr_t)memory, 64);
	CHECK(!ibv_wr_complete(qp));
	while (completions > 0) {
		struct ibv_wc wc;
		int found = ibv_poll_cq(cq, 1, &wc);

		CHECK(found >= 0);
		completions -= found;
		errors += found && wc.status != IBV_WC_SUCCESS;
	}
	return errors;
}

static int says(struct counter *counter, uint64_t value, uint64_t error)
{
	uint64_t values[2] = { 99, 99 };

	CHECK(!get(counter, &values[0]) && !get_error(counter, &values[1]));
	if (values[0] == value && values[1] == error)
		return 1;
	fprintf(stderr, "%llu and %llu, not %llu and %llu\n", (unsigned long long)values[0], (unsigned long long)values[1], (unsigned long long)value,
		(unsigned long long)error);
	return 0;
}

int main(int argc, char **argv)
{
	struct ibv_device **list = ibv_get_device_list(NULL);
	void *verbs = dlopen("libibverbs.so.1", RTLD_NOW), *efa = dlopen("libefa.so.1", RTLD_NOW);
	int access = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_WRITE;
	struct ibv_ah_attr address = { .is_global = 1, .port_num = 1 };
	struct attach attach = { 0 };
	struct ibv_context *context;
	struct caps caps = { 0 };
	struct counter *sent, *received, *remote;
	struct ibv_qp *a, *b;
	int i, status;

	CHECK(argc >= 2 && list && *list && verbs && efa);
	for (i = 0; list[i] && strcmp(ibv_get_device_name(list[i]), argv[1]); i++)
		;
	CHECK(list[i] && (context = ibv_open_device(list[i])));
	query = named(verbs, "_ibv_query_comp_cntr_caps"), create = named(verbs, "ibv_create_comp_cntr");
	destroy = named(verbs, "ibv_destroy_comp_cntr"), attach_to = named(verbs, "ibv_qp_attach_comp_cntr");
	set = named(verbs, "ibv_set_comp_cntr"), set_error = named(verbs, "ibv_set_err_comp_cntr");
	increase = named(verbs, "ibv_inc_comp_cntr"), create_srd = named(efa, "efadv_create_qp_ex");
	get = named(verbs, "ibv_read_comp_cntr"), get_error = named(verbs, "ibv_read_err_comp_cntr");
	status = query(context, &caps, sizeof(caps));
	if (argc > 2) {
		struct init init = { 0 };
		uint64_t own[10] = { 0 };
		struct counter *first;

		create_own = named(efa, "efadv_create_comp_cntr");
		/* The capabilities describe only what ibv_create_comp_cntr makes. */
		first = create_own(context, &init, own, sizeof(own));
		if (!first)
			return printf("skip: this kernel has no completion counters (%s)\n", strerror(errno)), 0;
		CHECK(!destroy(first));
	} else if (status || !caps.max_counters)
		return printf("skip: this kernel has no completion counters (%s)\n", strerror(status)), 0;
	printf("%u counters up to %llu, operations %#x\n", caps.max_counters, (unsigned long long)caps.max_value, caps.operations);
	CHECK(create_own || caps.operations == (SEND | RECEIVE | READ | REMOTE_READ | WRITE | REMOTE_WRITE));

	CHECK(pd = ibv_alloc_pd(context));
	CHECK(cq = ibv_create_cq(context, 64, NULL, NULL, 0));
	CHECK(mr = ibv_reg_mr(pd, memory, sizeof(memory), access));
	CHECK(!ibv_query_gid(context, 1, 0, &address.grh.dgid));
	CHECK(ah = ibv_create_ah(pd, &address));
	a = make_qp(), b = make_qp();
	sent = make_counter(context), received = make_counter(context), remote = make_counter(context);
	attach.operations = SEND | READ | WRITE;
	CHECK(!attach_to(a, sent, &attach));
	attach.operations = RECEIVE;
	CHECK(!attach_to(b, received, &attach));
	attach.operations = REMOTE_READ | REMOTE_WRITE;
	CHECK(!attach_to(b, remote, &attach));
	attach.operations = RECEIVE | REMOTE_READ;
	CHECK(attach_to(b, sent, &attach) == EBUSY);

	for (i = 0; i < 10; i++) {
		receive(b);
		CHECK(post(a, b, IBV_WR_SEND, 2) == 0);
	}
	CHECK(says(sent, 10, 0) && says(received, 10, 0) && says(remote, 0, 0));
	/* Nobody waits for this one. */
	CHECK(post(a, b, IBV_WR_SEND, 1) == 1);
	CHECK(says(sent, 10, 1) && says(received, 10, 0));
	for (i = 0; i < 5; i++)
		CHECK(post(a, b, IBV_WR_RDMA_READ, 1) == 0 && post(a, b, IBV_WR_RDMA_WRITE, 1) == 0);
	CHECK(says(sent, 20, 1) && says(remote, 10, 0));
	CHECK(!set(sent, 1000) && !increase(sent, 24) && says(sent, 1024, 1));
	CHECK(post(a, b, IBV_WR_RDMA_READ, 1) == 0 && says(sent, 1025, 1));
	/* After the greatest value comes 0. */
	if (!create_own)
		CHECK(!set(sent, caps.max_value) && post(a, b, IBV_WR_RDMA_READ, 1) == 0 && says(sent, 0, 1));
	CHECK(create_own || set(sent, caps.max_value + 1) != 0);
	CHECK(destroy(sent) == EBUSY);
	CHECK(!ibv_destroy_qp(a) && !ibv_destroy_qp(b));
	CHECK(!destroy(sent) && !destroy(received) && !destroy(remote));
	CHECK(!ibv_destroy_ah(ah) && !ibv_dereg_mr(mr) && !ibv_destroy_cq(cq) && !ibv_dealloc_pd(pd) && !ibv_close_device(context));
	puts("pass");
	return 0;
}
