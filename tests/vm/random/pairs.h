/* Queue pairs: their creation, states, attributes, requests, groups and destruction; and address handles. */
#pragma once
#include "queues.h"
#include "world.h"

/* A GID that leads back to this device: one of an IPv4 address, if there is one. */
static int gid_index(struct ibv_context *context, union ibv_gid *gid)
{
	static const uint8_t ipv4[12] = { [10] = 0xff, [11] = 0xff };
	struct ibv_gid_entry entries[64] = { 0 };
	ssize_t count = ibv_query_gid_table(context, entries, 64, 0);
	int chosen = 0;

	for (ssize_t i = count; i-- > 0;)
		if (!memcmp(entries[i].gid.raw, ipv4, 12) || (i == 0 && memcmp(entries[chosen].gid.raw, ipv4, 12)))
			chosen = i;
	*gid = entries[chosen].gid;
	return entries[chosen].gid_index;
}

/* The LID of the port, on InfiniBand. */
static uint16_t lid_of(struct ibv_context *context)
{
	struct ibv_port_attr port = { 0 };

	return !ibv_query_port(context, 1, &port) && port.link_layer == IBV_LINK_LAYER_INFINIBAND ? port.lid : 0;
}

static void create_qp(int at)
{
	static const char *const types[] = { "rc", "uc", "ud", "raw", "raw-up", "raw-strip", "raw-large" };
	static const enum ibv_qp_type real[] = { IBV_QPT_RC, IBV_QPT_UC, IBV_QPT_UD, IBV_QPT_RAW_PACKET, IBV_QPT_RAW_PACKET,
						 IBV_QPT_RAW_PACKET, IBV_QPT_RAW_PACKET };
	int type = WORD(2, types);
	struct ibv_pd *pd = domains[place(3)];
	struct ibv_cq *cq = completions[place(4)];
	struct ibv_qp_init_attr_ex init = { .qp_context = (void *)(uintptr_t)at, .send_cq = cq, .recv_cq = cq,
					    .qp_type = real[type], .comp_mask = IBV_QP_INIT_ATTR_PD, .pd = pd };
	struct ibv_qp *qp;

	NEEDS(!control || type >= 3);
	NEEDS(!pd || type < 3 || !lid_of(pd->context));
	NEEDS(!pairs[at].qp && pd && cq && pd->context == cq->context);
	if (arg[5] != NONE)
		init.recv_cq = completions[place(5)];
	if (arg[6] != NONE)
		init.srq = shared[place(6)];
	NEEDS(init.recv_cq && init.recv_cq->context == pd->context);
	NEEDS(arg[6] == NONE || (init.srq && init.srq->context == pd->context));
	init.cap = (struct ibv_qp_cap){ arg[7], arg[8], arg[9], arg[9], arg[10] };
	if (type == 5)
		init.comp_mask |= IBV_QP_INIT_ATTR_CREATE_FLAGS, init.create_flags = IBV_QP_CREATE_CVLAN_STRIPPING;
	if (type == 6)
		init.comp_mask |= IBV_QP_INIT_ATTR_MAX_TSO_HEADER, init.max_tso_header = 64;
	qp = type < 5 ? ibv_create_qp(pd, (struct ibv_qp_init_attr *)&init) : ibv_create_qp_ex(pd->context, &init);
	if (!made(qp))
		return;
	say(" %u %u %u %u %u", init.cap.max_send_wr, init.cap.max_recv_wr, init.cap.max_send_sge, init.cap.max_recv_sge,
	    init.cap.max_inline_data);
	pairs[at].qp = qp, pairs[at].made = ++serial;
	known_number(qp->qp_num, at);
	if (type == 4) {
		struct ibv_qp_attr attr = { .qp_state = IBV_QPS_INIT, .port_num = 1 };
		say(" init "), done(ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_PORT));
		attr.qp_state = IBV_QPS_RTR;
		say(" rtr "), done(ibv_modify_qp(qp, &attr, IBV_QP_STATE));
		attr.qp_state = IBV_QPS_RTS;
		say(" rts "), done(ibv_modify_qp(qp, &attr, IBV_QP_STATE));
	}
}

