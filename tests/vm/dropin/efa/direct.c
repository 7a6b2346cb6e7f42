/*
 * The calls of libefa (efadv_*) on an EFA, and requests of each kind on its queue pairs, through whichever libibverbs and libefa
 * the loader finds.
 *
 * usage: efa-direct DEVICE         each call
 *        efa-direct DEVICE fork    a child of fork in the middle of a batch; with the drop-in the child posts nothing
 *
 * Prints lines "question: answer". The calls are looked up by name, and structures that older headers lack are declared here.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <infiniband/efadv.h>
#include <infiniband/verbs.h>
#include <poll.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/wait.h>
#include <unistd.h>

#include "../../lib/check.h"

/* As in infiniband/efadv.h of rdma-core 65. */
struct sq_depth { uint64_t comp_mask; uint32_t flags, send, rdma, bytes; };
struct rq_depth { uint64_t comp_mask; uint32_t receive; };
struct srd_init { uint64_t comp_mask; uint32_t type; uint16_t flags; uint8_t sl, reserved; uint64_t wr_flags; };
struct cq_init { uint64_t comp_mask, wc_flags, flags, memory[4]; };
struct wq_attr { uint64_t comp_mask; uint8_t *buffer; uint32_t entry, count; uint32_t *doorbell; uint32_t batch; uint16_t caps; uint8_t reserved[2]; };
struct cq_attr { uint64_t comp_mask; uint8_t *buffer; uint32_t entry, count; uint32_t *doorbell; };
struct mr_attr { uint64_t comp_mask; uint16_t valid, ways[3]; };
struct dv_cq { uint64_t comp_mask; int (*sgid)(struct dv_cq *, union ibv_gid *); bool (*is_unsolicited)(struct dv_cq *); };
struct dv_qp { uint64_t comp_mask; void (*hints)(struct dv_qp *, uint32_t); };
enum { UNSOLICITED = 1, INLINE_WRITE = 2, WITH_SGID = 1, WITH_UNSOLICITED = 2, HINTS = 1 };
enum { CAN_READ = 1, CAN_SGID = 4, CAN_WRITE = 8, CAN_UNSOLICITED = 16 };

static int (*query_device)(struct ibv_context *, void *, uint32_t);
static int (*query_ah)(struct ibv_ah *, void *, uint32_t);
static int (*query_mr)(struct ibv_mr *, void *, uint32_t);
static int (*sq_depth)(struct ibv_context *, void *, uint32_t);
static int (*rq_depth)(struct ibv_context *, void *, uint32_t);
static int (*query_wqs)(struct ibv_qp *, struct wq_attr *, struct wq_attr *, uint32_t);
static int (*query_cq)(struct ibv_cq *, struct cq_attr *, uint32_t);
static struct ibv_qp *(*create_driver_qp)(struct ibv_pd *, struct ibv_qp_init_attr *, uint32_t);
static struct ibv_qp *(*create_qp_ex)(struct ibv_context *, struct ibv_qp_init_attr_ex *, void *, uint32_t);
static struct ibv_cq_ex *(*create_cq)(struct ibv_context *, struct ibv_cq_init_attr_ex *, void *, uint32_t);
static struct dv_cq *(*cq_of)(struct ibv_cq_ex *);
static struct dv_qp *(*qp_of)(struct ibv_qp_ex *);

static struct ibv_context *context;
static struct ibv_pd *pd;
static struct ibv_cq_ex *cq;
static struct ibv_mr *mr;
static struct ibv_ah *ah;
static union ibv_gid gid;
static uint32_t caps;
static char memory[16384] __attribute__((aligned(4096)));

static void tell(const char *question, const char *format, ...) __attribute__((format(printf, 2, 3)));
static void tell(const char *question, const char *format, ...)
{
	va_list list;

	printf("%s: ", question);
	va_start(list, format);
	vprintf(format, list);
	va_end(list);
	puts("");
	fflush(stdout);
}

static const char *errno_of(int code) { return code ? strerrorname_np(abs(code)) : "ok"; }

static void find_calls(void)
{
	void *efa = dlopen("libefa.so.1", RTLD_NOW);

	CHECK(efa);
#define FIND(call, name) CHECK(call = dlsym(efa, "efadv_" name))
	FIND(query_device, "query_device");
	FIND(query_ah, "query_ah");
	FIND(query_mr, "query_mr");
	FIND(sq_depth, "get_max_sq_depth");
	FIND(rq_depth, "get_max_rq_depth");
	FIND(query_wqs, "query_qp_wqs");
	FIND(query_cq, "query_cq");
	FIND(create_driver_qp, "create_driver_qp");
	FIND(create_qp_ex, "create_qp_ex");
	FIND(create_cq, "create_cq");
	FIND(cq_of, "cq_from_ibv_cq_ex");
	FIND(qp_of, "qp_from_ibv_qp_ex");
}

static int ask_ah(void *answer, uint32_t len) { return query_ah(ah, answer, len); }

/* What the call writes into a structure of each length. The structure is filled with other bytes before. */
static void lengths(const char *call, int (*ask)(void *, uint32_t))
{
	for (uint32_t len = 0; len <= 48; len += len ? 4 : 8) {
		uint8_t answer[64];
		char question[64], text[160] = "";

		memset(answer, 0xa5, sizeof(answer));
		int code = ask(answer, len);
		/* The handle's number differs each time. */
		if (ask == ask_ah && !code)
			memset(answer + 8, 0, 2);
		for (uint32_t at = 0; at < 64 && !code; at++)
			sprintf(text + strlen(text), "%02x", answer[at]);
		snprintf(question, sizeof(question), "%s of %u bytes", call, len);
		tell(question, "%s %s", errno_of(code), text);
	}
}

static int ask_device(void *answer, uint32_t len) { return query_device(context, answer, len); }
static int ask_mr(void *answer, uint32_t len) { return query_mr(mr, answer, len); }

static void depths(void)
{
	struct sq_depth sends[] = { {}, { .bytes = 32 }, { .bytes = 33 }, { .flags = 1 }, { .flags = 2 }, { .bytes = 4096 }, { .send = 1, .rdma = 1 },
		{ .send = 100 }, { .rdma = 100 }, { .comp_mask = 1 } };
	struct rq_depth receives[] = { { .receive = 1 }, { .receive = 2 }, { .receive = 1000 }, { .receive = 1, .comp_mask = 1 } };
	char question[64];

	for (unsigned i = 0; i < sizeof(sends) / sizeof(*sends); i++) {
		snprintf(question, sizeof(question), "most sends %u", i);
		tell(question, "%d", sq_depth(context, &sends[i], sizeof(*sends)));
	}
	tell("most sends, short", "%d", sq_depth(context, sends, 20));
	for (unsigned i = 0; i < sizeof(receives) / sizeof(*receives); i++) {
		snprintf(question, sizeof(question), "most receives %u", i);
		tell(question, "%d", rq_depth(context, &receives[i], sizeof(*receives)));
	}
	tell("most receives, short", "%d", rq_depth(context, receives, 8));
}

