/* Flows and their counters, work queues, their tables, queue pairs that spread packets over them, and frames from the wire. */
#pragma once
#include "posts.h"
#include "world.h"

static struct {
	struct ibv_flow_attr attr;
	uint8_t specs[1024];
} rule;

static int has_points[PLACES];

static void *add(uint32_t type, uint16_t size)
{
	struct { uint32_t type; uint16_t size; } *head = (void *)((uint8_t *)&rule + rule.attr.size);

	head->type = type, head->size = size;
	rule.attr.size += size;
	rule.attr.num_of_specs++;
	return head;
}

#define ADD(type, kind) ((struct kind *)add(type, sizeof(struct kind)))
#define SET(spec, field, value, bits) ((spec)->val.field = (value), (spec)->mask.field = (bits))

static const uint8_t mac_one[6] = { 2, 0, 0, 0, 0, 1 };

static void add_eth(const uint8_t *to, const uint8_t *from, uint16_t type, uint16_t vlan)
{
	struct ibv_flow_spec_eth *eth = ADD(IBV_FLOW_SPEC_ETH, ibv_flow_spec_eth);

	if (to)
		memcpy(eth->val.dst_mac, to, 6), memset(eth->mask.dst_mac, 0xff, 6);
	if (from)
		memcpy(eth->val.src_mac, from, 6), memset(eth->mask.src_mac, 0xff, 6);
	if (type)
		SET(eth, ether_type, htobe16(type), 0xffff);
	if (vlan)
		SET(eth, vlan_tag, htobe16(vlan), htobe16(0xfff));
}

static struct ibv_flow_spec_ipv4_ext *add_ipv4(void)
{
	return ADD(IBV_FLOW_SPEC_IPV4_EXT, ibv_flow_spec_ipv4_ext);
}

static struct ibv_flow_spec_tcp_udp *add_ports(int type, uint16_t from, uint16_t to)
{
	struct ibv_flow_spec_tcp_udp *ports = ADD(type, ibv_flow_spec_tcp_udp);

	if (from)
		SET(ports, src_port, htobe16(from), 0xffff);
	if (to)
		SET(ports, dst_port, htobe16(to), 0xffff);
	return ports;
}

static void add_tag(void)
{
	ADD(IBV_FLOW_SPEC_ACTION_TAG, ibv_flow_spec_action_tag)->tag_id = 7;
}

static void add_drop(void)
{
	add(IBV_FLOW_SPEC_ACTION_DROP, sizeof(struct ibv_flow_spec_action_drop));
}

static void begin_rule(int port)
{
	memset(&rule, 0, sizeof(rule));
	rule.attr.size = sizeof(rule.attr), rule.attr.port = port, rule.attr.type = IBV_FLOW_ATTR_NORMAL;
}

/* Makes a rule by its name; returns 0 if there is no such rule. */
static int named(const char *name)
{
	static const uint8_t ee[6] = { 2, 0, 0, 0, 0, 0xee }, two[6] = { 2, 0, 0, 0, 0, 2 }, all[6] = { 255, 255, 255, 255, 255, 255 };
	struct ibv_flow_spec_ipv4_ext *ip;

#define NAMED(text) if (!strcmp(name, text))
	NAMED("any") return 1;
	NAMED("nonsense") return 0;
	if (!strncmp(name, "dst-", 4))
		add_eth(name[4] == '1' ? mac_one : two, NULL, 0, 0);
	NAMED("src-ee") add_eth(NULL, ee, 0, 0);
	NAMED("broadcast") add_eth(all, NULL, 0, 0);
	NAMED("proto-88b5") add_eth(NULL, NULL, 0x88b5, 0);
	NAMED("vlan-5") add_eth(NULL, NULL, 0, 5);
	if (!strncmp(name, "ip", 2) && name[2] != '6') {
		ip = add_ipv4();
		NAMED("ip-src") SET(ip, src_ip, htobe32(0x0a000001), 0xffffffff);
		NAMED("ip-net") SET(ip, dst_ip, htobe32(0x0a000000), htobe32(0xffffff00));
		NAMED("ip-proto") SET(ip, proto, 17, 0xff);
	}
	NAMED("ip6") ADD(IBV_FLOW_SPEC_IPV6, ibv_flow_spec_ipv6);
	NAMED("dst-1-udp") add_ipv4();
	NAMED("udp") add_ports(IBV_FLOW_SPEC_UDP, 0, 0);
	NAMED("tcp") add_ports(IBV_FLOW_SPEC_TCP, 0, 0);
	if (!strcmp(name, "udp-4791") || !strcmp(name, "dst-1-udp"))
		add_ports(IBV_FLOW_SPEC_UDP, 0, 4791);
	NAMED("tcp-80") add_ports(IBV_FLOW_SPEC_TCP, 80, 0);
	NAMED("vxlan") {
		add_ports(IBV_FLOW_SPEC_UDP, 0, 4789);
		ADD(IBV_FLOW_SPEC_VXLAN_TUNNEL, ibv_flow_spec_tunnel);
	}
	NAMED("gre") ADD(IBV_FLOW_SPEC_GRE, ibv_flow_spec_gre);
	NAMED("mpls") ADD(IBV_FLOW_SPEC_MPLS, ibv_flow_spec_mpls);
	NAMED("esp") ADD(IBV_FLOW_SPEC_ESP, ibv_flow_spec_esp);
	if (strstr(name, "drop"))
		add_drop();
	NAMED("tag-7") add_tag();
	NAMED("egress") rule.attr.flags = IBV_FLOW_ATTR_FLAGS_EGRESS;
	NAMED("dont-trap") rule.attr.flags = IBV_FLOW_ATTR_FLAGS_DONT_TRAP;
	NAMED("all-default") rule.attr.type = IBV_FLOW_ATTR_ALL_DEFAULT;
	NAMED("mc-default") rule.attr.type = IBV_FLOW_ATTR_MC_DEFAULT;
	NAMED("sniffer") rule.attr.type = IBV_FLOW_ATTR_SNIFFER;
	return 1;
}

