/*
 * A library that is loaded by name while the program runs, and functions that are taken from it by name and version, as NCCL does.
 * Tests which functions are there, that they work however the library is loaded, and what may be in use when it is closed.
 *
 * usage: versioned DEVICE, not linked to libibverbs
 */
#include "../answers/robust.h"
#include <dlfcn.h>
#include <stdbool.h>

/* The names and version without which NCCL does not use the library. */
#define REQUIRED(each) \
	each(get_device_list) each(free_device_list) each(get_device_name) each(open_device) each(close_device) \
	each(get_async_event) each(ack_async_event) each(query_device) each(query_gid) each(query_qp) each(alloc_pd) \
	each(dealloc_pd) each(dereg_mr) each(create_cq) each(destroy_cq) each(create_qp) each(modify_qp) each(destroy_qp) \
	each(fork_init) each(event_type_str)
#define POINTER(name) __typeof__(ibv_##name) *name;

/* The header has macros with these names. */
#undef ibv_query_port
#undef ibv_reg_mr

static struct calls {
	REQUIRED(POINTER)
	int (*query_port)(struct ibv_context *context, uint8_t port, struct ibv_port_attr *attr);
	struct ibv_mr *(*reg_mr)(struct ibv_pd *pd, void *memory, size_t length, int access);
	__typeof__(ibv_reg_mr_iova2) *reg_mr_iova2;
	__typeof__(ibv_reg_dmabuf_mr) *reg_dmabuf_mr;
} ibv;

static void *load(const char *name, int flags)
{
	void *handle = dlopen(name, flags);

	if (!handle)
		fprintf(stderr, "%s\n", dlerror());
	MUST(handle);
	return handle;
}

static void take(void *handle, void *into, const char *name, const char *version)
{
	void *found = dlvsym(handle, name, version);

	MUST(found);
	memcpy(into, &found, sizeof(found));
}

#define TAKE(name) take(handle, &ibv.name, "ibv_" #name, "IBVERBS_1.1");

static void take_all(void *handle)
{
	REQUIRED(TAKE)
	TAKE(query_port)
	TAKE(reg_mr)
	take(handle, &ibv.reg_mr_iova2, "ibv_reg_mr_iova2", "IBVERBS_1.8");
	take(handle, &ibv.reg_dmabuf_mr, "ibv_reg_dmabuf_mr", "IBVERBS_1.12");
}

/* Which names are there in which version, and that a name without a version is the newest. */
static void names(const char *name)
{
	static const struct { const char *name, *version; } asked_for[] = {
#define ROW(name) { "ibv_" #name, "IBVERBS_1.1" },
		REQUIRED(ROW) { "ibv_query_port", "IBVERBS_1.1" }, { "ibv_reg_mr", "IBVERBS_1.1" },
		{ "ibv_reg_mr_iova2", "IBVERBS_1.8" }, { "ibv_reg_dmabuf_mr", "IBVERBS_1.12" },
		{ "ibv_query_ece", "IBVERBS_1.10" }, { "ibv_set_ece", "IBVERBS_1.10" },
		{ "ibv_create_comp_channel", "IBVERBS_1.0" }, { "ibv_wc_status_str", "IBVERBS_1.1" },
		{ "_ibv_query_gid_ex", "IBVERBS_1.11" }, { "ibv_query_qp_data_in_order", "IBVERBS_1.14" },
		/* Other versions, and names that were never in this library. */
		{ "ibv_reg_mr_iova2", "IBVERBS_1.1" }, { "ibv_reg_dmabuf_mr", "IBVERBS_1.1" }, { "ibv_query_ece", "IBVERBS_1.1" },
		{ "ibv_open_device", "IBVERBS_1.8" }, { "ibv_create_comp_channel", "IBVERBS_1.1" }, { "ibv_open_device", "IBVERBS_9.9" },
		{ "ibv_exp_query_device", "IBVERBS_1.1" }, { "ibv_create_qp_ex", "IBVERBS_1.1" }, { "ibv_post_send", "IBVERBS_1.1" },
		{ "rust_eh_personality", "IBVERBS_1.1" },
	};
	void *handle = load("libibverbs.so.1", RTLD_NOW);

	for (size_t i = 0; i < sizeof(asked_for) / sizeof(*asked_for); i++) {
		void *found = dlvsym(handle, asked_for[i].name, asked_for[i].version);

		printf("%s@%s: %s\n", asked_for[i].name, asked_for[i].version, found ? "there" : "absent");
	}
	take_all(handle);
	printf("%s without a version: %d %d\n", name, dlsym(handle, "ibv_open_device") == (void *)ibv.open_device,
	       dlsym(handle, "ibv_reg_mr") == (void *)ibv.reg_mr);
}

struct things {
	struct ibv_context *context;
	struct ibv_pd *pd;
	struct ibv_mr *mr;
	struct ibv_cq *cq;
	struct ibv_qp *qp;
	char memory[BYTES];
};

