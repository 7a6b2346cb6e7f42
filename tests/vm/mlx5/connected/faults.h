/* Errors, and what both sides are told. */

/* Posts the faulty request with a number, and another one after it. Two receives wait on the other side. */
static void post_faulty(struct pair *p, struct ibv_send_wr wr, size_t at, size_t len)
{
	post_receive(&p->b, 20, 16384, 4096), post_receive(&p->b, 21, 16384, 4096);
	SEND(&p->a, 9, 0, 8);
	received(&p->b, 20, IBV_WC_RECV, 8), good(p->a.out, 9, IBV_WC_SEND);
	post_receive(&p->b, 22, 16384, 4096);
	wr.wr_id = 10;
	post_one(&p->a, wr, at, len);
	SEND(&p->a, 11, 0, 8);
}

static void flushed(struct ibv_cq *cq, uint64_t id)
{
	bad(cq, id, IBV_WC_WR_FLUSH_ERR);
}

static void ends_with_access_error(struct pair *p)
{
	bad(p->a.out, 10, IBV_WC_REM_ACCESS_ERR);
	flushed(p->a.out, 11);
	flushed(p->b.in, 21), flushed(p->b.in, 22);
	event(IBV_EVENT_QP_ACCESS_ERR, p->b.qp);
	EQUAL(state_of(&p->a), IBV_QPS_ERR);
	EQUAL(state_of(&p->b), IBV_QPS_ERR);
	quiet(p->a.out), quiet(p->b.in), no_event(0);
	drop(p);
}

enum remote_fault { BEHIND_END, BEFORE_START, WRONG_KEY, NO_RIGHT, LATER_PACKET };

/* A write, a read or an atomic operation (its kind is in the upper half) where it is not allowed. */
static void remote_fault(long what)
{
	struct pair p;
	enum remote_fault fault = what & 0xff;
	enum ibv_wr_opcode op = what >> 8;
	bool is_atomic = op == IBV_WR_ATOMIC_FETCH_AND_ADD || op == IBV_WR_ATOMIC_CMP_AND_SWP;
	int right = is_atomic ? IBV_ACCESS_REMOTE_ATOMIC : op == IBV_WR_RDMA_READ ? IBV_ACCESS_REMOTE_READ : IBV_ACCESS_REMOTE_WRITE;

	make_pair_of(&p, (struct shape){ RC }, (struct shape){ RC, .mr_access = fault == NO_RIGHT ? ALL_RIGHTS & ~right : ALL_RIGHTS });
	size_t len = is_atomic ? 8 : fault == LATER_PACKET ? 3000 : 16;
	uint64_t at = (uintptr_t)p.b.bytes;
	if (fault == BEFORE_START)
		at -= 8;
	else
		at += fault == BEHIND_END ? ROOM - len + 8 : fault == LATER_PACKET ? ROOM - 2048 : 0;
	uint32_t key = p.b.mr->rkey + (fault == WRONG_KEY ? 0x10000 : 0);
	struct ibv_send_wr wr = { .opcode = op, .send_flags = IBV_SEND_SIGNALED };
	if (is_atomic)
		wr.wr.atomic.remote_addr = at, wr.wr.atomic.rkey = key;
	else
		wr.wr.rdma.remote_addr = at, wr.wr.rdma.rkey = key;
	post_faulty(&p, wr, 4096, len);
	if (op == IBV_WR_RDMA_READ)
		untouched(&p.a, 4096, 3000);
	ends_with_access_error(&p);
}

