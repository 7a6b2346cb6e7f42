/*
 * Queue pairs that are connected within one card, on the stock libraries. Each check makes its own, and compares contents,
 * completions, states and events with what the InfiniBand architecture says.
 *
 * usage: mlx5-connected DEVICE GID_INDEX [NAME]     GID_INDEX is -1 on InfiniBand; NAME is a part of the checks' names
 */
#include "common.h"
#include "reliable.h"
#include "windows.h"
#include "faults.h"
#include "states.h"
#include "datagrams.h"
#include "shared.h"
#include "interfaces.h"

/*
 * Where a check cannot run. ETHERNET: on Ethernet. UNASKED: unless its name is given. The others are for faults of libmlx5.
 * LARGE_ENTRIES: before May 2026 it looks in the wrong half of a 128-byte entry for short answers of reads and atomic operations.
 * SIGNED: for a request that continues at the start of the ring, it computes the signature as if the request continued after the
 * end.
 */
enum where { EVERYWHERE, ETHERNET, LARGE_ENTRIES, SIGNED, UNASKED };

static const struct check {
	const char *name;
	void (*run)(long);
	long argument;
	enum where not;
} checks[] = {
	{ "rc send 0", rc_send, 0 }, { "rc send 1", rc_send, 1 }, { "rc send 31", rc_send, 31 }, { "rc send 32", rc_send, 32 },
	{ "rc send 33", rc_send, 33 }, { "rc send 64", rc_send, 64 }, { "rc send 65", rc_send, 65 }, { "rc send 1023", rc_send, 1023 },
	{ "rc send 1024", rc_send, 1024 }, { "rc send 1025", rc_send, 1025 }, { "rc send 2801", rc_send, 2801 }, { "rc send 9000", rc_send, 9000 },
	{ "rc inline", rc_inline, IBV_QPT_RC }, { "rc pieces", rc_pieces, IBV_QPT_RC }, { "rc immediate", rc_immediate, IBV_QPT_RC },
	{ "rc events", rc_events, 0 }, { "rc solicited events", rc_events, 1 },
	{ "rc write 0", rc_write, 0 }, { "rc write 1", rc_write, 1 }, { "rc write 1024", rc_write, 1024 }, { "rc write 2801", rc_write, 2801 },
	{ "rc write immediate", write_immediate, IBV_QPT_RC },
	{ "rc read 0", rc_read, 0 }, { "rc read 1", rc_read, 1 }, { "rc read 32", rc_read, 32 }, { "rc read 64", rc_read, 64 },
	{ "rc read 1024", rc_read, 1024 }, { "rc read 1025", rc_read, 1025 }, { "rc read 5000", rc_read, 5000 },
	{ "rc read pieces", rc_read_pieces, 0 }, { "rc read pieces, all signaled", rc_read_pieces, 1, LARGE_ENTRIES },
	{ "rc many reads, one at a time", rc_many_reads, 1 }, { "rc many reads, eight at a time", rc_many_reads, 8 },
	{ "rc add", rc_add, 0 }, { "rc add, all signaled", rc_add, 1, LARGE_ENTRIES }, { "rc swap", rc_swap, 0 }, { "rc swap, all signaled", rc_swap, 1, LARGE_ENTRIES },
	{ "rc adds from both", rc_adds_from_both },
	{ "rc late receive", rc_late_receive }, { "rc unsignaled", rc_unsignaled }, { "rc fence", rc_fence },
	{ "rc rings wrap", rings_wrap, IBV_QPT_RC, SIGNED }, { "rc both ways", rc_both_ways },
	{ "rc packets of 256", rc_mtu, IBV_MTU_256 }, { "rc packets of 512", rc_mtu, IBV_MTU_512 }, { "rc long messages", rc_long_messages },
	{ "new posts", new_posts }, { "new polls", new_polls },

	{ "window 1", window_use, IBV_MW_TYPE_1 }, { "window 2", window_use, IBV_MW_TYPE_2 },
	{ "window 1 range", window_range, IBV_MW_TYPE_1 }, { "window 2 range", window_range, IBV_MW_TYPE_2 },
	{ "window 1 rights", window_rights, IBV_MW_TYPE_1 }, { "window 2 rights", window_rights, IBV_MW_TYPE_2 },
	{ "window 1 bound anew", window_rebound }, { "window 1 unbound", window_unbound }, { "window 2 from zero", window_zero_based },
	{ "window 1 of another", window_of_another, IBV_MW_TYPE_1 }, { "window 2 of another", window_of_another, IBV_MW_TYPE_2 },
	{ "window 2 bound twice", window_bound_twice }, { "window over what is read only", window_over_read_only },
	{ "local invalidate", local_invalidate },
	{ "send with invalidate, short", send_with_invalidate, 20 }, { "send with invalidate, long", send_with_invalidate, 2500 },
	{ "invalidate what is not bound", invalidate_wrong, 0 }, { "invalidate a region", invalidate_wrong, 1 },
	{ "region registered anew", reregistered }, { "dma-buf", dma_buf, 0, UNASKED },

#define REMOTE_FAULTS(name, op) \
	{ name " behind the end", remote_fault, BEHIND_END | (op) << 8 }, { name " before the start", remote_fault, BEFORE_START | (op) << 8 }, \
	{ name " with a wrong key", remote_fault, WRONG_KEY | (op) << 8 }, { name " without the right", remote_fault, NO_RIGHT | (op) << 8 }
	REMOTE_FAULTS("write", IBV_WR_RDMA_WRITE), REMOTE_FAULTS("read", IBV_WR_RDMA_READ), REMOTE_FAULTS("add", IBV_WR_ATOMIC_FETCH_AND_ADD),
	{ "long write over the end", remote_fault, LATER_PACKET | IBV_WR_RDMA_WRITE << 8 }, { "long read over the end", remote_fault, LATER_PACKET | IBV_WR_RDMA_READ << 8 },
	{ "memory of a receive that goes", gone_while_posted, 0 }, { "memory of a write that goes", gone_while_posted, 1 },
	{ "remote memory of another domain", other_domain, 0 }, { "local memory of another domain", other_domain, 1 },
	{ "write the queue pair does not allow", no_right_of_queue_pair, IBV_WR_RDMA_WRITE }, { "read the queue pair does not allow", no_right_of_queue_pair, IBV_WR_RDMA_READ },
	{ "add the queue pair does not allow", no_right_of_queue_pair, IBV_WR_ATOMIC_FETCH_AND_ADD }, { "add at an odd place", misaligned_atomic },
	{ "local key", local_fault, KEY }, { "local end", local_fault, END }, { "local key, unsignaled", local_fault, UNSIGNALED },
	{ "local key of a second piece", local_fault, SECOND_PIECE }, { "read into what is read only", local_fault, READ_INTO },
	{ "nothing needs no key", nothing_needs_no_key }, { "fault in order", fault_in_order }, { "receive with a wrong key", receive_fault },
	{ "too long by one", too_long, 21 }, { "too long in the CQE", too_long, 33 }, { "too long in the last packet", too_long, 2100 }, { "no receive ever", no_receive },
	{ "nobody there", nobody_answers, 0 }, { "nobody answers", nobody_answers, 1 }, { "another peer", other_peer },

	{ "query in each state", query_in_each_state }, { "changed while up", changed_while_up }, { "bad transitions", bad_transitions },
	{ "flush", flush }, { "rc reset and reuse", reset_and_reuse, IBV_QPT_RC }, { "uc reset and reuse", reset_and_reuse, IBV_QPT_UC },
	{ "receives before the connection", receives_before }, { "busy objects", busy_objects }, { "full rings", full_rings },
	{ "many in one queue", many_in_one_queue }, { "queue resized", resized_queue },

	{ "uc send 0", uc_send, 0 }, { "uc send 1", uc_send, 1 }, { "uc send 32", uc_send, 32 }, { "uc send 1025", uc_send, 1025 }, { "uc send 2801", uc_send, 2801 },
	{ "uc inline", rc_inline, IBV_QPT_UC }, { "uc pieces", rc_pieces, IBV_QPT_UC }, { "uc immediate", rc_immediate, IBV_QPT_UC },
	{ "uc write immediate", write_immediate, IBV_QPT_UC }, { "uc rings wrap", rings_wrap, IBV_QPT_UC, SIGNED },
	{ "uc loss", uc_loss, 30 }, { "uc long loss", uc_loss, 3000 }, { "uc wrong key", uc_wrong_key }, { "uc send error", send_error, IBV_QPT_UC },
	{ "ud send 0", ud_send, 0 }, { "ud send 1", ud_send, 1 }, { "ud send 32", ud_send, 32 }, { "ud send 1000", ud_send, 1000 }, { "ud send of a whole packet", ud_send, NONE },
	{ "ud immediate", ud_immediate }, { "ud pieces", ud_pieces }, { "ud loss", ud_loss }, { "ud own key", ud_own_key }, { "ud send error", send_error, IBV_QPT_UD }, { "ud many", ud_many },
	{ "ud with a global header", ud_global, 0, ETHERNET }, { "ud multicast", ud_multicast, 0, ETHERNET },

	{ "srq numbers", srq_numbers }, { "srq order, short", srq_order, 20 }, { "srq order, long", srq_order, 1500 }, { "srq limit", srq_limit }, { "srq last", srq_last }, { "srq late", srq_late },
	{ "srq too long", srq_too_long }, { "srq of datagrams", srq_of_datagrams },
	{ "xrc send 20", xrc_send, 20 }, { "xrc send 2500", xrc_send, 2500 }, { "xrc remote", xrc_remote }, { "xrc late and limit", xrc_late_and_limit }, { "xrc fault", xrc_fault },
	{ "xrc queue that is not there", xrc_wrong_queue, 0 }, { "xrc queue of another domain", xrc_wrong_queue, 1 },
};

