/*
 * The extended interfaces of queues, and events, on the virtual ConnectX. Prints what it sees, so that two libraries can be
 * compared.
 *
 * usage: mlx5-extended DEVICE CONTROL
 */
#include "../../mlx5/common.h"
#include <poll.h>
#include <pthread.h>

/* Completions, field by field. */

static void print_completion(struct ibv_cq_ex *cq, uint64_t *before)
{
	uint64_t now = ibv_wc_read_completion_ts(cq);
	printf("completion %ju status %d opcode %d bytes %u flags %#x tag %#x vlan %#x, time %s\n", (uintmax_t)cq->wr_id, cq->status,
	       ibv_wc_read_opcode(cq), ibv_wc_read_byte_len(cq), ibv_wc_read_wc_flags(cq), ibv_wc_read_flow_tag(cq),
	       ibv_wc_read_cvlan(cq), now > *before ? "goes on" : "stands still");
	*before = now;
}

static void extended_receives(void)
{
	struct ibv_cq_init_attr_ex attr = {
		.cqe = 64,
		.wc_flags = IBV_WC_STANDARD_FLAGS | IBV_WC_EX_WITH_COMPLETION_TIMESTAMP | IBV_WC_EX_WITH_CVLAN | IBV_WC_EX_WITH_FLOW_TAG,
	};
	struct ibv_cq_ex *cq = ibv_create_cq_ex(context, &attr);
	CHECK(cq);
	struct ibv_cq *plain = ibv_cq_ex_to_cq(cq);
	struct ibv_qp_init_attr_ex strips = { .comp_mask = IBV_QP_INIT_ATTR_CREATE_FLAGS, .create_flags = IBV_QP_CREATE_CVLAN_STRIPPING };
	struct queue q = make_memory(plain);
	q.qp = ready(plain, plain, SLOTS, &strips);
	for (int slot = 0; slot < 8; slot++)
		post_receive(&q, slot);
	struct rule tagged = rule(0), rest = rule(1);
	add_mac(&tagged), add_mac(&rest);
	ADD(&tagged, ibv_flow_spec_ipv4, IBV_FLOW_SPEC_IPV4, .mask.dst_ip = 0);
	ADD(&tagged, ibv_flow_spec_action_tag, IBV_FLOW_SPEC_ACTION_TAG, .tag_id = 0xabcdef);
	struct ibv_flow *one = ibv_create_flow(q.qp, &tagged.attr), *two = ibv_create_flow(q.qp, &rest.attr);
	CHECK(one && two);
	struct packet ip = packet(MACS IP4("11") UDP), vlan = packet(MACS "8100 a123 0800"), other = packet(MACS "88b5");
	struct ibv_poll_cq_attr none = { 0 }, wrong = { .comp_mask = 1 };
	uint64_t time = 0;
	printf("start of nothing %d, with a mask %d\n", ibv_start_poll(cq, &none), ibv_start_poll(cq, &wrong));
	inject(&ip, 1), inject(&vlan, 1), inject(&other, 1);
	CHECK(!ibv_start_poll(cq, &none));
	print_completion(cq, &time);
	for (int i = 0; i < 2; i++) {
		CHECK(!ibv_next_poll(cq));
		print_completion(cq, &time);
	}
	printf("next of nothing %d\n", ibv_next_poll(cq));
	ibv_end_poll(cq);
	/* Uses both interfaces in turn. */
	inject(&other, 1);
	struct ibv_wc wc;
	CHECK(ibv_poll_cq(plain, 1, &wc) == 1 && wc.wr_id == 3 && wc.byte_len == 60);
	CHECK(!ibv_destroy_flow(one) && !ibv_destroy_flow(two));
	destroy_queue(&q);
	printf("pass extended receives\n");
}