static struct ibv_qp_init_attr_ex init_of(struct ibv_cq *of, uint64_t operations)
{
	struct ibv_qp_init_attr_ex init = { .send_cq = of, .recv_cq = of, .qp_type = IBV_QPT_DRIVER, .cap = { 16, 16, 1, 1, 0 }, .pd = pd,
		.comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS, .send_ops_flags = operations };

	return init;
}

static void try_qp(const char *question, struct ibv_qp_init_attr_ex init, struct srd_init srd, uint32_t len)
{
	errno = 0;
	struct ibv_qp *qp = create_qp_ex(context, &init, &srd, len);
	if (!qp)
		return tell(question, "%s", errno_of(errno));
	struct ibv_qp_init_attr asked;
	struct ibv_qp_attr attr;
	CHECK(!ibv_query_qp(qp, &attr, IBV_QP_STATE | IBV_QP_CAP, &asked));
	tell(question, "made with %u %u %u %u %u, type %#x, extended %d, sends %u %u", init.cap.max_send_wr, init.cap.max_recv_wr, init.cap.max_send_sge,
		init.cap.max_recv_sge, init.cap.max_inline_data, qp->qp_type, ibv_qp_to_qp_ex(qp) != NULL, attr.cap.max_send_wr, attr.cap.max_recv_wr);
	CHECK(!ibv_destroy_qp(qp));
}

static void queue_pairs(void)
{
	struct ibv_cq *of = ibv_cq_ex_to_cq(cq);
	struct ibv_qp_init_attr_ex plain = init_of(of, IBV_QP_EX_WITH_SEND), init;
	struct ibv_qp_init_attr older = { .send_cq = of, .recv_cq = of, .qp_type = IBV_QPT_DRIVER, .cap = { 10, 10, 1, 1, 32 } };
	struct srd_init srd = {};
	struct ibv_qp *qp;

	try_qp("srd", plain, srd, sizeof(srd));
	try_qp("srd of 44", plain, srd, 16);
	try_qp("srd, short", plain, srd, 8);
	init = plain, init.qp_type = IBV_QPT_UD;
	try_qp("srd of type UD", init, srd, sizeof(srd));
	init = plain, init.comp_mask = IBV_QP_INIT_ATTR_PD;
	try_qp("srd, not extended", init, srd, sizeof(srd));
	init.comp_mask = 0;
	try_qp("srd without a domain", init, srd, sizeof(srd));
	init = plain, init.comp_mask |= IBV_QP_INIT_ATTR_MAX_TSO_HEADER, init.max_tso_header = 54;
	try_qp("srd with large sends", init, srd, sizeof(srd));
	init = plain, init.send_cq = NULL;
	try_qp("srd without a queue", init, srd, sizeof(srd));
	for (int bit = 0; bit < 13; bit++) {
		char question[64];
		if (bit == 12 || bit == 11)
			continue;
		init = plain, init.send_ops_flags = 1ull << bit;
		snprintf(question, sizeof(question), "srd with operation %d", bit);
		try_qp(question, init, srd, sizeof(srd));
	}
	for (uint32_t bytes = 0; bytes <= 96; bytes += 16) {
		char question[64];
		init = plain, init.cap.max_inline_data = bytes;
		snprintf(question, sizeof(question), "srd with %u bytes inline", bytes);
		try_qp(question, init, srd, sizeof(srd));
	}
	uint32_t limits[][4] = { { 1 << 20, 1, 1, 1 }, { 1, 1 << 20, 1, 1 }, { 1, 1, 100, 1 }, { 1, 1, 1, 100 }, { 17, 17, 2, 2 }, { 3, 5, 1, 1 }, { 1, 7, 1, 3 } };
	for (unsigned i = 0; i < sizeof(limits) / sizeof(*limits); i++) {
		char question[64];
		init = plain, init.cap.max_send_wr = limits[i][0], init.cap.max_recv_wr = limits[i][1], init.cap.max_send_sge = limits[i][2];
		init.cap.max_recv_sge = limits[i][3];
		snprintf(question, sizeof(question), "srd with limits %u", i);
		try_qp(question, init, srd, sizeof(srd));
	}
	srd.type = 1;
	try_qp("srd of driver type 1", plain, srd, sizeof(srd));
	srd = (struct srd_init){ .reserved = 1 };
	try_qp("srd, reserved", plain, srd, sizeof(srd));
	srd = (struct srd_init){ .comp_mask = 1 };
	try_qp("srd, comp_mask", plain, srd, sizeof(srd));
	srd = (struct srd_init){ .flags = 4 };
	try_qp("srd, unknown flag", plain, srd, sizeof(srd));
	srd = (struct srd_init){ .wr_flags = 2 };
	try_qp("srd, unknown request flag", plain, srd, sizeof(srd));
	srd = (struct srd_init){ .flags = INLINE_WRITE };
	try_qp("srd, inline writes", plain, srd, sizeof(srd));
	srd = (struct srd_init){ .flags = UNSOLICITED };
	try_qp("srd, unsolicited", plain, srd, sizeof(srd));
	srd = (struct srd_init){ .sl = 3 };
	try_qp("srd, service level", plain, srd, sizeof(srd));

	CHECK(qp = create_driver_qp(pd, &older, 0));
	tell("driver qp", "%u %u, extended %d", older.cap.max_send_wr, older.cap.max_recv_wr, ibv_qp_to_qp_ex(qp) != NULL);
	CHECK(!ibv_destroy_qp(qp));
	qp = create_driver_qp(pd, &older, 1), tell("driver qp of type 1", "%s", qp ? "made" : errno_of(errno));
	older.qp_type = IBV_QPT_UD, qp = create_driver_qp(pd, &older, 0), tell("driver qp of UD", "%s", qp ? "made" : errno_of(errno));
	int types[] = { IBV_QPT_RC, IBV_QPT_UC, IBV_QPT_RAW_PACKET, IBV_QPT_DRIVER };
	for (unsigned i = 0; i < 4; i++) {
		char question[64];
		older.qp_type = types[i], qp = ibv_create_qp(pd, &older);
		snprintf(question, sizeof(question), "qp of type %#x", types[i]);
		tell(question, "%s", qp ? "made" : errno_of(errno));
		init = plain, init.qp_type = types[i], qp = ibv_create_qp_ex(context, &init);
		snprintf(question, sizeof(question), "extended qp of type %#x", types[i]);
		tell(question, "%s", qp ? "made" : errno_of(errno));
	}
}

