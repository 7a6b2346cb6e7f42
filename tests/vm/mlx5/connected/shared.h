/* Receives that several connections share, and connections that share more than that. */

static struct ibv_srq *make_srq(int most)
{
	struct ibv_srq_init_attr attr = { .attr = { .max_wr = most, .max_sge = 2 } };
	struct ibv_srq *srq = ibv_create_srq(pd, &attr);

	NEED(srq);
	NEED((int)attr.attr.max_wr >= most);
	return srq;
}

static void post_shared(struct ibv_srq *srq, struct end *e, uint64_t id, size_t at, size_t len)
{
	struct ibv_sge sge[] = { piece(e, at, len / 2), piece(e, at + len / 2, len - len / 2) };
	struct ibv_recv_wr *wrong, wr = { .wr_id = id, .sg_list = sge, .num_sge = 2 };

	EQUAL(ibv_post_srq_recv(srq, &wr, &wrong), 0);
}

static struct ibv_srq_attr query_srq(struct ibv_srq *srq)
{
	struct ibv_srq_attr attr;

	EQUAL(ibv_query_srq(srq, &attr), 0);
	return attr;
}

/* Two connections take receives in the order in which they were posted. */
static void srq_order(long len)
{
	struct pair p, q;
	struct ibv_srq *srq = make_srq(16);

	make_pair_of(&p, (struct shape){ RC }, (struct shape){ RC, .srq = srq });
	make_pair_of(&q, (struct shape){ RC }, (struct shape){ RC, .srq = srq });
	/* All receives are in the memory of p.b. */
	for (int i = 0; i < 8; i++)
		post_shared(srq, &p.b, i, i * 4096, 4096);
	for (int i = 0; i < 200; i++) {
		struct pair *of = i % 3 ? &p : &q;
		fill(&of->a, 0, len, i);
		SEND(&of->a, i, 0, len);
		struct ibv_wc wc = good(of->b.in, i, IBV_WC_RECV);
		EQUAL(wc.byte_len, len);
		EQUAL(wc.qp_num, of->b.qp->qp_num);
		same(&p.b, i % 8 * 4096, 0, len, i);
		good(of->a.out, i, IBV_WC_SEND);
		post_shared(srq, &p.b, i + 8, i % 8 * 4096, 4096);
	}
	EQUAL(ibv_destroy_srq(srq), EBUSY);
	drop(&p), drop(&q);
	EQUAL(ibv_destroy_srq(srq), 0);
}

/* Each queue has its own number, as queues that belong to a domain do. */
static void srq_numbers(long)
{
	struct ibv_srq *one = make_srq(16), *two = make_srq(16);
	uint32_t numbers[2] = { 0, 0 };

	EQUAL(ibv_get_srq_num(one, &numbers[0]), 0);
	EQUAL(ibv_get_srq_num(two, &numbers[1]), 0);
	NEED(numbers[0] != 0 && numbers[1] != 0 && numbers[0] != numbers[1]);
	EQUAL(ibv_destroy_srq(one), 0);
	EQUAL(ibv_destroy_srq(two), 0);
}

static void srq_limit(long)
{
	struct pair p;
	struct ibv_srq *srq = make_srq(16);
	struct ibv_srq_attr attr = { .srq_limit = 4 };

	make_pair_of(&p, (struct shape){ RC }, (struct shape){ RC, .srq = srq });
	NEED(query_srq(srq).max_wr >= 16 && query_srq(srq).max_sge >= 2);
	EQUAL(query_srq(srq).srq_limit, 0);
	for (int round = 0; round < 2; round++) {
		for (int i = 0; i < 6; i++)
			post_shared(srq, &p.b, i, i * 64, 64);
		EQUAL(ibv_modify_srq(srq, &attr, IBV_SRQ_LIMIT), 0);
		EQUAL(query_srq(srq).srq_limit, 4);
		for (int i = 0; i < 6; i++) {
			SEND(&p.a, i, 0, 8);
			good(p.a.out, i, IBV_WC_SEND), received(&p.b, i, IBV_WC_RECV, 8);
			if (i == 1)
				no_event(QUIET);
			if (i == 2)
				event(IBV_EVENT_SRQ_LIMIT_REACHED, srq);
		}
		/* The event comes only once. */
		no_event(QUIET);
	}
	drop(&p);
	EQUAL(ibv_destroy_srq(srq), 0);
}

