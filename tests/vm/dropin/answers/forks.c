/*
 * What a process and its child may do. Registered memory stays the parent's although the child writes to the same pages. A child
 * can end in every way without harm, and can open the device itself. Also: what a child may do to inherited objects, and a program
 * that opens the device and goes on in a child.
 *
 * usage: forks DEVICE [ours]    with `ours` also what only the drop-in is asked: after it, a child of libibverbs leaves the parent
 *                                without its objects
 */
#include "robust.h"

enum { LARGE = 64 * BYTES };

static struct pair p;

static void settings(const char *name)
{
	printf("%s: before %d,", name, ibv_is_fork_initialized());
	printf(" init %d,", ibv_fork_init());
	printf(" after %d\n", ibv_is_fork_initialized());
	open_pair(&p);
	printf("%s, a device open: init %d, %d\n", name, ibv_fork_init(), ibv_is_fork_initialized());
	NUMBER("write across", write_across(&p.one, &p.two, 0, 8));
	close_pair(&p);
}

/* One byte over a pipe: "go on". */
static void say(int *pipe) { MUST(write(pipe[1], "", 1) == 1); }
static void hear(int *pipe)
{
	char byte;

	MUST(read(pipe[0], &byte, 1) == 1);
}

static int whole_is(const char *memory, char byte)
{
	int is = 1;

	for (int i = 0; i < LARGE; i++)
		is &= memory[i] == byte;
	return is;
}