/* What can be done in the middle of a poll, and polls that find nothing. */
static void middle_of_poll(void)
{
	enum { ROOM = 15 };
	struct ibv_comp_channel *channel = ibv_create_comp_channel(context);
	CHECK(channel && !fcntl(channel->fd, F_SETFL, O_NONBLOCK));
	struct ibv_cq_init_attr_ex attr = { .cqe = ROOM, .wc_flags = IBV_WC_STANDARD_FLAGS, .channel = channel };
	struct ibv_cq_ex *cq = ibv_create_cq_ex(context, &attr);
	CHECK(cq);
	struct ibv_cq *plain = ibv_cq_ex_to_cq(cq), *of;
	struct ibv_qp_init_attr_ex usual = { 0 };
	struct ibv_poll_cq_attr none = { 0 };
	struct queue q = make_memory(plain);
	/* For an address that nobody has. */
	struct packet p = packet("020000000009 020000000002 88b5");
	memcpy(q.memory, p.bytes, p.len);
	struct ibv_sge sge = { (uintptr_t)q.memory, p.len, q.mr->lkey };
	struct ibv_send_wr wr = { .sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_SEND, .send_flags = IBV_SEND_SIGNALED }, *bad;
	/* Completions of destroyed queue pairs belong to nobody, and must not fill a queue. */
	for (int round = 0; round < ROOM + 5; round++) {
		struct ibv_qp *gone = ready(plain, plain, 0, &usual);
		CHECK(!ibv_post_send(gone, &wr, &bad));
		usleep(20000);
		CHECK(!ibv_destroy_qp(gone));
		CHECK(ibv_start_poll(cq, &none) == ENOENT);
	}
	q.qp = ready(plain, plain, 0, &usual);
	for (int i = 1; i <= 4; i++) {
		wr.wr_id = i;
		CHECK(!ibv_post_send(q.qp, &wr, &bad));
	}
	usleep(200000);
	CHECK(!ibv_start_poll(cq, &none) && cq->wr_id == 1);
	struct queue other = q;
	other.qp = ready(plain, plain, 0, &usual);
	tell("queue in use", ibv_destroy_cq(plain));
	for (int i = 2; i <= 4; i++)
		CHECK(!ibv_next_poll(cq) && (int)cq->wr_id == i && ibv_wc_read_qp_num(cq) == q.qp->qp_num);
	/* Requested after everything that the poll has shown. */
	CHECK(!ibv_req_notify_cq(plain, 0));
	usleep(200000);
	void *name;
	tell("event for what was shown", ibv_get_cq_event(channel, &of, &name) ? errno : 0);
	wr.wr_id = 5;
	CHECK(!ibv_post_send(other.qp, &wr, &bad));
	CHECK(poll(&(struct pollfd) { .fd = channel->fd, .events = POLLIN }, 1, 20000) == 1);
	CHECK(!ibv_get_cq_event(channel, &of, &name) && of == plain);
	ibv_ack_cq_events(of, 1);
	while (ibv_next_poll(cq))
		;
	CHECK(cq->wr_id == 5 && !cq->status && ibv_wc_read_qp_num(cq) == other.qp->qp_num);
	printf("after the last %d %d\n", ibv_next_poll(cq), ibv_next_poll(cq));
	ibv_end_poll(cq);
	printf("start of nothing %d\n", ibv_start_poll(cq, &none));
	CHECK(!ibv_destroy_qp(other.qp));
	destroy_queue(&q);
	CHECK(!ibv_destroy_comp_channel(channel));
	printf("pass middle of a poll\n");
}

/* Requests, posted part by part. */

