/*
 * The stock libraries, or the drop-in for them, on the virtual ConnectX. They make queues, flows and counters, packets are sent
 * over the control line, and everything that was counted and received is compared with what was sent.
 *
 * usage: mlx5-peer DEVICE CONTROL
 */
#include "common.h"

/* A flow with its counter: a packet that it matches, and one that it does not. */
static void match(struct queue *q, const char *name, struct rule *r, const char *hit, const char *miss)
{
	struct packet right = packet(hit), wrong = packet(miss);
	struct ibv_counters *counters = make_counters();
	add_count(r, counters);
	struct ibv_flow *flow = ibv_create_flow(q->qp, &r->attr);
	if (!flow)
		fprintf(stderr, "%s: %s\n", name, strerror(errno));
	CHECK(flow);
	struct ibv_counter_attach_attr late = { .counter_desc = IBV_COUNTER_BYTES };
	CHECK(ibv_attach_counters_point_flow(counters, &late, flow) == EOPNOTSUPP);
	inject(&right, 3);
	if (*miss)
		inject(&wrong, 2);
	for (int i = 0; i < 3; i++)
		expect_packet(q, &right);
	expect_nothing(q);
	expect_count(counters, 3, 3 * right.len);
	CHECK(!ibv_destroy_flow(flow));
	inject(&right, 1);
	expect_nothing(q);
	CHECK(!ibv_destroy_counters(counters));
	printf("pass match %s\n", name);
}

static void matches(struct queue *q)
{
	struct rule r;

	r = rule(0), add_mac(&r);
	match(q, "destination", &r, MACS "0800", "020000000009 020000000002 0800");

	r = rule(1);
	ADD(&r, ibv_flow_spec_eth, IBV_FLOW_SPEC_ETH, .val.vlan_tag = htons(0x0123), .mask.vlan_tag = htons(0x0fff));
	match(q, "vlan", &r, MACS "8100 e123 0800", MACS "8100 e124 0800");

	r = rule(2), add_mac(&r);
	ADD(&r, ibv_flow_spec_ipv4, IBV_FLOW_SPEC_IPV4, .val.dst_ip = htonl(0x0a000002), .mask.dst_ip = 0xffffffff);
	match(q, "ipv4", &r, MACS IP4("11") UDP, MACS IP6("11") UDP);

	r = rule(3), add_mac(&r);
	struct ibv_flow_spec_ipv6 six = { .type = IBV_FLOW_SPEC_IPV6, .size = sizeof(six) };
	memcpy(six.val.dst_ip, "\x20\x01\x0d\xb8\0\0\0\0\0\0\0\0\0\0\0\x02", 16);
	memset(six.mask.dst_ip, 0xff, 16);
	six.val.flow_label = htonl(0x12345), six.mask.flow_label = htonl(0xfffff);
	add(&r, &six, sizeof(six));
	match(q, "ipv6", &r, MACS IP6("11") UDP, MACS IP4("11") UDP);

	r = rule(4), add_mac(&r);
	ADD(&r, ibv_flow_spec_ipv4, IBV_FLOW_SPEC_IPV4, .mask.dst_ip = 0);
	ADD(&r, ibv_flow_spec_tcp_udp, IBV_FLOW_SPEC_UDP, .val.dst_port = htons(5001), .mask.dst_port = 0xffff);
	match(q, "udp", &r, MACS IP4("11") UDP, MACS IP4("06") UDP);

	r = rule(5), add_mac(&r);
	ADD(&r, ibv_flow_spec_ipv6, IBV_FLOW_SPEC_IPV6, .mask.next_hdr = 0);
	ADD(&r, ibv_flow_spec_tcp_udp, IBV_FLOW_SPEC_TCP, .val.src_port = htons(5000), .mask.src_port = 0xffff);
	match(q, "tcp", &r, MACS IP6("06") UDP "00000000 50020000 00000000", MACS IP6("11") UDP);

	r = rule(6), add_mac(&r);
	ADD(&r, ibv_flow_spec_ipv4, IBV_FLOW_SPEC_IPV4, .mask.dst_ip = 0);
	ADD(&r, ibv_flow_spec_tcp_udp, IBV_FLOW_SPEC_UDP, .val.dst_port = htons(4789), .mask.dst_port = 0xffff);
	ADD(&r, ibv_flow_spec_tunnel, IBV_FLOW_SPEC_VXLAN_TUNNEL, .val.tunnel_id = htonl(0x123), .mask.tunnel_id = htonl(0xffffff));
	ADD(&r, ibv_flow_spec_eth, IBV_FLOW_SPEC_ETH | IBV_FLOW_SPEC_INNER, .val.dst_mac[5] = 9, .mask.dst_mac[5] = 0xff);
	match(q, "vxlan", &r, MACS IP4("11") "1388 12b5 0030 0000 08000000 00012300 020000000009 020000000008 0800",
	      MACS IP4("11") "1388 12b5 0030 0000 08000000 00012300 020000000007 020000000008 0800");

	r = rule(7), add_mac(&r);
	ADD(&r, ibv_flow_spec_ipv4, IBV_FLOW_SPEC_IPV4, .mask.dst_ip = 0);
	ADD(&r, ibv_flow_spec_gre, IBV_FLOW_SPEC_GRE, .val.key = htonl(7), .mask.key = 0xffffffff);
	match(q, "gre", &r, MACS IP4("2f") "2000 0800 00000007", MACS IP4("2f") "2000 0800 00000008");

	r = rule(8), add_mac(&r);
	ADD(&r, ibv_flow_spec_mpls, IBV_FLOW_SPEC_MPLS, .val.label = htonl(0x12345 << 12), .mask.label = htonl(0xfffff000));
	match(q, "mpls", &r, MACS "8847 12345140", MACS "8847 12346140");

	/* These rules have their own table. */
	r = rule(9);
	ADD(&r, ibv_flow_spec_eth, IBV_FLOW_SPEC_ETH, .val.dst_mac = { 1, 0, 0x5e, 0, 0, 7 }, .mask.dst_mac = { 255, 255, 255, 255, 255, 255 });
	match(q, "multicast", &r, "01005e000007 020000000002 0800", "01005e000008 020000000002 0800");

	r = rule(15);
	match(q, "everything", &r, MACS "88b5", "");
}