static void try_cq(const char *question, struct ibv_cq_init_attr_ex attr, struct cq_init own, uint32_t len)
{
	struct ibv_cq_ex *made = create_cq(context, &attr, &own, len);

	tell(question, "%s %d", made ? "made" : errno_of(errno), made ? made->cqe : 0);
	if (made)
		CHECK(!ibv_destroy_cq(ibv_cq_ex_to_cq(made)));
}

static void completion_queues(void)
{
	struct ibv_cq_init_attr_ex attr = { .cqe = 33, .wc_flags = IBV_WC_STANDARD_FLAGS }, other;
	struct ibv_comp_channel *channel = ibv_create_comp_channel(context);
	struct cq_init own = {};

	try_cq("cq", attr, own, sizeof(own));
	try_cq("cq of 44", attr, own, 16);
	try_cq("cq, short", attr, own, 8);
	own.wc_flags = WITH_SGID, try_cq("cq with sgid", attr, own, sizeof(own));
	own.wc_flags = WITH_UNSOLICITED, try_cq("cq with unsolicited", attr, own, sizeof(own));
	own.wc_flags = 4, try_cq("cq with more", attr, own, sizeof(own));
	own.wc_flags = 0, own.comp_mask = 1, try_cq("cq, comp_mask", attr, own, sizeof(own));
	own.comp_mask = 0;
	other = attr, other.wc_flags |= IBV_WC_EX_WITH_COMPLETION_TIMESTAMP, try_cq("cq with timestamps", other, own, sizeof(own));
	other = attr, other.cqe = 0, try_cq("cq of nothing", other, own, sizeof(own));
	other = attr, other.cqe = 1 << 30, try_cq("cq of too much", other, own, sizeof(own));
	other = attr, other.comp_vector = 1000, try_cq("cq of no vector", other, own, sizeof(own));
	other = attr, other.comp_mask = 1 << 4, try_cq("cq with an unknown field", other, own, sizeof(own));
	other = attr, other.comp_mask = IBV_CQ_INIT_ATTR_MASK_FLAGS, other.flags = IBV_CREATE_CQ_ATTR_SINGLE_THREADED;
	try_cq("cq of one thread", other, own, sizeof(own));
	other.flags = IBV_CREATE_CQ_ATTR_IGNORE_OVERRUN, try_cq("cq that overruns", other, own, sizeof(own));
	CHECK(channel);
	other = attr, other.channel = channel, try_cq("cq with a channel", other, own, sizeof(own));
	struct ibv_cq *plain = ibv_create_cq(context, 20, NULL, NULL, 0);
	CHECK(plain);
	tell("plain cq", "%d", plain->cqe);
	tell("resize", "%s", errno_of(ibv_resize_cq(plain, 40)));
	struct ibv_modify_cq_attr moderate = { .attr_mask = IBV_CQ_ATTR_MODERATE, .moderate = { 4, 4 } };
	tell("moderate", "%s", errno_of(ibv_modify_cq(plain, &moderate)));
	CHECK(!ibv_destroy_cq(plain) && !ibv_destroy_comp_channel(channel));
}

static void domains(void)
{
	struct ibv_td_init_attr none = {}, unknown = { .comp_mask = 1 };
	struct ibv_td *td = ibv_alloc_td(context, &none);

	tell("thread domain", "%s", td ? "made" : errno_of(errno));
	tell("thread domain, comp_mask", "%s", ibv_alloc_td(context, &unknown) ? "made" : errno_of(errno));
	if (!td)
		return;
	struct ibv_parent_domain_init_attr attr = { .pd = pd, .td = td }, bad = { .td = td };
	struct ibv_pd *parent = ibv_alloc_parent_domain(context, &attr);
	tell("parent domain", "%s", parent ? "made" : errno_of(errno));
	tell("parent domain of none", "%s", ibv_alloc_parent_domain(context, &bad) ? "made" : errno_of(errno));
	attr.pd = parent, tell("parent domain of one", "%s", ibv_alloc_parent_domain(context, &attr) ? "made" : errno_of(errno));
	attr.pd = pd, attr.comp_mask = IBV_PARENT_DOMAIN_INIT_ATTR_ALLOCATORS;
	tell("parent domain with memory", "%s", ibv_alloc_parent_domain(context, &attr) ? "made" : errno_of(errno));
	struct ibv_cq_init_attr_ex wanted = { .cqe = 16, .wc_flags = IBV_WC_STANDARD_FLAGS, .comp_mask = IBV_CQ_INIT_ATTR_MASK_PD, .parent_domain = pd };
	tell("cq of a plain domain", "%s", ibv_create_cq_ex(context, &wanted) ? "made" : errno_of(errno));
	wanted.parent_domain = parent;
	struct ibv_cq_ex *of = ibv_create_cq_ex(context, &wanted);
	tell("cq of a parent domain", "%s", of ? "made" : errno_of(errno));
	tell("free thread domain", "%s", errno_of(ibv_dealloc_td(td)));
	tell("free parent domain", "%s", errno_of(ibv_dealloc_pd(parent)));
	tell("free plain domain", "%s", errno_of(ibv_dealloc_pd(pd)));
	CHECK(of && !ibv_destroy_cq(ibv_cq_ex_to_cq(of)));
	struct ibv_qp_init_attr init = { .send_cq = ibv_cq_ex_to_cq(cq), .recv_cq = ibv_cq_ex_to_cq(cq), .qp_type = IBV_QPT_UD, .cap = { 4, 4, 1, 1, 0 } };
	struct ibv_qp *qp = ibv_create_qp(parent, &init);
	CHECK(qp);
	tell("free parent domain of a queue pair", "%s", errno_of(ibv_dealloc_pd(parent)));
	CHECK(!ibv_destroy_qp(qp) && !ibv_dealloc_pd(parent) && !ibv_dealloc_td(td));
	/* The kernel does not know of parent domains. */
	struct ibv_parent_domain_init_attr of_empty = { .pd = ibv_alloc_pd(context) };
	CHECK(of_empty.pd && (parent = ibv_alloc_parent_domain(context, &of_empty)));
	tell("free empty domain of a parent domain", "%s", errno_of(ibv_dealloc_pd(of_empty.pd)));
	CHECK(!ibv_dealloc_pd(parent));
	tell("free it afterwards", "%s", errno_of(ibv_dealloc_pd(of_empty.pd)));
}

