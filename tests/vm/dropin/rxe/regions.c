/*
 * Memory by the newer calls of libibverbs' interface, and other optional parts of a driver: ibv_reg_mr_ex and buffers (rdma-core
 * 65), dma-bufs, advice, moderation, the speed of a port. Prints what each returns, so that two libraries can be compared.
 *
 * usage: regions DEVICE
 *
 * The header of Debian 12 does not have all of them, so they are declared and looked up here. If the library lacks one, that is
 * printed and the call is skipped.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <infiniband/verbs.h>
#include <unistd.h>

#include "../../lib/check.h"

struct buf;
struct init {
	size_t length;
	int access;
	uint64_t comp_mask, iova;
	void *addr;
	int fd;
	uint64_t fd_offset;
	void *dmah;
	struct buf *buf;
};
enum { IOVA = 1, ADDR = 2, FD = 4, FD_OFFSET = 8, DMAH = 16, BUF = 32 };

static struct ibv_pd *pd;
static struct ibv_mr *(*reg_mr_ex)(struct ibv_pd *, struct init *);
static void *(*alloc_buf)(struct ibv_pd *, size_t, struct buf **);
static void (*free_buf)(struct buf *);
static struct ibv_mr *(*reg_buf_mr)(struct ibv_pd *, struct buf *, void *, size_t, int);
static int (*export_buf)(struct buf *);
static int (*query_port_speed)(struct ibv_context *, uint32_t, uint64_t *);

static void *call(const char *name, const char *version)
{
	void *found = dlvsym(RTLD_DEFAULT, name, version);
	if (!found)
		printf("none %s\n", name);
	return found;
}

/* The kernel chooses keys and handles, so only what the caller gave is printed about a region. */
static void region(const char *what, struct ibv_mr *mr, const void *start)
{
	int error = errno;

	if (!mr) {
		printf("%s: %s\n", what, strerror(error));
		return;
	}
	CHECK(mr->context == pd->context && mr->pd == pd);
	printf("%s: %zu bytes from %td\n", what, mr->length, (char *)mr->addr - (char *)start);
	CHECK(!ibv_dereg_mr(mr));
}

static void by_attributes(char *memory)
{
	static const uint64_t masks[] = {
		0, ADDR, ADDR | IOVA, IOVA, ADDR | FD_OFFSET, FD, FD | FD_OFFSET, FD | FD_OFFSET | IOVA, FD | ADDR, ADDR | DMAH,
		1 << 20,
	};
	for (size_t i = 0; i < sizeof(masks) / sizeof(*masks); i++) {
		struct init init = { .length = 100, .access = IBV_ACCESS_LOCAL_WRITE, .comp_mask = masks[i], .iova = 0x5000,
				     .addr = memory, .fd = -1 };
		char what[32];
		sprintf(what, "attributes %#lx", (unsigned long)masks[i]);
		region(what, reg_mr_ex(pd, &init), masks[i] & ADDR ? memory : NULL);
	}
}

static void buffers(struct ibv_pd *other)
{
	const size_t sizes[] = { 1, 4096, 10000 };
	for (int i = 0; i < 3; i++) {
		struct buf *buf = NULL;
		char *start = alloc_buf(pd, sizes[i], &buf);
		CHECK(start && buf && (uintptr_t)start % sysconf(_SC_PAGESIZE) == 0);
		memset(start, 7, sizes[i]);
		region("buffer", reg_buf_mr(pd, buf, start, sizes[i], IBV_ACCESS_LOCAL_WRITE), start);
		region("end of a buffer", reg_buf_mr(pd, buf, start + sizes[i] - 1, 1, 0), start);
		region("beyond a buffer", reg_buf_mr(pd, buf, start + 1, sizes[i], 0), start);
		region("before a buffer", reg_buf_mr(pd, buf, start - 1, 1, 0), start);
		region("far from a buffer", reg_buf_mr(pd, buf, start + 2 * sizes[i], 0, 0), start);
		region("buffer of another domain", reg_buf_mr(other, buf, start, 1, 0), start);
		struct init init = { .length = 1, .comp_mask = BUF | ADDR | FD, .addr = start, .buf = buf };
		region("buffer and file", reg_mr_ex(pd, &init), start);
		init.comp_mask = BUF;
		region("buffer without an address", reg_mr_ex(pd, &init), start);
		errno = 0;
		int fd = export_buf(buf);
		printf("file of a buffer: %d, %s\n", fd, strerror(errno));
		free_buf(buf);
	}
}

