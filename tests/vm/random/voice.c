/*
 * Random programs through whichever libibverbs the loader finds; see ../../random/README.md. Reads them as `uverbs-random print`
 * writes them, and prints the result of each step. Each program runs in its own process, so that a crash counts as an answer.
 *
 * usage: voice DEVICE MICROSECONDS [CONTROL]    how long the device may take for what was posted; the line of a virtual card
 *
 * Steps that are left out, printed as `-`:
 * - what libibverbs does not have: readers, snapshots, samplers, pools (DEVX belongs to mlx5dv), completion counters in software,
 *   options of an open, words of rules, frames of a generator, futures, faults
 * - on mlx5 with an Ethernet port, which has no address: queue pairs other than those of raw packets, shared receive queues,
 *   address handles, windows; and on an InfiniBand port queue pairs of raw packets, which a card does not have there, though the
 *   virtual card does not say so
 * - objects of two open devices in one call: libibverbs passes on a number, which is another object's in the other context
 * - operations that queue pairs of a type do not have; ../dropin/posts.c tries them
 * - a send to a queue pair that cannot send yet: librxe refuses it and carries it out later, the drop-in refuses it
 *   (../dropin/posts.c)
 * - windows of type 2 in orders that rxe does not survive (docs/internals/kernels.md), and unbinding a window of type 1, which librxe
 *   does not
 * - a group that is joined with a second LID (docs/internals/abi.md)
 * - counters without a point, and points that no read can return (the same page)
 * - on mlx5, the number of the queue pair in completions of receives: the card writes none, and libmlx5 passes that on
 * - how large a shared queue became: 6.1 tells librxe what was asked for, the drop-in reports the room that there is
 * - on rxe, which receive was refused first in reset or with a shared queue: librxe does not say
 * - a close with objects left over, which would be used after it
 */
#include "world.h"

#include "contexts.h"
#include "flows.h"
#include "pairs.h"
#include "posts.h"
#include "queues.h"

enum { SECONDS = 30 };

struct verb {
	const char *names; /* with a space before and after each */
	void (*step)(void);
};

static const struct verb verbs[] = {
	{ " open drop-context device port gid gids pkey events ", context_step },
	{ " pd destroy-pd drop-pd ", domain_step },
	{ " mr mr-of mr-dmabuf mr-read mr-write mr-facts mr-access mr-domain mr-memory destroy-mr drop-mr ", region_step },
	{ " memory ", memory_step },
	{ " mw mw-facts bind unbind destroy-mw drop-mw ", window_step },
	{ " channel channel-next channel-wait drop-channel ", channel_step },
	{ " cq cq-plain cq-resize notify moderate destroy-cq drop-cq ", cq_step },
	{ " poll poll-invalidated ", poll_step },
	{ " srq srq-plain srq-query srq-arm srq-resize srq-recv destroy-srq drop-srq ", srq_step },
	{ " qp connect modify usual qp-reset qp-fail qp-state qp-query drain destroy-qp drop-qp ", pair_step },
	{ " join leave drop-membership ", group_step },
	{ " ah ah-back destroy-ah drop-ah ", handle_step },
	{ " send send-window ", send_step },
	{ " datagram ", datagram },
	{ " frame large-frame ", frame_step },
	{ " recv ", receive_step },
	{ " flow flow-of flow-rss flow-default destroy-flow drop-flow ", flow_step },
	{ " counters attach read destroy-counters drop-counters ", counters_step },
	{ " wq wq-modify wq-recv destroy-wq drop-wq ", work_queue_step },
	{ " table destroy-table drop-table ", table_step },
	{ " rss destroy-rss drop-rss ", rss_step },
	{ " inject ", inject },
};