/* A rule of the headers that the bits choose, with a value in each field, or with a mask that ignores some of it. */
static void built(uint64_t bits, int masked)
{
	uint8_t some = masked ? 3 : 0xff;
	uint16_t low = htobe16(masked ? 0xff : 0xffff);

	if (bits & 1)
		add_eth(mac_one, masked ? NULL : mac_one, 0x800, 5);
	if (bits & 2) {
		struct ibv_flow_spec_ipv4_ext *ip = add_ipv4();
		uint32_t all = masked ? htobe32(0x0a000001) : 0xffffffff;
		SET(ip, src_ip, htobe32(0x0a000001), all), SET(ip, dst_ip, htobe32(0x0a000001), all);
		SET(ip, proto, 17, 0xff), SET(ip, tos, 1, some), SET(ip, ttl, 64, 0xff), SET(ip, flags, 2, masked ? 2 : 0xff);
	}
	if (bits & 4) {
		struct ibv_flow_spec_ipv6 *ip = ADD(IBV_FLOW_SPEC_IPV6, ibv_flow_spec_ipv6);
		ip->val.src_ip[15] = ip->val.dst_ip[15] = 1;
		memset(ip->mask.src_ip, 0xff, 16), memset(ip->mask.dst_ip, 0xff, 16);
		SET(ip, next_hdr, 17, 0xff), SET(ip, traffic_class, 1, some), SET(ip, hop_limit, 64, 0xff);
		SET(ip, flow_label, htobe32(5), htobe32(masked ? 5 : 0xfffff));
	}
	if (bits & 8) {
		struct ibv_flow_spec_tcp_udp *tcp = add_ports(IBV_FLOW_SPEC_TCP, 80, 80);
		tcp->mask.src_port = tcp->mask.dst_port = low;
	}
	if (bits & 16)
		add_ports(IBV_FLOW_SPEC_UDP, 80, 4789)->mask.src_port = low;
	if (bits & 32)
		SET(ADD(IBV_FLOW_SPEC_VXLAN_TUNNEL, ibv_flow_spec_tunnel), tunnel_id, htobe32(77), htobe32(masked ? 77 : 0xffffff));
	if (bits & 64) {
		struct ibv_flow_spec_gre *gre = ADD(IBV_FLOW_SPEC_GRE, ibv_flow_spec_gre);
		SET(gre, c_ks_res0_ver, htobe16(1), htobe16(masked ? 1 : 0xffff)), SET(gre, protocol, htobe16(0x800), 0xffff);
		SET(gre, key, htobe32(9), masked ? htobe32(9) : 0xffffffff);
	}
	if (bits & 128)
		SET(ADD(IBV_FLOW_SPEC_MPLS, ibv_flow_spec_mpls), label, htobe32(4096), masked ? htobe32(0xfffff000) : 0xffffffff);
	if (bits & 256) {
		struct ibv_flow_spec_esp *esp = ADD(IBV_FLOW_SPEC_ESP, ibv_flow_spec_esp);
		uint32_t all = masked ? htobe32(1) : 0xffffffff;
		SET(esp, spi, htobe32(1), all), SET(esp, seq, htobe32(1), all);
	}
	if (bits & 512)
		add(IBV_FLOW_SPEC_ETH | IBV_FLOW_SPEC_INNER, sizeof(struct ibv_flow_spec_eth));
	if (bits & 1024)
		add_ports(IBV_FLOW_SPEC_UDP, 0, 0);
	if (bits & 2048)
		add_tag();
	if (bits & 4096)
		add_drop();
	rule.attr.flags = (bits & 8192 ? IBV_FLOW_ATTR_FLAGS_EGRESS : 0) | (bits & 16384 ? IBV_FLOW_ATTR_FLAGS_DONT_TRAP : 0);
}

