/* Transports that can lose messages: unreliable connections and datagrams. */

static void uc_send(long len)
{
	struct pair p;

	MAKE_PAIR(&p, UC);
	for (int i = 0; i < 3; i++) {
		fill(&p.a, 0, len, i);
		post_receive(&p.b, i, 4096, 4096);
		SEND(&p.a, i, 0, len);
		received(&p.b, i, IBV_WC_RECV, len);
		same(&p.b, 4096, 0, len, i);
		untouched(&p.b, 4096 + len, 64);
		good(p.a.out, i, IBV_WC_SEND);
	}
	REMOTE(&p.a, 9, IBV_WR_RDMA_WRITE, 0, len, &p.b, 16384);
	good(p.a.out, 9, IBV_WC_RDMA_WRITE);
	for (double until = now() + LATE; len && p.b.bytes[16384 + len - 1] == 0xee && now() < until;)
		usleep(100);
	same(&p.b, 16384, 0, len, 2);
	untouched(&p.b, 16384 + len, 64);
	drop(&p);
}

/* A message that finds no receive is lost, and nobody is told. */
static void uc_loss(long len)
{
	struct pair p;

	MAKE_PAIR(&p, UC);
	SEND(&p.a, 1, 0, len);
	good(p.a.out, 1, IBV_WC_SEND);
	quiet(p.b.in);
	fill(&p.a, 0, len, 6);
	post_receive(&p.b, 2, 0, 4096);
	SEND(&p.a, 3, 0, len);
	good(p.a.out, 3, IBV_WC_SEND);
	received(&p.b, 2, IBV_WC_RECV, len);
	same(&p.b, 0, 0, len, 6);
	quiet(p.b.in), no_event(0);
	drop(&p);
}

static void uc_wrong_key(long)
{
	struct pair p;

	MAKE_PAIR(&p, UC);
	use(&p.a, 1, IBV_WR_RDMA_WRITE, 0, 8, (uintptr_t)p.b.bytes, p.b.mr->rkey + 0x10000);
	good(p.a.out, 1, IBV_WC_RDMA_WRITE);
	post_receive(&p.b, 2, 4096, 64);
	SEND(&p.a, 3, 0, 8);
	good(p.a.out, 3, IBV_WC_SEND);
	received(&p.b, 2, IBV_WC_RECV, 8);
	untouched(&p.b, 0, 8);
	EQUAL(state_of(&p.b), IBV_QPS_RTS);
	drop(&p);
}

/* Datagrams. */

#define FRONT 40 /* bytes before what was sent */

static struct ibv_ah *make_way(struct ibv_ah_attr attr)
{
	struct ibv_ah *ah = ibv_create_ah(pd, &attr);

	NEED(ah);
	return ah;
}

#define DATAGRAM(e, id, ah_, other, at, len, ...) \
	SEND(e, id, at, len, .wr.ud = { .ah = ah_, .remote_qpn = (other)->qp->qp_num, .remote_qkey = 0x1234 }, __VA_ARGS__)

static struct ibv_wc datagram_came(struct end *from, struct end *e, uint64_t id, size_t at, size_t len, uint32_t seed)
{
	struct ibv_wc wc = received(e, id, IBV_WC_RECV, len + FRONT);

	EQUAL(wc.src_qp, from->qp->qp_num);
	same(e, at + FRONT, 0, len, seed);
	untouched(e, at + FRONT + len, 64);
	return wc;
}

static void ud_send(long len)
{
	struct pair p;
	struct ibv_ah *ah = make_way(way());

	if (len == NONE)
		len = 128 << port.active_mtu;
	MAKE_PAIR(&p, UD);
	for (int i = 0; i < 3; i++) {
		memset(p.b.bytes, 0xee, ROOM);
		fill(&p.a, 0, len, i);
		post_receive(&p.b, i, 4096, 8192);
		DATAGRAM(&p.a, 10, ah, &p.b, 0, len);
		struct ibv_wc wc = datagram_came(&p.a, &p.b, i, 4096, len, i);
		EQUAL(wc.wc_flags & IBV_WC_WITH_IMM, 0);
		EQUAL(wc.wc_flags & IBV_WC_GRH, is_ib ? 0 : IBV_WC_GRH);
		if (is_ib) {
			EQUAL(wc.slid, port.lid);
			EQUAL(wc.pkey_index, 0);
		} else if (!memcmp(&gid, "\0\0\0\0\0\0\0\0\0\0\xff\xff", 12)) {
			EQUAL(p.b.bytes[4096 + 20], 0x45);
			NEED(!memcmp(p.b.bytes + 4096 + 32, gid.raw + 12, 4) && !memcmp(p.b.bytes + 4096 + 36, gid.raw + 12, 4));
		} else {
			EQUAL(p.b.bytes[4096] >> 4, 6);
			NEED(!memcmp(p.b.bytes + 4096 + 8, &gid, 16) && !memcmp(p.b.bytes + 4096 + 24, &gid, 16));
		}
		good(p.a.out, 10, IBV_WC_SEND);
	}
	drop(&p);
	EQUAL(ibv_destroy_ah(ah), 0);
}

