/*
 * What calls return when they fail, what errno is then, and what is unchanged afterwards. One line for each, to compare libibverbs
 * with the drop-in.
 *
 * usage: conventions DEVICE
 */
#include "robust.h"

static struct pair p;
static struct ibv_context *context;
static struct ibv_pd *pd;

static void queries(void)
{
	struct ibv_port_attr port;
	struct ibv_gid_entry entry, table[8];
	union ibv_gid gid;
	uint16_t pkey;
	char text[4];

	NUMBER("query_port 0", ibv_query_port(context, 0, &port));
	NUMBER("query_port 2", ibv_query_port(context, 2, &port));
	NUMBER("query_gid port 0", ibv_query_gid(context, 0, 0, &gid));
	NUMBER("query_gid port 9", ibv_query_gid(context, 9, 0, &gid));
	NUMBER("query_gid -1", ibv_query_gid(context, 1, -1, &gid));
	NUMBER("query_gid empty", ibv_query_gid(context, 1, 200, &gid));
	NUMBER("query_gid beyond", ibv_query_gid(context, 1, 100000, &gid));
	NUMBER("query_gid_ex port 0", ibv_query_gid_ex(context, 0, 0, &entry, 0));
	NUMBER("query_gid_ex port 300", ibv_query_gid_ex(context, 300, 0, &entry, 0));
	NUMBER("query_gid_ex empty", ibv_query_gid_ex(context, 1, 200, &entry, 0));
	NUMBER("query_gid_ex beyond", ibv_query_gid_ex(context, 1, 100000, &entry, 0));
	NUMBER("query_gid_ex flags", ibv_query_gid_ex(context, 1, 0, &entry, 1));
	NUMBER("query_gid_table flags", ibv_query_gid_table(context, table, 8, 1));
	NUMBER("query_gid_table no room", ibv_query_gid_table(context, table, 0, 0));
	NUMBER("query_pkey port 0", ibv_query_pkey(context, 0, 0, &pkey));
	NUMBER("query_pkey -1", ibv_query_pkey(context, 1, -1, &pkey));
	NUMBER("query_pkey beyond", ibv_query_pkey(context, 1, 1000, &pkey));
	NUMBER("get_pkey_index none", ibv_get_pkey_index(context, 1, htobe16(0x1234)));
	OBJECT("create_counters", ibv_create_counters(context, &(struct ibv_counters_init_attr){ 0 }));
	NUMBER("read_sysfs_file none", ibv_read_sysfs_file("/sys/nowhere", "nothing", text, sizeof(text)));
	printf("read_sysfs_file cut: %d\n", ibv_read_sysfs_file("/proc", "version", text, sizeof(text)));
	printf("wc_status_str 999: %s, -1: %s\n", ibv_wc_status_str(999), ibv_wc_status_str(-1));
	printf("event_type_str 999: %s\n", ibv_event_type_str(999));
	printf("port_state_str 999: %s\n", ibv_port_state_str(999));
	printf("node_type_str 999: %s, -1: %s\n", ibv_node_type_str(999), ibv_node_type_str(-1));
	printf("rates: %d %d %d %d\n", ibv_rate_to_mult(999), mult_to_ibv_rate(0), ibv_rate_to_mbps(999), mbps_to_ibv_rate(7));
}

static struct ibv_mr *region(void *at, size_t length, int access)
{
	struct ibv_mr *mr = ibv_reg_mr(pd, at, length, access);

	if (mr)
		MUST(!ibv_dereg_mr(mr));
	return mr;
}