/* The device uses the pages that the parent sees, whichever of the two writes first. */
static void written_by_both(const char *name)
{
	int to_child[2], to_parent[2], status, seen = 0;
	struct side one, two;
	pid_t child;

	open_pair(&p);
	one = p.one;
	two = p.two;
	for (int i = 0; i < 2; i++) {
		struct side *side = i ? &two : &one;

		side->memory = mmap(NULL, LARGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
		memset(side->memory, 'a', LARGE);
		MUST(side->mr = ibv_reg_mr(p.pd, side->memory, LARGE, 7));
	}
	MUST(!pipe(to_child) && !pipe(to_parent));
	child = fork();
	MUST(child >= 0);
	if (child == 0) {
		memset(one.memory, 'c', LARGE);
		say(to_parent);
		hear(to_child);
		/* The child does not see what the parent has sent meanwhile. */
		seen = whole_is(one.memory, 'c') + 2 * whole_is(two.memory, 'a');
		memset(two.memory, 'd', LARGE);
		say(to_parent);
		hear(to_child);
		_exit(seen);
	}
	hear(to_parent);
	NUMBER("write after the child wrote", write_across(&one, &two, 0, LARGE));
	printf("%s: still the parent's: %d\n", name, whole_is(two.memory, 'a'));
	memset(one.memory, 'p', LARGE);
	NUMBER("write after the parent wrote", write_across(&one, &two, 0, LARGE));
	printf("%s: what it wrote: %d\n", name, whole_is(two.memory, 'p'));
	say(to_child);
	hear(to_parent);
	memset(one.memory, 'q', LARGE);
	NUMBER("write after both wrote", write_across(&one, &two, 0, LARGE));
	printf("%s: what it wrote at last: %d\n", name, whole_is(two.memory, 'q'));
	say(to_child);
	MUST(waitpid(child, &status, 0) == child);
	printf("%s: the child saw its own: %d\n", name, WEXITSTATUS(status) == 3);
	MUST(!ibv_dereg_mr(one.mr) && !ibv_dereg_mr(two.mr));
	close_pair(&p);
}

static void at_exit(void) { _exit(5); }

/* The child ends; then the parent goes on. */
static void ended(const char *how, void (*end)(void))
{
	int status;
	pid_t child;

	open_pair(&p);
	fflush(stdout);
	child = fork();
	MUST(child >= 0);
	if (child == 0) {
		end();
		_exit(9);
	}
	MUST(waitpid(child, &status, 0) == child);
	printf("%s: the child ended with %d\n", how, status);
	NUMBER("then write across", write_across(&p.one, &p.two, 0, 8));
	close_pair(&p);
}

static void by_exit(void) { exit(0); }
static void by_handler(void)
{
	atexit(at_exit);
	exit(0);
}
static void by_signal(void) { raise(SIGKILL); }
static void with_own_device(void)
{
	struct pair own;
	enum ibv_wc_status status;

	open_pair(&own);
	memcpy(own.one.memory, "own", 3);
	status = write_across(&own.one, &own.two, 0, 3);
	if (status || memcmp(own.two.memory, "own", 3))
		_exit(1);
	close_pair(&own);
	exit(0);
}
static void with_exec(void) { execl("/bin/true", "true", (char *)NULL); }

/* What a child does to what it inherited, once the parent has gone on; then what the parent can still do. Prints one line. */
static void inherited(const char *name, void (*act)(void))
{
	int go[2], said[2], posted[2], got[2] = { -1, -1 }, length;
	char text[200];
	pid_t child;

	open_pair(&p);
	MUST(!post_receive(&p.two, 7) && !pipe(go) && !pipe(said));
	fflush(stdout);
	child = fork();
	MUST(child >= 0);
	if (child == 0) {
		hear(go);
		dup2(said[1], STDOUT_FILENO);
		act();
		exit(0);
	}
	MUST(!post_receive(&p.two, 8));
	say(go);
	MUST(waitpid(child, NULL, 0) == child);
	close(said[1]);
	length = read(said[0], text, sizeof(text));
	MUST(length > 0);
	for (int i = 0; i < 2; i++) {
		posted[i] = post(&p.one, (struct ibv_send_wr){ .opcode = IBV_WR_SEND }, 0, 8);
		if (!posted[i]) {
			got[i] = completion(p.two.cq).wr_id;
			completion(p.one.cq);
		}
	}
	close_pair(&p);
	printf("%s: %.*s, then the parent's posts are %d %d and complete %d %d\n", name, length - 1, text,
	       posted[0], posted[1], got[0], got[1]);
}

/* daemon(3) between opening the device and the rest: the parent is gone when the child works. */
static void daemonized(const char *name)
{
	struct ibv_device_attr attr;
	struct ibv_port_attr port;
	int said[2], length;
	char text[200];
	pid_t child;

	MUST(!pipe(said));
	fflush(stdout);
	child = fork();
	MUST(child >= 0);
	if (child == 0) {
		struct ibv_context *context = open_device();
		struct ibv_pd *pd;

		MUST(!ibv_query_device(context, &attr) && !ibv_query_port(context, 1, &port));
		MUST(pd = ibv_alloc_pd(context));
		MUST(!daemon(1, 1));
		dup2(said[1], STDOUT_FILENO);
		NUMBER("query_device", ibv_query_device(context, &attr));
		pair_on(&p, context, pd);
		NUMBER("write across", write_across(&p.one, &p.two, 0, 8));
		close_pair(&p);
		fflush(stdout);
		_exit(0);
	}
	MUST(waitpid(child, NULL, 0) == child);
	close(said[1]);
	for (length = 0; length < (int)sizeof(text) - 1;) {
		int more = read(said[0], text + length, sizeof(text) - 1 - length);

		if (more <= 0)
			break;
		length += more;
	}
	for (int i = 0; i < length; i++)
		if (text[i] == '\n')
			text[i] = ';';
	printf("%s: %.*s\n", name, length, text);
}

/* A child continues the batch that its parent has begun, and then the parent does. */
static void goes_on(const char *name)
{
	struct ibv_qp_init_attr_ex init = {
		.send_cq = NULL, .qp_type = IBV_QPT_RC, .sq_sig_all = 1,
		.comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS, .send_ops_flags = IBV_QP_EX_WITH_SEND,
		.cap = { .max_send_wr = 8, .max_recv_wr = 8, .max_send_sge = 1, .max_recv_sge = 1, .max_inline_data = 16 },
	};
	struct side side;
	struct ibv_qp_ex *ex;
	int status, answer, got[2];
	pid_t child;

	open_pair(&p);
	side = p.one;
	init.pd = p.pd, init.send_cq = p.two.cq, init.recv_cq = p.one.cq;
	MUST(side.qp = ibv_create_qp_ex(p.context, &init));
	MUST((ex = ibv_qp_to_qp_ex(side.qp)) && !to_init(side.qp) && !connect_qp(side.qp, side.qp->qp_num));
	MUST(!post_receive(&side, 7) && !post_receive(&side, 8));
	fflush(stdout);
	ibv_wr_start(ex);
	ex->wr_id = 1;
	ibv_wr_send(ex);
	ibv_wr_set_sge(ex, side.mr->lkey, (uintptr_t)side.memory, 8);
	ex->wr_id = 2;
	ibv_wr_send(ex);
	child = fork();
	MUST(child >= 0);
	if (child == 0) {
		ibv_wr_set_sge(ex, side.mr->lkey, (uintptr_t)side.memory, 1);
		ex->wr_id = 66;
		ibv_wr_send(ex);
		ibv_wr_set_inline_data(ex, side.memory, 2);
		_exit(ibv_wr_complete(ex));
	}
	MUST(waitpid(child, &status, 0) == child && WIFEXITED(status));
	ibv_wr_set_inline_data(ex, side.memory, 8);
	answer = ibv_wr_complete(ex);
	for (int i = 0; i < 2 && !answer; i++) {
		struct ibv_wc sent = completion(p.two.cq), received = completion(side.cq);

		got[i] = sent.wr_id + 10 * received.wr_id + 100 * received.byte_len;
	}
	printf("%s: wr_complete: %s, then the parent's is %s and completes %d %d\n", name, error_name(WEXITSTATUS(status)),
	       error_name(answer), answer ? 0 : got[0], answer ? 0 : got[1]);
	MUST(!ibv_destroy_qp(side.qp));
	close_pair(&p);
}

static void makes(void) { OBJECT("alloc_pd", ibv_alloc_pd(p.context)); }
static void asks(void) { NUMBER("query_device", ibv_query_device(p.context, &(struct ibv_device_attr){ 0 })); }
static void registers(void) { OBJECT("reg_mr", ibv_reg_mr(p.pd, p.one.memory, 8, 1)); }
static void polls(void) { NUMBER("poll_cq", ibv_poll_cq(p.one.cq, 1, &(struct ibv_wc){ 0 })); }
static void arms(void) { NUMBER("req_notify_cq", ibv_req_notify_cq(p.one.cq, 0)); }
static void sends(void) { NUMBER("post_send", post(&p.one, (struct ibv_send_wr){ .wr_id = 66, .opcode = IBV_WR_SEND }, 0, 8)); }
static void receives(void) { NUMBER("post_recv", post_receive(&p.two, 66)); }
static void receives_badly(void)
{
	struct ibv_recv_wr wr = { .num_sge = 100 }, *bad;

	NUMBER("post_recv of too much", ibv_post_recv(p.two.qp, &wr, &bad));
}
static void modifies(void)
{
	NUMBER("modify_qp", ibv_modify_qp(p.one.qp, &(struct ibv_qp_attr){ .qp_state = IBV_QPS_ERR }, IBV_QP_STATE));
}
static void destroys(void) { NUMBER("destroy_qp", ibv_destroy_qp(p.one.qp)); }
static void deregisters(void) { NUMBER("dereg_mr", ibv_dereg_mr(p.one.mr)); }
static void closes(void) { NUMBER("close_device", ibv_close_device(p.context)); }

#define INHERITED(act) \
	static void inherited_##act(const char *name) { inherited(name, act); }
INHERITED(makes)
INHERITED(asks)
INHERITED(registers)
INHERITED(polls)
INHERITED(arms)
INHERITED(sends)
INHERITED(receives)
INHERITED(receives_badly)
INHERITED(modifies)
INHERITED(destroys)
INHERITED(deregisters)
INHERITED(closes)

int main(int count, char **arguments)
{
	begin(count, arguments);
	apart("fork_init", settings);
	apart("memory of both", written_by_both);
	ended("exit", by_exit);
	ended("exit with a handler", by_handler);
	ended("a signal", by_signal);
	ended("exec", with_exec);
	ended("a device of its own", with_own_device);
	apart("a daemon", daemonized);
	apart("a child makes", inherited_makes);
	apart("a child asks", inherited_asks);
	apart("a child registers", inherited_registers);
	apart("a child polls", inherited_polls);
	apart("a child arms", inherited_arms);
	apart("a child sends", inherited_sends);
	apart("a child goes on with a batch", goes_on);
	apart("a child receives", inherited_receives);
	apart("a child receives badly", inherited_receives_badly);
	if (count == 2)
		return 0;
	apart("a child modifies", inherited_modifies);
	apart("a child destroys", inherited_destroys);
	apart("a child deregisters", inherited_deregisters);
	apart("a child closes", inherited_closes);
	return 0;
}