static void to_rts(struct ibv_qp *qp)
{
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_INIT, .port_num = 1, .qkey = 0x1234 };

	CHECK(!ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_PORT | IBV_QP_PKEY_INDEX | IBV_QP_QKEY));
	attr.qp_state = IBV_QPS_RTR;
	CHECK(!ibv_modify_qp(qp, &attr, IBV_QP_STATE));
	attr.qp_state = IBV_QPS_RTS;
	CHECK(!ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_SQ_PSN));
}

static uint64_t all_operations(void)
{
	return IBV_QP_EX_WITH_SEND | IBV_QP_EX_WITH_SEND_WITH_IMM | (caps & CAN_READ ? IBV_QP_EX_WITH_RDMA_READ : 0) |
		(caps & CAN_WRITE ? IBV_QP_EX_WITH_RDMA_WRITE | IBV_QP_EX_WITH_RDMA_WRITE_WITH_IMM : 0);
}

static struct ibv_qp *make(enum ibv_qp_type type, uint16_t flags, uint32_t bytes, struct ibv_cq *of)
{
	struct ibv_qp_init_attr_ex init = init_of(of, IBV_QP_EX_WITH_SEND | IBV_QP_EX_WITH_SEND_WITH_IMM);
	struct srd_init srd = { .flags = flags, .wr_flags = HINTS };
	struct ibv_qp *qp;

	init.qp_type = type, init.cap = (struct ibv_qp_cap){ 16, 16, 2, 2, bytes };
	if (type == IBV_QPT_DRIVER) {
		init.send_ops_flags = all_operations();
		CHECK(qp = create_qp_ex(context, &init, &srd, sizeof(srd)));
	} else {
		CHECK(qp = ibv_create_qp_ex(context, &init));
	}
	return qp;
}

static void post_receive(struct ibv_qp *qp, uint64_t wr_id, uint32_t length)
{
	struct ibv_sge piece = { (uintptr_t)memory + 8192, length, mr->lkey };
	struct ibv_recv_wr wr = { .wr_id = wr_id, .sg_list = &piece, .num_sge = 1 }, *bad;

	CHECK(!ibv_post_recv(qp, &wr, &bad));
}

static uint32_t numbers[2];
static const char *name_of(uint32_t number) { return number == numbers[0] ? "a" : number == numbers[1] ? "b" : "another"; }

/* When there are several at once, it is not known which message a receive got. */
static int is_one_of_many;

/* One completion by the extended interface; false if none comes. */
static int one_extended(char *text)
{
	struct ibv_poll_cq_attr attr = {};
	struct dv_cq *own = cq_of(cq);
	union ibv_gid sender = {};
	int i;

	for (i = 0; i < 2000 && ibv_start_poll(cq, &attr); i++)
		usleep(i < 100 ? 100 : 1000);
	if (i == 2000)
		return 0;
	int opcode = ibv_wc_read_opcode(cq), is_receive = opcode & IBV_WC_RECV;
	sprintf(text + strlen(text), "[id %llu, %s, error %u, opcode %u, flags %#x, at %s", (unsigned long long)cq->wr_id, ibv_wc_status_str(cq->status),
		ibv_wc_read_vendor_err(cq), opcode, ibv_wc_read_wc_flags(cq), name_of(ibv_wc_read_qp_num(cq)));
	if (is_one_of_many) {
		sprintf(text, "[%s, %s", ibv_wc_status_str(cq->status), is_receive ? "received" : "sent");
	} else if (is_receive && cq->status == IBV_WC_SUCCESS) {
		sprintf(text + strlen(text), ", %u bytes from %s, sl %u, path %u", ibv_wc_read_byte_len(cq), name_of(ibv_wc_read_src_qp(cq)), ibv_wc_read_sl(cq),
			ibv_wc_read_dlid_path_bits(cq));
		if (ibv_wc_read_wc_flags(cq) & IBV_WC_WITH_IMM)
			sprintf(text + strlen(text), ", immediate %x", be32toh(ibv_wc_read_imm_data(cq)));
		if (caps & CAN_UNSOLICITED)
			sprintf(text + strlen(text), ", unsolicited %d", own->is_unsolicited(own));
		if (caps & CAN_SGID) {
			int code = own->sgid(own, &sender);
			sprintf(text + strlen(text), ", sender %s", code ? code == -ENOENT ? "known" : "?" : memcmp(&sender, &gid, 16) ? "wrong" : "by its address");
		}
	}
	strcat(text, "]");
	ibv_end_poll(cq);
	return 1;
}

static int completions(const char *question, int code, int count)
{
	char text[4096] = "", *parts[16], sorted[4096] = "";
	int found = 0;

	while (found < count && found < 16) {
		parts[found] = text + strlen(text) + 1;
		char one[512] = "";
		if (!one_extended(one))
			break;
		parts[found++] = strdup(one);
	}
	/* Several completions may come in any order. */
	for (int i = 0; i < found; i++)
		for (int j = i + 1; j < found; j++)
			if (strcmp(parts[i], parts[j]) > 0) {
				char *other = parts[i];
				parts[i] = parts[j], parts[j] = other;
			}
	for (int i = 0; i < found; i++)
		strcat(strcat(sorted, " "), parts[i]);
	tell(question, "%s, %d of %d%s", errno_of(code), found, count, sorted);
	return found;
}

enum { SEND, SEND_IMM, READ, WRITE, WRITE_IMM, KINDS };
static const char *kinds[] = { "send", "send_imm", "read", "write", "write_imm" };
enum { PIECE, PIECES, BYTES, LIST, NOTHING, FORMS };
static const char *forms[] = { "a piece", "pieces", "bytes", "a list of bytes", "nothing" };

static void begin(struct ibv_qp_ex *qp, int kind, uint64_t id)
{
	uint64_t there = (uintptr_t)memory + 8192;

	qp->wr_id = id, qp->wr_flags = IBV_SEND_SIGNALED;
	switch (kind) {
	case SEND: return ibv_wr_send(qp);
	case SEND_IMM: return ibv_wr_send_imm(qp, htobe32(0xabcd1234));
	case READ: return ibv_wr_rdma_read(qp, mr->rkey, there);
	case WRITE: return ibv_wr_rdma_write(qp, mr->rkey, there);
	case WRITE_IMM: return ibv_wr_rdma_write_imm(qp, mr->rkey, there, htobe32(0x5678));
	}
}

static void data(struct ibv_qp_ex *qp, int form, uint32_t length)
{
	struct ibv_sge pieces[2] = { { (uintptr_t)memory, length / 2, mr->lkey }, { (uintptr_t)memory + 1000, length - length / 2, mr->lkey } };
	struct ibv_data_buf list[3] = { { memory, length / 2 }, { memory + 7, 0 }, { memory + 1000, length - length / 2 } };

	switch (form) {
	case PIECE: return ibv_wr_set_sge(qp, mr->lkey, (uintptr_t)memory, length);
	case PIECES: return ibv_wr_set_sge_list(qp, 2, pieces);
	case BYTES: return ibv_wr_set_inline_data(qp, memory, length);
	case LIST: return ibv_wr_set_inline_data_list(qp, 3, list);
	}
}