static void priorities(struct queue *a, struct queue *b)
{
	struct packet p = packet(MACS IP4("11") UDP);
	struct ibv_counters *first = make_counters(), *second = make_counters(), *dropped = make_counters();
	struct rule low = rule(5), high = rule(1), drop = rule(0), pass = rule(1);

	add_mac(&low), add_count(&low, second);
	struct ibv_flow *flow = ibv_create_flow(b->qp, &low.attr);
	CHECK(flow);
	inject(&p, 1);
	expect_packet(b, &p);
	add_mac(&high), add_count(&high, first);
	struct ibv_flow *over = ibv_create_flow(a->qp, &high.attr);
	CHECK(over);
	inject(&p, 2);
	expect_packet(a, &p), expect_packet(a, &p), expect_nothing(a), expect_nothing(b);
	expect_count(first, 2, 2 * p.len), expect_count(second, 1, p.len);

	add_mac(&drop), add_count(&drop, dropped);
	ADD(&drop, ibv_flow_spec_action_drop, IBV_FLOW_SPEC_ACTION_DROP, );
	struct ibv_flow *none = ibv_create_flow(a->qp, &drop.attr);
	CHECK(none);
	inject(&p, 4);
	expect_nothing(a), expect_nothing(b);
	expect_count(dropped, 4, 4 * p.len), expect_count(first, 2, 2 * p.len);
	CHECK(!ibv_destroy_flow(none) && !ibv_destroy_flow(over));
	CHECK(!ibv_destroy_counters(dropped) && !ibv_destroy_counters(first));

	/* With this flag a packet goes on to the next priority as well. */
	pass.attr.flags = IBV_FLOW_ATTR_FLAGS_DONT_TRAP;
	add_mac(&pass);
	over = ibv_create_flow(a->qp, &pass.attr);
	if (over) {
		inject(&p, 1);
		expect_packet(a, &p), expect_packet(b, &p);
		expect_count(second, 2, 2 * p.len);
		CHECK(!ibv_destroy_flow(over));
		printf("pass both priorities\n");
	} else {
		printf("skip both priorities: %s\n", strerror(errno));
	}
	CHECK(!ibv_destroy_flow(flow) && !ibv_destroy_counters(second));
	printf("pass priorities\n");
}

/* Two queues with the same match: both get the packet, and the counters of both count it. */
static void two_destinations(struct queue *a, struct queue *b)
{
	struct packet p = packet(MACS IP4("11") UDP);
	struct rule r = rule(3);
	add_mac(&r);
	struct ibv_flow *one = ibv_create_flow(a->qp, &r.attr), *two = ibv_create_flow(b->qp, &r.attr);
	CHECK(one && two);
	inject(&p, 1);
	expect_packet(a, &p), expect_packet(b, &p);
	CHECK(!ibv_destroy_flow(one));
	inject(&p, 1);
	expect_nothing(a), expect_packet(b, &p);
	CHECK(!ibv_destroy_flow(two));
	printf("pass two destinations\n");
}

