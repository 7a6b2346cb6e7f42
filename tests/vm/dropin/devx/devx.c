/*
 * Commands to the firmware and flows by matchers (mlx5dv_devx_*, mlx5dv_create_flow) with whichever libibverbs and libmlx5 the loader
 * finds.
 *
 * usage: mlx5-devx DEVICE CONTROL, the control line of the card, through which packets arrive
 *
 * Prints a line for each call: its name, what it returned, and of a command the firmware's status and syndrome. Numbers of objects are not
 * printed: they depend on what a library creates for itself.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <endian.h>
#include <fcntl.h>
#include <infiniband/mlx5dv.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <unistd.h>

#include "../../lib/check.h"

static struct ibv_context *context;
static uint32_t in[1024], out[2048];
static int control;

/* A field of WIDTH bits, at most 32 and inside a word, at bit AT. */
static void put(void *to, unsigned at, unsigned width, uint32_t value)
{
	uint32_t *word = (uint32_t *)to + at / 32, mask = width == 32 ? ~0u : (1u << width) - 1, shift = 32 - width - at % 32;
	*word = htobe32((be32toh(*word) & ~(mask << shift)) | (value & mask) << shift);
}

static uint32_t get(const void *from, unsigned at, unsigned width)
{
	uint32_t mask = width == 32 ? ~0u : (1u << width) - 1;
	return be32toh(((const uint32_t *)from)[at / 32]) >> (32 - width - at % 32) & mask;
}

static uint32_t *command(uint16_t opcode)
{
	memset(in, 0, sizeof(in));
	memset(out, 0, sizeof(out));
	put(in, 0, 16, opcode);
	return in;
}

static const char *word(int code) { return code ? strerrorname_np(abs(code)) ?: "?" : "done"; }

/* The name is printed first, in case the call does not return. */
#define BEGIN(what) (fprintf(stderr, "%s\n", what), errno = 0)
/* A call that returns 0 or the error, and a command: with what the firmware answered. */
#define ASK(what, call) \
	({ \
		BEGIN(what); \
		int code_ = call; \
		printf("%s: %s %x %x\n", what, word(code_), get(out, 0, 8), get(out, 32, 32)); \
		code_; \
	})
#define SAY(what, call) \
	({ \
		BEGIN(what); \
		int code_ = call; \
		printf("%s: %s\n", what, word(code_)); \
		code_; \
	})
/* A call that returns a pointer, or null and errno. */
#define MAKE(what, call) \
	({ \
		BEGIN(what); \
		typeof(call) made_ = call; \
		printf("%s: %s\n", what, word(made_ ? 0 : errno ?: -1)); \
		made_; \
	})
/* An object of the firmware by the command in `in`. */
#define CREATE(what, length, room) \
	({ \
		BEGIN(what); \
		struct mlx5dv_devx_obj *made_ = mlx5dv_devx_obj_create(context, in, length, out, room); \
		printf("%s: %s %x %x\n", what, word(made_ ? 0 : errno ?: -1), get(out, 0, 8), get(out, 32, 32)); \
		made_; \
	})
/* The number of the object that was just created. */
#define NUMBER() get(out, 0x48, 24)

static void tell_card(const char *request)
{
	char answer[4096];
	size_t length = 0;

	CHECK(dprintf(control, "%s\n", request) > 0);
	for (;;) {
		ssize_t count = read(control, answer + length, sizeof(answer) - 1 - length);
		CHECK(count > 0);
		answer[length += count] = 0;
		if (strstr(answer, "ok\n") == answer || strstr(answer, "\nok\n"))
			return;
		if (strstr(answer, "error")) {
			fprintf(stderr, "%s: %s\n", request, answer);
			exit(1);
		}
	}
}

/* Frames of 60 bytes to the address 02:00:00:00:00:LAST. */
static void arrive(int last, int times)
{
	char request[256];

	snprintf(request, sizeof(request), "send 0200000000%02x020000000101%s%092d %d", last, "0800", 0, times);
	tell_card(request);
}

static void opening(struct ibv_device *device)
{
	struct mlx5dv_context_attr attr = { .flags = 2 };

	MAKE("open: flags", mlx5dv_open_device(device, &attr));
	attr = (struct mlx5dv_context_attr){ .flags = MLX5DV_CONTEXT_FLAGS_DEVX };
	context = MAKE("open: DEVX", mlx5dv_open_device(device, &attr));
	CHECK(context);
	/* libmlx5 uses DEVX also if it is not asked for. */
	struct ibv_context *other = context;
	CHECK(context = ibv_open_device(device));
	command(0x800);
	struct mlx5dv_devx_obj *pd = CREATE("open: by ibv_open_device", 16, 16);
	if (pd)
		SAY("open: its object", mlx5dv_devx_obj_destroy(pd));
	CHECK(!ibv_close_device(context));
	context = other;
}

static void general(void)
{
	command(0x100);
	put(in, 0x30, 16, 1);
	ASK("general: QUERY_HCA_CAP", mlx5dv_devx_general_cmd(context, in, 16, out, 16 + 4096));
	printf("log_max_uctx %u, log_max_cq %u\n", get(out, 128 + 0x463, 5), get(out, 128 + 0xdb, 5));
	command(0x100);
	ASK("general: a short command", mlx5dv_devx_general_cmd(context, in, 8, out, 4112));
	ASK("general: a short answer", mlx5dv_devx_general_cmd(context, in, 16, out, 8));
	command(0x800);
	ASK("general: one that creates", mlx5dv_devx_general_cmd(context, in, 16, out, 16));
	command(0x80d);
	ASK("general: one that the firmware lacks", mlx5dv_devx_general_cmd(context, in, 16, out, 16));
	uint32_t eqn = 0;
	SAY("query_eqn", mlx5dv_devx_query_eqn(context, 0, &eqn));
	printf("event queue %s\n", eqn ? "has a number" : "has none");
	SAY("query_eqn: no such vector", mlx5dv_devx_query_eqn(context, 4000, &eqn));
}