/* Memory of another domain is as good as none. */
static void other_domain(long local)
{
	struct pair p;
	struct ibv_pd *another = ibv_alloc_pd(context);

	NEED(another);
	MAKE_PAIR(&p, RC);
	struct end *e = local ? &p.a : &p.b;
	struct ibv_mr *of_another = ibv_reg_mr(another, e->bytes, ROOM, ALL_RIGHTS), *own = e->mr;
	NEED(of_another);
	post_receive(&p.b, 1, 0, 64);
	e->mr = of_another;
	REMOTE(&p.a, 2, IBV_WR_RDMA_WRITE, 0, 8, &p.b, 0);
	bad(p.a.out, 2, local ? IBV_WC_LOC_PROT_ERR : IBV_WC_REM_ACCESS_ERR);
	if (!local) {
		event(IBV_EVENT_QP_ACCESS_ERR, p.b.qp);
		flushed(p.b.in, 1);
	}
	e->mr = own;
	EQUAL(ibv_dereg_mr(of_another), 0);
	drop(&p);
	EQUAL(ibv_dealloc_pd(another), 0);
}

/* A region is removed while a posted request still names it: a receive, or a write of the other side. */
static void gone_while_posted(long is_remote)
{
	struct pair p;

	MAKE_PAIR(&p, RC);
	struct ibv_mr *gone = ibv_reg_mr(pd, p.b.bytes, ROOM, ALL_RIGHTS), *own = p.b.mr;
	NEED(gone);
	uint32_t key = gone->rkey;
	if (!is_remote)
		p.b.mr = gone;
	post_receive(&p.b, 1, 0, 256);
	p.b.mr = own;
	EQUAL(ibv_dereg_mr(gone), 0);
	if (is_remote) {
		struct ibv_sge sge = piece(&p.a, 0, 8);
		struct ibv_send_wr wr = { .wr_id = 10, .sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_RDMA_WRITE,
					  .wr.rdma = { (uintptr_t)p.b.bytes, key } };
		post(&p.a, &wr);
		bad(p.a.out, 10, IBV_WC_REM_ACCESS_ERR);
		flushed(p.b.in, 1);
		event(IBV_EVENT_QP_ACCESS_ERR, p.b.qp);
	} else {
		/* A message of up to 64 bytes may be in the completion itself. */
		SEND(&p.a, 10, 0, 256);
		bad(p.a.out, 10, IBV_WC_REM_OP_ERR);
		bad(p.b.in, 1, IBV_WC_LOC_PROT_ERR);
	}
	EQUAL(state_of(&p.a), IBV_QPS_ERR);
	EQUAL(state_of(&p.b), IBV_QPS_ERR);
	drop(&p);
	no_event(0);
}

/* A right that the queue pair does not grant, whatever the key grants. */
static void no_right_of_queue_pair(long op)
{
	struct pair p;

	make_pair_of(&p, (struct shape){ RC }, (struct shape){ RC, .access = IBV_ACCESS_LOCAL_WRITE });
	post_receive(&p.b, 1, 0, 64);
	if (op == IBV_WR_ATOMIC_FETCH_AND_ADD)
		ATOMIC(&p.a, 10, op, 0, &p.b, 0, 1, 0);
	else
		REMOTE(&p.a, 10, op, 0, 8, &p.b, 0);
	struct ibv_wc wc = completion(p.a.out);
	NEED(wc.status == IBV_WC_REM_ACCESS_ERR || wc.status == IBV_WC_REM_INV_REQ_ERR);
	flushed(p.b.in, 1);
	struct ibv_async_event e;
	NEED(next_event(&e, LATE));
	NEED(e.element.qp == p.b.qp && (e.event_type == IBV_EVENT_QP_ACCESS_ERR || e.event_type == IBV_EVENT_QP_REQ_ERR));
	untouched(&p.b, 0, 8);
	drop(&p);
}

static void misaligned_atomic(long)
{
	struct pair p;

	MAKE_PAIR(&p, RC);
	ATOMIC(&p.a, 10, IBV_WR_ATOMIC_FETCH_AND_ADD, 0, &p.b, 4, 1, 0);
	struct ibv_wc wc = completion(p.a.out);
	NEED(wc.status == IBV_WC_REM_ACCESS_ERR || wc.status == IBV_WC_REM_INV_REQ_ERR);
	struct ibv_async_event e;
	NEED(next_event(&e, LATE));
	NEED(e.element.qp == p.b.qp && (e.event_type == IBV_EVENT_QP_ACCESS_ERR || e.event_type == IBV_EVENT_QP_REQ_ERR));
	untouched(&p.b, 0, 16);
	drop(&p);
}