static void srq_last(long)
{
	struct pair p;
	struct ibv_srq *srq = make_srq(16);

	make_pair_of(&p, (struct shape){ RC }, (struct shape){ RC, .srq = srq });
	post_shared(srq, &p.b, 1, 0, 64), post_shared(srq, &p.b, 2, 0, 64);
	SEND(&p.a, 1, 0, 8);
	good(p.a.out, 1, IBV_WC_SEND);
	to_state(&p.b, IBV_QPS_ERR);
	event(IBV_EVENT_QP_LAST_WQE_REACHED, p.b.qp);
	received(&p.b, 1, IBV_WC_RECV, 8);
	quiet(p.b.in);
	no_event(0);
	/* The other receive is still there for another connection. */
	struct pair q;
	make_pair_of(&q, (struct shape){ RC }, (struct shape){ RC, .srq = srq });
	SEND(&q.a, 1, 0, 8);
	good(q.a.out, 1, IBV_WC_SEND), received(&q.b, 2, IBV_WC_RECV, 8);
	drop(&p), drop(&q);
	EQUAL(ibv_destroy_srq(srq), 0);
}

static void srq_late(long)
{
	struct pair p;
	struct ibv_srq *srq = make_srq(4);

	make_pair_of(&p, (struct shape){ RC }, (struct shape){ RC, .srq = srq });
	for (int i = 0; i < 3; i++) {
		SEND(&p.a, 1, 0, 2000);
		quiet(p.a.out), quiet(p.b.in);
		post_shared(srq, &p.b, 7, 0, 4096);
		good(p.a.out, 1, IBV_WC_SEND), received(&p.b, 7, IBV_WC_RECV, 2000);
	}
	drop(&p);
	EQUAL(ibv_destroy_srq(srq), 0);
}

static void srq_too_long(long)
{
	struct pair p;
	struct ibv_srq *srq = make_srq(16);

	make_pair_of(&p, (struct shape){ RC }, (struct shape){ RC, .srq = srq });
	post_shared(srq, &p.b, 1, 0, 40), post_shared(srq, &p.b, 2, 64, 64);
	SEND(&p.a, 10, 0, 41);
	bad(p.a.out, 10, IBV_WC_REM_INV_REQ_ERR);
	bad(p.b.in, 1, IBV_WC_LOC_LEN_ERR);
	struct ibv_async_event e;
	bool request = false, last = false;
	while ((!request || !last) && next_event(&e, LATE)) {
		request |= e.event_type == IBV_EVENT_QP_REQ_ERR && e.element.qp == p.b.qp;
		last |= e.event_type == IBV_EVENT_QP_LAST_WQE_REACHED && e.element.qp == p.b.qp;
	}
	NEED(request && last);
	drop(&p);
	EQUAL(ibv_destroy_srq(srq), 0);
}

static void srq_of_datagrams(long)
{
	struct pair p;
	struct ibv_srq *srq = make_srq(16);
	struct ibv_ah *ah = make_way(way());

	make_pair_of(&p, (struct shape){ UD }, (struct shape){ UD, .srq = srq });
	for (int i = 0; i < 40; i++) {
		memset(p.b.bytes, 0xee, 1024);
		fill(&p.a, 0, 70, i);
		post_shared(srq, &p.b, i, 0, 1024);
		DATAGRAM(&p.a, i, ah, &p.b, 0, 70);
		good(p.a.out, i, IBV_WC_SEND);
		datagram_came(&p.a, &p.b, i, 0, 70, i);
	}
	drop(&p);
	EQUAL(ibv_destroy_srq(srq), 0);
	EQUAL(ibv_destroy_ah(ah), 0);
}

/* Extended reliable connections. */

struct xrc {
	struct ibv_xrcd *domain;
	struct ibv_srq *srq[2];
	uint32_t number[2];
	struct end a, b; /* b has only the memory, and a queue for each shared queue */
};

static struct ibv_srq *make_xrc_srq(struct xrc *x, struct ibv_cq *cq)
{
	struct ibv_srq_init_attr_ex attr = { .attr = { .max_wr = 16, .max_sge = 2 }, .srq_type = IBV_SRQT_XRC, .xrcd = x->domain, .cq = cq, .pd = pd,
		.comp_mask = IBV_SRQ_INIT_ATTR_TYPE | IBV_SRQ_INIT_ATTR_PD | IBV_SRQ_INIT_ATTR_XRCD | IBV_SRQ_INIT_ATTR_CQ };
	struct ibv_srq *srq = ibv_create_srq_ex(context, &attr);

	NEED(srq);
	return srq;
}

