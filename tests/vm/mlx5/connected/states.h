/* States of a queue pair: the way up, the way down, which attributes each state requires, and what is not allowed. */

static struct ibv_qp_attr query(struct end *e)
{
	struct ibv_qp_attr attr;
	struct ibv_qp_init_attr init;
	int all = IBV_QP_STATE | IBV_QP_ACCESS_FLAGS | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
		  IBV_QP_RQ_PSN | IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC | IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER | IBV_QP_DEST_QPN | IBV_QP_CAP | IBV_QP_QKEY;

	NEED(!ibv_query_qp(e->qp, &attr, all, &init));
	EQUAL(attr.qp_state, attr.cur_qp_state);
	NEED(init.send_cq == e->out && init.recv_cq == e->in && init.srq == e->s.srq);
	EQUAL(init.qp_type, e->s.type);
	return attr;
}

static void query_in_each_state(long)
{
	struct pair p;

	make_end(&p.a, (struct shape){ RC, .reads = 2 }), make_end(&p.b, (struct shape){ RC, .reads = 8, .timeout = 11, .retries = 3, .rnr = 5 });
	struct ibv_qp_attr attr = query(&p.b);
	EQUAL(attr.qp_state, IBV_QPS_RESET);
	NEED(attr.cap.max_send_wr >= 16 && attr.cap.max_recv_wr >= 16 && attr.cap.max_send_sge >= 4 && attr.cap.max_inline_data >= 64);
	to_init(&p.b);
	attr = query(&p.b);
	EQUAL(attr.qp_state, IBV_QPS_INIT);
	EQUAL(attr.port_num, 1);
	EQUAL(attr.pkey_index, 0);
	to_rtr(&p.b, p.a.qp->qp_num, p.a.psn);
	attr = query(&p.b);
	EQUAL(attr.qp_state, IBV_QPS_RTR);
	EQUAL(attr.path_mtu, IBV_MTU_1024);
	EQUAL(attr.dest_qp_num, p.a.qp->qp_num);
	EQUAL(attr.rq_psn, p.a.psn);
	EQUAL(attr.max_dest_rd_atomic, 8);
	EQUAL(attr.min_rnr_timer, 12);
	EQUAL(attr.qp_access_flags & 0xe, ALL_RIGHTS & 0xe);
	if (is_ib) {
		EQUAL(attr.ah_attr.dlid, port.lid);
	} else {
		NEED(!memcmp(&attr.ah_attr.grh.dgid, &gid, 16));
		EQUAL(attr.ah_attr.grh.sgid_index, gid_index);
		EQUAL(attr.ah_attr.grh.hop_limit, 64);
	}
	to_rts(&p.b);
	attr = query(&p.b);
	EQUAL(attr.qp_state, IBV_QPS_RTS);
	EQUAL(attr.sq_psn, p.b.psn);
	EQUAL(attr.timeout, 11);
	EQUAL(attr.retry_cnt, 3);
	EQUAL(attr.rnr_retry, 5);
	EQUAL(attr.max_rd_atomic, 8);
	to_init(&p.a), to_rtr(&p.a, p.b.qp->qp_num, p.b.psn), to_rts(&p.a);
	/* Three packets, and a read whose answer has two. */
	post_receive(&p.a, 1, 0, 4096);
	SEND(&p.b, 2, 0, 2500);
	REMOTE(&p.b, 3, IBV_WR_RDMA_READ, 4096, 1500, &p.a, 0);
	good(p.b.out, 2, IBV_WC_SEND), good(p.b.out, 3, IBV_WC_RDMA_READ), received(&p.a, 1, IBV_WC_RECV, 2500);
	EQUAL(query(&p.b).sq_psn, (p.b.psn + 5) & 0xffffff);
	EQUAL(query(&p.a).rq_psn, (p.b.psn + 5) & 0xffffff);
	EQUAL(query(&p.a).sq_psn, p.a.psn);
	to_state(&p.b, IBV_QPS_ERR);
	EQUAL(query(&p.b).qp_state, IBV_QPS_ERR);
	to_state(&p.b, IBV_QPS_RESET);
	EQUAL(query(&p.b).qp_state, IBV_QPS_RESET);
	drop(&p);
}