enum local_fault { KEY, END, UNSIGNALED, READ_INTO, SECOND_PIECE };

static void local_fault(long fault)
{
	struct pair p;

	MAKE_PAIR(&p, RC);
	struct ibv_mr *read_only = ibv_reg_mr(pd, p.a.bytes, ROOM, 0);
	NEED(read_only);
	post_receive(&p.b, 1, 0, 4096);
	struct ibv_sge sge[] = { piece(&p.a, 0, 8), { .addr = (uintptr_t)p.a.bytes, .length = 8, .lkey = 0xbad00 } };
	struct ibv_send_wr wr = { .wr_id = 10, .opcode = IBV_WR_SEND, .send_flags = fault == UNSIGNALED ? 0 : IBV_SEND_SIGNALED,
				  .sg_list = sge + 1, .num_sge = 1, .wr.rdma = { (uintptr_t)p.b.bytes, p.b.mr->rkey } };
	if (fault == END)
		sge[1] = piece(&p.a, ROOM - 4, 8);
	if (fault == READ_INTO)
		wr.opcode = IBV_WR_RDMA_READ, sge[1].lkey = read_only->lkey;
	if (fault == SECOND_PIECE)
		wr.sg_list = sge, wr.num_sge = 2;
	post(&p.a, &wr);
	SEND(&p.a, 11, 0, 8);
	bad(p.a.out, 10, IBV_WC_LOC_PROT_ERR);
	flushed(p.a.out, 11);
	EQUAL(state_of(&p.a), IBV_QPS_ERR);
	EQUAL(state_of(&p.b), IBV_QPS_RTS);
	quiet(p.b.in);
	no_event(0);
	EQUAL(ibv_dereg_mr(read_only), 0);
	drop(&p);
}

/* Requests of length zero read and write nothing, so neither side needs a valid key. */
static void nothing_needs_no_key(long)
{
	struct pair p;

	MAKE_PAIR(&p, RC);
	enum ibv_wr_opcode ops[] = { IBV_WR_RDMA_WRITE, IBV_WR_RDMA_READ };
	for (int i = 0; i < 2; i++) {
		post_one(&p.a, (struct ibv_send_wr){ .wr_id = i, .opcode = ops[i], .send_flags = IBV_SEND_SIGNALED, .wr.rdma = { 1, 0xbad00 } }, 0, 0);
		good(p.a.out, i, i ? IBV_WC_RDMA_READ : IBV_WC_RDMA_WRITE);
	}
	post_receive(&p.b, 3, 0, 0);
	SEND(&p.a, 2, 0, 0);
	good(p.a.out, 2, IBV_WC_SEND), received(&p.b, 3, IBV_WC_RECV, 0);
	drop(&p);
}

/* Requests before a faulty one are done; those after it are not. */
static void fault_in_order(long)
{
	struct pair p;

	MAKE_PAIR(&p, RC);
	for (int i = 0; i < 6; i++)
		post_receive(&p.b, i, i * 2000, 2000);
	struct ibv_sge wrong = { .addr = (uintptr_t)p.a.bytes, .length = 8, .lkey = 0xbad00 };
	for (int i = 0; i < 6; i++) {
		struct ibv_sge sge = piece(&p.a, 0, 1800);
		struct ibv_send_wr wr = { .wr_id = i, .opcode = IBV_WR_SEND, .send_flags = IBV_SEND_SIGNALED, .sg_list = i == 4 ? &wrong : &sge, .num_sge = 1 };
		post(&p.a, &wr);
	}
	for (int i = 0; i < 4; i++)
		good(p.a.out, i, IBV_WC_SEND), received(&p.b, i, IBV_WC_RECV, 1800);
	bad(p.a.out, 4, IBV_WC_LOC_PROT_ERR);
	flushed(p.a.out, 5);
	quiet(p.b.in);
	drop(&p);
}

