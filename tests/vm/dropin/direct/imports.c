/*
 * A context, a protection domain and a memory region that somebody else has created: ibv_import_device, ibv_import_pd, ibv_import_mr.
 *
 * usage: imports DEVICE ADDRESS, the address being the index of one in the port's table
 *
 * Prints what each call returns. The second process is a child that has nothing of the first but its device file, two handles and memory
 * that both map.
 */
#define _GNU_SOURCE
#include <infiniband/verbs.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "../../lib/check.h"

static struct ibv_context *first;
static char *page;
static union ibv_gid gid;
static int address;

static const char *name_of(int code)
{
	return code ? strerrorname_np(abs(code)) : "done";
}

static struct ibv_qp *connected(struct ibv_pd *pd, struct ibv_cq *cq)
{
	struct ibv_qp_init_attr init = { .send_cq = cq, .recv_cq = cq, .cap = { 4, 4, 1, 1, 0 }, .qp_type = IBV_QPT_RC };
	struct ibv_qp *qp = ibv_create_qp(pd, &init);
	CHECK(qp);
	struct ibv_qp_attr attr = {
		.qp_state = IBV_QPS_INIT,
		.port_num = 1,
		.qp_access_flags = IBV_ACCESS_REMOTE_WRITE,
		.path_mtu = IBV_MTU_1024,
		.dest_qp_num = qp->qp_num,
		.timeout = 14,
		.retry_cnt = 7,
		.rnr_retry = 7,
		.min_rnr_timer = 12,
		.ah_attr = { .is_global = 1, .port_num = 1, .grh = { .dgid = gid, .sgid_index = address, .hop_limit = 4 } },
	};
	CHECK(!ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS));
	attr.qp_state = IBV_QPS_RTR;
	CHECK(!ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER));
	attr.qp_state = IBV_QPS_RTS;
	CHECK(!ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC));
	return qp;
}

/* Writes 64 bytes from the page's beginning to `to` by the keys of the region. */
static void writes(struct ibv_context *context, struct ibv_pd *pd, struct ibv_mr *mr, int to)
{
	struct ibv_cq *cq = ibv_create_cq(context, 4, NULL, NULL, 0);
	CHECK(cq);
	struct ibv_qp *qp = connected(pd, cq);
	struct ibv_sge piece = { (uintptr_t)page, 64, mr->lkey };
	struct ibv_send_wr wr = {
		.wr_id = to, .sg_list = &piece, .num_sge = 1, .opcode = IBV_WR_RDMA_WRITE, .send_flags = IBV_SEND_SIGNALED,
		.wr.rdma = { (uintptr_t)page + to, mr->rkey },
	}, *bad;
	CHECK(!ibv_post_send(qp, &wr, &bad));
	struct ibv_wc wc;
	int got;
	while (!(got = ibv_poll_cq(cq, 1, &wc)))
		;
	printf("write to %d: %d %s, bytes %s\n", to, got, ibv_wc_status_str(wc.status), memcmp(page, page + to, 64) ? "differ" : "are there");
	printf("destroy: %s", name_of(ibv_destroy_qp(qp)));
	printf(" %s\n", name_of(ibv_destroy_cq(cq)));
}

struct handles {
	uint32_t pd, mr;
};

/* Everything that a process does that has the file and the handles. */
static void second(int file, struct handles handles, int to)
{
	struct ibv_context *context = ibv_import_device(file);
	CHECK(context);
	printf("context: file %s, vectors %d\n", context->cmd_fd == file ? "as given" : "another", context->num_comp_vectors == first->num_comp_vectors);
	errno = 0;
	struct ibv_pd *pd = ibv_import_pd(context, handles.pd);
	printf("pd: %s\n", name_of(pd ? 0 : errno));
	CHECK(pd);
	printf("pd: context %d, handle %d\n", pd->context == context, pd->handle == handles.pd);
	errno = 0;
	struct ibv_mr *mr = ibv_import_mr(pd, handles.mr);
	printf("mr: %s\n", name_of(mr ? 0 : errno));
	CHECK(mr);
	printf("mr: context %d, pd %d, handle %d, address %p, length %zu\n", mr->context == context, mr->pd == pd, mr->handle == handles.mr, mr->addr, mr->length);

	for (uint32_t unknown = 0x7000; unknown < 0x7002; unknown++) {
		errno = 0;
		printf("unknown pd: %s\n", ibv_import_pd(context, unknown) ? "made" : name_of(errno));
		errno = 0;
		printf("unknown mr: %s\n", ibv_import_mr(pd, unknown) ? "made" : name_of(errno));
	}
	errno = 0;
	printf("mr as pd: %s\n", ibv_import_pd(context, handles.mr) ? "made" : name_of(errno));
	errno = 0;
	int code = ibv_rereg_mr(mr, IBV_REREG_MR_CHANGE_ACCESS, NULL, NULL, 0, 0);
	printf("change: %d %s\n", code, name_of(errno));

	writes(context, pd, mr, to);
	/* Imported twice, and left in another order. */
	struct ibv_pd *again = ibv_import_pd(context, handles.pd);
	struct ibv_mr *mr_again = ibv_import_mr(again, handles.mr);
	CHECK(again && mr_again);
	ibv_unimport_mr(mr);
	ibv_unimport_pd(pd);
	writes(context, again, mr_again, to + 64);
	ibv_unimport_mr(mr_again);
	ibv_unimport_pd(again);
	printf("close: %s\n", name_of(ibv_close_device(context)));
	fflush(stdout);
}

int main(int argc, char **argv)
{
	CHECK(argc == 3);
	address = atoi(argv[2]);
	struct ibv_device **devices = ibv_get_device_list(NULL), **at = devices;
	CHECK(devices);
	while (*at && strcmp(ibv_get_device_name(*at), argv[1]))
		at++;
	CHECK(*at && (first = ibv_open_device(*at)));
	CHECK(!ibv_query_gid(first, 1, address, &gid));
	page = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	CHECK(page != MAP_FAILED);
	memset(page, 0x5a, 64);

	errno = 0;
	struct ibv_context *none = ibv_import_device(STDOUT_FILENO);
	printf("a file that is none of a device: %s\n", none ? "made" : "refused");

	struct ibv_pd *pd = ibv_alloc_pd(first);
	struct ibv_mr *mr = ibv_reg_mr(pd, page, 4096, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);
	CHECK(pd && mr);
	struct handles handles = { pd->handle, mr->handle };
	int file = dup(first->cmd_fd);
	CHECK(file >= 0);

	puts("one process");
	second(file, handles, 256);
	puts("two processes");
	fflush(stdout);
	CHECK((file = dup(first->cmd_fd)) >= 0);
	pid_t child = fork();
	CHECK(child >= 0);
	if (!child) {
		second(file, handles, 512);
		_exit(0);
	}
	close(file);
	int status;
	CHECK(waitpid(child, &status, 0) == child);
	printf("child: %d\n", status);

	/* What was left is still there. */
	writes(first, pd, mr, 1024);
	/* An imported region is deregistered by whoever does it first. */
	struct ibv_mr *other = ibv_import_mr(pd, handles.mr);
	CHECK(other);
	printf("pd with a region: %s\n", name_of(ibv_dealloc_pd(pd)));
	printf("dereg of the imported: %s\n", name_of(ibv_dereg_mr(other)));
	printf("dereg of the first: %s\n", name_of(ibv_dereg_mr(mr)));
	printf("pd: %s\n", name_of(ibv_dealloc_pd(pd)));
	printf("close: %s\n", name_of(ibv_close_device(first)));
	puts("pass all");
	return 0;
}