/* The attributes that each state takes; the bits are those of `modify`. */
static const unsigned usual[3][4] = { { 0x7, 0x7, 0x4003, 1 }, { 0x1f8, 0x78, 0, 0 }, { 0x3e00, 0x200, 0x200, 0 } };

static int column(const struct ibv_qp *qp)
{
	return qp->qp_type == IBV_QPT_RC ? 0 : qp->qp_type == IBV_QPT_UC ? 1 : qp->qp_type == IBV_QPT_UD ? 2 : 3;
}

static const int masks[] = { IBV_QP_PORT, IBV_QP_PKEY_INDEX, IBV_QP_ACCESS_FLAGS, IBV_QP_AV, IBV_QP_PATH_MTU, IBV_QP_DEST_QPN,
			     IBV_QP_RQ_PSN, IBV_QP_MAX_DEST_RD_ATOMIC, IBV_QP_MIN_RNR_TIMER, IBV_QP_SQ_PSN, IBV_QP_TIMEOUT,
			     IBV_QP_RETRY_CNT, IBV_QP_RNR_RETRY, IBV_QP_MAX_QP_RD_ATOMIC, IBV_QP_QKEY };

static int modify_to(struct ibv_qp *qp, struct ibv_qp_attr *attr, enum ibv_qp_state state, unsigned bits)
{
	int mask = IBV_QP_STATE;

	attr->qp_state = state;
	for (int bit = 0; bit < 15; bit++)
		mask |= bits & (1 << bit) ? masks[bit] : 0;
	return ibv_modify_qp(qp, attr, mask);
}

static void route(struct ibv_ah_attr *attr, struct ibv_context *context, int port)
{
	attr->port_num = port, attr->is_global = 1, attr->grh.hop_limit = 64, attr->dlid = lid_of(context);
	attr->grh.sgid_index = gid_index(context, &attr->grh.dgid);
}

static void connect_pairs(struct ibv_qp *qp, const struct ibv_qp *other, struct ibv_context *context)
{
	struct ibv_qp_attr attr = {
		.port_num = 1, .qp_access_flags = rights(3), .path_mtu = IBV_MTU_1024, .dest_qp_num = other->qp_num,
		.rq_psn = arg[2] * 1000 + 7, .max_dest_rd_atomic = 1, .min_rnr_timer = 5, .sq_psn = arg[1] * 1000 + 7, .timeout = 10,
		.retry_cnt = arg[5], .rnr_retry = arg[4], .max_rd_atomic = 1, .qkey = 0x1111,
	};
	static const enum ibv_qp_state states[] = { IBV_QPS_INIT, IBV_QPS_RTR, IBV_QPS_RTS };

	route(&attr.ah_attr, context, 1);
	for (int i = 0; i < 3; i++) {
		say("%s", i ? " " : "");
		if (!done(modify_to(qp, &attr, states[i], usual[i][column(qp)])))
			return;
	}
}

/*
 * Takes what has come so far. When a queue pair is destroyed or reset, librxe leaves its completions in the queue and the drop-in
 * does not.
 */
static void take_before(const struct ibv_qp *qp)
{
	static struct taken all[4096];
	int count = take(qp->send_cq, all, 2048);

	if (qp->recv_cq != qp->send_cq)
		count += take(qp->recv_cq, all + count, 2048);
	for (int i = 0; i < count; i++)
		all[i].at = i;
	something_runs = 0;
	tell(all, count);
	say(", then ");
}