static void changed_while_up(long)
{
	struct pair p;

	MAKE_PAIR(&p, RC, .rnr = 1);
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_RTS, .min_rnr_timer = 20, .qp_access_flags = IBV_ACCESS_REMOTE_READ };
	EQUAL(ibv_modify_qp(p.b.qp, &attr, IBV_QP_STATE | IBV_QP_MIN_RNR_TIMER | IBV_QP_ACCESS_FLAGS), 0);
	EQUAL(query(&p.b).min_rnr_timer, 20);
	EQUAL(query(&p.b).qp_access_flags & 0xe, IBV_ACCESS_REMOTE_READ);
	REMOTE(&p.a, 1, IBV_WR_RDMA_READ, 0, 8, &p.b, 0);
	good(p.a.out, 1, IBV_WC_RDMA_READ);
	REMOTE(&p.a, 2, IBV_WR_RDMA_WRITE, 0, 8, &p.b, 0);
	struct ibv_wc wc = completion(p.a.out);
	NEED(wc.status == IBV_WC_REM_ACCESS_ERR || wc.status == IBV_WC_REM_INV_REQ_ERR);
	struct ibv_async_event e;
	NEED(next_event(&e, LATE));
	drop(&p);
}

static void no_way(struct end *e, struct ibv_qp_attr attr, int mask, int error)
{
	EQUAL(ibv_modify_qp(e->qp, &attr, mask), error);
}

static void bad_transitions(long)
{
	struct pair p;
	int up = IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS;
	struct ibv_qp_attr rts = { .qp_state = IBV_QPS_RTS, .retry_cnt = 1 };

	make_end(&p.a, (struct shape){ RC }), make_end(&p.b, (struct shape){ RC });
	no_way(&p.a, rts, IBV_QP_STATE, EINVAL);
	no_way(&p.a, (struct ibv_qp_attr){ .qp_state = IBV_QPS_INIT }, IBV_QP_STATE, EINVAL);
	no_way(&p.a, (struct ibv_qp_attr){ .qp_state = IBV_QPS_INIT, .port_num = 9 }, up, EINVAL);
	no_way(&p.a, (struct ibv_qp_attr){ .qp_state = IBV_QPS_INIT, .port_num = 1, .pkey_index = 500 }, up, EINVAL);
	to_init(&p.a);
	no_way(&p.a, rts, IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC, EINVAL);
	no_way(&p.a, (struct ibv_qp_attr){ .qp_state = IBV_QPS_RTR, .ah_attr = way() }, IBV_QP_STATE | IBV_QP_AV, EINVAL);
	EQUAL(state_of(&p.a), IBV_QPS_INIT);
	to_init(&p.a);
	to_rtr(&p.a, p.b.qp->qp_num, 1);
	no_way(&p.a, rts, IBV_QP_STATE, EINVAL);
	no_way(&p.a, (struct ibv_qp_attr){ .qp_state = IBV_QPS_INIT, .port_num = 1 }, up, EINVAL);
	to_rts(&p.a);
	no_way(&p.a, (struct ibv_qp_attr){ .qp_state = IBV_QPS_INIT, .port_num = 1 }, up, EINVAL);
	no_way(&p.a, (struct ibv_qp_attr){ .qp_state = IBV_QPS_SQD }, IBV_QP_STATE, EINVAL);
	EQUAL(state_of(&p.a), IBV_QPS_RTS);
	to_state(&p.a, IBV_QPS_ERR), to_state(&p.a, IBV_QPS_ERR);
	no_way(&p.a, rts, IBV_QP_STATE, EINVAL);
	to_state(&p.a, IBV_QPS_RESET), to_state(&p.a, IBV_QPS_RESET);
	drop(&p);
}

