/*
 * Counts the packets for an Ethernet address while a command runs: the corrected example of ibv_read_counters(3).
 *
 *     cc counters.c -o counters -libverbs
 *     ./counters mlx5_0 02:00:00:00:01:02 'sleep 10'
 *
 * Differences from the manual page: the rule is packed, because specs follow each other without gaps (on 64-bit machines
 * there would be four bytes between the first two); the mask excludes the source address, which is never zero; the type of
 * the spec is IBV_FLOW_SPEC_ETH; and the results of calls are checked: these return the errno, or null and set it.
 */
#include <errno.h>
#include <infiniband/verbs.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void check(int done, const char *what, int error)
{
	if (!done) {
		fprintf(stderr, "%s: %s\n", what, strerror(error));
		exit(1);
	}
}

static struct ibv_context *open_by_name(const char *name)
{
	int count;
	struct ibv_device **list = ibv_get_device_list(&count);
	struct ibv_context *context = NULL;

	check(list != NULL, "ibv_get_device_list", errno);
	errno = ENODEV;
	for (int i = 0; i < count && !context; i++)
		if (!strcmp(ibv_get_device_name(list[i]), name))
			context = ibv_open_device(list[i]);
	check(context != NULL, name, errno);
	ibv_free_device_list(list);
	return context;
}

/* A queue pair that takes frames: raw packets, on port 1, ready to receive. */
static struct ibv_qp *make_qp(struct ibv_pd *pd, struct ibv_cq *cq)
{
	struct ibv_qp_init_attr init = {
		.send_cq = cq,
		.recv_cq = cq,
		.cap = { .max_send_wr = 1, .max_recv_wr = 1, .max_send_sge = 1, .max_recv_sge = 1 },
		.qp_type = IBV_QPT_RAW_PACKET,
	};
	struct ibv_qp *qp = ibv_create_qp(pd, &init);
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_INIT, .port_num = 1 };
	int error;

	check(qp != NULL, "ibv_create_qp", errno);
	error = ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_PORT);
	check(!error, "to INIT", error);
	attr.qp_state = IBV_QPS_RTR;
	error = ibv_modify_qp(qp, &attr, IBV_QP_STATE);
	check(!error, "to RTR", error);
	return qp;
}

/* Counts packets at index 0, and their bytes at index 1. */
static struct ibv_counters *make_counters(struct ibv_context *context)
{
	struct ibv_counters_init_attr init = { 0 };
	struct ibv_counter_attach_attr point = { .counter_desc = IBV_COUNTER_PACKETS, .index = 0 };
	struct ibv_counters *counters = ibv_create_counters(context, &init);
	int error;

	check(counters != NULL, "ibv_create_counters", errno);
	error = ibv_attach_counters_point_flow(counters, &point, NULL);
	check(!error, "packets", error);
	point.counter_desc = IBV_COUNTER_BYTES;
	point.index = 1;
	error = ibv_attach_counters_point_flow(counters, &point, NULL);
	check(!error, "bytes", error);
	return counters;
}

/* Steers what is for an address to the queue pair, and counts it. */
static struct ibv_flow *make_flow(struct ibv_qp *qp, struct ibv_counters *counters, const uint8_t *address)
{
	struct {
		struct ibv_flow_attr attr;
		struct ibv_flow_spec_eth eth;
		struct ibv_flow_spec_counter_action count;
	} __attribute__((packed)) rule = {
		.attr = {
			.type = IBV_FLOW_ATTR_NORMAL,
			.size = sizeof(rule),
			.num_of_specs = 2,
			.port = 1,
		},
		.eth = { .type = IBV_FLOW_SPEC_ETH, .size = sizeof(rule.eth) },
		.count = {
			.type = IBV_FLOW_SPEC_ACTION_COUNT,
			.size = sizeof(rule.count),
			.counters = counters,
		},
	};
	struct ibv_flow *flow;

	memcpy(rule.eth.val.dst_mac, address, 6);
	memset(rule.eth.mask.dst_mac, 0xff, 6);
	flow = ibv_create_flow(qp, &rule.attr);
	check(flow != NULL, "ibv_create_flow", errno);
	return flow;
}

static void print(struct ibv_counters *counters)
{
	uint64_t values[2];
	int error = ibv_read_counters(counters, values, 2, 0);

	check(!error, "ibv_read_counters", error);
	printf("packets %" PRIu64 ", bytes %" PRIu64 "\n", values[0], values[1]);
	fflush(stdout);
}

int main(int argc, char **argv)
{
	struct ibv_context *context;
	struct ibv_pd *pd;
	struct ibv_cq *cq;
	struct ibv_qp *qp;
	struct ibv_counters *counters;
	struct ibv_flow *flow;
	uint8_t mac[6];
	int error, status;

	if (argc != 4 || sscanf(argv[2], "%2hhx:%2hhx:%2hhx:%2hhx:%2hhx:%2hhx", &mac[0], &mac[1], &mac[2], &mac[3],
				&mac[4], &mac[5]) != 6) {
		fprintf(stderr, "usage: %s DEVICE ADDRESS COMMAND\n", argv[0]);
		return 2;
	}
	context = open_by_name(argv[1]);
	pd = ibv_alloc_pd(context);
	check(pd != NULL, "ibv_alloc_pd", errno);
	cq = ibv_create_cq(context, 1, NULL, NULL, 0);
	check(cq != NULL, "ibv_create_cq", errno);
	qp = make_qp(pd, cq);
	counters = make_counters(context);
	flow = make_flow(qp, counters, mac);

	print(counters);
	status = system(argv[3]);
	print(counters);

	/* In this order: each of these is in use by the one before it. */
	error = ibv_destroy_flow(flow);
	check(!error, "ibv_destroy_flow", error);
	error = ibv_destroy_counters(counters);
	check(!error, "ibv_destroy_counters", error);
	error = ibv_destroy_qp(qp);
	check(!error, "ibv_destroy_qp", error);
	error = ibv_destroy_cq(cq);
	check(!error, "ibv_destroy_cq", error);
	error = ibv_dealloc_pd(pd);
	check(!error, "ibv_dealloc_pd", error);
	error = ibv_close_device(context);
	check(!error, "ibv_close_device", error);
	return status == 0 ? 0 : 1;
}