static void send_one(struct queue *q, struct packet *p, struct ibv_mr *mr, enum ibv_wc_status status)
{
	static uint64_t id;
	struct ibv_sge sge = { (uintptr_t)p->bytes, p->len, mr->lkey };
	struct ibv_send_wr wr = { .wr_id = ++id, .sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_SEND,
				  .send_flags = IBV_SEND_SIGNALED }, *bad;
	CHECK(!ibv_post_send(q->qp, &wr, &bad));
	struct ibv_wc wc = await(q->cq);
	CHECK(wc.status == status && wc.wr_id == id);
}

static void sends(struct queue *a, struct queue *b)
{
	struct packet p = packet(MACS IP4("11") UDP);
	struct rule r = rule(0);
	add_mac(&r);
	struct ibv_flow *flow = ibv_create_flow(b->qp, &r.attr);
	CHECK(flow);
	ask("loop %s", "on", 0);
	struct ibv_mr *mr = ibv_reg_mr(pd, p.bytes, sizeof(p.bytes), 0);
	CHECK(mr);
	for (int i = 0; i < 40; i++) {
		p.bytes[p.len - 1] = i;
		send_one(a, &p, mr, IBV_WC_SUCCESS);
		expect_packet(b, &p);
	}
	/* Sent packets are counted by flows of the other direction. */
	struct rule out = rule(0);
	struct ibv_counters *counters = make_counters();
	out.attr.flags = IBV_FLOW_ATTR_FLAGS_EGRESS;
	add_mac(&out), add_count(&out, counters);
	struct ibv_flow *egress = ibv_create_flow(a->qp, &out.attr);
	if (egress) {
		ask("sent clear", NULL, 0);
		send_one(a, &p, mr, IBV_WC_SUCCESS), expect_packet(b, &p);
		send_one(a, &p, mr, IBV_WC_SUCCESS), expect_packet(b, &p);
		expect_count(counters, 2, 2 * p.len);
		CHECK(strstr(ask("sent", NULL, 0), "0200000000010200000000020800"));
		CHECK(!ibv_destroy_flow(egress));
		printf("pass egress\n");
	} else {
		printf("skip egress: %s\n", strerror(errno));
	}
	CHECK(!ibv_destroy_counters(counters));

	/* A key that nobody has: the request fails, and the queue with it. */
	struct ibv_mr nobody = { .lkey = mr->lkey ^ 0x5a00 };
	send_one(a, &p, &nobody, IBV_WC_LOC_PROT_ERR);
	ask("loop %s", "off", 0);
	CHECK(!ibv_destroy_flow(flow) && !ibv_dereg_mr(mr));
	printf("pass sends\n");
}

/* The device cuts a large send into packets; libmlx5 lays the request out. */
static void large_sends(struct queue *b)
{
	enum { HEADER = 54, MSS = 40, PAYLOAD = 100 };
	struct ibv_device_attr_ex caps;
	CHECK(!ibv_query_device_ex(context, NULL, &caps));
	if (!caps.tso_caps.max_tso) {
		printf("skip large sends: this card does not cut them\n");
		return;
	}
	struct queue a = { .cq = ibv_create_cq(context, 8, NULL, NULL, 0) };
	CHECK(a.cq);
	struct ibv_qp_init_attr_ex init = {
		.send_cq = a.cq, .recv_cq = a.cq, .qp_type = IBV_QPT_RAW_PACKET, .pd = pd, .max_tso_header = HEADER,
		.cap = { .max_send_wr = 4, .max_recv_wr = 1, .max_send_sge = 1, .max_recv_sge = 1 },
		.comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_MAX_TSO_HEADER,
	};
	CHECK(a.qp = ibv_create_qp_ex(context, &init));
	make_ready(a.qp);

	struct packet p = packet(MACS IP4("06") "1388 1389 00000001 00000000 5010 ffff 0000 0000");
	struct ibv_mr *mr = ibv_reg_mr(pd, p.bytes, sizeof(p.bytes), 0);
	struct ibv_counters *counters = make_counters();
	struct rule r = rule(0);
	add_mac(&r), add_count(&r, counters);
	struct ibv_flow *flow = ibv_create_flow(b->qp, &r.attr);
	CHECK(mr && flow);
	ask("loop %s", "on", 0);
	struct ibv_sge sge = { (uintptr_t)p.bytes + HEADER, PAYLOAD, mr->lkey };
	struct ibv_send_wr wr = { .wr_id = 7, .sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_TSO,
				  .send_flags = IBV_SEND_SIGNALED, .tso = { p.bytes, HEADER, MSS } }, *bad;
	CHECK(!ibv_post_send(a.qp, &wr, &bad));
	struct ibv_wc wc = await(a.cq);
	CHECK(wc.status == IBV_WC_SUCCESS && wc.wr_id == 7 && wc.opcode == IBV_WC_TSO);
	expect_count(counters, 3, 3 * HEADER + PAYLOAD);
	ask("loop %s", "off", 0);
	CHECK(!ibv_destroy_flow(flow) && !ibv_destroy_counters(counters) && !ibv_dereg_mr(mr));
	CHECK(!ibv_destroy_qp(a.qp) && !ibv_destroy_cq(a.cq));
	printf("pass large sends\n");
}