static void memory(void)
{
	struct ibv_mr before, *mr = p.one.mr;

	OBJECT("reg_mr length 0", region(p.one.memory, 0, 1));
	OBJECT("reg_mr remote write without local write", region(p.one.memory, 1, IBV_ACCESS_REMOTE_WRITE));
	OBJECT("reg_mr atomic without local write", region(p.one.memory, 1, IBV_ACCESS_REMOTE_ATOMIC));
	OBJECT("reg_mr unknown access", region(p.one.memory, 1, 1 << 19));
	OBJECT("reg_mr optional access", region(p.one.memory, 1, IBV_ACCESS_RELAXED_ORDERING));
	OBJECT("reg_mr optional unknown access", region(p.one.memory, 1, 1 << 29));
	OBJECT("reg_mr on demand", region(NULL, SIZE_MAX, IBV_ACCESS_ON_DEMAND));
	OBJECT("reg_mr null", region(NULL, 4096, 1));
	OBJECT("reg_mr no memory", region((void *)(1ul << 40), 4096, 1));
	OBJECT("reg_mr around the end", region((void *)-4096, 8192, 1));
	OBJECT("reg_mr huge", region(p.one.memory, 1ul << 62, 1));
	OBJECT("reg_mr text", region("text", 4, 0));
	OBJECT("reg_mr text to write", region("text", 4, IBV_ACCESS_LOCAL_WRITE));
	OBJECT("reg_mr_iova between pages", ibv_reg_mr_iova(pd, p.one.memory, 8, 3, 1));
	before = *mr;
	NUMBER("rereg_mr nothing", ibv_rereg_mr(mr, 0, NULL, NULL, 0, 0));
	NUMBER("rereg_mr unknown", ibv_rereg_mr(mr, 8, NULL, NULL, 0, 0));
	NUMBER("rereg_mr no domain", ibv_rereg_mr(mr, IBV_REREG_MR_CHANGE_PD, NULL, NULL, 0, 0));
	NUMBER("rereg_mr no length", ibv_rereg_mr(mr, IBV_REREG_MR_CHANGE_TRANSLATION, NULL, mr->addr, 0, 0));
	NUMBER("rereg_mr bad access", ibv_rereg_mr(mr, IBV_REREG_MR_CHANGE_ACCESS, NULL, NULL, 0, IBV_ACCESS_REMOTE_WRITE));
	printf("region as before: %d\n", !memcmp(&before, mr, sizeof(before)));
}

static struct ibv_cq *queue(int cqe, int vector)
{
	struct ibv_cq *cq = ibv_create_cq(context, cqe, NULL, NULL, vector);

	if (cq)
		MUST(!ibv_destroy_cq(cq));
	return cq;
}