static void make(struct things *things)
{
	int count, access = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE;
	struct ibv_device **list = ibv.get_device_list(&count);

	MUST(list);
	things->context = NULL;
	for (int i = 0; i < count && !things->context; i++)
		if (!strcmp(ibv.get_device_name(list[i]), device_name))
			things->context = ibv.open_device(list[i]);
	ibv.free_device_list(list);
	MUST(things->context);
	MUST(things->pd = ibv.alloc_pd(things->context));
	MUST(things->mr = ibv.reg_mr(things->pd, things->memory, BYTES, access));
	MUST(things->cq = ibv.create_cq(things->context, DEPTH, NULL, NULL, 0));
	MUST(things->qp = ibv.create_qp(things->pd, &(struct ibv_qp_init_attr){
		.send_cq = things->cq, .recv_cq = things->cq, .qp_type = IBV_QPT_RC,
		.cap = { .max_send_wr = 1, .max_recv_wr = 1, .max_send_sge = 1, .max_recv_sge = 1 },
	}));
}

static int set_up(struct ibv_qp *qp)
{
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_INIT, .port_num = 1 };

	return ibv.modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS);
}

static void destroy(struct things *things)
{
	MUST(!ibv.destroy_qp(things->qp));
	MUST(!ibv.destroy_cq(things->cq));
	MUST(!ibv.dereg_mr(things->mr));
	MUST(!ibv.dealloc_pd(things->pd));
	MUST(!ibv.close_device(things->context));
}

static void ask(struct things *things)
{
	struct ibv_device_attr device;
	struct ibv_port_attr port = { 0 };
	struct ibv_qp_attr attr;
	struct ibv_qp_init_attr init;
	union ibv_gid gid;
	struct ibv_wc wc;
	struct ibv_mr *other;

	NUMBER("query_device", ibv.query_device(things->context, &device));
	printf("max_qp, max_mr_size: %d %#lx\n", device.max_qp, (unsigned long)device.max_mr_size);
	NUMBER("query_port", ibv.query_port(things->context, 1, &port));
	printf("port: %d %d %d %#x\n", port.state, port.active_mtu, port.link_layer, port.port_cap_flags);
	NUMBER("query_gid", ibv.query_gid(things->context, 1, GID, &gid));
	printf("gid: %02x%02x%02x%02x\n", gid.raw[12], gid.raw[13], gid.raw[14], gid.raw[15]);
	MUST(other = ibv.reg_mr_iova2(things->pd, things->memory, BYTES, (uintptr_t)things->memory, IBV_ACCESS_RELAXED_ORDERING));
	printf("reg_mr_iova2: %zu bytes\n", other->length);
	NUMBER("dereg_mr", ibv.dereg_mr(other));
	/* How NCCL asks whether dma-bufs are supported. */
	OBJECT("reg_dmabuf_mr", ibv.reg_dmabuf_mr(things->pd, 0, 0, 0, -1, 0));
	NUMBER("modify_qp", set_up(things->qp));
	NUMBER("query_qp", ibv.query_qp(things->qp, &attr, IBV_QP_STATE, &init));
	printf("state, room: %d %u %u\n", attr.qp_state, init.cap.max_send_sge, init.cap.max_recv_sge);
	printf("poll_cq: %d\n", ibv_poll_cq(things->cq, 1, &wc));
	printf("event_type_str: %s\n", ibv.event_type_str(IBV_EVENT_PORT_ACTIVE));
}

static void use(void *handle)
{
	static struct things things;

	take_all(handle);
	NUMBER("fork_init", ibv.fork_init());
	make(&things);
	ask(&things);
	NUMBER("fork_init, late", ibv.fork_init());
	destroy(&things);
}

static const char *loaded_name;
static int loaded_flags;

static void one_way(const char *name)
{
	printf("%s: begins\n", name);
	use(load(loaded_name, loaded_flags));
}

static void ways(void)
{
	static const struct { const char *name; int flags; } each[] = {
		{ "now", RTLD_NOW }, { "lazily", RTLD_LAZY }, { "for all", RTLD_NOW | RTLD_GLOBAL },
		{ "with its own names", RTLD_NOW | RTLD_LOCAL | RTLD_DEEPBIND },
	};

	/* NCCL first tries the name of the link, which exists where programs are built. */
	for (int of_link = 0; of_link < 2; of_link++)
		for (size_t i = 0; i < sizeof(each) / sizeof(*each); i++) {
			loaded_name = of_link ? "libibverbs.so" : "libibverbs.so.1";
			loaded_flags = each[i].flags;
			apart(each[i].name, one_way);
		}
}

/* It is the same library under both of its names. */
static void two_names(const char *name)
{
	void *one = load("libibverbs.so.1", RTLD_NOW), *other = load("libibverbs.so", RTLD_NOW);

	printf("%s: %d\n", name, dlsym(one, "ibv_open_device") == dlsym(other, "ibv_open_device"));
}