static void modify(struct ibv_qp *qp, enum ibv_qp_state state, unsigned bits, int odd, int access, struct ibv_context *context)
{
	struct ibv_qp_attr attr = {
		.port_num = odd ? 2 : 1, .pkey_index = odd ? 500 : 0, .qp_access_flags = access, .path_mtu = odd ? 6 : 3,
		.dest_qp_num = odd ? 1 << 24 : qp->qp_num, .rq_psn = odd ? 1 << 24 : 7, .max_dest_rd_atomic = odd ? 255 : 1,
		.min_rnr_timer = odd ? 32 : 5, .sq_psn = odd ? 1 << 24 : 7, .timeout = odd ? 32 : 10, .retry_cnt = odd ? 8 : 1,
		.rnr_retry = odd ? 8 : 1, .max_rd_atomic = odd ? 255 : 1, .qkey = odd ? 0 : 0x1111,
	};
	int row = state - IBV_QPS_INIT;

	route(&attr.ah_attr, context, odd ? 7 : 1);
	if (state == IBV_QPS_RESET)
		take_before(qp);
	settle();
	done(modify_to(qp, &attr, state, (row >= 0 && row < 3 ? usual[row][column(qp)] : 0) ^ bits));
	say(" state %d", qp->state);
	something_runs = 1;
}

static void query(struct ibv_qp *qp)
{
	struct ibv_qp_attr a = { 0 };
	struct ibv_qp_init_attr init = { 0 };
	int all = (1 << 21) - 1;

	settle();
	if (!done(ibv_query_qp(qp, &a, all, &init)))
		return;
	say(" state %d %d mtu %d access %#x rnr %d retry %d timeout %d timer %d dest x%d", a.qp_state, a.cur_qp_state, a.path_mtu,
	    a.qp_access_flags, a.rnr_retry, a.retry_cnt, a.timeout, a.min_rnr_timer, place_of(a.dest_qp_num));
	say(" qkey %#x psn %u %u pkey %d port %d atomics %d %d drain %d", a.qkey, a.rq_psn, a.sq_psn, a.pkey_index, a.port_num,
	    a.max_rd_atomic, a.max_dest_rd_atomic, a.sq_draining);
	say(" cap %u %u %u %u %u", a.cap.max_send_wr, a.cap.max_recv_wr, a.cap.max_send_sge, a.cap.max_recv_sge, a.cap.max_inline_data);
	say(" init %d %d %d %d %d %d %u", init.qp_type, init.send_cq == qp->send_cq, init.recv_cq == qp->recv_cq, init.srq == qp->srq,
	    init.sq_sig_all, init.qp_context == qp->qp_context, init.cap.max_send_wr);
	say(" global %d hops %d", a.ah_attr.is_global, a.ah_attr.grh.hop_limit);
}

static void drain(struct ibv_qp *qp, struct ibv_cq *first, struct ibv_cq *second)
{
	static struct taken all[8192];
	struct ibv_qp_attr attr = { 0 };

	done(modify_to(qp, &attr, IBV_QPS_ERR, 0));
	say(" ");
	something_runs = 1;
	int count = take(first, all, 4096);
	if (second && second != first)
		count += take(second, all + count, 4096);
	for (int i = 0; i < count; i++)
		all[i].at = i;
	tell(all, count);
}

static enum ibv_qp_state state_of(int at)
{
	static const char *const words[] = { "reset", "init", "rtr", "rts", "sqd", "sqe", "err" };

	return WORD(at, words);
}

/* If the queue pair is destroyed before its window, rxe waits for a long time. */
static int has_window(const struct ibv_qp *qp)
{
	for (int i = 0; i < PLACES; i++)
		if (windows[i].mw && windows[i].by == qp)
			return 1;
	return 0;
}