static void ud_immediate(long)
{
	struct pair p;
	struct ibv_ah *ah = make_way(way());

	MAKE_PAIR(&p, UD);
	for (int i = 0; i < 4; i++) {
		fill(&p.a, 0, 100 * i, i);
		post_receive(&p.b, i, 8192 * i, 4096);
		DATAGRAM(&p.a, 10, ah, &p.b, 0, 100 * i, .opcode = IBV_WR_SEND_WITH_IMM, .imm_data = htonl(i + 7));
		struct ibv_wc wc = datagram_came(&p.a, &p.b, i, 8192 * i, 100 * i, i);
		EQUAL(wc.wc_flags & IBV_WC_WITH_IMM, IBV_WC_WITH_IMM);
		EQUAL(ntohl(wc.imm_data), i + 7);
		good(p.a.out, 10, IBV_WC_SEND);
	}
	drop(&p);
	EQUAL(ibv_destroy_ah(ah), 0);
}

static void ud_pieces(long)
{
	struct pair p;
	struct ibv_ah *ah = make_way(way());

	MAKE_PAIR(&p, UD);
	for (int i = 0; i < 2; i++) {
		fill(&p.a, 0, 60, i);
		struct ibv_sge from[] = { piece(&p.a, 0, 5), piece(&p.a, 5, 20), piece(&p.a, 25, 35) };
		struct ibv_sge to[] = { piece(&p.b, 0, 17), piece(&p.b, 100, 23), piece(&p.b, 200, 10), piece(&p.b, 300, 100) };
		struct ibv_recv_wr *wrong, receive = { .wr_id = 1, .sg_list = to, .num_sge = 4 };
		struct ibv_send_wr wr = { .wr_id = 2, .opcode = IBV_WR_SEND, .sg_list = from, .num_sge = 3, .send_flags = IBV_SEND_SIGNALED | (i ? IBV_SEND_INLINE : 0),
					  .wr.ud = { ah, p.b.qp->qp_num, 0x1234 } };
		EQUAL(ibv_post_recv(p.b.qp, &receive, &wrong), 0);
		post(&p.a, &wr);
		received(&p.b, 1, IBV_WC_RECV, 100);
		same(&p.b, 200, 0, 10, i), same(&p.b, 300, 10, 50, i);
		untouched(&p.b, 350, 50);
		good(p.a.out, 2, IBV_WC_SEND);
	}
	drop(&p);
	EQUAL(ibv_destroy_ah(ah), 0);
}

/*
 * Without a receive, with another key, to nobody, or to a queue pair that is not ready: the datagram is lost, and the sender is not
 * told.
 */
static void ud_loss(long)
{
	struct pair p;
	struct ibv_ah *ah = make_way(way());

	MAKE_PAIR(&p, UD);
	DATAGRAM(&p.a, 1, ah, &p.b, 0, 10);
	good(p.a.out, 1, IBV_WC_SEND);
	quiet(p.b.in);
	post_receive(&p.b, 5, 0, 4096);
	DATAGRAM(&p.a, 2, ah, &p.b, 0, 10, .wr.ud.remote_qkey = 0x1235);
	good(p.a.out, 2, IBV_WC_SEND);
	DATAGRAM(&p.a, 3, ah, &p.b, 0, 10, .wr.ud.remote_qpn = 0x7fffff);
	good(p.a.out, 3, IBV_WC_SEND);
	quiet(p.b.in);
	fill(&p.a, 0, 10, 4);
	DATAGRAM(&p.a, 4, ah, &p.b, 0, 10);
	datagram_came(&p.a, &p.b, 5, 0, 10, 4);
	good(p.a.out, 4, IBV_WC_SEND);
	to_state(&p.b, IBV_QPS_RESET);
	DATAGRAM(&p.a, 6, ah, &p.b, 0, 10);
	good(p.a.out, 6, IBV_WC_SEND);
	EQUAL(state_of(&p.a), IBV_QPS_RTS);
	no_event(0);
	drop(&p);
	EQUAL(ibv_destroy_ah(ah), 0);
}