/* Everything that waits ends with an error when the queue pair does, in order, and so does what is posted later. */
static void flush(long)
{
	struct pair p;

	MAKE_PAIR(&p, RC);
	for (int i = 0; i < 4; i++)
		post_receive(&p.a, 100 + i, 0, 64);
	/* Nobody takes these messages. */
	for (int i = 0; i < 4; i++)
		SEND(&p.a, i, 0, 64, .send_flags = i & 1 ? IBV_SEND_SIGNALED : 0);
	quiet(p.a.out);
	to_state(&p.a, IBV_QPS_ERR);
	for (int i = 0; i < 4; i++)
		flushed(p.a.in, 100 + i);
	for (int i = 0; i < 4; i++)
		flushed(p.a.out, i);
	post_receive(&p.a, 104, 0, 64), post_receive(&p.a, 105, 0, 64);
	SEND(&p.a, 4, 0, 64), REMOTE(&p.a, 5, IBV_WR_RDMA_READ, 0, 64, &p.b, 0);
	flushed(p.a.in, 104), flushed(p.a.in, 105), flushed(p.a.out, 4), flushed(p.a.out, 5);
	quiet(p.a.out), quiet(p.a.in), quiet(p.b.in);
	no_event(0);
	drop(&p);
}

static void reset_and_reuse(long type)
{
	struct pair p;

	MAKE_PAIR(&p, .type = type);
	for (int round = 0; round < 10; round++) {
		for (int i = 0; i < 5; i++) {
			fill(&p.a, 0, 100, round);
			post_receive(&p.b, i, 4096, 4096);
			SEND(&p.a, i, 0, 100);
			received(&p.b, i, IBV_WC_RECV, 100);
			same(&p.b, 4096, 0, 100, round);
			good(p.a.out, i, IBV_WC_SEND);
		}
		/* Requests that are done and requests that wait: a reset discards both. */
		post_receive(&p.b, 50, 4096, 4096), post_receive(&p.b, 51, 4096, 4096);
		SEND(&p.a, 52, 0, 100);
		usleep(20000);
		if (round % 2)
			to_state(&p.a, IBV_QPS_ERR), to_state(&p.b, IBV_QPS_ERR);
		to_state(&p.a, IBV_QPS_RESET), to_state(&p.b, IBV_QPS_RESET);
		quiet(p.a.out), quiet(p.b.in);
		p.a.psn = 0xfffffe, p.b.psn = round;
		join(&p);
	}
	no_event(0);
	drop(&p);
}

/* Receives may be posted before there is a connection. */
static void receives_before(long)
{
	struct pair p;

	make_end(&p.a, (struct shape){ RC }), make_end(&p.b, (struct shape){ RC });
	to_init(&p.b);
	post_receive(&p.b, 1, 0, 64);
	to_init(&p.a);
	to_rtr(&p.b, p.a.qp->qp_num, p.a.psn), to_rtr(&p.a, p.b.qp->qp_num, p.b.psn);
	to_rts(&p.a);
	/* The receiver need not be able to send. */
	SEND(&p.a, 2, 0, 64);
	received(&p.b, 1, IBV_WC_RECV, 64), good(p.a.out, 2, IBV_WC_SEND);
	drop(&p);
}

static void busy_objects(long)
{
	struct pair p;
	struct ibv_pd *own = ibv_alloc_pd(context);

	NEED(own);
	MAKE_PAIR(&p, RC, .pd = own);
	EQUAL(ibv_destroy_cq(p.a.out), EBUSY);
	EQUAL(ibv_dealloc_pd(own), EBUSY);
	drop(&p);
	EQUAL(ibv_dealloc_pd(own), 0);
}