static void objects(void)
{
	command(0x800);
	struct mlx5dv_devx_obj *pd = CREATE("object: ALLOC_PD", 16, 16);
	command(0x402);
	ASK("object: a query of another kind", mlx5dv_devx_obj_query(pd, in, 16, out, 80));
	command(0x800);
	ASK("object: no query", mlx5dv_devx_obj_query(pd, in, 16, out, 16));
	ASK("object: no change", mlx5dv_devx_obj_modify(pd, in, 16, out, 16));
	SAY("object: destroy", mlx5dv_devx_obj_destroy(pd));
	command(0x402);
	CREATE("object: creates nothing", 16, 16);
	command(0xa00);
	put(in, 0x30, 16, 0x2f);
	CREATE("object: of a kind that the firmware lacks", 64, 16);
	command(0x771);
	struct mlx5dv_devx_obj *counters = CREATE("object: ALLOC_Q_COUNTER", 16, 16);
	uint32_t set = get(out, 0x58, 8);
	command(0x773);
	put(in, 0xf8, 8, set);
	ASK("object: QUERY_Q_COUNTER", mlx5dv_devx_obj_query(counters, in, 32, out, 256));
	put(in, 0xf8, 8, set + 1);
	ASK("object: of another number", mlx5dv_devx_obj_query(counters, in, 32, out, 256));
	SAY("object: destroy counters", mlx5dv_devx_obj_destroy(counters));
}

static struct mlx5dv_devx_uar *uar;

static void memory(void)
{
	uint64_t size = 1 << 16;
	void *page = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	CHECK(page != MAP_FAILED);
	struct mlx5dv_devx_umem *umem = MAKE("umem", mlx5dv_devx_umem_reg(context, page, size, IBV_ACCESS_LOCAL_WRITE));
	printf("umem %s\n", umem && umem->umem_id ? "has a number" : "has none");
	SAY("umem: dereg", mlx5dv_devx_umem_dereg(umem));
	umem = MAKE("umem: within a page", mlx5dv_devx_umem_reg(context, page + 64, 100, 0));
	SAY("umem: dereg", mlx5dv_devx_umem_dereg(umem));
	MAKE("umem: access", mlx5dv_devx_umem_reg(context, page, size, IBV_ACCESS_MW_BIND));
	MAKE("umem: remote write alone", mlx5dv_devx_umem_reg(context, page, size, IBV_ACCESS_REMOTE_WRITE));
	MAKE("umem: no memory", mlx5dv_devx_umem_reg(context, (void *)0x1000, 4096, 0));
	MAKE("umem: of no bytes", mlx5dv_devx_umem_reg(context, page, 0, 0));
	struct mlx5dv_devx_umem_in attr = { .addr = page, .size = size, .access = IBV_ACCESS_LOCAL_WRITE, .pgsz_bitmap = 4096 };
	umem = MAKE("umem_ex", mlx5dv_devx_umem_reg_ex(context, &attr));
	SAY("umem_ex: dereg", mlx5dv_devx_umem_dereg(umem));
	attr.pgsz_bitmap = 0;
	MAKE("umem_ex: no page size", mlx5dv_devx_umem_reg_ex(context, &attr));
	attr.pgsz_bitmap = 4096;
	attr.comp_mask = MLX5DV_UMEM_MASK_DMABUF;
	attr.dmabuf_fd = -1;
	MAKE("umem_ex: no dma-buf", mlx5dv_devx_umem_reg_ex(context, &attr));
	attr.comp_mask = 1 << 7;
	MAKE("umem_ex: mask", mlx5dv_devx_umem_reg_ex(context, &attr));
	munmap(page, size);

	uar = MAKE("uar: not cached", mlx5dv_devx_alloc_uar(context, MLX5_IB_UAPI_UAR_ALLOC_TYPE_NC));
	CHECK(uar);
	printf("uar %s, register at %#tx, mask %lx\n", uar->page_id ? "has a number" : "has none",
	       (char *)uar->reg_addr - (char *)uar->base_addr, (long)uar->comp_mask);
	/* Older versions of libmlx5 do not know this flag. */
	struct mlx5dv_devx_uar *other = mlx5dv_devx_alloc_uar(context, 1u << 31);
	if (other) {
		CHECK(other->page_id != uar->page_id);
		mlx5dv_devx_free_uar(other);
	}
	other = MAKE("uar: write-combining", mlx5dv_devx_alloc_uar(context, MLX5_IB_UAPI_UAR_ALLOC_TYPE_BF));
	if (other)
		mlx5dv_devx_free_uar(other);
	MAKE("uar: flags", mlx5dv_devx_alloc_uar(context, 4));
	struct mlx5dv_var *var = MAKE("var", mlx5dv_alloc_var(context, 0));
	if (var)
		mlx5dv_free_var(var);
	MAKE("var: flags", mlx5dv_alloc_var(context, 0x100));
}

/* How many objects of a kind the card has, of whatever program. */
static int objects_of(const char *kind)
{
	static char answer[1 << 18];
	size_t length = 0;
	int count = 0;

	CHECK(dprintf(control, "objects\n") > 0);
	do {
		ssize_t more = read(control, answer + length, sizeof(answer) - 1 - length);
		CHECK(more > 0);
		answer[length += more] = 0;
	} while (strcmp(answer, "ok\n") && (length < 4 || strcmp(answer + length - 4, "\nok\n")));
	for (char *line = strtok(answer, "\n"); line; line = strtok(NULL, "\n"))
		count += !strncmp(line, kind, strlen(kind)) && line[strlen(kind)] == ' ';
	return count;
}