static void step(char *line)
{
	char name[64];

	memset(word, 0, sizeof(word));
	memset(arg, 0, sizeof(arg));
	for (int n = 0; n < WORDS && (word[n] = strtok(n ? NULL : line, " \n")); n++)
		arg[n] = strcmp(word[n], "-") ? strtoull(word[n], NULL, 0) : NONE;
	snprintf(name, sizeof(name), " %s ", word[0]);
	result[0] = 0;
	errno = 0;
	for (size_t i = 0; i < sizeof(verbs) / sizeof(*verbs); i++)
		if (strstr(verbs[i].names, name)) {
			verbs[i].step();
			return;
		}
	say("-");
}

/* Destroys all that is left, windows before their queue pairs; prints what is refused. */
static void end(void)
{
	result[0] = 0;
#define END(kind, there, call) \
	for (int i = 0; i < PLACES; i++) \
		if (there) { \
			errno = 0; \
			int error = call; \
			if (error) \
				say(" " kind "%d ", i), done(error); \
		}
	END("group ", memberships[i].qp, ibv_detach_mcast(memberships[i].qp, &memberships[i].gid, memberships[i].lid))
	END("flow ", flows[i], ibv_destroy_flow(flows[i]))
	END("rss ", rss[i], ibv_destroy_qp(rss[i]))
	END("table ", tables[i], ibv_destroy_rwq_ind_table(tables[i]))
	END("wq ", work_queues[i], ibv_destroy_wq(work_queues[i]))
	END("mw ", windows[i].mw, ibv_dealloc_mw(windows[i].mw))
	END("qp ", pairs[i].qp, ibv_destroy_qp(pairs[i].qp))
	END("srq ", shared[i], ibv_destroy_srq(shared[i]))
	END("cq ", completions[i], ibv_destroy_cq(completions[i]))
	END("channel ", channels[i], ibv_destroy_comp_channel(channels[i]))
	END("mr ", regions[i].mr, ibv_dereg_mr(regions[i].mr))
	END("ah ", handles[i], ibv_destroy_ah(handles[i]))
	END("counters ", counters[i], ibv_destroy_counters(counters[i]))
	END("pd ", domains[i], ibv_dealloc_pd(domains[i]))
	END("context ", contexts[i], ibv_close_device(contexts[i]))
	printf("end: ok%s\n", result);
}

static void play(char **steps, int count)
{
	alarm(SECONDS);
	for (int i = 0; i < PLACES; i++)
		areas[i] = area(ROOM);
	memory = area(MEMORY);
	for (int i = 0; i < count; i++) {
		printf("%s: ", steps[i]);
		fflush(stdout);
		step(steps[i]);
		printf("%s\n", result);
		fflush(stdout);
	}
	end();
	fflush(stdout);
	_exit(0);
}

static void run(char **steps, int count)
{
	int status;
	pid_t child;

	if (!count)
		return;
	fflush(stdout);
	child = fork();
	if (!child)
		play(steps, count);
	waitpid(child, &status, 0);
	if (WIFSIGNALED(status))
		printf("crashed SIG%s\n", sigabbrev_np(WTERMSIG(status)));
	else if (WEXITSTATUS(status))
		printf("ended %d\n", WEXITSTATUS(status));
	for (int i = 0; i < count; i++)
		free(steps[i]);
}

int main(int argc, char **argv)
{
	static char *steps[1024], line[512];
	int count = 0;

	if (argc < 3) {
		fprintf(stderr, "usage: voice DEVICE MICROSECONDS [CONTROL]\n");
		return 2;
	}
	device_name = argv[1], patience = atoi(argv[2]);
	if (argc > 3) {
		if (!has_control(argv[3]))
			return 2;
		ask("heal", NULL), ask("limit counters 0xffffffff", NULL), ask("loop on", NULL);
	}
	while (fgets(line, sizeof(line), stdin)) {
		line[strcspn(line, "\n")] = 0;
		if (!strncmp(line, "program ", 8)) {
			run(steps, count), count = 0;
			puts(line);
		} else if (*line && *line != '#' && count < 1024) {
			steps[count++] = strdup(line);
		}
	}
	run(steps, count);
	return 0;
}