static void flow_step(void)
{
	static const char *const words[] = { "all", "multicast", "sniffer" };
	static const int defaults[] = { IBV_FLOW_ATTR_ALL_DEFAULT, IBV_FLOW_ATTR_MC_DEFAULT, IBV_FLOW_ATTR_SNIFFER };
	int at = place(1), of_counters = is("flow-rss") || is("flow") ? 4 : 7;
	struct ibv_qp *qp = is("flow-rss") ? rss[place(2)] : pairs[place(2)].qp;

	if (is("destroy-flow") || is("drop-flow")) {
		NEEDS(flows[at]);
		if (done(ibv_destroy_flow(flows[at])))
			flows[at] = NULL;
		return;
	}
	NEEDS(!flows[at] && qp);
	begin_rule(is("flow") || is("flow-of") ? arg[5] : is("flow-default") ? arg[4] : 1);
	if (is("flow-of"))
		rule.attr.priority = arg[6], built(arg[3], arg[4] != 0);
	else if (is("flow-default"))
		rule.attr.type = defaults[WORD(3, words)];
	else
		NEEDS(named(word[3]));
	if (!is("flow-default") && arg[of_counters] != NONE && rule.attr.type == IBV_FLOW_ATTR_NORMAL) {
		struct ibv_counters *counting = counters[place(of_counters)];
		/* Without a point, mlx5's driver would wait forever at the next attach. */
		NEEDS(counting && counting->context == qp->context && has_points[place(of_counters)]);
		ADD(IBV_FLOW_SPEC_ACTION_COUNT, ibv_flow_spec_counter_action)->counters = counting;
	}
	made(flows[at] = ibv_create_flow(qp, &rule.attr));
}

static void counters_step(void)
{
	int at = place(1);

	if (is("counters")) {
		struct ibv_counters_init_attr init = { 0 };
		NEEDS(!counters[at] && contexts[place(2)]);
		has_points[at] = 0;
		made(counters[at] = ibv_create_counters(contexts[place(2)], &init));
		return;
	}
	NEEDS(counters[at]);
	if (is("attach")) {
		struct ibv_counter_attach_attr attr = { .index = arg[3] };
		/* At the last index mlx5's driver would write outside its memory. */
		NEEDS(arg[3] < 0xffffffff);
		attr.counter_desc = strcmp(word[2], "bytes") ? IBV_COUNTER_PACKETS : IBV_COUNTER_BYTES;
		if (done(ibv_attach_counters_point_flow(counters[at], &attr, NULL)))
			has_points[at] = 1;
	} else if (is("read")) {
		uint64_t values[8192] = { 0 };
		int flags = !strcmp(word[3], "none") ? 0 : !strcmp(word[3], "cached") ? IBV_READ_COUNTERS_ATTR_PREFER_CACHED : 0x80;
		settle();
		if (done(ibv_read_counters(counters[at], values, arg[2], flags)))
			for (uint64_t i = 0; i < arg[2] && i < 8; i++)
				say(" %ju", (uintmax_t)values[i]);
	} else if (done(ibv_destroy_counters(counters[at]))) {
		counters[at] = NULL;
	}
}

