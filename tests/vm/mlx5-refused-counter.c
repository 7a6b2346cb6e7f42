/*
 * The firmware refuses a flow counter, and the program destroys and closes everything. With libibverbs the kernel does not survive
 * that. The end of the process would have the same effect, so the process never ends.
 *
 * usage: mlx5-refused-counter DEVICE CONTROL
 */
#include "mlx5-common.h"

int main(int argc, char **argv)
{
	const int refused[][2] = { { 8, ENOMEM }, { 3, EINVAL }, { 1, EIO } };

	open_device(argc, argv);
	for (size_t i = 0; i < sizeof(refused) / sizeof(*refused); i++) {
		struct queue q = make_queue();
		struct ibv_counters *counters = make_counters();
		struct rule r = rule(0);
		add_mac(&r);
		add_count(&r, counters);
		ask("fail %s %d 1", "ALLOC_FLOW_COUNTER", refused[i][0]);
		errno = 0;
		CHECK(!ibv_create_flow(q.qp, &r.attr) && errno == refused[i][1]);
		/* The second time there is a counter. */
		struct ibv_flow *flow = ibv_create_flow(q.qp, &r.attr);
		CHECK(flow);
		expect_count(counters, 0, 0);
		CHECK(!ibv_destroy_flow(flow));
		CHECK(!ibv_destroy_counters(counters));
		destroy_queue(&q);
	}
	close_device();
	context = NULL;
	open_device(argc, argv);
	struct queue q = make_queue();
	destroy_queue(&q);
	close_device();
	printf("goes on\n");
	for (;;)
		pause();
}