static void completions(void)
{
	struct ibv_cq_init_attr_ex attr = { .cqe = 4, .wc_flags = 1ull << 40 };
	struct ibv_poll_cq_attr poll = { .comp_mask = 1 };
	int cqe = p.one.cq->cqe;
	struct ibv_cq_ex *ex;
	struct ibv_cq *cq;
	struct ibv_wc wc;

	OBJECT("create_cq 0", queue(0, 0));
	OBJECT("create_cq -1", queue(-1, 0));
	OBJECT("create_cq too large", queue(1 << 30, 0));
	OBJECT("create_cq vector -1", queue(4, -1));
	OBJECT("create_cq vector 1000", queue(4, 1000));
	OBJECT("create_cq_ex unknown fields", ibv_create_cq_ex(context, &attr));
	attr = (struct ibv_cq_init_attr_ex){ .cqe = 4, .comp_mask = 1 << 20 };
	OBJECT("create_cq_ex unknown mask", ibv_create_cq_ex(context, &attr));
	attr = (struct ibv_cq_init_attr_ex){ .cqe = 0 };
	OBJECT("create_cq_ex 0", ibv_create_cq_ex(context, &attr));
	attr.cqe = 4;
	MUST(ex = ibv_create_cq_ex(context, &attr));
	printf("create_cq_ex 4: %d\n", ibv_cq_ex_to_cq(ex)->cqe);
	NUMBER("start_poll unknown mask", ibv_start_poll(ex, &poll));
	poll.comp_mask = 0;
	NUMBER("start_poll empty", ibv_start_poll(ex, &poll));
	NUMBER("start_poll again", ibv_start_poll(ex, &poll));
	MUST(!ibv_destroy_cq(ibv_cq_ex_to_cq(ex)));
	NUMBER("poll_cq empty", ibv_poll_cq(p.one.cq, 1, &wc));
	NUMBER("poll_cq 0", ibv_poll_cq(p.one.cq, 0, &wc));
	NUMBER("poll_cq -1", ibv_poll_cq(p.one.cq, -1, &wc));
	NUMBER("resize_cq 0", ibv_resize_cq(p.one.cq, 0));
	NUMBER("resize_cq -1", ibv_resize_cq(p.one.cq, -1));
	NUMBER("resize_cq too large", ibv_resize_cq(p.one.cq, 1 << 30));
	printf("cqe as before: %d\n", p.one.cq->cqe == cqe);
	MUST(cq = ibv_create_cq(context, 20, NULL, NULL, 0));
	printf("create_cq 20: %d\n", cq->cqe);
	NUMBER("resize_cq 40", ibv_resize_cq(cq, 40));
	printf("resize_cq 40: %d\n", cq->cqe);
	MUST(!ibv_destroy_cq(cq));
	NUMBER("destroy_comp_channel in use", ibv_destroy_comp_channel(p.channel));
	printf("channel as before: %d\n", p.channel->refcnt);
	NUMBER("destroy_cq in use", ibv_destroy_cq(p.one.cq));
	NUMBER("dealloc_pd in use", ibv_dealloc_pd(pd));
	NUMBER("all as before: write", write_across(&p.one, &p.two, 0, 8));
}

static struct ibv_qp *try_qp(struct ibv_qp_cap cap, enum ibv_qp_type type, struct ibv_cq *cq)
{
	struct ibv_qp_init_attr init = { .send_cq = cq, .recv_cq = cq, .cap = cap, .qp_type = type };
	struct ibv_qp *qp = ibv_create_qp(pd, &init);

	if (qp)
		MUST(!ibv_destroy_qp(qp));
	else if (memcmp(&cap, &init.cap, sizeof(cap)))
		printf("the wanted capacity has changed\n");
	return qp;
}

