/* Counters of libfabric, for benches/completion_counter.rs: the same calls as there.
 *
 *     peer PROVIDER work loop|read|readerr|add|wait COUNT
 *     peer PROVIDER wake COUNT        prints the nanoseconds of one wake-up
 */
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <rdma/fabric.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_errno.h>

static void must(int status, const char *what)
{
	if (status) {
		fprintf(stderr, "%s: %s\n", what, fi_strerror(-status));
		exit(1);
	}
}

static struct fid_cntr *counter(struct fid_domain *domain)
{
	struct fi_cntr_attr attr = { .events = FI_CNTR_EVENTS_COMP, .wait_obj = FI_WAIT_UNSPEC };
	struct fid_cntr *cntr;

	must(fi_cntr_open(domain, &attr, &cntr, NULL), "fi_cntr_open");
	return cntr;
}

static struct fid_cntr *ping, *pong;
static uint64_t rounds;

static void *answer(void *unused)
{
	for (uint64_t round = 1; round <= rounds; round++) {
		must(fi_cntr_wait(ping, round, -1), "fi_cntr_wait");
		must(fi_cntr_add(pong, 1), "fi_cntr_add");
	}
	return unused;
}

static void wake(void)
{
	struct timespec begin, end;
	pthread_t thread;

	must(pthread_create(&thread, NULL, answer, NULL), "pthread_create");
	clock_gettime(CLOCK_MONOTONIC, &begin);
	for (uint64_t round = 1; round <= rounds; round++) {
		must(fi_cntr_add(ping, 1), "fi_cntr_add");
		must(fi_cntr_wait(pong, round, -1), "fi_cntr_wait");
	}
	clock_gettime(CLOCK_MONOTONIC, &end);
	must(pthread_join(thread, NULL), "pthread_join");
	double ns = (end.tv_sec - begin.tv_sec) * 1e9 + (end.tv_nsec - begin.tv_nsec);
	printf("%.0f\n", ns / (2.0 * rounds));
}

static void work(const char *what)
{
	volatile uint64_t sink = 0;

	if (!strcmp(what, "read")) {
		for (uint64_t i = 0; i < rounds; i++)
			sink = fi_cntr_read(ping);
	} else if (!strcmp(what, "readerr")) {
		for (uint64_t i = 0; i < rounds; i++)
			sink = fi_cntr_readerr(ping);
	} else if (!strcmp(what, "add")) {
		for (uint64_t i = 0; i < rounds; i++)
			sink = fi_cntr_add(ping, 1);
	} else if (!strcmp(what, "wait")) {
		for (uint64_t i = 0; i < rounds; i++)
			sink = fi_cntr_wait(ping, 0, -1);
	} else {
		for (uint64_t i = 0; i < rounds; i++)
			sink = i;
	}
	(void)sink;
}

int main(int argc, char **argv)
{
	struct fi_info *hints = fi_allocinfo(), *info;
	struct fid_fabric *fabric;
	struct fid_domain *domain;

	if (argc < 4 || !hints)
		return 2;
	hints->fabric_attr->prov_name = strdup(argv[1]);
	hints->ep_attr->type = FI_EP_RDM;
	hints->caps = FI_MSG | FI_RMA;
	must(fi_getinfo(FI_VERSION(1, 11), NULL, NULL, 0, hints, &info), "fi_getinfo");
	must(fi_fabric(info->fabric_attr, &fabric, NULL), "fi_fabric");
	must(fi_domain(fabric, info, &domain, NULL), "fi_domain");
	ping = counter(domain);
	pong = counter(domain);
	rounds = strtoull(argv[argc - 1], NULL, 10);
	if (!strcmp(argv[2], "wake"))
		wake();
	else
		work(argv[3]);
	return 0;
}
