/*
 * Runs the steps of steps.txt through libibverbs and libmlx5. Prints for each step its text, its result, and the commands that the
 * device received meanwhile. src/ours.rs does the same through this crate; see README.md.
 *
 * usage: theirs DEVICE CONTROL STEPS
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <infiniband/verbs.h>
#include <stddef.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include "../../lib/say.h"

enum { MANY = 16, SLOT = 2048 };

static void die(const char *what)
{
	fprintf(stderr, "theirs: %s: %s\n", what, strerror(errno));
	exit(1);
}

/* For calls that return an errno, and for calls that return -1 or NULL and set errno. */
static int done(int error)
{
	if (error)
		say("%s", strerrorname_np(error < 0 ? errno : error));
	return !error;
}

#define made(object) done((object) ? 0 : -1)

/* Objects, by kind and number. */

struct region {
	struct ibv_mr *mr;
	uint8_t *memory;
	size_t len;
};

static const char *device;
static struct ibv_context *context;
static struct ibv_pd *pd;
static struct ibv_cq *cqs[MANY];
static struct ibv_qp *qps[MANY];
static struct region mrs[MANY];
static struct ibv_counters *counters[MANY];
static struct ibv_flow *flows[MANY];

static int number(const char *word)
{
	return word ? atoi(word) : 0;
}

static int slot(const char *word)
{
	int slot = number(word);
	if (slot < 0 || slot >= MANY)
		die("no such number");
	return slot;
}

static size_t unhex(const char *text, size_t len, uint8_t *bytes, size_t room)
{
	size_t at = 0;
	for (; at < len / 2 && at < room; at++)
		sscanf(text + 2 * at, "%2hhx", &bytes[at]);
	return at;
}

/* Rules. A word with `=` sets a field; any other word begins a header or an action. All fields are in network order. */

struct field {
	const char *spec, *name;
	int type, size, len, val, mask;
};

#define FIELD(spec, name, type, kind, field) \
	{ spec, name, type, sizeof(struct kind), sizeof(((struct kind *)0)->val.field), \
	  offsetof(struct kind, val.field), offsetof(struct kind, mask.field) }

static const struct field fields[] = {
	FIELD("eth", "dst", IBV_FLOW_SPEC_ETH, ibv_flow_spec_eth, dst_mac),
	FIELD("eth", "src", IBV_FLOW_SPEC_ETH, ibv_flow_spec_eth, src_mac),
	FIELD("eth", "type", IBV_FLOW_SPEC_ETH, ibv_flow_spec_eth, ether_type),
	FIELD("eth", "vlan", IBV_FLOW_SPEC_ETH, ibv_flow_spec_eth, vlan_tag),
	FIELD("ipv4", "src", IBV_FLOW_SPEC_IPV4_EXT, ibv_flow_spec_ipv4_ext, src_ip),
	FIELD("ipv4", "dst", IBV_FLOW_SPEC_IPV4_EXT, ibv_flow_spec_ipv4_ext, dst_ip),
	FIELD("ipv4", "proto", IBV_FLOW_SPEC_IPV4_EXT, ibv_flow_spec_ipv4_ext, proto),
	FIELD("ipv4", "tos", IBV_FLOW_SPEC_IPV4_EXT, ibv_flow_spec_ipv4_ext, tos),
	FIELD("ipv4", "ttl", IBV_FLOW_SPEC_IPV4_EXT, ibv_flow_spec_ipv4_ext, ttl),
	FIELD("ipv4", "flags", IBV_FLOW_SPEC_IPV4_EXT, ibv_flow_spec_ipv4_ext, flags),
	FIELD("ipv6", "src", IBV_FLOW_SPEC_IPV6, ibv_flow_spec_ipv6, src_ip),
	FIELD("ipv6", "dst", IBV_FLOW_SPEC_IPV6, ibv_flow_spec_ipv6, dst_ip),
	FIELD("ipv6", "label", IBV_FLOW_SPEC_IPV6, ibv_flow_spec_ipv6, flow_label),
	FIELD("ipv6", "next", IBV_FLOW_SPEC_IPV6, ibv_flow_spec_ipv6, next_hdr),
	FIELD("ipv6", "class", IBV_FLOW_SPEC_IPV6, ibv_flow_spec_ipv6, traffic_class),
	FIELD("ipv6", "hops", IBV_FLOW_SPEC_IPV6, ibv_flow_spec_ipv6, hop_limit),
	FIELD("tcp", "dst", IBV_FLOW_SPEC_TCP, ibv_flow_spec_tcp_udp, dst_port),
	FIELD("tcp", "src", IBV_FLOW_SPEC_TCP, ibv_flow_spec_tcp_udp, src_port),
	FIELD("udp", "dst", IBV_FLOW_SPEC_UDP, ibv_flow_spec_tcp_udp, dst_port),
	FIELD("udp", "src", IBV_FLOW_SPEC_UDP, ibv_flow_spec_tcp_udp, src_port),
	FIELD("esp", "spi", IBV_FLOW_SPEC_ESP, ibv_flow_spec_esp, spi),
	FIELD("esp", "seq", IBV_FLOW_SPEC_ESP, ibv_flow_spec_esp, seq),
	FIELD("gre", "flags", IBV_FLOW_SPEC_GRE, ibv_flow_spec_gre, c_ks_res0_ver),
	FIELD("gre", "protocol", IBV_FLOW_SPEC_GRE, ibv_flow_spec_gre, protocol),
	FIELD("gre", "key", IBV_FLOW_SPEC_GRE, ibv_flow_spec_gre, key),
	FIELD("vxlan", "vni", IBV_FLOW_SPEC_VXLAN_TUNNEL, ibv_flow_spec_tunnel, tunnel_id),
	FIELD("mpls", "word", IBV_FLOW_SPEC_MPLS, ibv_flow_spec_mpls, label),
};

