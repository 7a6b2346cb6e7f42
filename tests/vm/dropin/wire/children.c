/*
 * Devices on a wire (UVERBS_SOFT, soft0 and soft1) in a program with threads and children. A child shares the socket of its parent's device,
 * and may do nothing with the device: what it tries is refused, and the parent's device goes on. It can open a device of its own, on
 * another address. The address is free when the parent has closed the device and no child has its files.
 */
#define GID_INDEX 0
#include "../answers/robust.h"

enum { THREADS = 4, WRITES = 2000 };

static struct pair p;

static struct ibv_context *opened(const char *name)
{
	device_name = name;
	return open_device();
}

static int is_taken(const char *name)
{
	int count, taken = 0;
	struct ibv_device **list = ibv_get_device_list(&count);

	MUST(list && count == 2);
	for (int i = 0; i < count; i++) {
		struct ibv_context *context;

		if (strcmp(ibv_get_device_name(list[i]), name))
			continue;
		errno = 0;
		context = ibv_open_device(list[i]);
		taken = !context && errno == EADDRINUSE;
		MUST(taken || (context && !ibv_close_device(context)));
	}
	ibv_free_device_list(list);
	return taken;
}

static void a_child_is_refused(void)
{
	struct ibv_device_attr attr;
	struct ibv_wc wc;
	struct pair own;

	MUST(!ibv_alloc_pd(p.context));
	MUST(ibv_query_device(p.context, &attr));
	MUST(!ibv_reg_mr(p.pd, p.one.memory, 8, 1));
	MUST(post(&p.one, (struct ibv_send_wr){ .wr_id = 66, .opcode = IBV_WR_SEND }, 0, 8));
	MUST(post_receive(&p.two, 66));
	MUST(ibv_req_notify_cq(p.one.cq, 0));
	MUST(ibv_poll_cq(p.two.cq, 1, &wc) == 0);
	MUST(is_taken("soft0"));
	own.context = opened("soft1");
	MUST(own.pd = ibv_alloc_pd(own.context));
	pair_on(&own, own.context, own.pd);
	MUST(write_across(&own.one, &own.two, 0, BYTES) == IBV_WC_SUCCESS);
	close_pair(&own);
	/* What it destroys is its own copy. */
	ibv_destroy_qp(p.one.qp);
	ibv_close_device(p.context);
}

static void with_a_child(const char *how, void (*act)(void))
{
	pid_t child;
	int status;

	p.context = opened("soft0");
	MUST(p.pd = ibv_alloc_pd(p.context));
	pair_on(&p, p.context, p.pd);
	fflush(stdout);
	child = fork();
	MUST(child >= 0);
	if (!child) {
		alarm(60);
		act();
		_exit(0);
	}
	/* Both at the same time. */
	for (int i = 0; i < WRITES; i++) {
		memset(p.one.memory, i, 64);
		MUST(write_across(&p.one, &p.two, 0, 64) == IBV_WC_SUCCESS && p.two.memory[63] == (char)i);
	}
	MUST(waitpid(child, &status, 0) == child && status == 0);
	MUST(write_across(&p.one, &p.two, 0, BYTES) == IBV_WC_SUCCESS);
	close_pair(&p);
	MUST(!is_taken("soft0"));
	printf("%s: the parent goes on\n", how);
}

static void by_exec(void) { execl("/bin/true", "true", (char *)NULL); }

static void *writes(void *data)
{
	struct pair *pair = data;

	for (int i = 0; i < WRITES; i++) {
		int at = i % 60 * 64;

		memset(pair->one.memory + at, i, 64);
		MUST(write_across(&pair->one, &pair->two, at, 64) == IBV_WC_SUCCESS);
		MUST(pair->two.memory[at + 63] == (char)i);
	}
	return NULL;
}

static void with_threads(void)
{
	struct ibv_context *context = opened("soft0");
	pthread_t threads[THREADS];
	struct pair pairs[THREADS];

	for (int i = 0; i < THREADS; i++) {
		struct ibv_pd *pd = ibv_alloc_pd(context);

		MUST(pd);
		pair_on(&pairs[i], context, pd);
		MUST(!pthread_create(&threads[i], NULL, writes, &pairs[i]));
	}
	for (int i = 0; i < THREADS; i++) {
		MUST(!pthread_join(threads[i], NULL));
		close_side(&pairs[i].one);
		close_side(&pairs[i].two);
		MUST(!ibv_dealloc_pd(pairs[i].pd) && !ibv_destroy_comp_channel(pairs[i].channel));
	}
	MUST(!ibv_close_device(context));
	printf("threads: each sees what it wrote\n");
}

int main(void)
{
	asked = "devices on a wire";
	setvbuf(stdout, NULL, _IOLBF, 0);
	with_a_child("a child that is refused", a_child_is_refused);
	with_a_child("exec", by_exec);
	with_threads();
	return 0;
}
