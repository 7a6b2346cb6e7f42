/* The newer calls, which post requests and poll completions field by field. */

static void new_posts(long)
{
	struct pair p;
	uint64_t ops = IBV_QP_EX_WITH_SEND | IBV_QP_EX_WITH_SEND_WITH_IMM | IBV_QP_EX_WITH_RDMA_WRITE | IBV_QP_EX_WITH_RDMA_READ | IBV_QP_EX_WITH_ATOMIC_FETCH_AND_ADD |
		       IBV_QP_EX_WITH_BIND_MW | IBV_QP_EX_WITH_LOCAL_INV | IBV_QP_EX_WITH_SEND_WITH_INV;

	make_end(&p.b, (struct shape){ RC });
	make_queues(&p.a, (struct shape){ RC });
	make_memory(&p.a, pd, ALL_RIGHTS | IBV_ACCESS_MW_BIND);
	struct ibv_qp_init_attr usual = init_attr(&p.a);
	struct ibv_qp_init_attr_ex attr = { .qp_type = IBV_QPT_RC, .send_cq = p.a.out, .recv_cq = p.a.in, .cap = usual.cap, .pd = pd,
					    .comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS, .send_ops_flags = ops };
	NEED(p.a.qp = ibv_create_qp_ex(context, &attr));
	struct ibv_qp_ex *qp = ibv_qp_to_qp_ex(p.a.qp);
	join(&p);
	for (int i = 0; i < 20; i++) {
		uint64_t before = 7;
		memcpy(p.b.bytes + 32768, &before, 8);
		fill(&p.a, 0, 3000, i), fill(&p.b, 16384, 2000, i + 1);
		post_receive(&p.b, 1, 8192, 4096), post_receive(&p.b, 2, 12288, 4096);
		ibv_wr_start(qp);
		qp->wr_flags = 0;
		qp->wr_id = 1, ibv_wr_send(qp), ibv_wr_set_sge(qp, p.a.mr->lkey, (uintptr_t)p.a.bytes, 3000);
		qp->wr_id = 2, ibv_wr_send_imm(qp, htonl(i)), ibv_wr_set_inline_data(qp, "hello", 5);
		qp->wr_id = 3, ibv_wr_rdma_write(qp, p.b.mr->rkey, (uintptr_t)p.b.bytes);
		struct ibv_sge list[] = { piece(&p.a, 0, 100), piece(&p.a, 100, 50) };
		ibv_wr_set_sge_list(qp, 2, list);
		qp->wr_flags = IBV_SEND_SIGNALED;
		qp->wr_id = 4, ibv_wr_rdma_read(qp, p.b.mr->rkey, (uintptr_t)p.b.bytes + 16384), ibv_wr_set_sge(qp, p.a.mr->lkey, (uintptr_t)p.a.bytes + 4096, 2000);
		qp->wr_id = 5, ibv_wr_atomic_fetch_add(qp, p.b.mr->rkey, (uintptr_t)p.b.bytes + 32768, 3), ibv_wr_set_sge(qp, p.a.mr->lkey, (uintptr_t)p.a.bytes + 8192, 8);
		EQUAL(ibv_wr_complete(qp), 0);
		received(&p.b, 1, IBV_WC_RECV, 3000);
		same(&p.b, 8192, 0, 3000, i);
		EQUAL(ntohl(received(&p.b, 2, IBV_WC_RECV, 5).imm_data), i);
		NEED(!memcmp(p.b.bytes + 12288, "hello", 5));
		good(p.a.out, 4, IBV_WC_RDMA_READ), good(p.a.out, 5, IBV_WC_FETCH_ADD);
		same(&p.b, 0, 0, 150, i), same(&p.a, 4096, 0, 2000, i + 1);
		EQUAL(number(&p.a, 8192), 7);
		EQUAL(number(&p.b, 32768), 10);
	}
	struct ibv_mw *mw = make_window(IBV_MW_TYPE_2);
	for (int i = 0; i < 3; i++) {
		struct ibv_mw_bind_info info = part(&p.a, 1000, 500, IBV_ACCESS_REMOTE_WRITE);
		uint32_t key = ibv_inc_rkey(mw->rkey);
		ibv_wr_start(qp);
		qp->wr_id = 6, ibv_wr_bind_mw(qp, mw, key, &info);
		EQUAL(ibv_wr_complete(qp), 0);
		good(p.a.out, 6, IBV_WC_BIND_MW);
		mw->rkey = key;
		fill(&p.b, 0, 500, i);
		use(&p.b, 7, IBV_WR_RDMA_WRITE, 0, 500, (uintptr_t)p.a.bytes + 1000, key);
		good(p.b.out, 7, IBV_WC_RDMA_WRITE);
		same(&p.a, 1000, 0, 500, i);
		ibv_wr_start(qp);
		qp->wr_id = 8, ibv_wr_local_inv(qp, key);
		EQUAL(ibv_wr_complete(qp), 0);
		good(p.a.out, 8, IBV_WC_LOCAL_INV);
	}
	EQUAL(ibv_dealloc_mw(mw), 0);
	drop(&p);
}

static void new_polls(long)
{
	struct pair p;
	struct ibv_cq_init_attr_ex attr = { .cqe = 100, .wc_flags = IBV_WC_EX_WITH_BYTE_LEN | IBV_WC_EX_WITH_IMM | IBV_WC_EX_WITH_QP_NUM | IBV_WC_EX_WITH_COMPLETION_TIMESTAMP };
	struct ibv_cq_ex *cq = ibv_create_cq_ex(context, &attr);

	NEED(cq);
	make_end(&p.a, (struct shape){ RC });
	make_queues(&p.b, (struct shape){ RC });
	EQUAL(ibv_destroy_cq(p.b.in), 0);
	p.b.in = ibv_cq_ex_to_cq(cq);
	make_memory(&p.b, pd, ALL_RIGHTS);
	struct ibv_qp_init_attr usual = init_attr(&p.b);
	NEED(p.b.qp = ibv_create_qp(pd, &usual));
	join(&p);
	uint64_t before = 0;
	for (int round = 0; round < 30; round++) {
		for (int i = 0; i < 10; i++) {
			size_t len = i * 13;
			fill(&p.a, 256 * i, len, round + i);
			post_receive(&p.b, i, i * 256, 256);
			SEND(&p.a, i, 256 * i, len, .opcode = i & 1 ? IBV_WR_SEND_WITH_IMM : IBV_WR_SEND, .imm_data = htonl(i));
			good(p.a.out, i, IBV_WC_SEND);
		}
		struct ibv_poll_cq_attr poll = { 0 };
		EQUAL(ibv_start_poll(cq, &poll), 0);
		for (int i = 0; i < 10; i++) {
			EQUAL(cq->status, IBV_WC_SUCCESS);
			EQUAL(cq->wr_id, i);
			EQUAL(ibv_wc_read_opcode(cq), IBV_WC_RECV);
			EQUAL(ibv_wc_read_byte_len(cq), i * 13);
			EQUAL(ibv_wc_read_qp_num(cq), p.b.qp->qp_num);
			if (i & 1)
				EQUAL(ntohl(ibv_wc_read_imm_data(cq)), i);
			same(&p.b, i * 256, 0, i * 13, round + i);
			NEED(ibv_wc_read_completion_ts(cq) >= before);
			before = ibv_wc_read_completion_ts(cq);
			EQUAL(ibv_next_poll(cq), i < 9 ? 0 : ENOENT);
		}
		ibv_end_poll(cq);
	}
	NEED(before);
	drop(&p);
}