/* Numbers that no queue pair gets: the card reserves four at once. */
static void numbers(void)
{
	uint32_t number[7], other;

	tell_card("fail CREATE_GENERAL_OBJECT 8 1");
	SAY("number: a card that has no more", mlx5dv_reserved_qpn_alloc(context, number));
	tell_card("fail CREATE_GENERAL_OBJECT 3 1");
	SAY("number: a card that refuses", mlx5dv_reserved_qpn_alloc(context, number));
	for (int at = 0; at < 6; at++)
		SAY("number: reserve", mlx5dv_reserved_qpn_alloc(context, &number[at]));
	printf("number: distances %d %d %d %d, of %d\n", number[1] - number[0], number[2] - number[0], number[3] - number[0],
	       number[5] - number[4], objects_of("ReservedQpn"));
	for (int at = 0; at < 6; at++)
		SAY("number: free", mlx5dv_reserved_qpn_dealloc(context, number[at]));
	printf("number: of %d\n", objects_of("ReservedQpn"));
	SAY("number: free again", mlx5dv_reserved_qpn_dealloc(context, number[5]));
	SAY("number: free one of another block", mlx5dv_reserved_qpn_dealloc(context, number[0]));
	SAY("number: free one that was not reserved", mlx5dv_reserved_qpn_dealloc(context, number[5] + 1));
	SAY("number: free zero", mlx5dv_reserved_qpn_dealloc(context, 0));
	SAY("number: reserve", mlx5dv_reserved_qpn_alloc(context, &number[6]));
	printf("number: distance %d\n", number[6] - number[4]);
	/* Numbers belong to a context, and end with it. */
	struct ibv_context *second = ibv_open_device(context->device);
	CHECK(second);
	SAY("number: of another context", mlx5dv_reserved_qpn_dealloc(second, number[6]));
	SAY("number: reserve in another context", mlx5dv_reserved_qpn_alloc(second, &other));
	CHECK(other != number[6]);
	printf("number: of %d\n", objects_of("ReservedQpn"));
	CHECK(!ibv_close_device(second));
	printf("number: of %d\n", objects_of("ReservedQpn"));
	SAY("number: free", mlx5dv_reserved_qpn_dealloc(context, number[6]));
}

/* Entries of the rate table, which has 15. */
static void pacing(void)
{
	uint32_t pace[16] = { htobe32(100000), htobe32(4096), htobe32(1024) };
	struct mlx5dv_pp *entry[20] = {};
	int count;

	entry[0] = MAKE("pace", mlx5dv_pp_alloc(context, 48, pace, 0));
	entry[1] = MAKE("pace: equal", mlx5dv_pp_alloc(context, 12, pace, 0));
	entry[2] = MAKE("pace: its own", mlx5dv_pp_alloc(context, 12, pace, MLX5_IB_UAPI_PP_ALLOC_FLAGS_DEDICATED_INDEX));
	CHECK(entry[0] && entry[1] && entry[2]);
	printf("pace: %d %d, of %d\n", entry[0]->index == entry[1]->index, entry[0]->index == entry[2]->index, objects_of("Rate"));
	MAKE("pace: flags", mlx5dv_pp_alloc(context, 12, pace, 2));
	MAKE("pace: too long", mlx5dv_pp_alloc(context, 64, pace, 0));
	MAKE("pace: of no bytes", mlx5dv_pp_alloc(context, 0, pace, 0));
	pace[0] = 0;
	MAKE("pace: of no rate", mlx5dv_pp_alloc(context, 12, pace, 0));
	pace[0] = htobe32(1);
	MAKE("pace: too slow", mlx5dv_pp_alloc(context, 12, pace, 0));
	tell_card("fail SET_PP_RATE_LIMIT 8 1");
	pace[0] = htobe32(200000);
	MAKE("pace: a card that refuses", mlx5dv_pp_alloc(context, 12, pace, 0));
	for (count = 3; count < 20 && (entry[count] = mlx5dv_pp_alloc(context, 12, pace, 1)); count++)
		;
	printf("pace: %d entries, then %s, of %d\n", count, word(errno), objects_of("Rate"));
	for (int at = 0; at < count; at++)
		mlx5dv_pp_free(entry[at]);
	printf("pace: of %d\n", objects_of("Rate"));
}

/* A queue of completions and one of receives in memory of their own, and a receiver in front of them. */
static struct {
	struct mlx5dv_devx_umem *umem;
	struct mlx5dv_devx_obj *cq, *pd, *td, *rq, *tir, *mkey;
	char *page;
	uint32_t cqn, pdn, rqn, tirn;
} queue;

enum { COMPLETIONS = 0, RECEIVES = 4096, RECORDS = 8192, FRAMES = 12288, SIZE = 1 << 15 };