static struct {
	struct ibv_flow_attr attr;
	uint8_t specs[1024];
} rule;

static uint8_t *add(const void *spec, size_t size)
{
	uint8_t *at = (uint8_t *)&rule + rule.attr.size;
	memcpy(at, spec, size);
	rule.attr.size += size;
	rule.attr.num_of_specs++;
	return at;
}

static const struct field *field(const char *spec, const char *name, size_t len)
{
	for (size_t i = 0; i < sizeof(fields) / sizeof(*fields); i++)
		if (!strcmp(fields[i].spec, spec) && !strncmp(fields[i].name, name, len))
			return &fields[i];
	die("no such header or field");
	return NULL;
}

static void add_action(char **words)
{
	const char *value = words[1] ? strchr(words[1], '=') : NULL;
	if (!strcmp(*words, "drop")) {
		struct ibv_flow_spec_action_drop drop = { IBV_FLOW_SPEC_ACTION_DROP, sizeof(drop) };
		add(&drop, sizeof(drop));
	} else if (!strcmp(*words, "tag")) {
		struct ibv_flow_spec_action_tag tag = { IBV_FLOW_SPEC_ACTION_TAG, sizeof(tag), number(value + 1) };
		add(&tag, sizeof(tag));
	} else {
		struct ibv_flow_spec_counter_action count = { IBV_FLOW_SPEC_ACTION_COUNT, sizeof(count), counters[slot(value + 1)] };
		add(&count, sizeof(count));
	}
}

static void add_specs(char **words)
{
	while (*words) {
		if (!strcmp(*words, "drop") || !strcmp(*words, "tag") || !strcmp(*words, "count")) {
			add_action(words);
			for (words++; *words && strchr(*words, '='); words++)
				;
			continue;
		}
		int inner = !strncmp(*words, "inner.", 6);
		const char *spec = *words++ + 6 * inner;
		const struct field *any = field(spec, "", 0);
		struct { uint32_t type; uint16_t size; uint8_t rest[120]; } empty = {
			any->type | (inner ? IBV_FLOW_SPEC_INNER : 0), any->size };
		uint8_t *at = add(&empty, any->size);
		for (; *words && strchr(*words, '='); words++) {
			const char *value = strchr(*words, '='), *slash = strchr(value, '/');
			const struct field *f = field(spec, *words, value - *words);
			size_t len = 2 * f->len;
			if (strlen(value + 1) != (slash ? 2 * len + 1 : len))
				die("not all digits of a field");
			unhex(value + 1, len, at + f->val, f->len);
			memset(at + f->mask, 0xff, f->len);
			if (slash)
				unhex(slash + 1, len, at + f->mask, f->len);
		}
	}
}