/* Every kind of request with every form of data: its result, and what the other side has then. */
static void requests(const char *type, struct ibv_qp *a, struct ibv_qp *b, uint32_t bytes)
{
	struct ibv_qp_ex *qp = ibv_qp_to_qp_ex(a);
	int is_srd = a->qp_type == IBV_QPT_DRIVER, head = is_srd ? 0 : 40;

	for (int kind = 0; kind < (is_srd ? KINDS : READ); kind++) {
		if ((kind == READ && !(caps & CAN_READ)) || (kind > READ && !(caps & CAN_WRITE)))
			continue;
		for (int form = 0; form < FORMS; form++) {
			for (int order = 0; order < 2; order++) {
				char question[128];
				uint32_t length = form == NOTHING ? 0 : form < BYTES ? 100 : bytes;
				int receives = kind == SEND || kind == SEND_IMM || kind == WRITE_IMM;

				for (unsigned i = 0; i < sizeof(memory); i++)
					memory[i] = i * 7 + kind + form + order;
				if (receives)
					post_receive(b, 77, 4096);
				ibv_wr_start(qp);
				begin(qp, kind, 5);
				if (!order)
					data(qp, form, length);
				ibv_wr_set_ud_addr(qp, ah, b->qp_num, 0x1234);
				if (order)
					data(qp, form, length);
				int code = ibv_wr_complete(qp);
				snprintf(question, sizeof(question), "%s %s of %s %s", type, kinds[kind], forms[form], order ? "behind the address" : "before it");
				completions(question, code, code ? 0 : 1 + receives);
				if (code && receives) {
					/* The receive is used up. */
					ibv_wr_start(qp), begin(qp, SEND, 6), ibv_wr_set_ud_addr(qp, ah, b->qp_num, 0x1234), data(qp, PIECE, 8);
					completions("the next", ibv_wr_complete(qp), 2);
					continue;
				}
				if (code)
					continue;
				/* Where the two halves are of what was sent or read. */
				char *from = kind == READ ? memory + 8192 : memory, *to = kind == READ ? memory : memory + 8192 + (receives && kind != WRITE_IMM ? head : 0);
				uint32_t first = form == PIECE || form == BYTES ? length : length / 2;
				int same = !memcmp(from, to, first);
				if (first != length && kind != READ)
					same = same && !memcmp(memory + 1000, to + first, length - first);
				snprintf(question, sizeof(question), "%s %s of %s %d arrives", type, kinds[kind], forms[form], order);
				tell(question, "%d", same);
			}
		}
	}
}

static void batches(struct ibv_qp *a, struct ibv_qp *b)
{
	struct ibv_qp_ex *qp = ibv_qp_to_qp_ex(a);

	is_one_of_many = 1;
	for (int round = 0; round < 6; round++) {
		for (int i = 0; i < 5; i++)
			post_receive(b, 100 + i, 4096);
		ibv_wr_start(qp);
		for (int i = 0; i < 5; i++) {
			begin(qp, i % 2, 10 + i);
			ibv_wr_set_ud_addr(qp, ah, b->qp_num, 0x1234);
			data(qp, PIECE, 64 + i);
		}
		completions("a batch", ibv_wr_complete(qp), 10);
	}
	is_one_of_many = 0;
	ibv_wr_start(qp);
	for (int i = 0; i < 3; i++)
		begin(qp, SEND, i), ibv_wr_set_ud_addr(qp, ah, b->qp_num, 0x1234), data(qp, PIECE, 8);
	ibv_wr_abort(qp);
	post_receive(b, 200, 4096);
	ibv_wr_start(qp), begin(qp, SEND, 300), data(qp, PIECE, 9), ibv_wr_set_ud_addr(qp, ah, b->qp_num, 0x1234);
	completions("behind what was given up", ibv_wr_complete(qp), 2);

	/* If one request of a batch is bad, none is posted. */
	for (int bad = 0; bad < 5; bad++) {
		char question[64];
		struct ibv_sge many[3] = { { (uintptr_t)memory, 8, mr->lkey }, { (uintptr_t)memory, 8, mr->lkey }, { (uintptr_t)memory, 8, mr->lkey } };

		ibv_wr_start(qp);
		begin(qp, SEND, 1), ibv_wr_set_ud_addr(qp, ah, b->qp_num, 0x1234), data(qp, PIECE, 8);
		qp->wr_flags = bad == 0 ? 0 : bad == 1 ? IBV_SEND_SIGNALED | IBV_SEND_FENCE : IBV_SEND_SIGNALED, qp->wr_id = 2;
		ibv_wr_send(qp), ibv_wr_set_ud_addr(qp, ah, b->qp_num, 0x1234);
		if (bad == 2)
			ibv_wr_set_sge_list(qp, 3, many);
		else if (bad == 3)
			ibv_wr_set_inline_data(qp, memory, 1000);
		else
			data(qp, PIECE, 8);
		for (int i = 0; bad == 4 && i < 20; i++)
			begin(qp, SEND, 3), ibv_wr_set_ud_addr(qp, ah, b->qp_num, 0x1234), data(qp, PIECE, 8);
		snprintf(question, sizeof(question), "a bad batch %d", bad);
		tell(question, "%s", errno_of(ibv_wr_complete(qp)));
	}
	post_receive(b, 201, 4096);
	struct dv_qp *own = qp_of(qp);
	ibv_wr_start(qp), begin(qp, SEND, 301), own->hints(own, 1), data(qp, PIECE, 9), ibv_wr_set_ud_addr(qp, ah, b->qp_num, 0x1234);
	completions("behind a bad batch, with hints", ibv_wr_complete(qp), 2);
	tell("masks", "%llu %llu", (unsigned long long)own->comp_mask, (unsigned long long)cq_of(cq)->comp_mask);

	/* Errors of the device. */
	ibv_wr_start(qp), begin(qp, SEND, 302), data(qp, PIECE, 9), ibv_wr_set_ud_addr(qp, ah, b->qp_num, 0x1234);
	completions("nobody waits", ibv_wr_complete(qp), 1);
	ibv_wr_start(qp), begin(qp, SEND, 303), data(qp, PIECE, 9), ibv_wr_set_ud_addr(qp, ah, 0xfffe, 0x1234);
	completions("nobody is there", ibv_wr_complete(qp), 1);
	ibv_wr_start(qp), begin(qp, SEND, 304), ibv_wr_set_sge(qp, 0xabcde, (uintptr_t)memory, 8), ibv_wr_set_ud_addr(qp, ah, b->qp_num, 0x1234);
	completions("no such memory", ibv_wr_complete(qp), 1);
	if (caps & CAN_READ) {
		ibv_wr_start(qp), qp->wr_flags = IBV_SEND_SIGNALED, qp->wr_id = 305, ibv_wr_rdma_read(qp, 0xabcde, (uintptr_t)memory);
		data(qp, PIECE, 9), ibv_wr_set_ud_addr(qp, ah, b->qp_num, 0x1234);
		completions("no such memory there", ibv_wr_complete(qp), 1);
	}
}