static void queues(void)
{
	uint32_t eqn = 0;

	queue.page = mmap(NULL, SIZE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	CHECK(queue.page != MAP_FAILED);
	memset(queue.page, 0, SIZE);
	for (int at = 0; at < 64; at++)
		queue.page[COMPLETIONS + at * 64 + 63] = (char)0xf1;
	struct mlx5dv_devx_umem_in attr = { .addr = queue.page, .size = SIZE, .access = IBV_ACCESS_LOCAL_WRITE, .pgsz_bitmap = 4096 };
	queue.umem = MAKE("queue: umem", mlx5dv_devx_umem_reg_ex(context, &attr));
	CHECK(queue.umem && !mlx5dv_devx_query_eqn(context, 0, &eqn));

	command(0x400);
	put(in, 0x80 + 0x63, 5, 6);
	put(in, 0x80 + 0x68, 24, uar->page_id);
	put(in, 0x80 + 0xa0, 32, eqn);
	put(in, 0x80 + 0x20, 32, queue.umem->umem_id);
	put(in, 0x80 + 0x1e0, 32, RECORDS);
	put(in, 0x2c0, 32, queue.umem->umem_id);
	put(in, 0x2a0, 32, COMPLETIONS);
	uint32_t saved[72];
	memcpy(saved, in, sizeof(saved));
	queue.cq = CREATE("queue: CREATE_CQ", 272, 16);
	CHECK(queue.cq);
	queue.cqn = NUMBER();
	memcpy(in, saved, sizeof(saved));
	put(in, 0x2c0, 32, 0xffff);
	CREATE("queue: in memory that is none", 272, 16);
	command(0x402);
	put(in, 0x48, 24, queue.cqn);
	ASK("queue: QUERY_CQ", mlx5dv_devx_obj_query(queue.cq, in, 16, out, 272));
	printf("log_cq_size %u, uar %s\n", get(out, 0x80 + 0x63, 5), get(out, 0x80 + 0x68, 24) == uar->page_id ? "ours" : "another");
	SAY("queue: umem in use", mlx5dv_devx_umem_dereg(queue.umem));

	command(0x800);
	queue.pd = CREATE("queue: ALLOC_PD", 16, 16);
	queue.pdn = NUMBER();
	command(0x816);
	queue.td = CREATE("queue: ALLOC_TRANSPORT_DOMAIN", 16, 16);
	uint32_t domain = NUMBER();

	/* A key for all addresses of the domain's memory in the umem. */
	command(0x200);
	put(in, 0x80 + 0x14, 1, 1);	/* lw */
	put(in, 0x80 + 0x15, 1, 1);	/* lr */
	put(in, 0x80 + 0x16, 2, 1);	/* access_mode_1_0: pages */
	put(in, 0x80 + 0x20, 24, 0xffffff);
	put(in, 0x80 + 0x38, 8, 0x42);
	put(in, 0x80 + 0x68, 24, queue.pdn);
	put(in, 0x80 + 0x80, 32, (uint64_t)(uintptr_t)queue.page >> 32);
	put(in, 0x80 + 0xa0, 32, (uint32_t)(uintptr_t)queue.page);
	put(in, 0x80 + 0xe0, 32, SIZE);
	put(in, 0x80 + 0x1a0, 32, SIZE / 4096 / 2);
	put(in, 0x80 + 0x1db, 5, 12);
	put(in, 0x300, 32, SIZE / 4096 / 2);
	put(in, 0x320, 32, queue.umem->umem_id);
	queue.mkey = CREATE("queue: CREATE_MKEY", 272, 16);
	uint32_t key = NUMBER() << 8 | 0x42;

	command(0x908);
	unsigned rq = 0x100, wq = rq + 0x180;
	put(in, rq + 0x2, 1, 0);
	put(in, rq + 0x48, 24, queue.cqn);
	put(in, wq, 4, 1);		/* cyclic */
	put(in, wq + 0x48, 24, queue.pdn);
	put(in, wq + 0xa0, 32, RECORDS + 64);
	put(in, wq + 0x10c, 4, 4);	/* 16 bytes */
	put(in, wq + 0x11b, 5, 4);	/* 16 requests */
	put(in, wq + 0x140, 32, queue.umem->umem_id);
	put(in, wq + 0x160, 32, queue.umem->umem_id);
	put(in, wq + 0x1a0, 32, RECEIVES);
	queue.rq = CREATE("queue: CREATE_RQ", 272, 16);
	CHECK(queue.rq);
	queue.rqn = NUMBER();
	command(0x909);
	put(in, 0x48, 24, queue.rqn);
	put(in, 0x100 + 0x8, 4, 1);
	ASK("queue: MODIFY_RQ", mlx5dv_devx_obj_modify(queue.rq, in, 272, out, 16));
	ASK("queue: MODIFY_RQ again", mlx5dv_devx_obj_modify(queue.rq, in, 272, out, 16));
	command(0x90b);
	put(in, 0x48, 24, queue.rqn);
	ASK("queue: QUERY_RQ", mlx5dv_devx_obj_query(queue.rq, in, 16, out, 272));
	printf("state %u\n", get(out, 0x100 + 0x8, 4));
	command(0x900);
	put(in, 0x100 + 0x20, 4, 0);	/* direct */
	put(in, 0x100 + 0xe8, 24, queue.rqn);
	put(in, 0x100 + 0x128, 24, domain);
	queue.tir = CREATE("queue: CREATE_TIR", 272, 16);
	queue.tirn = NUMBER();
	SAY("queue: RQ in use", mlx5dv_devx_obj_destroy(queue.rq));
	/* Sixteen receives of 256 bytes. */
	for (int at = 0; at < 16; at++) {
		uint32_t *segment = (uint32_t *)(queue.page + RECEIVES + at * 16);
		uint64_t address = (uintptr_t)queue.page + FRAMES + at * 256;
		segment[0] = htobe32(256);
		segment[1] = htobe32(key);
		segment[2] = htobe32(address >> 32);
		segment[3] = htobe32((uint32_t)address);
	}
	*(volatile uint32_t *)(queue.page + RECORDS + 64) = htobe32(16);
}

/* Reads completions until there are no more: bytes and tags. */
static void completions(void)
{
	static uint32_t consumed;

	for (;; consumed++) {
		volatile uint8_t *entry = (uint8_t *)queue.page + COMPLETIONS + (consumed & 63) * 64;
		if (entry[63] >> 4 == 0xf || (entry[63] & 1) != (consumed >> 6 & 1))
			break;
		printf("completion: opcode %u, %u bytes, tag %u, to %02x\n", entry[63] >> 4,
		       be32toh(*(uint32_t *)(entry + 44)), be32toh(*(uint32_t *)(entry + 56)) & 0xffffff,
		       (uint8_t)queue.page[FRAMES + (consumed & 15) * 256 + 5]);
	}
	*(volatile uint32_t *)(queue.page + RECORDS) = htobe32(consumed & 0xffffff);
}

static void arm(uint32_t seen, uint32_t sequence)
{
	uint64_t bell = (uint64_t)(sequence << 28 | (seen & 0xffffff)) << 32 | queue.cqn;

	*(volatile uint32_t *)(queue.page + RECORDS + 4) = htobe32(bell >> 32);
	__sync_synchronize();
	*(volatile uint64_t *)((char *)uar->base_addr + 0x20) = htobe64(bell);
}

struct parameters {
	size_t size;
	uint64_t bytes[64];
};

static struct parameters mask = { .size = 192 }, value = { .size = 192 };

static void to(int last)
{
	memset(value.bytes, 0, sizeof(value.bytes));
	put(value.bytes, 0x40, 32, 0x02000000);
	put(value.bytes, 0x60, 16, last);
}

static struct ibv_flow *flow(struct mlx5dv_flow_matcher *matcher, size_t count, struct mlx5dv_flow_action_attr *actions)
{
	return mlx5dv_create_flow(matcher, (void *)&value, count, actions);
}

static void counts(const char *what, struct mlx5dv_devx_obj *counter, uint32_t number)
{
	command(0x93b);
	put(in, 0xe0, 32, number);
	if (!ASK(what, mlx5dv_devx_obj_query(counter, in, 32, out, 32)))
		printf("%u packets, %u bytes\n", get(out, 0xa0, 32), get(out, 0xe0, 32));
}

static void flows(void)
{
	struct mlx5dv_flow_matcher_attr attr = {
		.type = IBV_FLOW_ATTR_NORMAL, .match_criteria_enable = 1, .priority = 1, .match_mask = (void *)&mask,
	};
	put(mask.bytes, 0x40, 32, ~0u);
	put(mask.bytes, 0x60, 16, 0xffff);
	struct mlx5dv_flow_matcher *matcher = MAKE("matcher", mlx5dv_create_flow_matcher(context, &attr));
	CHECK(matcher);
	attr.type = IBV_FLOW_ATTR_SNIFFER;
	MAKE("matcher: type", mlx5dv_create_flow_matcher(context, &attr));
	attr.type = IBV_FLOW_ATTR_NORMAL;
	attr.comp_mask = 1 << 6;
	MAKE("matcher: mask", mlx5dv_create_flow_matcher(context, &attr));
	attr.comp_mask = MLX5DV_FLOW_MATCHER_MASK_FT_TYPE;
	attr.ft_type = 77;
	MAKE("matcher: table", mlx5dv_create_flow_matcher(context, &attr));
	attr.comp_mask = 0;
	mask.size = 0;
	MAKE("matcher: of no bytes", mlx5dv_create_flow_matcher(context, &attr));
	mask.size = 192;

	command(0x939);
	struct mlx5dv_devx_obj *counter = CREATE("flow: ALLOC_FLOW_COUNTER", 16, 16);
	uint32_t number = get(out, 0x40, 32);
	struct mlx5dv_flow_action_attr actions[3] = {
		{ .type = MLX5DV_FLOW_ACTION_DEST_DEVX, .obj = queue.tir },
		{ .type = MLX5DV_FLOW_ACTION_COUNTERS_DEVX, .obj = counter },
		{ .type = MLX5DV_FLOW_ACTION_TAG, .tag_value = 0x1234 },
	};
	to(1);
	struct ibv_flow *one = MAKE("flow: to a TIR, counted, with a tag", flow(matcher, 3, actions));
	arrive(1, 3);
	arrive(9, 1);
	completions();
	counts("flow: QUERY_FLOW_COUNTER", counter, number);
	SAY("flow: matcher in use", mlx5dv_destroy_flow_matcher(matcher));
	SAY("flow: TIR in use", mlx5dv_devx_obj_destroy(queue.tir));
	SAY("flow: counter in use", mlx5dv_devx_obj_destroy(counter));

	to(2);
	struct mlx5dv_flow_action_attr drop[2] = { { .type = MLX5DV_FLOW_ACTION_DROP }, actions[1] };
	struct ibv_flow *two = MAKE("flow: dropped", flow(matcher, 2, drop));
	arrive(2, 2);
	completions();
	counts("flow: both", counter, number);

	to(3);
	struct mlx5dv_flow_action_attr wrong[2] = { actions[0], actions[0] };
	MAKE("flow: two destinations", flow(matcher, 2, wrong));
	wrong[1] = drop[0];
	MAKE("flow: a destination and a drop", flow(matcher, 2, wrong));
	wrong[0] = wrong[1] = actions[2];
	MAKE("flow: two tags", flow(matcher, 2, wrong));
	wrong[0] = wrong[1] = actions[1];
	MAKE("flow: two counters", flow(matcher, 2, wrong));
	wrong[0] = (struct mlx5dv_flow_action_attr){ .type = MLX5DV_FLOW_ACTION_DEST_DEVX, .obj = queue.pd };
	MAKE("flow: to a protection domain", flow(matcher, 1, wrong));
	wrong[0] = (struct mlx5dv_flow_action_attr){ .type = MLX5DV_FLOW_ACTION_COUNTERS_DEVX, .obj = queue.tir };
	wrong[1] = drop[0];
	MAKE("flow: counted by a TIR", flow(matcher, 2, wrong));
	wrong[0] = actions[0];
	wrong[1] = (struct mlx5dv_flow_action_attr){ .type = MLX5DV_FLOW_ACTION_TAG, .tag_value = 1 << 24 };
	MAKE("flow: a tag of 25 bits", flow(matcher, 2, wrong));
	wrong[1] = (struct mlx5dv_flow_action_attr){ .type = 99 };
	MAKE("flow: of another kind", flow(matcher, 2, wrong));
	value.size = 0;
	MAKE("flow: without a value", flow(matcher, 1, actions));
	value.size = 192;

	/* To a queue pair of libibverbs. */
	struct ibv_pd *pd = ibv_alloc_pd(context);
	struct ibv_cq *cq = ibv_create_cq(context, 16, NULL, NULL, 0);
	CHECK(pd && cq);
	struct ibv_qp_init_attr init = { .send_cq = cq, .recv_cq = cq, .cap = { 1, 4, 1, 1, 0 }, .qp_type = IBV_QPT_RAW_PACKET };
	struct ibv_qp *qp = ibv_create_qp(pd, &init);
	CHECK(qp);
	struct ibv_qp_attr state = { .qp_state = IBV_QPS_INIT, .port_num = 1 };
	CHECK(!ibv_modify_qp(qp, &state, IBV_QP_STATE | IBV_QP_PORT));
	state.qp_state = IBV_QPS_RTR;
	CHECK(!ibv_modify_qp(qp, &state, IBV_QP_STATE));
	to(4);
	struct mlx5dv_flow_action_attr pair[2] = { { .type = MLX5DV_FLOW_ACTION_DEST_IBV_QP, .qp = qp }, actions[1] };
	struct ibv_flow *three = MAKE("flow: to a queue pair", flow(matcher, 2, pair));
	wrong[0] = wrong[1] = pair[0];
	MAKE("flow: to two queue pairs", flow(matcher, 2, wrong));
	arrive(4, 1);
	counts("flow: all three", counter, number);
	if (three)
		SAY("flow: end of the third", ibv_destroy_flow(three));
	init.qp_type = IBV_QPT_RC;
	struct ibv_qp *connected = ibv_create_qp(pd, &init);
	CHECK(connected);
	wrong[0] = (struct mlx5dv_flow_action_attr){ .type = MLX5DV_FLOW_ACTION_DEST_IBV_QP, .qp = connected };
	MAKE("flow: to a connected queue pair", flow(matcher, 1, wrong));
	CHECK(!ibv_destroy_qp(connected) && !ibv_destroy_qp(qp) && !ibv_destroy_cq(cq) && !ibv_dealloc_pd(pd));

	/* A counter of a bulk: only with headers that have the offset, so by the name of the function. */
	struct {
		int type;
		void *what;
		uint32_t offset;
	} bulk[2] = { { MLX5DV_FLOW_ACTION_DROP }, { 8 } };
	struct ibv_flow *(*sized)(void *, void *, size_t, void *, size_t) = dlsym(RTLD_DEFAULT, "__mlx5dv_create_flow");
	if (sized) {
		command(0x939);
		put(in, 0x78, 8, 1);
		struct mlx5dv_devx_obj *many = CREATE("bulk: ALLOC_FLOW_COUNTER", 16, 16);
		uint32_t first = get(out, 0x40, 32);
		bulk[1].what = many;
		bulk[1].offset = 5;
		to(5);
		struct ibv_flow *counted = MAKE("bulk: flow", sized(matcher, &value, 2, bulk, sizeof(bulk[0])));
		arrive(5, 2);
		command(0x93b);
		put(in, 0xd0, 16, 8);
		put(in, 0xe0, 32, first);
		ASK("bulk: QUERY_FLOW_COUNTER", mlx5dv_devx_obj_query(many, in, 32, out, 16 + 8 * 16));
		printf("bulk:");
		for (int at = 0; at < 8; at++)
			printf(" %u:%u", get(out, 0x80 + at * 128 + 32, 32), get(out, 0x80 + at * 128 + 96, 32));
		printf("\n");
		bulk[1].offset = 128;
		to(6);
		MAKE("bulk: an offset outside", sized(matcher, &value, 2, bulk, sizeof(bulk[0])));
		if (counted)
			SAY("bulk: end", ibv_destroy_flow(counted));
		SAY("bulk: destroy", mlx5dv_devx_obj_destroy(many));
	}

	/* Actions that change headers: the card has none of them. */
	uint64_t change = htobe64(0x1001000000000001);
	MAKE("action: modify header", mlx5dv_create_flow_action_modify_header(context, 8, &change, MLX5DV_FLOW_TABLE_TYPE_NIC_RX));
	MAKE("action: of no bytes", mlx5dv_create_flow_action_modify_header(context, 0, &change, MLX5DV_FLOW_TABLE_TYPE_NIC_RX));
	for (int kind = 0; kind < 5; kind++)
		MAKE("action: reformat", mlx5dv_create_flow_action_packet_reformat(context, 0, NULL, kind, MLX5DV_FLOW_TABLE_TYPE_NIC_RX));
	MAKE("action: no header", mlx5dv_create_flow_action_packet_reformat(context, 8, NULL, 1, MLX5DV_FLOW_TABLE_TYPE_NIC_TX));
	MAKE("action: no length", mlx5dv_create_flow_action_packet_reformat(context, 0, &change, 1, MLX5DV_FLOW_TABLE_TYPE_NIC_TX));

	if (one)
		SAY("flow: end", ibv_destroy_flow(one));
	if (two)
		SAY("flow: end", ibv_destroy_flow(two));
	SAY("flow: counter", mlx5dv_devx_obj_destroy(counter));
	SAY("flow: matcher", mlx5dv_destroy_flow_matcher(matcher));
}

static void answers(void)
{
	union {
		struct mlx5dv_devx_async_cmd_hdr head;
		uint32_t words[64];
	} answer = {};

	command(0x939);
	struct mlx5dv_devx_obj *counter = CREATE("answer: ALLOC_FLOW_COUNTER", 16, 16);
	uint32_t number = get(out, 0x40, 32);
	struct mlx5dv_devx_cmd_comp *comp = MAKE("answer: cmd_comp", mlx5dv_devx_create_cmd_comp(context));
	CHECK(comp && !fcntl(comp->fd, F_SETFL, O_NONBLOCK));
	SAY("answer: none yet", mlx5dv_devx_get_async_cmd_comp(comp, &answer.head, sizeof(answer)));
	command(0x93b);
	put(in, 0xe0, 32, number);
	SAY("answer: query", mlx5dv_devx_obj_query_async(counter, in, 32, 32, 0x1122334455667788, comp));
	struct pollfd there = { .fd = comp->fd, .events = POLLIN };
	CHECK(poll(&there, 1, 10000) == 1);
	SAY("answer: no room", mlx5dv_devx_get_async_cmd_comp(comp, &answer.head, 20));
	SAY("answer", mlx5dv_devx_get_async_cmd_comp(comp, &answer.head, sizeof(answer)));
	printf("number %llx, status %x\n", (unsigned long long)answer.head.wr_id, get(answer.head.out_data, 0, 8));
	put(in, 0xe0, 32, number + 1);
	SAY("answer: another object", mlx5dv_devx_obj_query_async(counter, in, 32, 32, 1, comp));
	put(in, 0xe0, 32, number);
	SAY("answer: too long", mlx5dv_devx_obj_query_async(counter, in, 32, 1 << 20, 1, comp));
	mlx5dv_devx_destroy_cmd_comp(comp);
	SAY("answer: destroy", mlx5dv_devx_obj_destroy(counter));
}

static void events(void)
{
	struct {
		struct mlx5dv_devx_async_event_hdr head;
		uint32_t words[32];
	} event = {};
	uint16_t completion = 0, port = 9, none = 0x99, many[17] = {};

	struct mlx5dv_devx_event_channel *channel =
		MAKE("event: channel", mlx5dv_devx_create_event_channel(context, MLX5_IB_UAPI_DEVX_CR_EV_CH_FLAGS_OMIT_DATA));
	CHECK(channel && !fcntl(channel->fd, F_SETFL, O_NONBLOCK));
	MAKE("event: flags", mlx5dv_devx_create_event_channel(context, 8));
	struct mlx5dv_devx_event_channel *full = MAKE("event: with entries", mlx5dv_devx_create_event_channel(context, 0));
	CHECK(full && !fcntl(full->fd, F_SETFL, O_NONBLOCK));
	SAY("event: subscribe", mlx5dv_devx_subscribe_devx_event(channel, queue.cq, 2, &completion, 0xabcdef));
	SAY("event: subscribe with entries", mlx5dv_devx_subscribe_devx_event(full, NULL, 2, &port, 7));
	SAY("event: no such event", mlx5dv_devx_subscribe_devx_event(channel, queue.cq, 2, &none, 1));
	SAY("event: no list", mlx5dv_devx_subscribe_devx_event(channel, queue.cq, 0, &none, 1));
	SAY("event: half a number", mlx5dv_devx_subscribe_devx_event(channel, queue.cq, 3, many, 1));
	SAY("event: too many", mlx5dv_devx_subscribe_devx_event(channel, queue.cq, sizeof(many), many, 1));
	SAY("event: of an object, of none", mlx5dv_devx_subscribe_devx_event(channel, NULL, 2, &completion, 1));
	int signal = eventfd(0, EFD_NONBLOCK);
	CHECK(signal >= 0);
	SAY("event: eventfd", mlx5dv_devx_subscribe_devx_event_fd(channel, signal, queue.cq, completion));
	SAY("event: no eventfd", mlx5dv_devx_subscribe_devx_event_fd(channel, control, queue.cq, completion));
	SAY("event: no file", mlx5dv_devx_subscribe_devx_event_fd(channel, -1, queue.cq, completion));
	BEGIN("event: none yet");
	ssize_t size = mlx5dv_devx_get_event(channel, &event.head, sizeof(event));
	printf("event: none yet: %zd %s\n", size, word(errno));

	struct mlx5dv_flow_matcher_attr attr = {
		.type = IBV_FLOW_ATTR_NORMAL, .match_criteria_enable = 1, .priority = 2, .match_mask = (void *)&mask,
	};
	struct mlx5dv_flow_matcher *matcher = mlx5dv_create_flow_matcher(context, &attr);
	CHECK(matcher);
	to(7);
	struct mlx5dv_flow_action_attr action = { .type = MLX5DV_FLOW_ACTION_DEST_DEVX, .obj = queue.tir };
	struct ibv_flow *seven = flow(matcher, 1, &action);
	CHECK(seven);
	arm(3, 0);
	arrive(7, 1);
	completions();
	struct pollfd there[2] = { { .fd = channel->fd, .events = POLLIN }, { .fd = signal, .events = POLLIN } };
	CHECK(poll(there, 2, 10000) > 0 && poll(there, 1, 10000) == 1 && poll(there + 1, 1, 10000) == 1);
	BEGIN("event: no room");
	size = mlx5dv_devx_get_event(channel, &event.head, 4);
	printf("event: no room: %zd %s\n", size, word(errno));
	BEGIN("event");
	size = mlx5dv_devx_get_event(channel, &event.head, sizeof(event));
	printf("event: %zd bytes, cookie %llx\n", size, (unsigned long long)event.head.cookie);
	uint64_t times = 0;
	CHECK(read(signal, &times, sizeof(times)) == sizeof(times));
	printf("eventfd %llu\n", (unsigned long long)times);
	/* The port changes: an event of the device, with the entry. */
	tell_card("port down");
	tell_card("port up");
	struct pollfd port_events = { .fd = full->fd, .events = POLLIN };
	if (poll(&port_events, 1, 10000) == 1) {
		BEGIN("event: of the port");
		size = mlx5dv_devx_get_event(full, &event.head, sizeof(event));
		printf("event: of the port: %zd bytes, cookie %llx, type %x\n", size, (unsigned long long)event.head.cookie,
		       get(event.head.out_data, 8, 8));
	}
	CHECK(!ibv_destroy_flow(seven) && !mlx5dv_destroy_flow_matcher(matcher));
	mlx5dv_devx_destroy_event_channel(channel);
	mlx5dv_devx_destroy_event_channel(full);
	close(signal);
}

/* Commands about queues of libibverbs. */
static void verbs(void)
{
	struct ibv_pd *pd = ibv_alloc_pd(context);
	struct ibv_cq *cq = ibv_create_cq(context, 16, NULL, NULL, 0);
	struct ibv_srq_init_attr shared = { .attr = { .max_wr = 4, .max_sge = 1 } };
	struct ibv_srq *srq = ibv_create_srq(pd, &shared);
	struct ibv_wq_init_attr work = { .wq_type = IBV_WQT_RQ, .max_wr = 4, .max_sge = 1, .pd = pd, .cq = cq };
	struct ibv_wq *wq = ibv_create_wq(context, &work);
	struct ibv_rwq_ind_table_init_attr spread = { .log_ind_tbl_size = 0, .ind_tbl = &wq };
	struct ibv_rwq_ind_table *table = ibv_create_rwq_ind_table(context, &spread);
	struct ibv_qp_init_attr init = { .send_cq = cq, .recv_cq = cq, .cap = { 4, 4, 1, 1, 0 }, .qp_type = IBV_QPT_RC };
	struct ibv_qp *qp = ibv_create_qp(pd, &init);
	CHECK(pd && cq && srq && wq && table && qp);
	struct mlx5dv_cq own_cq = {};
	struct mlx5dv_srq own_srq = { .comp_mask = MLX5DV_SRQ_MASK_SRQN };
	struct mlx5dv_obj own = { .cq = { cq, &own_cq }, .srq = { srq, &own_srq } };
	CHECK(!mlx5dv_init_obj(&own, MLX5DV_OBJ_CQ | MLX5DV_OBJ_SRQ));

#define QUERY(kind, opcode, number, object, room) \
	do { \
		command(opcode); \
		put(in, 0x48, 24, number); \
		ASK("verbs: " #kind "_query", mlx5dv_devx_##kind##_query(object, in, 16, out, room)); \
		put(in, 0x48, 24, number + 1); \
		ASK("verbs: " #kind "_query of another", mlx5dv_devx_##kind##_query(object, in, 16, out, room)); \
		ASK("verbs: " #kind "_modify by a query", mlx5dv_devx_##kind##_modify(object, in, 272, out, 16)); \
	} while (0)
	QUERY(qp, 0x50b, qp->qp_num, qp, 272);
	QUERY(cq, 0x402, own_cq.cqn, cq, 272);
	QUERY(srq, 0x90f, own_srq.srqn, srq, 272);
	QUERY(wq, 0x90b, wq->wq_num, wq, 272);
	QUERY(ind_tbl, 0x919, (uint32_t)table->ind_tbl_num, table, 272);

	command(0x403);
	put(in, 0x48, 24, own_cq.cqn);
	put(in, 0x60, 32, 3);		/* moderation */
	put(in, 0x80 + 0x84, 12, 10);
	put(in, 0x80 + 0x90, 16, 2);
	ASK("verbs: cq_modify", mlx5dv_devx_cq_modify(cq, in, 272, out, 16));
	command(0x402);
	put(in, 0x48, 24, own_cq.cqn);
	CHECK(!mlx5dv_devx_cq_query(cq, in, 16, out, 272));
	printf("moderation %u %u\n", get(out, 0x80 + 0x84, 12), get(out, 0x80 + 0x90, 16));
	struct ibv_qp_attr state = { .qp_state = IBV_QPS_INIT, .port_num = 1 };
	CHECK(!ibv_modify_qp(qp, &state, IBV_QP_STATE | IBV_QP_PORT | IBV_QP_PKEY_INDEX | IBV_QP_ACCESS_FLAGS));
	struct ibv_sge none = {};
	struct ibv_recv_wr wr = { .sg_list = &none, .num_sge = 0 }, *bad;
	printf("receive: %s\n", word(ibv_post_recv(qp, &wr, &bad)));
	command(0x50a);
	put(in, 0x48, 24, qp->qp_num);
	ASK("verbs: qp_modify to reset", mlx5dv_devx_qp_modify(qp, in, 16, out, 16));
	command(0x50b);
	put(in, 0x48, 24, qp->qp_num);
	CHECK(!mlx5dv_devx_qp_query(qp, in, 16, out, 272));
	printf("state %u\n", get(out, 0xc0, 4));
	CHECK(!ibv_destroy_qp(qp) && !ibv_destroy_rwq_ind_table(table) && !ibv_destroy_wq(wq) && !ibv_destroy_srq(srq));
	CHECK(!ibv_destroy_cq(cq) && !ibv_dealloc_pd(pd));
}

static void end(void)
{
	SAY("end: TIR", mlx5dv_devx_obj_destroy(queue.tir));
	SAY("end: CQ in use", mlx5dv_devx_obj_destroy(queue.cq));
	SAY("end: RQ", mlx5dv_devx_obj_destroy(queue.rq));
	SAY("end: key", mlx5dv_devx_obj_destroy(queue.mkey));
	SAY("end: domain", mlx5dv_devx_obj_destroy(queue.td));
	SAY("end: CQ", mlx5dv_devx_obj_destroy(queue.cq));
	SAY("end: PD", mlx5dv_devx_obj_destroy(queue.pd));
	SAY("end: umem", mlx5dv_devx_umem_dereg(queue.umem));
	mlx5dv_devx_free_uar(uar);
	SAY("end: close", ibv_close_device(context));
}

int main(int argc, char **argv)
{
	CHECK(argc == 3);
	setvbuf(stdout, NULL, _IOLBF, 0);
	CHECK((control = open(argv[2], O_RDWR | O_NOCTTY)) >= 0);
	struct ibv_device **list = ibv_get_device_list(NULL), **device;
	CHECK(list);
	for (device = list; *device && strcmp(ibv_get_device_name(*device), argv[1]); device++)
		;
	CHECK(*device);
	opening(*device);
	ibv_free_device_list(list);
	general();
	objects();
	numbers();
	pacing();
	memory();
	queues();
	flows();
	answers();
	events();
	verbs();
	end();
	printf("end\n");
	return 0;
}