static void extended_sends(struct queue *to)
{
	struct ibv_qp_init_attr_ex init = { .comp_mask = IBV_QP_INIT_ATTR_SEND_OPS_FLAGS, .send_ops_flags = IBV_QP_EX_WITH_SEND };
	struct queue q = make_memory(ibv_create_cq(context, 64, NULL, NULL, 0));
	q.qp = ready(q.cq, q.cq, 0, &init);
	struct ibv_qp_ex *qp = ibv_qp_to_qp_ex(q.qp);
	CHECK(qp && !ibv_qp_to_qp_ex(to->qp));
	struct packet p = packet(MACS IP4("11") UDP);
	memcpy(q.memory, p.bytes, p.len);
	ask("sent clear", NULL, 0);

	ibv_wr_start(qp);
	qp->wr_id = 1, qp->wr_flags = 0;
	ibv_wr_send(qp);
	ibv_wr_set_sge(qp, q.mr->lkey, (uintptr_t)q.memory, p.len);
	qp->wr_id = 2, qp->wr_flags = IBV_SEND_SIGNALED;
	ibv_wr_send(qp);
	struct ibv_sge pieces[] = { { (uintptr_t)q.memory, 20, q.mr->lkey }, { (uintptr_t)q.memory + 20, p.len - 20, q.mr->lkey } };
	ibv_wr_set_sge_list(qp, 2, pieces);
	qp->wr_id = 3;
	ibv_wr_send(qp);
	ibv_wr_set_inline_data(qp, p.bytes, p.len);
	qp->wr_id = 4;
	ibv_wr_send(qp);
	struct ibv_data_buf parts[] = { { p.bytes, 18 }, { p.bytes + 18, p.len - 18 } };
	ibv_wr_set_inline_data_list(qp, 2, parts);
	CHECK(!ibv_wr_complete(qp));
	for (int i = 2; i <= 4; i++) {
		struct ibv_wc wc = await(q.cq);
		CHECK(!wc.status && (int)wc.wr_id == i && wc.opcode == IBV_WC_SEND);
	}
	for (int i = 0; i < 4; i++)
		expect_packet(to, &p);

	/* A batch that is aborted or goes wrong sends nothing. */
	ibv_wr_start(qp);
	ibv_wr_send(qp);
	ibv_wr_set_sge(qp, q.mr->lkey, (uintptr_t)q.memory, p.len);
	ibv_wr_abort(qp);
	ibv_wr_start(qp);
	ibv_wr_send(qp);
	ibv_wr_set_inline_data(qp, q.memory, SLOT);
	tell("too much inline", ibv_wr_complete(qp));
	ibv_wr_start(qp);
	ibv_wr_send(qp);
	struct ibv_sge many[64];
	for (int i = 0; i < 64; i++)
		many[i] = pieces[0];
	ibv_wr_set_sge_list(qp, 64, many);
	tell("too many pieces", ibv_wr_complete(qp));
	ibv_wr_start(qp);
	for (int i = 0; i < 1000; i++) {
		ibv_wr_send(qp);
		ibv_wr_set_sge(qp, q.mr->lkey, (uintptr_t)q.memory, p.len);
	}
	tell("too many", ibv_wr_complete(qp));
	qp->wr_id = 5;
	ibv_wr_start(qp);
	ibv_wr_send(qp);
	ibv_wr_set_sge(qp, q.mr->lkey, (uintptr_t)q.memory, p.len);
	CHECK(!ibv_wr_complete(qp) && await(q.cq).wr_id == 5);
	expect_packet(to, &p), expect_nothing(to);
	const char *sent = ask("sent", NULL, 0);
	int frames = 0;
	for (const char *at = sent; (at = strstr(at, "020000000001")); at++)
		frames++;
	printf("%d frames sent\n", frames);

	init.send_ops_flags |= IBV_QP_EX_WITH_RDMA_WRITE;
	init.comp_mask |= IBV_QP_INIT_ATTR_PD, init.pd = pd, init.qp_type = IBV_QPT_RAW_PACKET, init.send_cq = init.recv_cq = q.cq;
	CHECK(!ibv_create_qp_ex(context, &init));
	tell("writes over raw packets", errno);
	destroy_queue(&q);
	printf("pass extended sends\n");
}

/* Events. */

struct ending {
	struct ibv_cq *cq;
	int acknowledged;
};

static void *end_queue(void *argument)
{
	struct ending *ending = argument;
	CHECK(!ibv_destroy_cq(ending->cq));
	CHECK(__atomic_load_n(&ending->acknowledged, __ATOMIC_SEQ_CST));
	return NULL;
}