/* A key with the highest bit set stands for the sender's own key. */
static void ud_own_key(long)
{
	struct pair p;
	struct ibv_ah *ah = make_way(way());

	MAKE_PAIR(&p, UD);
	fill(&p.a, 0, 10, 4);
	post_receive(&p.b, 5, 0, 4096);
	DATAGRAM(&p.a, 4, ah, &p.b, 0, 10, .wr.ud.remote_qkey = 0x80005555);
	datagram_came(&p.a, &p.b, 5, 0, 10, 4);
	good(p.a.out, 4, IBV_WC_SEND);
	drop(&p);
	EQUAL(ibv_destroy_ah(ah), 0);
}

/* A faulty request stops only the sending half, which can be brought back. */
static void send_error(long type)
{
	struct pair p;
	struct ibv_ah *ah = make_way(way());
	struct ibv_qp_attr up = { .qp_state = IBV_QPS_RTS, .cur_qp_state = IBV_QPS_SQE };

	MAKE_PAIR(&p, .type = type);
	post_receive(&p.a, 1, 0, 4096);
#define TO(other) .wr.ud = { .ah = ah, .remote_qpn = (other)->qp->qp_num, .remote_qkey = 0x1234 }
	uint32_t key = p.a.mr->lkey;
	for (int round = 0; round < 3; round++) {
		if (type == IBV_QPT_UC)
			p.a.mr->lkey = 0xbad00;
		SEND(&p.a, 2, 0, type == IBV_QPT_UC ? 8 : 4097, TO(&p.b), .send_flags = 0);
		p.a.mr->lkey = key;
		SEND(&p.a, 3, 0, 8, TO(&p.b));
		bad(p.a.out, 2, type == IBV_QPT_UC ? IBV_WC_LOC_PROT_ERR : IBV_WC_LOC_LEN_ERR);
		bad(p.a.out, 3, IBV_WC_WR_FLUSH_ERR);
		EQUAL(state_of(&p.a), IBV_QPS_SQE);
		SEND(&p.a, 4, 0, 8, TO(&p.b));
		bad(p.a.out, 4, IBV_WC_WR_FLUSH_ERR);
		SEND(&p.b, 5, 0, 8, TO(&p.a));
		good(p.b.out, 5, IBV_WC_SEND);
		received(&p.a, 1, IBV_WC_RECV, type == IBV_QPT_UC ? 8 : 8 + FRONT);
		EQUAL(ibv_modify_qp(p.a.qp, &up, IBV_QP_STATE | IBV_QP_CUR_STATE), 0);
		post_receive(&p.b, 6, 0, 4096), post_receive(&p.a, 1, 0, 4096);
		SEND(&p.a, 7, 0, 8, TO(&p.b));
		good(p.a.out, 7, IBV_WC_SEND);
		received(&p.b, 6, IBV_WC_RECV, type == IBV_QPT_UC ? 8 : 8 + FRONT);
		if (type == IBV_QPT_UC)
			post_receive(&p.b, 5, 0, 64), SEND(&p.a, 8, 0, 3), received(&p.b, 5, IBV_WC_RECV, 3), good(p.a.out, 8, IBV_WC_SEND);
	}
	no_event(0);
	drop(&p);
	EQUAL(ibv_destroy_ah(ah), 0);
}

/* From one to several in turn, and from several to one. */
static void ud_many(long)
{
	enum { ENDS = 6 };
	struct end e[ENDS];
	struct ibv_ah *ah = make_way(way());

	for (int i = 0; i < ENDS; i++) {
		make_end(&e[i], (struct shape){ UD });
		to_init(&e[i]), to_rtr(&e[i], 0, 0), to_rts(&e[i]);
	}
	for (int round = 0; round < 20; round++) {
		struct end *hub = &e[round % ENDS];
		for (int i = 0; i < ENDS; i++) {
			memset(e[i].bytes, 0xee, 8192);
			post_receive(&e[i], i, 0, 4096);
		}
		fill(hub, 8192, 33, round);
		for (int i = 0; i < ENDS; i++)
			DATAGRAM(hub, i, ah, &e[i], 8192, 33), good(hub->out, i, IBV_WC_SEND);
		for (int i = 0; i < ENDS; i++)
			datagram_came(hub, &e[i], i, 0, 33, round);
		for (int i = 0; i < ENDS; i++) {
			post_receive(hub, 100 + i, 16384, 4096);
			fill(&e[i], 8192, 40, i);
			memset(hub->bytes + 16384, 0xee, 256);
			DATAGRAM(&e[i], i, ah, hub, 8192, 40), good(e[i].out, i, IBV_WC_SEND);
			datagram_came(&e[i], hub, 100 + i, 16384, 40, i);
		}
	}
	for (int i = 0; i < ENDS; i++)
		drop_end(&e[i]);
	EQUAL(ibv_destroy_ah(ah), 0);
}