static void make_xrc(struct xrc *x, struct shape s)
{
	struct ibv_xrcd_init_attr domain = { .comp_mask = IBV_XRCD_INIT_ATTR_FD | IBV_XRCD_INIT_ATTR_OFLAGS, .fd = -1, .oflags = O_CREAT };

	NEED(x->domain = ibv_open_xrcd(context, &domain));
	s.type = IBV_QPT_XRC_RECV;
	make_queues(&x->b, s);
	make_memory(&x->b, pd, ALL_RIGHTS);
	struct ibv_cq *cqs[] = { x->b.in, x->b.out };
	for (int i = 0; i < 2; i++) {
		x->srq[i] = make_xrc_srq(x, cqs[i]);
		EQUAL(ibv_get_srq_num(x->srq[i], &x->number[i]), 0);
	}
	struct ibv_qp_init_attr_ex receive = { .qp_type = IBV_QPT_XRC_RECV, .comp_mask = IBV_QP_INIT_ATTR_XRCD | IBV_QP_INIT_ATTR_PD, .xrcd = x->domain, .pd = pd };
	NEED(x->b.qp = ibv_create_qp_ex(context, &receive));
	/* librdmacm makes a shared receive queue with this domain. */
	NEED(x->b.qp->pd == pd);
	s.type = IBV_QPT_XRC_SEND;
	make_queues(&x->a, s);
	make_memory(&x->a, pd, ALL_RIGHTS);
	struct ibv_qp_init_attr usual = init_attr(&x->a);
	struct ibv_qp_init_attr_ex send = { .qp_type = IBV_QPT_XRC_SEND, .send_cq = x->a.out, .cap = usual.cap, .comp_mask = IBV_QP_INIT_ATTR_PD, .pd = pd };
	send.cap.max_recv_wr = send.cap.max_recv_sge = 0;
	NEED(x->a.qp = ibv_create_qp_ex(context, &send));
	to_init(&x->a), to_init(&x->b);
	to_rtr(&x->a, x->b.qp->qp_num, x->b.psn), to_rtr(&x->b, x->a.qp->qp_num, x->a.psn);
	to_rts(&x->a), to_rts(&x->b);
}

static void drop_xrc(struct xrc *x)
{
	EQUAL(ibv_destroy_qp(x->b.qp), 0);
	x->b.qp = NULL;
	EQUAL(ibv_destroy_srq(x->srq[0]), 0);
	EQUAL(ibv_destroy_srq(x->srq[1]), 0);
	drop_end(&x->a), drop_end(&x->b);
	EQUAL(ibv_close_xrcd(x->domain), 0);
}

static void xrc_send(long len)
{
	struct xrc x;

	make_xrc(&x, (struct shape){ 0 });
	for (int i = 0; i < 40; i++) {
		int to = i % 3 == 1;
		struct ibv_cq *in = to ? x.b.out : x.b.in;
		memset(x.b.bytes + 4096, 0xee, len + 64);
		fill(&x.a, 0, len, i);
		post_shared(x.srq[to], &x.b, i, 4096, 4096);
		SEND(&x.a, i, 0, len, .opcode = i & 1 ? IBV_WR_SEND_WITH_IMM : IBV_WR_SEND, .imm_data = htonl(i), .qp_type.xrc.remote_srqn = x.number[to]);
		struct ibv_wc wc = good(in, i, IBV_WC_RECV);
		EQUAL(wc.byte_len, len);
		EQUAL(wc.qp_num, x.b.qp->qp_num);
		if (i & 1)
			EQUAL(ntohl(wc.imm_data), i);
		same(&x.b, 4096, 0, len, i);
		untouched(&x.b, 4096 + len, 64);
		good(x.a.out, i, IBV_WC_SEND);
	}
	drop_xrc(&x);
}