/* Sends and receives are announced on one channel. The queue cannot be destroyed before its events are acknowledged. */
static void channels(struct queue *to)
{
	struct packet p = packet(MACS IP4("11") UDP);
	struct ibv_comp_channel *channel = ibv_create_comp_channel(context);
	CHECK(channel);
	int names[2];
	struct ibv_cq *cqs[2], *cq;
	for (int i = 0; i < 2; i++)
		CHECK(cqs[i] = ibv_create_cq(context, 16, &names[i], channel, 0));
	struct queue q = make_memory(cqs[1]);
	q.qp = ready(cqs[0], cqs[1], 8, &(struct ibv_qp_init_attr_ex) { 0 });
	struct rule r = rule(0);
	add_mac(&r);
	struct ibv_flow *flow = ibv_create_flow(q.qp, &r.attr);
	CHECK(flow);
	post_receive(&q, 0), post_receive(&q, 1);
	CHECK(!ibv_req_notify_cq(cqs[0], 0) && !ibv_req_notify_cq(cqs[1], 0));
	CHECK(!fcntl(channel->fd, F_SETFL, fcntl(channel->fd, F_GETFL) | O_NONBLOCK));
	void *name;
	CHECK(ibv_get_cq_event(channel, &cq, &name) == -1 && errno == EAGAIN);
	memcpy(q.memory + 8 * SLOT, p.bytes, p.len);
	struct ibv_sge sge = { (uintptr_t)q.memory + 8 * SLOT, p.len, q.mr->lkey };
	struct ibv_send_wr wr = { .wr_id = 9, .sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_SEND, .send_flags = IBV_SEND_SIGNALED }, *bad;
	CHECK(!ibv_post_send(q.qp, &wr, &bad));
	int seen[2] = { 0, 0 };
	for (int i = 0; i < 2; i++) {
		struct pollfd waits = { .fd = channel->fd, .events = POLLIN };
		CHECK(poll(&waits, 1, 20000) == 1);
		CHECK(!ibv_get_cq_event(channel, &cq, &name));
		int which = (int *)name - names;
		CHECK(cq == cqs[which]);
		seen[which]++;
	}
	CHECK(seen[0] == 1 && seen[1] == 1);
	CHECK(await(cqs[0]).wr_id == 9);
	expect_packet(&q, &p), expect_packet(to, &p);
	tell("channel in use", ibv_destroy_comp_channel(channel));
	CHECK(!ibv_destroy_flow(flow) && !ibv_destroy_qp(q.qp) && !ibv_dereg_mr(q.mr));
	for (int i = 0; i < 2; i++) {
		struct ending ending = { cqs[i], 0 };
		pthread_t thread;
		CHECK(!pthread_create(&thread, NULL, end_queue, &ending));
		usleep(100000);
		__atomic_store_n(&ending.acknowledged, 1, __ATOMIC_SEQ_CST);
		ibv_ack_cq_events(cqs[i], 1);
		CHECK(!pthread_join(thread, NULL));
	}
	CHECK(!ibv_destroy_comp_channel(channel));
	free(q.memory);
	printf("pass channels\n");
}

static void *next_event(void *event)
{
	CHECK(!ibv_get_async_event(context, event));
	return NULL;
}

/* More completions than their queue has room for. */
static void asynchronous_events(void)
{
	struct packet p = packet(MACS "88b5");
	struct queue q = make_memory(ibv_create_cq(context, 4, NULL, NULL, 0));
	q.qp = ready(q.cq, q.cq, 32, &(struct ibv_qp_init_attr_ex) { 0 });
	for (int slot = 0; slot < 32; slot++)
		post_receive(&q, slot);
	struct rule r = rule(0);
	add_mac(&r);
	struct ibv_flow *flow = ibv_create_flow(q.qp, &r.attr);
	struct ibv_async_event event;
	pthread_t waits;
	CHECK(flow && !pthread_create(&waits, NULL, next_event, &event));
	inject(&p, 32);
	CHECK(!pthread_join(waits, NULL));
	printf("event: %s\n", ibv_event_type_str(event.event_type));
	CHECK(event.element.cq == q.cq);
	CHECK(!ibv_destroy_flow(flow) && !ibv_destroy_qp(q.qp) && !ibv_dereg_mr(q.mr));
	struct ending ending = { q.cq, 0 };
	pthread_t thread;
	CHECK(!pthread_create(&thread, NULL, end_queue, &ending));
	usleep(100000);
	__atomic_store_n(&ending.acknowledged, 1, __ATOMIC_SEQ_CST);
	ibv_ack_async_event(&event);
	CHECK(!pthread_join(thread, NULL));
	free(q.memory);
	printf("pass asynchronous events\n");
}