/* Completion events, requested before and after the packet. */
static void events(void)
{
	struct packet p = packet(MACS IP4("11") UDP);
	struct ibv_comp_channel *channel = ibv_create_comp_channel(context);
	CHECK(channel);
	struct queue q = make_queue(), seen = q;
	seen.cq = ibv_create_cq(context, 16, NULL, channel, 0);
	CHECK(seen.cq && !ibv_destroy_qp(q.qp));
	struct ibv_qp_init_attr init = {
		.send_cq = seen.cq, .recv_cq = seen.cq, .qp_type = IBV_QPT_RAW_PACKET,
		.cap = { .max_send_wr = 1, .max_recv_wr = 8, .max_send_sge = 1, .max_recv_sge = 1 },
	};
	CHECK(seen.qp = ibv_create_qp(pd, &init));
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_INIT, .port_num = 1 };
	CHECK(!ibv_modify_qp(seen.qp, &attr, IBV_QP_STATE | IBV_QP_PORT));
	attr.qp_state = IBV_QPS_RTR;
	CHECK(!ibv_modify_qp(seen.qp, &attr, IBV_QP_STATE));
	for (int i = 0; i < 4; i++)
		post_receive(&seen, i);
	struct rule r = rule(0);
	add_mac(&r);
	struct ibv_flow *flow = ibv_create_flow(seen.qp, &r.attr);
	CHECK(flow);
	for (int i = 0; i < 4; i++) {
		struct ibv_cq *cq;
		void *cookie;
		if (i % 2)
			inject(&p, 1);
		CHECK(!ibv_req_notify_cq(seen.cq, 0));
		if (i % 2 == 0)
			inject(&p, 1);
		CHECK(!ibv_get_cq_event(channel, &cq, &cookie) && cq == seen.cq);
		expect_packet(&seen, &p);
	}
	ibv_ack_cq_events(seen.cq, 4);
	CHECK(!ibv_destroy_flow(flow) && !ibv_destroy_qp(seen.qp) && !ibv_destroy_cq(seen.cq));
	CHECK(!ibv_destroy_comp_channel(channel) && !ibv_dereg_mr(q.mr) && !ibv_destroy_cq(q.cq));
	free(q.memory);
	printf("pass events\n");
}