static void full_rings(long)
{
	struct pair p;

	MAKE_PAIR(&p, RC, .sends = 8, .receives = 8, .entries = 1000);
	struct ibv_sge sge = piece(&p.a, 0, 8);
	struct ibv_recv_wr *wrong, receive = { .sg_list = &sge, .num_sge = 1 };
	struct ibv_send_wr *bad_wr, wr = { .opcode = IBV_WR_SEND, .sg_list = &sge, .num_sge = 1, .send_flags = IBV_SEND_SIGNALED };
	int receives = 0, sends = 0;
	while (receives < 900 && !ibv_post_recv(p.a.qp, &receive, &wrong))
		receives++;
	while (sends < 900 && !ibv_post_send(p.a.qp, &wr, &bad_wr))
		sends++;
	NEED(receives >= 8 && receives < 900 && sends >= 8 && sends < 900);
	NEED(bad_wr == &wr && wrong == &receive);
	for (int i = 0; i < sends; i++)
		post_receive(&p.b, i, 0, 64), received(&p.b, i, IBV_WC_RECV, 8);
	for (int i = 0; i < sends; i++)
		good(p.a.out, 0, IBV_WC_SEND);
	drop(&p);
}

/* Many connections whose completions go to one queue. */
static void many_in_one_queue(long)
{
	enum { PAIRS = 16 };
	struct pair p[PAIRS];
	struct ibv_cq *cq = ibv_create_cq(context, 200, NULL, NULL, 0);

	NEED(cq);
	for (int i = 0; i < PAIRS; i++) {
		make_end(&p[i].a, (struct shape){ RC });
		make_queues(&p[i].b, (struct shape){ RC });
		EQUAL(ibv_destroy_cq(p[i].b.in), 0);
		p[i].b.in = cq;
		make_memory(&p[i].b, pd, ALL_RIGHTS);
		struct ibv_qp_init_attr attr = init_attr(&p[i].b);
		NEED(p[i].b.qp = ibv_create_qp(pd, &attr));
		join(&p[i]);
	}
	for (int round = 0; round < 10; round++) {
		for (int i = 0; i < PAIRS; i++)
			fill(&p[i].a, 0, 70, i), post_receive(&p[i].b, i, 0, 70);
		for (int i = PAIRS; i--;)
			SEND(&p[i].a, i, 0, 70);
		struct ibv_wc wc[PAIRS];
		for (int got = 0; got < PAIRS;) {
			int n = ibv_poll_cq(cq, PAIRS, wc);
			NEED(n >= 0);
			for (int k = 0; k < n; k++, got++) {
				NEED(wc[k].status == IBV_WC_SUCCESS && wc[k].wr_id < PAIRS);
				EQUAL(wc[k].qp_num, p[wc[k].wr_id].b.qp->qp_num);
				same(&p[wc[k].wr_id].b, 0, 0, 70, wc[k].wr_id);
			}
		}
		for (int i = 0; i < PAIRS; i++)
			good(p[i].a.out, i, IBV_WC_SEND);
	}
	for (int i = 0; i < PAIRS; i++) {
		NEED(p[i].b.in = ibv_create_cq(context, 1, NULL, NULL, 0));
		drop(&p[i]);
	}
	EQUAL(ibv_destroy_cq(cq), 0);
}

static void resized_queue(long)
{
	struct pair p;

	MAKE_PAIR(&p, RC, .entries = 8);
	for (int round = 0; round < 6; round++) {
		for (int i = 0; i < 6; i++) {
			fill(&p.a, i * 30, 30, i);
			post_receive(&p.b, i, i * 64, 64);
			SEND(&p.a, i, i * 30, 30);
			if (i == 3)
				EQUAL(ibv_resize_cq(p.b.in, round % 2 ? 8 : 300), 0);
		}
		for (int i = 0; i < 6; i++) {
			good(p.a.out, i, IBV_WC_SEND), received(&p.b, i, IBV_WC_RECV, 30);
			same(&p.b, i * 64, 0, 30, i);
		}
	}
	drop(&p);
}