static void queue_pairs(void)
{
	struct ibv_qp_init_attr_ex ex = { .qp_type = IBV_QPT_RC, .send_cq = p.one.cq, .recv_cq = p.one.cq, .pd = pd };
	struct ibv_qp_cap cap = { 4, 4, 1, 1, 0 };
	struct ibv_qp_attr attr, rtr;
	struct ibv_qp_init_attr init;
	struct ibv_qp *qp;

	OBJECT("create_qp too many sends", try_qp((struct ibv_qp_cap){ 1 << 30, 1, 1, 1, 0 }, IBV_QPT_RC, p.one.cq));
	OBJECT("create_qp too many receives", try_qp((struct ibv_qp_cap){ 1, 1 << 30, 1, 1, 0 }, IBV_QPT_RC, p.one.cq));
	OBJECT("create_qp too many pieces", try_qp((struct ibv_qp_cap){ 1, 1, 1000, 1, 0 }, IBV_QPT_RC, p.one.cq));
	OBJECT("create_qp too much inline", try_qp((struct ibv_qp_cap){ 1, 1, 1, 1, 1 << 20 }, IBV_QPT_RC, p.one.cq));
	OBJECT("create_qp empty", try_qp((struct ibv_qp_cap){ 0 }, IBV_QPT_RC, p.one.cq));
	OBJECT("create_qp unknown type", try_qp(cap, 99, p.one.cq));
	OBJECT("create_qp type 0", try_qp(cap, 0, p.one.cq));
	OBJECT("create_qp raw packet", try_qp(cap, IBV_QPT_RAW_PACKET, p.one.cq));
	OBJECT("create_qp XRC", try_qp(cap, IBV_QPT_XRC_SEND, p.one.cq));
	OBJECT("create_qp_ex without domain", ibv_create_qp_ex(context, &ex));
	ex.comp_mask = IBV_QP_INIT_ATTR_PD | 1 << 20;
	OBJECT("create_qp_ex unknown mask", ibv_create_qp_ex(context, &ex));
	ex.comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS;
	ex.send_ops_flags = 1ull << 40;
	OBJECT("create_qp_ex unknown operations", ibv_create_qp_ex(context, &ex));
	ex.send_ops_flags = IBV_QP_EX_WITH_TSO;
	OBJECT("create_qp_ex large sends", ibv_create_qp_ex(context, &ex));
	ex.comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_CREATE_FLAGS;
	ex.create_flags = IBV_QP_CREATE_SCATTER_FCS;
	OBJECT("create_qp_ex flags", ibv_create_qp_ex(context, &ex));
	MUST(qp = make_qp(pd, p.one.cq, NULL, IBV_QPT_RC));
	rtr = rtr_attr(context, 1);
	NUMBER("modify_qp reset to RTR", ibv_modify_qp(qp, &rtr, RTR_MASK));
	attr = (struct ibv_qp_attr){ .qp_state = IBV_QPS_INIT, .port_num = 1 };
	NUMBER("modify_qp attributes missing", ibv_modify_qp(qp, &attr, IBV_QP_STATE));
	NUMBER("modify_qp nothing", ibv_modify_qp(qp, &attr, 0));
	NUMBER("modify_qp unknown attribute", ibv_modify_qp(qp, &attr, 1 << 30));
	NUMBER("modify_qp rate limit", ibv_modify_qp(qp, &attr, IBV_QP_RATE_LIMIT));
	attr.qp_state = 99;
	NUMBER("modify_qp unknown state", ibv_modify_qp(qp, &attr, IBV_QP_STATE));
	attr.qp_state = 256 + IBV_QPS_INIT;
	NUMBER("modify_qp state 257", ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS));
	attr = (struct ibv_qp_attr){ .qp_state = IBV_QPS_INIT, .port_num = 9 };
	NUMBER("modify_qp port 9", ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS));
	attr.port_num = 1;
	attr.pkey_index = 999;
	NUMBER("modify_qp key index", ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS));
	attr.pkey_index = 0;
	attr.qp_access_flags = -1;
	NUMBER("modify_qp access", ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS));
	printf("state: %d\n", qp->state);
	MUST(!ibv_query_qp(qp, &attr, IBV_QP_STATE, &init));
	printf("state in the kernel: %d, pair's: %d\n", attr.qp_state, qp->state);
	MUST(!to_init(qp));
	rtr.ah_attr.grh.sgid_index = 200;
	NUMBER("modify_qp empty gid", ibv_modify_qp(qp, &rtr, RTR_MASK));
	rtr.ah_attr.grh.sgid_index = GID;
	rtr.ah_attr.port_num = 7;
	NUMBER("modify_qp path port 7", ibv_modify_qp(qp, &rtr, RTR_MASK));
	rtr.ah_attr.port_num = 1;
	rtr.path_mtu = 77;
	NUMBER("modify_qp mtu 77", ibv_modify_qp(qp, &rtr, RTR_MASK));
	rtr.path_mtu = IBV_MTU_1024;
	rtr.ah_attr.is_global = 0;
	NUMBER("modify_qp without route", ibv_modify_qp(qp, &rtr, RTR_MASK));
	rtr = rtr_attr(context, 1);
	rtr.max_dest_rd_atomic = 255;
	NUMBER("modify_qp too many reads", ibv_modify_qp(qp, &rtr, RTR_MASK));
	NUMBER("query_qp unknown", ibv_query_qp(qp, &attr, -1, &init));
	unsigned int refused[2] = { 0 };
	for (int bit = 0; bit < 32; bit++) {
		refused[0] |= (ibv_query_qp(qp, &attr, 1u << bit, &init) == EOPNOTSUPP) << bit;
		refused[1] |= (ibv_modify_qp(qp, &attr, 1u << bit) == EOPNOTSUPP) << bit;
	}
	printf("attributes that cannot be asked for: %x, changed: %x\n", refused[0], refused[1]);
	printf("cap: %u %u %u %u %u\n", init.cap.max_send_wr, init.cap.max_recv_wr, init.cap.max_send_sge,
	       init.cap.max_recv_sge, init.cap.max_inline_data);
	MUST(!ibv_destroy_qp(qp));
}