static const char *running;
static int failures;

static void hangs(int signal)
{
	(void)signal;
	printf("FAIL %s hangs\n", running);
	fflush(stdout);
	_exit(1);
}

static bool is_set(const char *variable, int to)
{
	const char *value = getenv(variable);

	return value && atoi(value) == to;
}

int main(int count, char **arguments)
{
	int devices;
	struct ibv_device **list = ibv_get_device_list(&devices);

	if (count < 3 || !list)
		return 2;
	setvbuf(stdout, NULL, _IOLBF, 0);
	gid_index = atoi(arguments[2]);
	for (int i = 0; i < devices; i++)
		if (!strcmp(ibv_get_device_name(list[i]), arguments[1]))
			context = ibv_open_device(list[i]);
	if (!context || ibv_query_device(context, &device) || ibv_query_port(context, 1, &port) ||
	    ibv_query_gid(context, 1, gid_index < 0 ? 0 : gid_index, &gid) || !(pd = ibv_alloc_pd(context))) {
		perror(arguments[1]);
		return 2;
	}
	is_ib = port.link_layer != IBV_LINK_LAYER_ETHERNET;
	if (is_ib != (gid_index < 0) || port.state != IBV_PORT_ACTIVE || fcntl(context->async_fd, F_SETFL, O_NONBLOCK)) {
		fprintf(stderr, "%s: link layer %d, state %d\n", arguments[1], port.link_layer, port.state);
		return 2;
	}
	signal(SIGALRM, hangs);
	for (unsigned i = 0; i < sizeof(checks) / sizeof(*checks); i++) {
		const struct check *check = &checks[i];
		struct ibv_async_event event;

		running = check->name;
		if ((check->not == ETHERNET && !is_ib) || (check->not == UNASKED && count == 3) || (count > 3 && !strstr(running, arguments[3])))
			continue;
		if ((check->not == LARGE_ENTRIES && is_set("MLX5_CQE_SIZE", 128)) || (check->not == SIGNED && is_set("MLX5_QP_SIGNATURE", 1))) {
			printf("skip %s: a fault of libmlx5\n", running);
			continue;
		}
		alarm(120);
		srand(i);
		double start = now();
		if (!setjmp(failed)) {
			check->run(check->argument);
			no_event(0);
			printf("pass %s\n", running);
		} else {
			printf("FAIL %s %s\n", running, why);
			failures++;
			while (next_event(&event, QUIET))
				;
		}
		if (getenv("TIMES"))
			fprintf(stderr, "%6.2f s %s\n", now() - start, running);
	}
	if (!failures)
		printf("pass all\n");
	return failures != 0;
}