static void pair_step(void)
{
	int at = place(1);
	struct ibv_qp *qp = pairs[at].qp;
	struct ibv_qp_attr attr = { 0 };

	if (is("qp")) {
		create_qp(at);
		return;
	}
	NEEDS(qp);
	if (is("connect")) {
		NEEDS(pairs[place(2)].qp && contexts[place(6)]);
		connect_pairs(qp, pairs[place(2)].qp, contexts[place(6)]);
	} else if (is("modify")) {
		NEEDS(contexts[place(6)]);
		modify(qp, state_of(2), arg[3], arg[4] != 0, rights(5), contexts[place(6)]);
	} else if (is("usual")) {
		NEEDS(contexts[place(3)]);
		modify(qp, state_of(2), 0, 0, rights(-1), contexts[place(3)]);
	} else if (is("qp-reset") || is("qp-fail")) {
		if (is("qp-reset"))
			take_before(qp);
		settle();
		done(modify_to(qp, &attr, is("qp-reset") ? IBV_QPS_RESET : IBV_QPS_ERR, 0));
		say(" state %d", qp->state);
		something_runs = 1;
	} else if (is("qp-state")) {
		struct ibv_qp_init_attr init;
		settle();
		if (done(ibv_query_qp(qp, &attr, IBV_QP_STATE, &init)))
			say(" %d %d", attr.qp_state, qp->state);
	} else if (is("qp-query")) {
		query(qp);
	} else if (is("drain")) {
		NEEDS(completions[place(2)] && (arg[3] == NONE || completions[place(3)]));
		drain(qp, completions[place(2)], arg[3] == NONE ? NULL : completions[place(3)]);
	} else if (is("destroy-qp") || is("drop-qp")) {
		NEEDS(!has_window(qp));
		take_before(qp);
		if (done(ibv_destroy_qp(qp)))
			pairs[at].qp = NULL;
	} else {
		ABSENT;
	}
}

static void group_step(void)
{
	struct membership *m = &memberships[place(1)];

	if (is("join")) {
		struct ibv_qp *qp = pairs[place(2)].qp;
		NEEDS(!m->qp && qp && qp->qp_type == IBV_QPT_UD);
		memset(&m->gid, 0, sizeof(m->gid));
		m->gid.raw[0] = arg[3] ? 0xff : 0xfe, m->gid.raw[15] = arg[3], m->lid = arg[4];
		for (int i = 0; i < PLACES; i++)
			NEEDS(memberships[i].qp != qp || memcmp(&memberships[i].gid, &m->gid, 16) || memberships[i].lid == m->lid);
		if (done(ibv_attach_mcast(qp, &m->gid, m->lid)))
			m->qp = qp;
		return;
	}
	NEEDS(m->qp);
	settle();
	/* The queue pair still exists: destroying a member of a group would have been refused. */
	if (done(ibv_detach_mcast(m->qp, &m->gid, m->lid)))
		m->qp = NULL;
}

static void handle_step(void)
{
	static const char *const words[] = { "here", "port", "gid-index", "gid" };
	int at = place(1);
	struct ibv_ah_attr attr = { 0 };

	if (is("ah-back")) {
		const struct region *region = &regions[place(4)];
		struct ibv_wc wc = { .wc_flags = IBV_WC_GRH };
		NEEDS(!control && !handles[at] && domains[place(2)] && region->mr && region->len >= arg[5] + 40);
		settle();
		wc.slid = lid_of(domains[place(2)]->context);
		made(handles[at] = ibv_create_ah_from_wc(domains[place(2)], &wc, (struct ibv_grh *)(region->memory + arg[5]), 1));
		return;
	}
	if (!is("ah")) {
		NEEDS(handles[at]);
		settle();
		if (done(ibv_destroy_ah(handles[at])))
			handles[at] = NULL;
		return;
	}
	NEEDS(!control && !handles[at] && domains[place(2)] && contexts[place(3)]);
	route(&attr, contexts[place(3)], 1);
	switch (WORD(4, words)) {
	case 1:
		attr.port_num = 2;
		break;
	case 2:
		attr.grh.sgid_index = 200;
		break;
	case 3:
		memset(&attr.grh.dgid, 0, sizeof(attr.grh.dgid));
	}
	made(handles[at] = ibv_create_ah(domains[place(2)], &attr));
}