/* An address from a completion, with all fields. */
static void way_back(const char *name, unsigned int flags, const uint8_t *header)
{
	struct ibv_wc wc = { .wc_flags = flags, .slid = 5, .sl = 6, .dlid_path_bits = 7 };
	struct ibv_ah_attr way;
	struct ibv_grh grh;
	int answer;

	memset(&way, 0xa5, sizeof(way));
	memcpy(&grh, header, sizeof(grh));
	answer = ibv_init_ah_from_wc(context, 1, &wc, &grh, &way);
	NUMBER(name, answer);
	printf("%u %u %u %u %u %u, %x", way.dlid, way.sl, way.src_path_bits, way.static_rate, way.is_global, way.port_num,
	       way.grh.flow_label);
	if (!answer)
		printf(", %u %u %u, %016llx %016llx", way.grh.sgid_index, way.grh.hop_limit, way.grh.traffic_class,
		       (unsigned long long)be64toh(way.grh.dgid.global.subnet_prefix),
		       (unsigned long long)be64toh(way.grh.dgid.global.interface_id));
	putchar('\n');
}

static void ways_back(void)
{
	/* IPv4 from 192.0.2.7 to the device of the lane, behind the beginning of an older IPv6 header. */
	uint8_t header[40] = {
		0x6a, 0xb1, 0x23, 0x45, 0, 60, 17, 9, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7,
		0x45, 0x68, 0, 60, 0, 0, 0x40, 0, 64, 17, 0xb6, 0x40, 192, 0, 2, 7, 192, 0, 2, 1,
	}, ipv6[40] = { 0x6a, 0xb1, 0x23, 0x45, 0, 60, 17, 9, [8] = 0xfe, 0x80, [23] = 7 };
	union ibv_gid gid;

	way_back("way back IPv4 behind IPv6", IBV_WC_GRH, header);
	way_back("way back without a header", 0, header);
	header[30] ^= 1;
	way_back("way back wrong checksum behind IPv6", IBV_WC_GRH, header);
	header[0] = 0;
	way_back("way back wrong checksum", IBV_WC_GRH, header);
	header[20] = 0x46;
	way_back("way back options", IBV_WC_GRH, header);
	header[36] = 198;
	way_back("way back not ours", IBV_WC_GRH, header);
	header[36] = 239;
	way_back("way back group", IBV_WC_GRH, header);
	MUST(!ibv_query_gid(context, 1, 0, &gid));
	memcpy(ipv6 + 24, &gid, 16);
	way_back("way back IPv6 UDP", IBV_WC_GRH, ipv6);
	ipv6[6] = 0x1b;
	way_back("way back IPv6 transport", IBV_WC_GRH, ipv6);
	ipv6[6] = 6;
	way_back("way back IPv6 TCP", IBV_WC_GRH, ipv6);
	ipv6[24] = 0xff;
	way_back("way back IPv6 group", IBV_WC_GRH, ipv6);
}