/* Eight known hash values, spread over four queues by their two lowest bits. */
static void spreading(void)
{
	enum { QUEUES = 4 };
	static const uint8_t key[40] = {
		0x6d, 0x5a, 0x56, 0xda, 0x25, 0x5b, 0x0e, 0xc2, 0x41, 0x67, 0x25, 0x3d, 0x43, 0xa3, 0x8f, 0xb0, 0xd0, 0xca, 0x2b, 0xcb,
		0xae, 0x7b, 0x30, 0xb4, 0x77, 0xcb, 0x2d, 0xa3, 0x80, 0x30, 0xf2, 0x0c, 0x6a, 0x42, 0xb7, 0x3b, 0xbe, 0xac, 0x01, 0xfa,
	};
	static const struct { const char *addresses, *ports; uint32_t hash; } known[] = {
		{ "420995bb a18e6450", "0aea06e6", 0x51ccc178 }, { "c75c6f02 41458c53", "37961283", 0xc626b0ea },
		{ "1813c65f 0c16cfb8", "32629488", 0x5c2b394a }, { "261bcd1e d18ea306", "bc6408a9", 0xafc7327f },
		{ "9927a3bf cabc7f02", "acdb0517", 0x10e828a2 },
	};
	struct ibv_cq *cqs[QUEUES];
	struct ibv_wq *wqs[QUEUES];
	uint8_t *memory = aligned_alloc(4096, QUEUES * 8 * SLOT);
	struct ibv_mr *mr = ibv_reg_mr(pd, memory, QUEUES * 8 * SLOT, IBV_ACCESS_LOCAL_WRITE);
	CHECK(mr);
	for (int i = 0; i < QUEUES; i++) {
		CHECK(cqs[i] = ibv_create_cq(context, 16, NULL, NULL, 0));
		struct ibv_wq_init_attr init = { .wq_type = IBV_WQT_RQ, .max_wr = 8, .max_sge = 1, .pd = pd, .cq = cqs[i] };
		CHECK(wqs[i] = ibv_create_wq(context, &init));
		struct ibv_wq_attr attr = { .attr_mask = IBV_WQ_ATTR_STATE, .wq_state = IBV_WQS_RDY };
		CHECK(!ibv_modify_wq(wqs[i], &attr));
		for (int slot = 0; slot < 8; slot++) {
			struct ibv_sge sge = { (uintptr_t)memory + (i * 8 + slot) * SLOT, SLOT, mr->lkey };
			struct ibv_recv_wr wr = { .wr_id = slot, .sg_list = &sge, .num_sge = 1 }, *bad;
			CHECK(!ibv_post_wq_recv(wqs[i], &wr, &bad));
		}
	}
	struct ibv_rwq_ind_table_init_attr table_init = { .log_ind_tbl_size = 2, .ind_tbl = wqs };
	struct ibv_rwq_ind_table *table = ibv_create_rwq_ind_table(context, &table_init);
	CHECK(table);
	struct ibv_qp_init_attr_ex init = {
		.qp_type = IBV_QPT_RAW_PACKET, .pd = pd, .rwq_ind_tbl = table,
		.comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_IND_TABLE | IBV_QP_INIT_ATTR_RX_HASH,
		.rx_hash_conf = {
			.rx_hash_function = IBV_RX_HASH_FUNC_TOEPLITZ, .rx_hash_key_len = 40, .rx_hash_key = (uint8_t *)key,
			.rx_hash_fields_mask = IBV_RX_HASH_SRC_IPV4 | IBV_RX_HASH_DST_IPV4 | IBV_RX_HASH_SRC_PORT_TCP | IBV_RX_HASH_DST_PORT_TCP,
		},
	};
	struct ibv_qp *qp = ibv_create_qp_ex(context, &init);
	CHECK(qp);
	struct rule r = rule(0);
	add_mac(&r);
	struct ibv_flow *flow = ibv_create_flow(qp, &r.attr);
	CHECK(flow);
	int wanted[QUEUES] = { 0 };
	for (size_t i = 0; i < sizeof(known) / sizeof(*known); i++) {
		char hex[256];
		sprintf(hex, MACS "0800 4500002800000000 40060000 %s %s 0000000000000000 50020000 00000000", known[i].addresses, known[i].ports);
		struct packet p = packet(hex);
		inject(&p, 1);
		wanted[known[i].hash % QUEUES]++;
	}
	for (int i = 0; i < QUEUES; i++) {
		struct ibv_wc wc[8];
		int got = ibv_poll_cq(cqs[i], 8, wc);
		if (got != wanted[i])
			fprintf(stderr, "queue %d: %d packets, not %d\n", i, got, wanted[i]);
		CHECK(got == wanted[i]);
	}
	CHECK(!ibv_destroy_flow(flow) && !ibv_destroy_qp(qp) && !ibv_destroy_rwq_ind_table(table));
	for (int i = 0; i < QUEUES; i++)
		CHECK(!ibv_destroy_wq(wqs[i]) && !ibv_destroy_cq(cqs[i]));
	CHECK(!ibv_dereg_mr(mr));
	free(memory);
	printf("pass spreading\n");
}