/* Lists of requests, and the plain poll. */
static void plain(const char *type, enum ibv_qp_type of)
{
	struct ibv_cq *plain = ibv_create_cq(context, 64, NULL, NULL, 0);
	CHECK(plain);
	struct ibv_qp *a = make(of, 0, 32, plain), *b = make(of, 0, 32, plain);
	struct ibv_sge pieces[3] = { { (uintptr_t)memory, 20, mr->lkey }, { (uintptr_t)memory + 100, 10, mr->lkey }, { (uintptr_t)memory + 200, 10, mr->lkey } };
	struct ibv_send_wr wr[3] = {}, *bad = NULL;
	struct ibv_wc wc[8];
	char question[64];

	snprintf(question, sizeof(question), "%s in reset", type);
	wr[0] = (struct ibv_send_wr){ .wr_id = 1, .sg_list = pieces, .num_sge = 1, .opcode = IBV_WR_SEND, .send_flags = IBV_SEND_SIGNALED };
	wr[0].wr.ud.ah = ah, wr[0].wr.ud.remote_qkey = 0x1234;
	int code = ibv_post_send(a, wr, &bad);
	tell(question, "%s, bad %td", errno_of(code), bad - wr);
	to_rts(a), to_rts(b);
	numbers[0] = a->qp_num, numbers[1] = b->qp_num;
	wr[0].wr.ud.remote_qpn = b->qp_num;
	for (int flags = 0; flags < 32; flags++) {
		bad = NULL, wr[0].send_flags = flags | 64;
		if (ibv_post_send(a, wr, &bad) == 0)
			tell("a flag that is not known", "posted");
	}
	for (int i = 0; i < 3; i++)
		post_receive(b, 10 + i, 4096);
	for (int i = 0; i < 3; i++) {
		wr[i] = (struct ibv_send_wr){ .wr_id = i, .next = i < 2 ? &wr[i + 1] : NULL, .sg_list = pieces, .num_sge = 1 + i % 2, .opcode = IBV_WR_SEND + i % 2,
			.send_flags = IBV_SEND_SIGNALED | (i == 2 ? IBV_SEND_INLINE : 0), .imm_data = htobe32(40 + i) };
		wr[i].opcode = i % 2 ? IBV_WR_SEND_WITH_IMM : IBV_WR_SEND;
		wr[i].wr.ud.ah = ah, wr[i].wr.ud.remote_qpn = b->qp_num, wr[i].wr.ud.remote_qkey = 0x1234;
	}
	CHECK(!ibv_post_send(a, wr, &bad));
	for (int found = 0, waited = 0; found < 6;) {
		int more = ibv_poll_cq(plain, 6 - found, wc + found);
		CHECK(more >= 0 && waited++ < 20000);
		found += more;
		if (!more)
			usleep(100);
	}
	/* Sends are ordered by their numbers, receives by their contents, since it is not known which receive got which message. */
	for (uint32_t order = 0; order < 100; order++)
		for (int i = 0; i < 6; i++) {
			int is_receive = wc[i].opcode & IBV_WC_RECV;
			if ((is_receive ? wc[i].byte_len : wc[i].wr_id) != order)
				continue;
			snprintf(question, sizeof(question), "%s list, %s %u", type, is_receive ? "receive of" : "send", order);
			tell(question, "%s, error %u, opcode %u, flags %#x at %s, %u bytes from %s, immediate %x", ibv_wc_status_str(wc[i].status), wc[i].vendor_err, wc[i].opcode,
				wc[i].wc_flags, name_of(wc[i].qp_num), is_receive ? wc[i].byte_len : 0, is_receive ? name_of(wc[i].src_qp) : "itself",
				wc[i].wc_flags & IBV_WC_WITH_IMM ? be32toh(wc[i].imm_data) : 0);
		}
	/* The second request is bad; the first is posted. */
	const char *why[] = { "unsignaled", "too many pieces", "too many bytes", "a write", "an unknown operation", "a fence" };
	for (int i = 0; i < 6; i++) {
		struct ibv_send_wr first = wr[0], second = wr[1];

		post_receive(b, 20, 4096);
		first.next = &second, second.next = NULL, bad = NULL;
		switch (i) {
		case 0: second.send_flags = 0; break;
		case 1: second.num_sge = 3; break;
		case 2: pieces[0].length = 60, second.send_flags |= IBV_SEND_INLINE; break;
		case 3: second.opcode = IBV_WR_RDMA_WRITE; break;
		case 4: second.opcode = 99; break;
		case 5: second.send_flags |= IBV_SEND_FENCE; break;
		}
		code = ibv_post_send(a, &first, &bad);
		for (int found = 0, waited = 0; found < 2;) {
			CHECK(waited++ < 20000);
			found += ibv_poll_cq(plain, 1, wc);
			usleep(100);
		}
		pieces[0].length = 20;
		snprintf(question, sizeof(question), "%s, the second with %s", type, why[i]);
		tell(question, "%s, bad %s", errno_of(code), bad == &first ? "first" : bad == &second ? "second" : "none");
	}
	/* Full queues. */
	int posted = 0;
	struct ibv_recv_wr receive = { .sg_list = pieces, .num_sge = 1 }, *bad_receive;
	while (!(code = ibv_post_recv(b, &receive, &bad_receive)) && posted < 100)
		posted++;
	snprintf(question, sizeof(question), "%s receives", type);
	tell(question, "%d, then %s", posted, errno_of(code));
	receive.num_sge = 3, code = ibv_post_recv(a, &receive, &bad_receive);
	tell("a receive of too many pieces", "%s", errno_of(code));
	wr[0].next = NULL;
	for (posted = 0; !(code = ibv_post_send(a, wr, &bad)) && posted < 100;)
		posted++;
	snprintf(question, sizeof(question), "%s sends", type);
	tell(question, "%d, then %s", posted, errno_of(code));
	/* Every request has been flushed or done. */
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_ERR };
	CHECK(!ibv_modify_qp(b, &attr, IBV_QP_STATE) && !ibv_modify_qp(a, &attr, IBV_QP_STATE));
	receive.num_sge = 1;
	tell("a receive in error", "%s", errno_of(ibv_post_recv(b, &receive, &bad_receive)));
	tell("a send in error", "%s", errno_of(ibv_post_send(a, wr, &bad)));
	attr.qp_state = IBV_QPS_RESET;
	tell("back to reset", "%s", errno_of(ibv_modify_qp(b, &attr, IBV_QP_STATE)));
	CHECK(!ibv_destroy_qp(a) && !ibv_destroy_qp(b) && !ibv_destroy_cq(plain));
}