static void others(void)
{
	struct ibv_srq_init_attr init = { .attr = { 4, 1, 0 } }, large = { .attr = { 1 << 30, 1, 0 } };
	struct ibv_srq_attr attr = { .max_wr = 8, .srq_limit = 100 };
	struct ibv_ah_attr path = rtr_attr(context, 0).ah_attr;
	union ibv_gid group = { .raw = { 0xff, 0x0e, [15] = 1 } }, ordinary = { .raw = { 0 } };
	struct ibv_qp *ud = make_qp(pd, p.one.cq, NULL, IBV_QPT_UD), *shared;
	struct ibv_wc wc = { .wc_flags = IBV_WC_GRH };
	struct ibv_srq *srq;
	struct ibv_grh grh = { 0 };
	struct ibv_mw *mw;

	OBJECT("create_srq too large", ibv_create_srq(pd, &large));
	large.attr = (struct ibv_srq_attr){ 4, 1000, 0 };
	OBJECT("create_srq too many pieces", ibv_create_srq(pd, &large));
	large.attr = (struct ibv_srq_attr){ 0, 0, 0 };
	OBJECT("create_srq empty", ibv_create_srq(pd, &large));
	MUST(srq = ibv_create_srq(pd, &init));
	NUMBER("modify_srq nothing", ibv_modify_srq(srq, &attr, 0));
	NUMBER("modify_srq unknown", ibv_modify_srq(srq, &attr, 4));
	NUMBER("modify_srq limit beyond", ibv_modify_srq(srq, &attr, IBV_SRQ_LIMIT));
	attr.max_wr = 1 << 30;
	NUMBER("modify_srq too large", ibv_modify_srq(srq, &attr, IBV_SRQ_MAX_WR));
	MUST(shared = make_qp(pd, p.one.cq, srq, IBV_QPT_RC));
	NUMBER("destroy_srq in use", ibv_destroy_srq(srq));
	NUMBER("query_srq after", ibv_query_srq(srq, &attr));
	printf("srq: %u %u %u\n", attr.max_wr, attr.max_sge, attr.srq_limit);
	MUST(!ibv_destroy_qp(shared) && !ibv_destroy_srq(srq));
	path.port_num = 9;
	OBJECT("create_ah port 9", ibv_create_ah(pd, &path));
	path.port_num = 1;
	path.grh.sgid_index = 200;
	OBJECT("create_ah empty gid", ibv_create_ah(pd, &path));
	path.is_global = 0;
	OBJECT("create_ah without route", ibv_create_ah(pd, &path));
	NUMBER("init_ah_from_wc no such gid", ibv_init_ah_from_wc(context, 1, &wc, &grh, &path));
	OBJECT("create_ah_from_wc no such gid", ibv_create_ah_from_wc(pd, &wc, &grh, 1));
	MUST(ud && !to_init(ud));
	NUMBER("attach_mcast no group", ibv_attach_mcast(ud, &ordinary, 0));
	NUMBER("attach_mcast RC", ibv_attach_mcast(p.one.qp, &group, 0xc000));
	NUMBER("attach_mcast", ibv_attach_mcast(ud, &group, 0xc000));
	NUMBER("attach_mcast again", ibv_attach_mcast(ud, &group, 0xc000));
	NUMBER("destroy_qp attached", ibv_destroy_qp(ud));
	NUMBER("detach_mcast", ibv_detach_mcast(ud, &group, 0xc000));
	NUMBER("detach_mcast again", ibv_detach_mcast(ud, &group, 0xc000));
	MUST(!ibv_destroy_qp(ud));
	OBJECT("alloc_mw type 9", ibv_alloc_mw(pd, 9));
	OBJECT("alloc_mw type 0", ibv_alloc_mw(pd, 0));
	mw = ibv_alloc_mw(pd, IBV_MW_TYPE_1);
	OBJECT("alloc_mw type 1", mw);
	NUMBER("dealloc_mw", mw ? ibv_dealloc_mw(mw) : 0);
}

int main(int count, char **arguments)
{
	begin(count, arguments);
	open_pair(&p);
	context = p.context;
	pd = p.pd;
	queries();
	memory();
	completions();
	queue_pairs();
	ways_back();
	others();
	close_pair(&p);
	return 0;
}