/* Packets that no other rule matches: all of them, or only multicast. */
static void defaults(struct queue *a, struct queue *b)
{
	struct packet p = packet(MACS "88b5"), multicast = packet("01005e000007 020000000002 88b5");
	struct rule all = rule(0), some = rule(0), r = rule(15);
	all.attr.type = IBV_FLOW_ATTR_ALL_DEFAULT, some.attr.type = IBV_FLOW_ATTR_MC_DEFAULT;
	struct ibv_flow *flow = ibv_create_flow(a->qp, &all.attr);
	if (!flow) {
		printf("skip default rules: %s\n", strerror(errno));
		return;
	}
	inject(&p, 1), inject(&multicast, 1);
	expect_packet(a, &p), expect_packet(a, &multicast);
	add_mac(&r);
	struct ibv_flow *over = ibv_create_flow(b->qp, &r.attr);
	CHECK(over);
	inject(&p, 1);
	expect_packet(b, &p), expect_nothing(a);
	CHECK(!ibv_destroy_flow(over) && !ibv_destroy_flow(flow));
	CHECK(flow = ibv_create_flow(a->qp, &some.attr));
	inject(&p, 1), inject(&multicast, 1);
	expect_packet(a, &multicast), expect_nothing(a);
	CHECK(!ibv_destroy_flow(flow));
	printf("pass default rules\n");
}

/* A receive is too short for a packet. It fails, and what is still in the queue ends with it. */
static void too_long(void)
{
	struct queue q = make_queue();
	struct rule r = rule(0);
	struct ibv_wc wc;
	add_mac(&r);
	struct ibv_flow *flow = ibv_create_flow(q.qp, &r.attr);
	CHECK(flow);
	char hex[2 * (SLOT + 1) + 1];
	sprintf(hex, "%s", "020000000001020000000002" "88b5");
	memset(hex + 28, '0', sizeof(hex) - 29);
	hex[sizeof(hex) - 1] = 0;
	ask("send %s", hex, 0);
	CHECK(ibv_poll_cq(q.cq, 1, &wc) == 1 && wc.wr_id == 0 && wc.status == IBV_WC_LOC_LEN_ERR);
	for (int slot = 1; slot < SLOTS; slot++)
		CHECK(ibv_poll_cq(q.cq, 1, &wc) == 1 && wc.wr_id == (uint64_t)slot && wc.status == IBV_WC_WR_FLUSH_ERR);
	expect_nothing(&q);
	CHECK(!ibv_destroy_flow(flow));
	destroy_queue(&q);
	printf("pass too long\n");
}

/* Reading takes as long as the device takes; nothing else is held up. */
static void delays(struct queue *q)
{
	struct ibv_counters *counters = make_counters();
	struct rule r = rule(0);
	struct timespec before, after;
	add_mac(&r), add_count(&r, counters);
	struct ibv_flow *flow = ibv_create_flow(q->qp, &r.attr);
	CHECK(flow);
	ask("delay %s QUERY_FLOW_COUNTER", "400", 0);
	CHECK(!clock_gettime(CLOCK_MONOTONIC, &before));
	expect_count(counters, 0, 0);
	CHECK(!clock_gettime(CLOCK_MONOTONIC, &after));
	CHECK((after.tv_sec - before.tv_sec) * 1000 + (after.tv_nsec - before.tv_nsec) / 1000000 >= 350);
	ask("heal", NULL, 0);
	CHECK(!ibv_destroy_flow(flow) && !ibv_destroy_counters(counters));
	printf("pass delays\n");
}

/* Commands that fail, with the errno for each status. */
static void failures(struct queue *q)
{
	static const struct { const char *status; int error; } known[] = {
		{ "0x1", EIO }, { "0x3", EINVAL }, { "0x5", EINVAL }, { "0x6", EBUSY }, { "0x8", ENOMEM }, { "0xf", EAGAIN }, { "0x50", EIO },
	};
	struct rule r = rule(0);
	add_mac(&r);
	for (size_t i = 0; i < sizeof(known) / sizeof(*known); i++) {
		ask("fail SET_FLOW_TABLE_ENTRY %s", known[i].status, 0);
		errno = 0;
		CHECK(!ibv_create_flow(q->qp, &r.attr));
		if (errno != known[i].error)
			fprintf(stderr, "status %s: errno %d\n", known[i].status, errno);
		CHECK(errno == known[i].error);
	}
	struct ibv_flow *flow = ibv_create_flow(q->qp, &r.attr);
	CHECK(flow && !ibv_destroy_flow(flow));
	printf("pass failures\n");
}

int main(int argc, char **argv)
{
	open_device(argc, argv);
	struct queue a = make_queue(), b = make_queue();
	matches(&a);
	priorities(&a, &b);
	two_destinations(&a, &b);
	spreading();
	events();
	failures(&a);
	defaults(&a, &b);
	too_long();
	delays(&a);
	sends(&a, &b);
	/* Must be the last: what it sends stays in the queue. */
	large_sends(&b);
	destroy_queue(&a);
	destroy_queue(&b);
	close_device();
	return 0;
}