/* flow NUMBER QP TYPE PRIORITY FLAGS SPECS... */
static void create_flow(char **words)
{
	static const struct { const char *name; int value; } names[] = {
		{ "normal", IBV_FLOW_ATTR_NORMAL }, { "all_default", IBV_FLOW_ATTR_ALL_DEFAULT },
		{ "mc_default", IBV_FLOW_ATTR_MC_DEFAULT }, { "sniffer", IBV_FLOW_ATTR_SNIFFER },
		{ "-", 0 }, { "dont_trap", IBV_FLOW_ATTR_FLAGS_DONT_TRAP }, { "egress", IBV_FLOW_ATTR_FLAGS_EGRESS },
		{ "loop_back", 1 << 0 },
	};
	memset(&rule, 0, sizeof(rule));
	rule.attr.size = sizeof(rule.attr), rule.attr.port = 1, rule.attr.priority = number(words[4]);
	for (size_t i = 0; i < sizeof(names) / sizeof(*names); i++) {
		if (!strcmp(names[i].name, words[3]))
			rule.attr.type = names[i].value;
		if (!strcmp(names[i].name, words[5]))
			rule.attr.flags = names[i].value;
	}
	add_specs(words + 6);
	made(flows[slot(words[1])] = ibv_create_flow(qps[slot(words[2])], &rule.attr));
}

/* The other steps. */

static void open_device(void)
{
	struct ibv_device **list = ibv_get_device_list(NULL);
	for (int i = 0; list && list[i]; i++)
		if (!strcmp(ibv_get_device_name(list[i]), device))
			context = ibv_open_device(list[i]);
	made(context);
	ibv_free_device_list(list);
}

/* qp NUMBER CQ SENDS RECEIVES */
static void create_qp(char **words)
{
	struct ibv_cq *cq = cqs[slot(words[2])];
	struct ibv_qp_init_attr init = {
		.send_cq = cq, .recv_cq = cq, .qp_type = IBV_QPT_RAW_PACKET,
		.cap = { number(words[3]), number(words[4]), 1, 1, 0 },
	};
	made(qps[slot(words[1])] = ibv_create_qp(pd, &init));
}

static void modify_qp(char **words)
{
	static const char *const states[] = { "reset", "init", "rtr", "rts", "sqd", "sqe", "err" };
	struct ibv_qp_attr attr = { .port_num = 1 };
	while (strcmp(states[attr.qp_state], words[2]))
		attr.qp_state++;
	int port = attr.qp_state == IBV_QPS_INIT ? IBV_QP_PORT : 0;
	done(ibv_modify_qp(qps[slot(words[1])], &attr, IBV_QP_STATE | port));
}

