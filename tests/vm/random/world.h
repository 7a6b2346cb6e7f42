/* What a program has made: objects of each kind at four places, their memory, and how results are printed. */
#pragma once
#define _GNU_SOURCE
#include <fcntl.h>
#include <infiniband/verbs.h>
#include <poll.h>
#include <signal.h>
#include <stddef.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "../lib/say.h"

enum { PLACES = 4, WORDS = 16, MEMORY = 16384 };
#define NONE UINT64_MAX
/* Memory of a place: everything that can be registered, and after it unmapped addresses, as far as any length reaches. */
#define ROOM ((size_t)1 << 20)
#define RESERVED ((size_t)1 << 33)

/* A step: its words, and the numbers among them. */
static char *word[WORDS];
static uint64_t arg[WORDS];

static const char *device_name;
static unsigned patience; /* microseconds */
static int something_runs; /* since the last wait */
static unsigned serial;

struct region {
	struct ibv_mr *mr;
	uint8_t *memory;
	uint64_t address; /* as the device sees it */
	size_t len;
};
struct window {
	struct ibv_mw *mw;
	struct ibv_qp *by; /* the last one that was asked to bind it */
	int state;
	uint64_t wr_id;
	uint32_t next;
	uint64_t address;
	unsigned made;
};
enum { UNBOUND, ASKED, BOUND, UNKNOWN };
struct membership {
	struct ibv_qp *qp;
	union ibv_gid gid;
	uint16_t lid;
};
struct pair {
	struct ibv_qp *qp;
	unsigned made;
};

static struct ibv_context *contexts[PLACES];
static struct ibv_pd *domains[PLACES];
static struct region regions[PLACES];
static struct window windows[PLACES];
static struct ibv_ah *handles[PLACES];
static struct ibv_comp_channel *channels[PLACES];
static struct ibv_cq *completions[PLACES];
static struct ibv_srq *shared[PLACES];
static struct pair pairs[PLACES];
static struct membership memberships[PLACES];
static struct ibv_counters *counters[PLACES];
static struct ibv_flow *flows[PLACES];
static struct ibv_wq *work_queues[PLACES];
static struct ibv_rwq_ind_table *tables[PLACES];
static struct ibv_qp *rss[PLACES];
static uint8_t *areas[PLACES], *memory;
static struct { uint32_t number; int place; } numbers[256];
static int count_of_numbers;

/* For calls that return an errno, and for calls that return -1 or null and set errno. */
static int done(int error)
{
	if (error == -1)
		say("%s", errno ? strerrorname_np(errno) : "no errno");
	else if (error < 0)
		say("minus %s, errno %s", strerrorname_np(-error), errno ? strerrorname_np(errno) : "none");
	else if (error)
		say("%s", strerrorname_np(error) ? strerrorname_np(error) : "unknown errno");
	else
		say("ok");
	return !error;
}

#define made(object) done((object) ? 0 : -1)

/* An object is not there, or its place is taken, or the step is left out. */
#define ABSENT do { say("-"); return; } while (0)
#define NEEDS(what) do { if (!(what)) ABSENT; } while (0)

static int is(const char *name)
{
	return !strcmp(word[0], name);
}

static int nth_word(int at, const char *const *words, int count)
{
	for (int i = 0; i < count; i++)
		if (!strcmp(word[at], words[i]))
			return i;
	fprintf(stderr, "voice: %s: no word %s\n", word[0], word[at]);
	exit(2);
}
#define WORD(at, words) nth_word(at, words, sizeof(words) / sizeof(*(words)))

static int place(int at)
{
	return arg[at] < PLACES ? (int)arg[at] : 0;
}

/* The device carries out what was posted in its own time; this waits for it. */
static void settle(void)
{
	if (something_runs)
		usleep(patience);
	something_runs = 0;
}

static void known_number(uint32_t number, int place)
{
	numbers[count_of_numbers % 256].number = number;
	numbers[count_of_numbers++ % 256].place = place;
}

static int place_of(uint32_t number)
{
	for (int i = count_of_numbers - 1; i >= 0; i--)
		if (numbers[i % 256].number == number)
			return numbers[i % 256].place;
	return number ? -1 : -2;
}

static int rights(int at)
{
	static const char *const words[] = { "all", "local", "none", "write", "read", "atomic", "windows", "zero-based", "relaxed",
					     "ondemand", "wrong", "unknown" };
	static const int flags[] = {
		IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC |
			IBV_ACCESS_MW_BIND,
		IBV_ACCESS_LOCAL_WRITE, 0, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE, IBV_ACCESS_REMOTE_READ,
		IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_ATOMIC, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_MW_BIND,
		IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_ZERO_BASED, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_RELAXED_ORDERING,
		IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_ON_DEMAND, IBV_ACCESS_REMOTE_WRITE, 1 << 15,
	};

	return at < 0 ? flags[0] : flags[WORD(at, words)];
}

static uint32_t sum_of(const uint8_t *bytes, size_t len)
{
	uint32_t sum = 0x811c9dc5;

	for (size_t i = 0; i < len; i++)
		sum = (sum ^ bytes[i]) * 0x01000193;
	return sum;
}

static uint8_t *area(size_t len)
{
	uint8_t *start = mmap(NULL, RESERVED, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

	if (start == MAP_FAILED || mprotect(start, len, PROT_READ | PROT_WRITE)) {
		perror("voice: memory");
		exit(2);
	}
	return start;
}