/* The device cuts one request into three frames; each part tells it how. */
static void large_sends(struct queue *to)
{
	enum { HEADER = 54, MSS = 40, PAYLOAD = 100 };
	struct ibv_device_attr_ex caps;
	CHECK(!ibv_query_device_ex(context, NULL, &caps));
	if (!caps.tso_caps.max_tso) {
		printf("skip large sends: this card does not cut them\n");
		return;
	}
	struct queue q = make_memory(ibv_create_cq(context, 64, NULL, NULL, 0));
	struct ibv_qp_init_attr_ex init = {
		.comp_mask = IBV_QP_INIT_ATTR_SEND_OPS_FLAGS | IBV_QP_INIT_ATTR_MAX_TSO_HEADER, .max_tso_header = HEADER,
		.send_ops_flags = IBV_QP_EX_WITH_SEND | IBV_QP_EX_WITH_TSO,
	};
	q.qp = ready(q.cq, q.cq, 0, &init);
	struct ibv_qp_ex *qp = ibv_qp_to_qp_ex(q.qp);
	struct packet p = packet(MACS IP4("06") "1388 1389 00000001 00000000 5010 ffff 0000 0000");
	memset(q.memory, 0x5a, PAYLOAD);
	struct ibv_sge pieces[] = { { (uintptr_t)q.memory, 30, q.mr->lkey }, { (uintptr_t)q.memory + 30, PAYLOAD - 30, q.mr->lkey } };
	for (int length = 10; length <= HEADER + 2; length += HEADER - 10 + 2) {
		struct ibv_send_wr wr = { .sg_list = pieces, .num_sge = 2, .opcode = IBV_WR_TSO, .tso = { p.bytes, length, MSS } }, *bad;
		tell("large send with a wrong header", ibv_post_send(q.qp, &wr, &bad));
		CHECK(bad == &wr);
	}
	ibv_wr_start(qp);
	qp->wr_id = 7, qp->wr_flags = IBV_SEND_SIGNALED;
	ibv_wr_send_tso(qp, p.bytes, HEADER, MSS);
	ibv_wr_set_sge_list(qp, 2, pieces);
	qp->wr_id = 8;
	ibv_wr_send(qp);
	ibv_wr_set_sge(qp, q.mr->lkey, (uintptr_t)q.memory, 60);
	CHECK(!ibv_wr_complete(qp));
	for (int id = 7; id <= 8; id++) {
		struct ibv_wc wc = await(q.cq);
		CHECK(!wc.status && (int)wc.wr_id == id);
		printf("opcode %d\n", wc.opcode);
	}
	struct ibv_wc wc;
	while (ibv_poll_cq(to->cq, 1, &wc) == 1) {
		printf("frame of %u bytes\n", wc.byte_len);
		post_receive(to, wc.wr_id);
	}
	destroy_queue(&q);
	printf("pass large sends\n");
}

int main(int argc, char **argv)
{
	open_device(argc, argv);
	extended_receives();
	struct queue to = make_queue();
	struct rule r = rule(0);
	add_mac(&r);
	ask("loop %s", "on", 0);
	struct ibv_flow *flow = ibv_create_flow(to.qp, &r.attr);
	CHECK(flow);
	extended_sends(&to);
	middle_of_poll();
	large_sends(&to);
	channels(&to);
	CHECK(!ibv_destroy_flow(flow));
	ask("loop %s", "off", 0);
	destroy_queue(&to);
	asynchronous_events();
	close_device();
	return 0;
}