static void events(void)
{
	struct ibv_comp_channel *channel = ibv_create_comp_channel(context);
	struct ibv_cq *of = channel ? ibv_create_cq(context, 16, &numbers, channel, 0) : NULL, *which;
	void *given;

	if (!of)
		return tell("events", "%s", errno_of(errno));
	struct ibv_qp *a = make(IBV_QPT_DRIVER, 0, 0, of), *b = make(IBV_QPT_DRIVER, 0, 0, of);
	struct ibv_qp_ex *qp = ibv_qp_to_qp_ex(a);
	struct ibv_wc wc;

	to_rts(a), to_rts(b);
	tell("solicited alone", "%s", errno_of(ibv_req_notify_cq(of, 1)));
	for (int i = 0; i < 10; i++) {
		struct pollfd waits = { .fd = channel->fd, .events = POLLIN };

		CHECK(!ibv_req_notify_cq(of, 0));
		post_receive(b, 1, 4096);
		ibv_wr_start(qp), begin(qp, SEND, 2), data(qp, PIECE, 8), ibv_wr_set_ud_addr(qp, ah, b->qp_num, 0x1234);
		CHECK(!ibv_wr_complete(qp));
		CHECK(poll(&waits, 1, 5000) == 1 && !ibv_get_cq_event(channel, &which, &given) && which == of && given == &numbers);
		ibv_ack_cq_events(of, 1);
		for (int found = 0, waited = 0; found < 2; usleep(100)) {
			CHECK(waited++ < 20000);
			found += ibv_poll_cq(of, 1, &wc);
		}
	}
	tell("events", "10");
	CHECK(!ibv_destroy_qp(a) && !ibv_destroy_qp(b) && !ibv_destroy_cq(of) && !ibv_destroy_comp_channel(channel));
}

/* A program that uses the rings itself: a receive, a send, and their completions (providers/efa/efa_io_defs.h). */
static void rings(void)
{
	struct ibv_cq *of = ibv_create_cq(context, 16, NULL, NULL, 0);
	CHECK(of);
	struct ibv_qp *a = make(IBV_QPT_DRIVER, 0, 0, of), *b = make(IBV_QPT_DRIVER, 0, 0, of);
	struct wq_attr sends, receives, other;
	struct cq_attr completes;
	struct efadv_ah_attr way;

	to_rts(a), to_rts(b);
	memset(&sends, 0xa5, sizeof(sends)), memset(&completes, 0xa5, sizeof(completes));
	tell("rings, short", "%s", errno_of(query_wqs(a, &sends, &receives, 32)));
	tell("rings of 64", "%s %x", errno_of(query_wqs(a, &sends, &receives, 36)), sends.caps);
	CHECK(!query_wqs(a, &sends, &other, sizeof(sends)) && !query_wqs(b, &other, &receives, sizeof(sends)));
	tell("send ring", "%u of %u bytes, %u at once, %d %d, mask %llu", sends.count, sends.entry, sends.batch, sends.buffer != NULL, sends.doorbell != NULL,
		(unsigned long long)sends.comp_mask);
	tell("send ring can", "%#x", sends.caps);
	tell("receive ring", "%u of %u bytes, %u at once, %d %d, can %#x", receives.count, receives.entry, receives.batch, receives.buffer != NULL,
		receives.doorbell != NULL, receives.caps);
	tell("completion ring, short", "%s", errno_of(query_cq(of, &completes, 20)));
	CHECK(!query_cq(of, &completes, sizeof(completes)));
	tell("completion ring", "%u of %u bytes, %d %d", completes.count, completes.entry, completes.buffer != NULL, completes.doorbell != NULL);
	CHECK(!query_ah(ah, &way, sizeof(way)));

	uint64_t from = (uintptr_t)memory, to = (uintptr_t)memory + 8192;
	uint32_t receive[4] = { to, to >> 32, 7 | 4096 << 16, mr->lkey | 3u << 30 };
	memcpy(receives.buffer, receive, sizeof(receive));
	__sync_synchronize();
	*(volatile uint32_t *)receives.doorbell = 1;
	uint32_t send[16] = { 9 | 0x80 << 16 | 0x1c << 24, b->qp_num | 1 << 16, 0, way.ahn, 0x1234 };
	send[8] = 64, send[9] = mr->lkey, send[10] = from, send[11] = from >> 32;
	memset(memory + 8192, 0, 64), memset(memory, 0x5a, 64);
	for (int i = 0; i < 8; i++)
		((volatile uint64_t *)sends.buffer)[i] = ((uint64_t *)send)[i];
	__sync_synchronize();
	*(volatile uint32_t *)sends.doorbell = 1;
	/* They may be in either part of the queue. */
	int found = 0;
	for (int waited = 0; found < 2 && waited < 20000; waited++, usleep(100)) {
		found = 0;
		for (uint32_t part = 0; part < 2; part++)
			for (uint32_t i = 0; i < completes.count; i++) {
				volatile uint8_t *entry = completes.buffer + (part * completes.count + i) * completes.entry;
				found += (entry[3] & 1) && entry[2] == 0 && (entry[0] == 7 || entry[0] == 9);
			}
	}
	tell("by hand", "%d completions, the data %s", found, memcmp(memory, memory + 8192, 64) ? "is not there" : "is there");
	CHECK(!ibv_destroy_qp(a) && !ibv_destroy_qp(b) && !ibv_destroy_cq(of));
}

/* A complete request of a batch. */
static void one(struct ibv_qp_ex *qp, uint64_t id, uint32_t to)
{
	begin(qp, SEND, id), ibv_wr_set_ud_addr(qp, ah, to, 0x1234), data(qp, PIECE, 8);
}