/* The receive names memory that it may not write. */
static void receive_fault(long)
{
	struct pair p;

	MAKE_PAIR(&p, RC);
	struct ibv_sge sge = { .addr = (uintptr_t)p.b.bytes, .length = 128, .lkey = 0xbad00 };
	struct ibv_recv_wr *wrong, wr = { .wr_id = 1, .sg_list = &sge, .num_sge = 1 };
	EQUAL(ibv_post_recv(p.b.qp, &wr, &wrong), 0);
	post_receive(&p.b, 2, 0, 64);
	/* More bytes than fit into a completion. Bytes that are in the completion itself need no key. */
	SEND(&p.a, 10, 0, 100);
	bad(p.a.out, 10, IBV_WC_REM_OP_ERR);
	bad(p.b.in, 1, IBV_WC_LOC_PROT_ERR);
	flushed(p.b.in, 2);
	EQUAL(state_of(&p.b), IBV_QPS_ERR);
	struct ibv_async_event any;
	next_event(&any, QUIET);
	drop(&p);
}

static void too_long(long len)
{
	struct pair p;

	MAKE_PAIR(&p, RC);
	post_receive(&p.b, 1, 4096, len - 1), post_receive(&p.b, 2, 0, 64);
	SEND(&p.a, 10, 0, len);
	SEND(&p.a, 11, 0, 8);
	bad(p.a.out, 10, IBV_WC_REM_INV_REQ_ERR);
	flushed(p.a.out, 11);
	bad(p.b.in, 1, IBV_WC_LOC_LEN_ERR);
	flushed(p.b.in, 2);
	event(IBV_EVENT_QP_REQ_ERR, p.b.qp);
	untouched(&p.b, 4096 + len - 1, 64);
	EQUAL(state_of(&p.b), IBV_QPS_ERR);
	drop(&p);
}

static void no_receive(long)
{
	struct pair p;

	MAKE_PAIR(&p, RC, .rnr = 2);
	SEND(&p.a, 10, 0, 8), SEND(&p.a, 11, 0, 8);
	bad(p.a.out, 10, IBV_WC_RNR_RETRY_EXC_ERR);
	flushed(p.a.out, 11);
	EQUAL(state_of(&p.a), IBV_QPS_ERR);
	EQUAL(state_of(&p.b), IBV_QPS_RTS);
	no_event(0);
	drop(&p);
}

static void nobody_answers(long there)
{
	struct pair p;

	MAKE_PAIR(&p, RC, .timeout = 8, .retries = 2);
	if (there) {
		to_state(&p.b, IBV_QPS_ERR);
	} else {
		EQUAL(ibv_destroy_qp(p.b.qp), 0);
		p.b.qp = NULL;
	}
	SEND(&p.a, 10, 0, 2000), REMOTE(&p.a, 11, IBV_WR_RDMA_READ, 0, 8, &p.b, 0);
	bad(p.a.out, 10, IBV_WC_RETRY_EXC_ERR);
	flushed(p.a.out, 11);
	EQUAL(state_of(&p.a), IBV_QPS_ERR);
	drop(&p);
}

/* Answers are accepted only from the queue pair that this side is connected to. */
static void other_peer(long)
{
	struct pair p, q;

	MAKE_PAIR(&p, RC, .timeout = 8, .retries = 1);
	MAKE_PAIR(&q, RC, .timeout = 8, .retries = 1);
	/* p.a speaks to q.b, which is connected to q.a. What p.a sends is dropped or refused. */
	to_state(&p.a, IBV_QPS_RESET);
	to_init(&p.a), to_rtr(&p.a, q.b.qp->qp_num, 0), to_rts(&p.a);
	post_receive(&q.b, 1, 0, 64);
	SEND(&p.a, 10, 0, 8);
	struct ibv_wc wc = completion(p.a.out);
	NEED(wc.status != IBV_WC_SUCCESS || q.a.psn == p.a.psn);
	drop(&p), drop(&q);
}