/* InfiniBand with the global header, which is optional there. */
static void ud_global(long)
{
	struct pair p;
	struct ibv_ah_attr to = way();

	to.is_global = 1, to.grh = (struct ibv_global_route){ .dgid = gid, .hop_limit = 3, .traffic_class = 5, .flow_label = 0x12345 };
	struct ibv_ah *ah = make_way(to);
	MAKE_PAIR(&p, UD);
	fill(&p.a, 0, 50, 1);
	post_receive(&p.b, 1, 0, 4096);
	DATAGRAM(&p.a, 2, ah, &p.b, 0, 50);
	struct ibv_wc wc = datagram_came(&p.a, &p.b, 1, 0, 50, 1);
	EQUAL(wc.wc_flags, IBV_WC_GRH);
	struct ibv_grh *grh = (void *)p.b.bytes;
	EQUAL(ntohl(grh->version_tclass_flow), 0x60512345);
	EQUAL(grh->next_hdr, 0x1b);
	NEED(!memcmp(&grh->sgid, &gid, 16) && !memcmp(&grh->dgid, &gid, 16));
	struct ibv_ah_attr back = { .port_num = 1 };
	EQUAL(ibv_init_ah_from_wc(context, 1, &wc, grh, &back), 0);
	EQUAL(back.dlid, port.lid);
	good(p.a.out, 2, IBV_WC_SEND);
	drop(&p);
	EQUAL(ibv_destroy_ah(ah), 0);
}

static void ud_multicast(long)
{
	struct pair p, q;
	union ibv_gid group = { .raw = { 0xff, 0x12, 0xa0, 0x1b, [15] = 9 } };
	uint16_t lid = 0xc009;
	struct ibv_ah_attr to = { .dlid = lid, .port_num = 1, .is_global = 1, .grh = { .dgid = group, .hop_limit = 1 } };
	struct ibv_ah *ah = make_way(to);

	MAKE_PAIR(&p, UD);
	MAKE_PAIR(&q, UD);
	struct end *in[] = { &p.b, &q.a };
	for (int i = 0; i < 2; i++)
		EQUAL(ibv_attach_mcast(in[i]->qp, &group, lid), 0);
	for (int round = 0; round < 3; round++) {
		fill(&p.a, 0, 70, round);
		struct end *all[] = { &p.b, &q.a, &q.b };
		for (int i = 0; i < 3; i++) {
			if (!round || i < 2)
				post_receive(all[i], round, 0, 4096);
			memset(all[i]->bytes, 0xee, 4096);
		}
		DATAGRAM(&p.a, 2, ah, &p.b, 0, 70, .wr.ud.remote_qpn = 0xffffff);
		good(p.a.out, 2, IBV_WC_SEND);
		for (int i = 0; i < 2; i++) {
			struct ibv_wc wc = datagram_came(&p.a, in[i], round, 0, 70, round);
			EQUAL(wc.wc_flags & IBV_WC_GRH, IBV_WC_GRH);
			NEED(!memcmp(in[i]->bytes + 24, &group, 16));
		}
		quiet(q.b.in);
	}
	EQUAL(ibv_detach_mcast(p.b.qp, &group, lid), 0);
	post_receive(&p.b, 9, 0, 4096), post_receive(&q.a, 9, 0, 4096);
	memset(q.a.bytes, 0xee, 4096);
	DATAGRAM(&p.a, 2, ah, &p.b, 0, 70, .wr.ud.remote_qpn = 0xffffff);
	good(p.a.out, 2, IBV_WC_SEND);
	datagram_came(&p.a, &q.a, 9, 0, 70, 2);
	quiet(p.b.in);
	EQUAL(ibv_detach_mcast(q.a.qp, &group, lid), 0);
	drop(&p), drop(&q);
	EQUAL(ibv_destroy_ah(ah), 0);
}