static void work_queue_step(void)
{
	int at = place(1);
	struct ibv_wq *wq = work_queues[at];

	if (is("wq")) {
		struct ibv_pd *pd = domains[place(2)];
		struct ibv_cq *cq = completions[place(3)];
		NEEDS(!wq && pd && cq && pd->context == cq->context);
		struct ibv_wq_init_attr init = { (void *)(uintptr_t)at, IBV_WQT_RQ, arg[4], arg[5], pd, cq, 0, 0 };
		if (arg[6])
			init.comp_mask = IBV_WQ_INIT_ATTR_FLAGS, init.create_flags = IBV_WQ_FLAGS_CVLAN_STRIPPING;
		if (made(work_queues[at] = ibv_create_wq(pd->context, &init))) {
			say(" %u %u", init.max_wr, init.max_sge);
			known_number(work_queues[at]->wq_num, 100 + at);
		}
		return;
	}
	NEEDS(wq);
	if (is("wq-modify")) {
		struct ibv_wq_attr attr = { .attr_mask = IBV_WQ_ATTR_STATE };
		attr.wq_state = !strcmp(word[2], "ready") ? IBV_WQS_RDY : !strcmp(word[2], "reset") ? IBV_WQS_RESET : IBV_WQS_ERR;
		done(ibv_modify_wq(wq, &attr));
		say(" state %d", wq->state);
	} else if (is("wq-recv")) {
		const struct region *region = &regions[place(2)];
		struct ibv_recv_wr *bad = NULL;
		NEEDS(region->mr);
		if (!done(ibv_post_wq_recv(wq, receives(arg[5], 400, region, arg[3], arg[4]), &bad)))
			say(" at %d", bad ? (int)bad->wr_id : -1);
	} else if (done(ibv_destroy_wq(wq))) {
		work_queues[at] = NULL;
	}
}

static void table_step(void)
{
	int at = place(1);

	if (is("table")) {
		struct ibv_wq *list[2] = { work_queues[place(3)], arg[4] == NONE ? work_queues[place(3)] : work_queues[place(4)] };
		struct ibv_context *context = contexts[place(2)];
		struct ibv_rwq_ind_table_init_attr init = { arg[5] == 2, list, 0 };
		/* The number of entries must be a power of two. */
		NEEDS(!tables[at] && context && list[0] && list[1] && (arg[5] == 1 || arg[5] == 2));
		NEEDS(list[0]->context == context && list[1]->context == context);
		made(tables[at] = ibv_create_rwq_ind_table(context, &init));
		return;
	}
	NEEDS(tables[at]);
	if (done(ibv_destroy_rwq_ind_table(tables[at])))
		tables[at] = NULL;
}

static void rss_step(void)
{
	static const char *const words[] = { "ip", "none", "udp", "wrong" };
	static const uint64_t fields[] = {
		IBV_RX_HASH_SRC_IPV4 | IBV_RX_HASH_DST_IPV4, 0,
		IBV_RX_HASH_SRC_PORT_UDP | IBV_RX_HASH_DST_PORT_UDP | IBV_RX_HASH_SRC_IPV4 | IBV_RX_HASH_DST_IPV4,
		IBV_RX_HASH_SRC_IPV4 | IBV_RX_HASH_DST_IPV4 | IBV_RX_HASH_SRC_IPV6 | IBV_RX_HASH_DST_IPV6,
	};
	static uint8_t key[40] = { 0x6d, 0x5a };
	int at = place(1);
	struct ibv_pd *pd = domains[place(2)];

	if (!is("rss")) {
		NEEDS(rss[at]);
		if (done(ibv_destroy_qp(rss[at])))
			rss[at] = NULL;
		return;
	}
	NEEDS(!rss[at] && pd && tables[place(3)] && tables[place(3)]->context == pd->context);
	struct ibv_qp_init_attr_ex init = {
		.qp_type = IBV_QPT_RAW_PACKET, .pd = pd, .rwq_ind_tbl = tables[place(3)],
		.comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_IND_TABLE | IBV_QP_INIT_ATTR_RX_HASH,
		.rx_hash_conf = { IBV_RX_HASH_FUNC_TOEPLITZ, sizeof(key), key, fields[WORD(4, words)] },
	};
	made(rss[at] = ibv_create_qp_ex(pd->context, &init));
}

static void inject(void)
{
	static char text[8192];
	uint8_t bytes[2048];
	size_t len = arg[2] < 54 ? 54 : arg[2];
	int at = sprintf(text, "send ");

	NEEDS(control);
	frame(bytes, len, arg[1]);
	for (size_t i = 0; i < len; i++)
		at += sprintf(text + at, "%02x", bytes[i]);
	ask(text, NULL);
	something_runs = 1;
	say("ok");
}