static void register_memory(char **words)
{
	struct region *region = &mrs[slot(words[1])];
	region->len = number(words[2]);
	region->memory = mmap(NULL, region->len, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
	if (region->memory == MAP_FAILED)
		die("mmap");
	made(region->mr = ibv_reg_mr(pd, region->memory, region->len, number(words[3]) ? IBV_ACCESS_LOCAL_WRITE : 0));
}

static void attach(char **words)
{
	struct ibv_counter_attach_attr attr = { .index = number(words[3]) };
	attr.counter_desc = !strcmp(words[2], "packets") ? IBV_COUNTER_PACKETS : IBV_COUNTER_BYTES;
	done(ibv_attach_counters_point_flow(counters[slot(words[1])], &attr, NULL));
}

/* read NUMBER VALUES FLAGS */
static void read_counters(char **words)
{
	uint64_t values[MANY];
	int count = slot(words[2]);
	memset(values, 0xee, sizeof(values));
	int flags = strcmp(words[3], "cached") ? 0 : IBV_READ_COUNTERS_ATTR_PREFER_CACHED;
	if (done(ibv_read_counters(counters[slot(words[1])], values, count, flags)))
		for (int i = 0; i < count; i++)
			say("%s%ju", i ? " " : "", (uintmax_t)values[i]);
}

/* post QP MR FIRST COUNT: receives, each in its own slot */
static void post(char **words)
{
	struct region *region = &mrs[slot(words[2])];
	int error = 0;
	for (int i = number(words[3]); !error && i < number(words[3]) + number(words[4]); i++) {
		struct ibv_sge sge = { (uintptr_t)region->memory + i * SLOT, SLOT, region->mr->lkey };
		struct ibv_recv_wr wr = { .wr_id = i, .sg_list = &sge, .num_sge = 1 }, *bad;
		error = ibv_post_recv(qps[slot(words[1])], &wr, &bad);
	}
	done(error);
}

/* transmit QP MR HEX: from the start of the region */
static void transmit(char **words)
{
	struct region *region = &mrs[slot(words[2])];
	size_t len = unhex(words[3], strlen(words[3]), region->memory, region->len);
	struct ibv_sge sge = { (uintptr_t)region->memory, len, region->mr->lkey };
	struct ibv_send_wr wr = { .wr_id = 1000, .sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_SEND,
				  .send_flags = IBV_SEND_SIGNALED }, *bad;
	done(ibv_post_send(qps[slot(words[1])], &wr, &bad));
}

/* poll CQ COUNT MR: waits for that many, and then takes all others that are there */
static void poll_queue(char **words)
{
	struct region *region = &mrs[slot(words[3])];
	time_t end = time(NULL) + 5;
	struct ibv_wc wc;
	for (int taken = 0, got = 0; taken < number(words[2]) || got;) {
		got = ibv_poll_cq(cqs[slot(words[1])], 1, &wc);
		if (got < 0)
			die("ibv_poll_cq");
		if (!got && time(NULL) > end)
			break;
		if (!got)
			continue;
		say("%s%ju:%d", taken++ ? " " : "", (uintmax_t)wc.wr_id, wc.status);
		if (wc.status)
			continue;
		say(":%d", wc.opcode);
		if (!(wc.opcode & IBV_WC_RECV))
			continue;
		uint32_t sum = 0;
		for (uint32_t i = 0; i < wc.byte_len; i++)
			sum = sum * 31 + region->memory[wc.wr_id * SLOT + i];
		say(":%u:%08x", wc.byte_len, sum);
	}
}

static void destroy(char **words)
{
	const char *kind = words[1];
	int i = slot(words[2]);
#define DESTROY(name, object, call) \
	if (!strcmp(kind, name)) { \
		if (!object) \
			say("none"); \
		else if (done(call(object))) \
			object = NULL; \
	}
	DESTROY("pd", pd, ibv_dealloc_pd)
	DESTROY("cq", cqs[i], ibv_destroy_cq)
	DESTROY("qp", qps[i], ibv_destroy_qp)
	DESTROY("counters", counters[i], ibv_destroy_counters)
	DESTROY("flow", flows[i], ibv_destroy_flow)
	DESTROY("mr", mrs[i].mr, ibv_dereg_mr)
}

static void obey(char **words)
{
	struct ibv_counters_init_attr none = { 0 };
	const char *verb = words[0];
	if (!strcmp(verb, "open"))
		open_device();
	else if (!strcmp(verb, "close"))
		done(ibv_close_device(context));
	else if (!strcmp(verb, "pd"))
		made(pd = ibv_alloc_pd(context));
	else if (!strcmp(verb, "cq"))
		made(cqs[slot(words[1])] = ibv_create_cq(context, number(words[2]), NULL, NULL, 0));
	else if (!strcmp(verb, "resize"))
		done(ibv_resize_cq(cqs[slot(words[1])], number(words[2])));
	else if (!strcmp(verb, "qp"))
		create_qp(words);
	else if (!strcmp(verb, "modify"))
		modify_qp(words);
	else if (!strcmp(verb, "mr"))
		register_memory(words);
	else if (!strcmp(verb, "counters"))
		made(counters[slot(words[1])] = ibv_create_counters(context, &none));
	else if (!strcmp(verb, "attach"))
		attach(words);
	else if (!strcmp(verb, "read"))
		read_counters(words);
	else if (!strcmp(verb, "flow"))
		create_flow(words);
	else if (!strcmp(verb, "post"))
		post(words);
	else if (!strcmp(verb, "transmit"))
		transmit(words);
	else if (!strcmp(verb, "poll"))
		poll_queue(words);
	else if (!strcmp(verb, "destroy"))
		destroy(words);
	else
		die(verb);
}

/* A system call that does nothing, as a mark for strace. */
static void mark(const char *side)
{
	access(side, F_OK);
}

int main(int argc, char **argv)
{
	static char line[8192], copy[8192];
	FILE *steps = argc == 4 ? fopen(argv[3], "r") : NULL;
	if (!steps || !has_control(argv[2]))
		die("usage: theirs DEVICE CONTROL STEPS");
	device = argv[1];
	while (fgets(line, sizeof(line), steps)) {
		char *words[128] = { NULL }, *rest = strcpy(copy, line);
		line[strcspn(line, "\n")] = 0;
		for (int n = 0; n < 127 && (words[n] = strtok(n ? NULL : rest, " \n")); n++)
			;
		if (!words[0] || words[0][0] == '#')
			continue;
		printf("step %s\n", line);
		if (!strcmp(words[0], "control")) {
			ask(line + strlen("control "), "result ");
			continue;
		}
		ask("trace clear", NULL);
		result[0] = 0;
		errno = 0;
		mark("/alike/begin");
		obey(words);
		mark("/alike/end");
		printf("result %s\n", *result ? result : "ok");
		ask("trace", "| ");
		fflush(stdout);
	}
	return 0;
}