static void xrc_remote(long)
{
	struct xrc x;
	uint64_t value = 5;

	make_xrc(&x, (struct shape){ 0 });
#define TO_FIRST .qp_type.xrc.remote_srqn = x.number[0]
	fill(&x.a, 0, 3000, 1);
	REMOTE(&x.a, 1, IBV_WR_RDMA_WRITE, 0, 3000, &x.b, 100, TO_FIRST);
	good(x.a.out, 1, IBV_WC_RDMA_WRITE);
	same(&x.b, 100, 0, 3000, 1);
	post_shared(x.srq[0], &x.b, 2, 8192, 64);
	REMOTE(&x.a, 3, IBV_WR_RDMA_WRITE_WITH_IMM, 0, 2000, &x.b, 16384, TO_FIRST, .imm_data = htonl(99));
	struct ibv_wc wc = good(x.b.in, 2, IBV_WC_RECV_RDMA_WITH_IMM);
	EQUAL(wc.byte_len, 2000);
	EQUAL(ntohl(wc.imm_data), 99);
	same(&x.b, 16384, 0, 2000, 1);
	good(x.a.out, 3, IBV_WC_RDMA_WRITE);
	REMOTE(&x.a, 4, IBV_WR_RDMA_READ, 32768, 3000, &x.b, 100, TO_FIRST);
	good(x.a.out, 4, IBV_WC_RDMA_READ);
	same(&x.a, 32768, 0, 3000, 1);
	memcpy(x.b.bytes + 64, &value, 8);
	struct ibv_send_wr wr = { .wr_id = 5, .opcode = IBV_WR_ATOMIC_FETCH_AND_ADD, .send_flags = IBV_SEND_SIGNALED, TO_FIRST,
				  .wr.atomic = { .remote_addr = (uintptr_t)x.b.bytes + 64, .rkey = x.b.mr->rkey, .compare_add = 3 } };
	post_one(&x.a, wr, 0, 8);
	good(x.a.out, 5, IBV_WC_FETCH_ADD);
	EQUAL(number(&x.a, 0), 5);
	EQUAL(number(&x.b, 64), 8);
	drop_xrc(&x);
}

static void xrc_late_and_limit(long)
{
	struct xrc x;
	struct ibv_srq_attr attr = { .srq_limit = 2 };

	make_xrc(&x, (struct shape){ 0 });
	SEND(&x.a, 1, 0, 1500, TO_FIRST);
	quiet(x.a.out), quiet(x.b.in);
	for (int i = 0; i < 3; i++)
		post_shared(x.srq[0], &x.b, i, 0, 4096);
	good(x.b.in, 0, IBV_WC_RECV), good(x.a.out, 1, IBV_WC_SEND);
	EQUAL(ibv_modify_srq(x.srq[0], &attr, IBV_SRQ_LIMIT), 0);
	EQUAL(query_srq(x.srq[0]).srq_limit, 2);
	NEED(query_srq(x.srq[0]).max_wr >= 16);
	no_event(QUIET);
	SEND(&x.a, 2, 0, 8, TO_FIRST);
	good(x.b.in, 1, IBV_WC_RECV), good(x.a.out, 2, IBV_WC_SEND);
	event(IBV_EVENT_SRQ_LIMIT_REACHED, x.srq[0]);
	no_event(QUIET);
	drop_xrc(&x);
}

static void xrc_fault(long)
{
	struct xrc x;

	make_xrc(&x, (struct shape){ 0 });
	post_shared(x.srq[0], &x.b, 1, 0, 64);
	struct ibv_send_wr wr = { .wr_id = 10, .opcode = IBV_WR_RDMA_WRITE, .send_flags = IBV_SEND_SIGNALED, TO_FIRST,
				  .wr.rdma = { (uintptr_t)x.b.bytes, x.b.mr->rkey + 0x10000 } };
	post_one(&x.a, wr, 0, 8);
	SEND(&x.a, 11, 0, 8, TO_FIRST);
	bad(x.a.out, 10, IBV_WC_REM_ACCESS_ERR), flushed(x.a.out, 11);
	quiet(x.b.in);
	untouched(&x.b, 0, 64);
	struct ibv_async_event e;
	while (next_event(&e, QUIET))
		NEED(e.element.qp == x.b.qp);
	drop_xrc(&x);
}

/* A shared queue that does not exist, or that belongs to another domain. */
static void xrc_wrong_queue(long of_another)
{
	struct xrc x, y;

	make_xrc(&x, (struct shape){ 0 }), make_xrc(&y, (struct shape){ 0 });
	post_shared(y.srq[0], &y.b, 1, 0, 64);
	SEND(&x.a, 10, 0, 8, .qp_type.xrc.remote_srqn = of_another ? y.number[0] : 0xfffffe);
	struct ibv_wc wc = completion(x.a.out);
	EQUAL(wc.wr_id, 10);
	NEED(wc.status == IBV_WC_REM_INV_REQ_ERR || wc.status == IBV_WC_REM_OP_ERR || wc.status == IBV_WC_REM_ACCESS_ERR || wc.status == IBV_WC_REM_INV_RD_REQ_ERR);
	quiet(y.b.in);
	untouched(&y.b, 0, 64);
	struct ibv_async_event e;
	while (next_event(&e, QUIET))
		NEED(e.element.qp == x.b.qp);
	/* The other one still works. */
	SEND(&y.a, 11, 0, 8, .qp_type.xrc.remote_srqn = y.number[0]);
	good(y.a.out, 11, IBV_WC_SEND), good(y.b.in, 1, IBV_WC_RECV);
	drop_xrc(&x), drop_xrc(&y);
}