int main(int argc, char **argv)
{
	static char memory[8192] __attribute__((aligned(4096)));
	struct ibv_device **list = ibv_get_device_list(NULL);
	struct ibv_context *context = NULL;

	CHECK(argc == 2 && list);
	for (int i = 0; list[i] && !context; i++)
		if (!strcmp(ibv_get_device_name(list[i]), argv[1]))
			context = ibv_open_device(list[i]);
	CHECK(context);
	ibv_free_device_list(list);
	struct ibv_pd *other = ibv_alloc_pd(context);
	CHECK(other && (pd = ibv_alloc_pd(context)));

	region("dma-buf", ibv_reg_dmabuf_mr(pd, 0, 4096, 0, -1, IBV_ACCESS_LOCAL_WRITE), NULL);
	FILE *file = tmpfile(); /* this is not a dma-buf */
	CHECK(file);
	region("dma-buf", ibv_reg_dmabuf_mr(pd, 0, 4096, 0, fileno(file), IBV_ACCESS_LOCAL_WRITE), NULL);

	struct ibv_mr *mr = ibv_reg_mr(pd, memory, sizeof(memory), IBV_ACCESS_ON_DEMAND | IBV_ACCESS_LOCAL_WRITE);
	printf("on demand: %s\n", mr ? "registered" : strerror(errno));
	struct ibv_sge sge = { (uintptr_t)memory, 4096, mr ? mr->lkey : 0 };
	for (int advice = 0; advice < 4; advice++) {
		printf("advice %d: %s\n", advice, strerror(ibv_advise_mr(pd, advice, IBV_ADVISE_MR_FLAG_FLUSH, &sge, 1)));
		printf("advice %d about nothing: %s\n", advice, strerror(ibv_advise_mr(pd, advice, 0, &sge, 0)));
	}
	CHECK(!mr || !ibv_dereg_mr(mr));

	struct ibv_cq *cq = ibv_create_cq(context, 10, NULL, NULL, 0);
	CHECK(cq);
	for (int mask = 0; mask < 3; mask++) {
		struct ibv_modify_cq_attr attr = { .attr_mask = mask, .moderate = { .cq_count = 4, .cq_period = 10 } };
		printf("moderation %d: %s\n", mask, strerror(ibv_modify_cq(cq, &attr)));
	}
	CHECK(!ibv_destroy_cq(cq));

	if ((reg_mr_ex = call("ibv_reg_mr_ex", "IBVERBS_1.15")))
		by_attributes(memory);
	if ((query_port_speed = call("ibv_query_port_speed", "IBVERBS_1.16"))) {
		for (int port = 0; port < 3; port++) {
			uint64_t speed = 0;
			int error = query_port_speed(context, port, &speed);
			printf("speed of port %d: %s, %lu\n", port, strerror(error), (unsigned long)(error ? 0 : speed));
		}
	}
	alloc_buf = call("ibv_alloc_buf", "IBVERBS_1.17");
	free_buf = call("ibv_free_buf", "IBVERBS_1.17");
	reg_buf_mr = call("ibv_reg_buf_mr", "IBVERBS_1.17");
	export_buf = call("ibv_export_buf_dmabuf_fd", "IBVERBS_1.18");
	if (alloc_buf && free_buf && reg_buf_mr && export_buf)
		buffers(other);
	CHECK(!ibv_dealloc_pd(other) && !ibv_dealloc_pd(pd) && !ibv_close_device(context));
	return 0;
}