/* Forks at each position of a batch. What the child adds and completes is refused and not sent; the parent's batch continues. */
static void forked(void)
{
	struct ibv_cq *queue = ibv_cq_ex_to_cq(cq);
	struct ibv_qp *a = make(IBV_QPT_DRIVER, 0, 32, queue), *b = make(IBV_QPT_DRIVER, 0, 32, queue);
	struct ibv_qp_ex *qp = ibv_qp_to_qp_ex(a);
	struct ibv_wc wc;
	int status;

	to_rts(a), to_rts(b);
	numbers[0] = a->qp_num, numbers[1] = b->qp_num;
	is_one_of_many = 1;
	for (int before = 0; before < 3; before++) {
		for (int i = 0; i < 4; i++)
			post_receive(b, i, 4096);
		ibv_wr_start(qp);
		for (int i = 0; i < before; i++)
			one(qp, i, b->qp_num);
		if (before == 2)
			begin(qp, SEND, 9);
		pid_t child = fork();
		CHECK(child >= 0);
		if (!child) {
			if (before == 2)
				ibv_wr_set_ud_addr(qp, ah, b->qp_num, 0x1234), data(qp, PIECE, 8);
			one(qp, 7, b->qp_num);
			int code = ibv_wr_complete(qp);
			ibv_wr_start(qp), one(qp, 8, b->qp_num);
			_exit(!code || !ibv_wr_complete(qp) || ibv_poll_cq(queue, 1, &wc));
		}
		CHECK(waitpid(child, &status, 0) == child && !status);
		if (before == 2)
			ibv_wr_set_ud_addr(qp, ah, b->qp_num, 0x1234), data(qp, PIECE, 8);
		one(qp, 10, b->qp_num);
		int wanted = before + 1 + (before == 2);
		CHECK(completions("the parent's", ibv_wr_complete(qp), 2 * wanted) == 2 * wanted);
		/* Nothing from the child arrives. */
		usleep(20000);
		CHECK(!ibv_poll_cq(queue, 1, &wc));
		for (int i = wanted; i < 4; i++) {
			ibv_wr_start(qp), one(qp, 11, b->qp_num);
			CHECK(completions("the rest", ibv_wr_complete(qp), 2) == 2);
		}
	}
	tell("a child in a batch", "posts nothing");
}

int main(int argc, char **argv)
{
	struct ibv_device **list = ibv_get_device_list(NULL);
	struct ibv_cq_init_attr_ex wanted = { .cqe = 64, .wc_flags = IBV_WC_STANDARD_FLAGS };
	struct efadv_device_attr attr;
	struct cq_init own = {};
	int i, access;

	CHECK(argc >= 2 && list && *list);
	for (i = 0; list[i] && strcmp(ibv_get_device_name(list[i]), argv[1]); i++)
		;
	CHECK(list[i] && (context = ibv_open_device(list[i])));
	find_calls();
	CHECK(!query_device(context, &attr, sizeof(attr)));
	caps = attr.device_caps;
	access = IBV_ACCESS_LOCAL_WRITE | (caps & CAN_READ ? IBV_ACCESS_REMOTE_READ : 0) | (caps & CAN_WRITE ? IBV_ACCESS_REMOTE_WRITE : 0);
	CHECK(pd = ibv_alloc_pd(context));
	CHECK(mr = ibv_reg_mr(pd, memory, sizeof(memory), access));
	struct ibv_ah_attr there = { .is_global = 1, .port_num = 1 };
	CHECK(!ibv_query_gid(context, 1, 0, &gid));
	there.grh.dgid = gid;
	CHECK(ah = ibv_create_ah(pd, &there));
	own.wc_flags = (caps & CAN_SGID ? WITH_SGID : 0) | (caps & CAN_UNSOLICITED ? WITH_UNSOLICITED : 0);
	CHECK(cq = create_cq(context, &wanted, &own, sizeof(own)));

	if (argc > 2) {
		forked();
		return 0;
	}
	lengths("device", ask_device), lengths("handle", ask_ah), lengths("region", ask_mr);
	depths();
	queue_pairs();
	completion_queues();
	domains();
	struct ibv_ah_attr bad = there;
	bad.port_num = 2, tell("a handle of port 2", "%s", ibv_create_ah(pd, &bad) ? "made" : errno_of(errno));
	struct ibv_srq_init_attr shared = { .attr = { .max_wr = 4, .max_sge = 1 } };
	tell("a shared receive queue", "%s", ibv_create_srq(pd, &shared) ? "made" : errno_of(errno));

	struct ibv_cq *queue = ibv_cq_ex_to_cq(cq);
	struct ibv_qp *a = make(IBV_QPT_UD, 0, 32, queue), *b = make(IBV_QPT_UD, 0, 32, queue);
	to_rts(a), to_rts(b);
	numbers[0] = a->qp_num, numbers[1] = b->qp_num;
	requests("ud", a, b, 32);
	CHECK(!ibv_destroy_qp(a) && !ibv_destroy_qp(b));
	CHECK((a = make(IBV_QPT_DRIVER, 0, 32, queue)) && (b = make(IBV_QPT_DRIVER, 0, 32, queue)));
	to_rts(a), to_rts(b);
	numbers[0] = a->qp_num, numbers[1] = b->qp_num;
	tell("in order", "%d %d %d", ibv_query_qp_data_in_order(a, IBV_WR_SEND, 0), ibv_query_qp_data_in_order(a, IBV_WR_SEND, 1), ibv_query_qp_data_in_order(a, IBV_WR_SEND, 4));
	requests("srd", a, b, 32);
	batches(a, b);
	CHECK(!ibv_destroy_qp(a) && !ibv_destroy_qp(b));
	if (caps & CAN_WRITE) {
		uint16_t flags = INLINE_WRITE | (caps & CAN_UNSOLICITED ? UNSOLICITED : 0);
		CHECK((a = make(IBV_QPT_DRIVER, flags, 48, queue)) && (b = make(IBV_QPT_DRIVER, INLINE_WRITE, 48, queue)));
		to_rts(a), to_rts(b);
		numbers[0] = a->qp_num, numbers[1] = b->qp_num;
		requests("wide srd", a, b, 40);
		struct ibv_qp_ex *qp = ibv_qp_to_qp_ex(b);
		ibv_wr_start(qp), begin(qp, WRITE_IMM, 8), data(qp, BYTES, 30), ibv_wr_set_ud_addr(qp, ah, a->qp_num, 0x1234);
		completions("unsolicited", ibv_wr_complete(qp), 2);
		CHECK(!ibv_destroy_qp(a) && !ibv_destroy_qp(b));
	}
	plain("ud", IBV_QPT_UD), plain("srd", IBV_QPT_DRIVER);
	events();
	rings();
	CHECK(!ibv_destroy_cq(queue) && !ibv_destroy_ah(ah) && !ibv_dereg_mr(mr) && !ibv_dealloc_pd(pd) && !ibv_close_device(context));
	return 0;
}