/* libmlx5 is loaded for its own names, and asked whether a device is one of its own. */
static void direct(const char *name)
{
	static struct things things;
	bool (*is_supported)(struct ibv_device *device);
	void *handle;

	take_all(load("libibverbs.so.1", RTLD_NOW));
	make(&things);
	handle = load("libmlx5.so.1", RTLD_NOW);
	take(handle, &is_supported, "mlx5dv_is_supported", "MLX5_1.8");
	printf("%s: %d\n", name, is_supported(things.context->device));
	printf("mlx5dv_reg_dmabuf_mr@MLX5_1.25: %s\n", dlvsym(handle, "mlx5dv_reg_dmabuf_mr", "MLX5_1.25") ? "there" : "absent");
	destroy(&things);
}

static void again(const char *name)
{
	for (int i = 0; i < 3; i++) {
		void *handle = load("libibverbs.so.1", RTLD_NOW);

		use(handle);
		MUST(!dlclose(handle));
	}
	printf("%s: three times\n", name);
}

static long mappings(void)
{
	FILE *file = fopen("/proc/self/maps", "r");
	long lines = 0;

	MUST(file);
	for (int c; (c = getc(file)) != EOF;)
		lines += c == '\n';
	fclose(file);
	return lines;
}

static void what_is_left(const char *name)
{
	static struct things things;
	long before = 0;

	for (int i = 0; i < 60; i++) {
		void *handle = load("libibverbs.so.1", RTLD_NOW);

		if (i == 10)
			before = mappings();
		take_all(handle);
		make(&things);
		destroy(&things);
		MUST(!dlclose(handle));
	}
	/* The heap may be divided differently. */
	printf("%s: %s\n", name, mappings() < before + 25 ? "nothing" : "mappings");
}

/* A device that was open when the library was closed. libibverbs stays loaded as long as a driver's library is. */
static void over_a_close(const char *name)
{
	static struct things things;
	void *handle = load("libibverbs.so.1", RTLD_NOW);
	struct ibv_wc wc;

	take_all(handle);
	make(&things);
	MUST(!dlclose(handle));
	printf("%s, poll_cq: %d\n", name, ibv_poll_cq(things.cq, 1, &wc));
	printf("%s, modify_qp: %s\n", name, error_name(set_up(things.qp)));
	take_all(load("libibverbs.so.1", RTLD_NOW));
	destroy(&things);
	printf("%s: destroyed\n", name);
}

static pthread_barrier_t barrier;

static void *user(void *of)
{
	struct things *things = of;

	make(things);
	destroy(things);
	/* The library is closed meanwhile, and the thread ends after that. */
	pthread_barrier_wait(&barrier);
	pthread_barrier_wait(&barrier);
	return NULL;
}

static void a_thread_that_ends_later(const char *name)
{
	static struct things things;
	void *handle = load("libibverbs.so.1", RTLD_NOW);
	pthread_t thread;
	int status;
	pid_t child;

	take_all(handle);
	MUST(!pthread_barrier_init(&barrier, NULL, 2));
	MUST(!pthread_create(&thread, NULL, user, &things));
	pthread_barrier_wait(&barrier);
	MUST(!dlclose(handle));
	pthread_barrier_wait(&barrier);
	MUST(!pthread_join(thread, NULL));
	fflush(stdout);
	child = fork();
	MUST(child >= 0);
	/* Runs everything that is called at the end of a process. */
	if (child == 0)
		exit(0);
	MUST(waitpid(child, &status, 0) == child);
	printf("%s: %d\n", name, status);
	fflush(stdout);
	exit(0);
}

static void *loader(void *of)
{
	void *handle;

	pthread_barrier_wait(&barrier);
	handle = load("libibverbs.so.1", RTLD_NOW);
	/* Every loader gets functions at the same addresses. */
	take_all(handle);
	for (int i = 0; i < 5; i++) {
		make(of);
		destroy(of);
	}
	return handle;
}

static void two_at_once(const char *name)
{
	static struct things things[2];
	pthread_t threads[2];
	void *handles[2];

	MUST(!pthread_barrier_init(&barrier, NULL, 2));
	for (int i = 0; i < 2; i++)
		MUST(!pthread_create(&threads[i], NULL, loader, &things[i]));
	for (int i = 0; i < 2; i++)
		MUST(!pthread_join(threads[i], &handles[i]));
	printf("%s: %d\n", name, handles[0] == handles[1]);
}

int main(int count, char **arguments)
{
	begin(count, arguments);
	/* The library is not loaded yet. */
	printf("before: %s\n", dlopen("libibverbs.so.1", RTLD_NOW | RTLD_NOLOAD) ? "there" : "absent");
	apart("names", names);
	ways();
	apart("two names", two_names);
	apart("mlx5dv_is_supported", direct);
	apart("closed and loaded again", again);
	apart("what loading leaves", what_is_left);
	apart("a device over a close", over_a_close);
	apart("a thread over a close", a_thread_that_ends_later);
	apart("two threads that load", two_at_once);
	return 0;
}
