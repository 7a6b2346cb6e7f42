/* Reliable connections: what must arrive. */

static void rc_send(long len)
{
	struct pair p;

	MAKE_PAIR(&p, RC);
	for (int i = 0; i < 3; i++) {
		fill(&p.a, 64, len, i + 1);
		post_receive(&p.b, 10 + i, 4096, len);
		SEND(&p.a, i, 64, len);
		struct ibv_wc wc = received(&p.b, 10 + i, IBV_WC_RECV, len);
		EQUAL(wc.wc_flags & ~IBV_WC_GRH, 0);
		same(&p.b, 4096, 0, len, i + 1);
		untouched(&p.b, 4096 + len, 256), untouched(&p.b, 4096 - 256, 256);
		wc = good(p.a.out, i, IBV_WC_SEND);
		EQUAL(wc.qp_num, p.a.qp->qp_num);
	}
	drop(&p);
}

static void rc_inline(long type)
{
	struct pair p;

	MAKE_PAIR(&p, .type = type, .inlined = 200);
	NEED(p.a.inlined >= 200);
	int sizes[] = { 1, 4, 11, 12, 13, 28, 29, 44, 60, 61, 76, 77, 140, 199, 200, p.a.inlined };
	for (unsigned i = 0; i < sizeof(sizes) / sizeof(*sizes); i++) {
		struct ibv_sge sge = { .addr = (uintptr_t)p.a.bytes, .length = sizes[i], .lkey = 0xbad };
		struct ibv_send_wr wr = { .wr_id = i, .opcode = IBV_WR_SEND, .sg_list = &sge, .num_sge = 1, .send_flags = IBV_SEND_SIGNALED | IBV_SEND_INLINE };
		post_receive(&p.b, 100 + i, 0, 4096);
		fill(&p.a, 0, sizes[i], i);
		post(&p.a, &wr);
		memset(p.a.bytes, 0, sizes[i]);
		received(&p.b, 100 + i, IBV_WC_RECV, sizes[i]);
		same(&p.b, 0, 0, sizes[i], i);
		good(p.a.out, i, IBV_WC_SEND);
	}
	drop(&p);
}

/* Messages that one side gathers from several pieces, and the other scatters to several pieces. */
static void rc_pieces(long type)
{
	struct pair p;

	MAKE_PAIR(&p, .type = type);
	for (int i = 0; i < 4; i++) {
		size_t len = i < 3 ? 1701 : 30;
		fill(&p.a, 0, len, i);
		size_t cuts[] = { 1, i < 3 ? 1024 + i : 7 };
		struct ibv_sge from[] = { piece(&p.a, 0, cuts[0]), piece(&p.a, cuts[0], cuts[1]), piece(&p.a, 0, 0), piece(&p.a, cuts[0] + cuts[1], len - cuts[0] - cuts[1]) };
		struct ibv_sge to[] = { piece(&p.b, 1001, 3), piece(&p.b, 0, 0), piece(&p.b, 5000, 500), piece(&p.b, 8000, 1198 + 100) };
		struct ibv_recv_wr *wrong, receive = { .wr_id = 9, .sg_list = to, .num_sge = 4 };
		struct ibv_send_wr wr = { .wr_id = 8, .opcode = IBV_WR_SEND, .sg_list = from, .num_sge = 4, .send_flags = IBV_SEND_SIGNALED };
		EQUAL(ibv_post_recv(p.b.qp, &receive, &wrong), 0);
		post(&p.a, &wr);
		received(&p.b, 9, IBV_WC_RECV, len);
		same(&p.b, 1001, 0, 3, i);
		same(&p.b, 5000, 3, len < 503 ? len - 3 : 500, i);
		if (len > 503)
			same(&p.b, 8000, 503, len - 503, i);
		untouched(&p.b, 1004, 100), untouched(&p.b, 5500, 100), untouched(&p.b, 8000 + 1198, 100);
		good(p.a.out, 8, IBV_WC_SEND);
	}
	drop(&p);
}

static void rc_immediate(long type)
{
	struct pair p;

	MAKE_PAIR(&p, .type = type);
	for (size_t len = 0; len < 3000; len = len * 3 + 20) {
		fill(&p.a, 0, len, len);
		post_receive(&p.b, len, 0, 4096);
		SEND(&p.a, 1, 0, len, .opcode = IBV_WR_SEND_WITH_IMM, .imm_data = htonl(0xcafe0000 + len));
		struct ibv_wc wc = received(&p.b, len, IBV_WC_RECV, len);
		EQUAL(wc.wc_flags & ~IBV_WC_GRH, IBV_WC_WITH_IMM);
		EQUAL(ntohl(wc.imm_data), 0xcafe0000 + len);
		same(&p.b, 0, 0, len, len);
		good(p.a.out, 1, IBV_WC_SEND);
	}
	drop(&p);
}

static void rc_events(long solicited)
{
	struct pair p;
	struct ibv_comp_channel *channel = ibv_create_comp_channel(context);

	NEED(channel);
	MAKE_PAIR(&p, RC, .channel = channel);
	for (int i = 0; i < 5; i++)
		post_receive(&p.b, i, 0, 64);
	EQUAL(ibv_req_notify_cq(p.b.in, solicited), 0);
	SEND(&p.a, 0, 0, 40);
	good(p.a.out, 0, IBV_WC_SEND);
	if (solicited) {
		if (channel_has(channel, QUIET))
			fail("an event came for a message that is not solicited");
		SEND(&p.a, 1, 0, 40, .send_flags = IBV_SEND_SIGNALED | IBV_SEND_SOLICITED);
		good(p.a.out, 1, IBV_WC_SEND);
		channel_event(channel, p.b.in);
		received(&p.b, 0, IBV_WC_RECV, 40), received(&p.b, 1, IBV_WC_RECV, 40);
		EQUAL(ibv_req_notify_cq(p.b.in, 1), 0);
		REMOTE(&p.a, 2, IBV_WR_RDMA_WRITE_WITH_IMM, 0, 40, &p.b, 0, .send_flags = IBV_SEND_SIGNALED | IBV_SEND_SOLICITED);
		good(p.a.out, 2, IBV_WC_RDMA_WRITE);
		channel_event(channel, p.b.in);
		received(&p.b, 2, IBV_WC_RECV_RDMA_WITH_IMM, 40);
		/* An error also wakes a program that waits for solicited messages only. */
		EQUAL(ibv_req_notify_cq(p.b.in, 1), 0);
		to_state(&p.b, IBV_QPS_ERR);
		channel_event(channel, p.b.in);
		bad(p.b.in, 3, IBV_WC_WR_FLUSH_ERR), bad(p.b.in, 4, IBV_WC_WR_FLUSH_ERR);
	} else {
		channel_event(channel, p.b.in);
		SEND(&p.a, 1, 0, 40);
		good(p.a.out, 1, IBV_WC_SEND);
		if (channel_has(channel, QUIET))
			fail("an event came that none had asked for");
		received(&p.b, 0, IBV_WC_RECV, 40), received(&p.b, 1, IBV_WC_RECV, 40);
	}
	drop(&p);
	EQUAL(ibv_destroy_comp_channel(channel), 0);
}

static void rc_write(long len)
{
	struct pair p;

	MAKE_PAIR(&p, RC);
	fill(&p.a, 100, len, 5);
	REMOTE(&p.a, 1, IBV_WR_RDMA_WRITE, 100, len, &p.b, 5000);
	good(p.a.out, 1, IBV_WC_RDMA_WRITE);
	same(&p.b, 5000, 0, len, 5);
	untouched(&p.b, 5000 + len, 64), untouched(&p.b, 5000 - 64, 64);
	quiet(p.b.in);
	drop(&p);
}

static void write_immediate(long type)
{
	struct pair p;

	MAKE_PAIR(&p, .type = type);
	for (size_t len = 0; len < 5000; len = len * 4 + 25) {
		fill(&p.a, 0, len, len);
		post_receive(&p.b, len, 0, 64);
		REMOTE(&p.a, 1, IBV_WR_RDMA_WRITE_WITH_IMM, 0, len, &p.b, 4096, .imm_data = htonl(len));
		struct ibv_wc wc = received(&p.b, len, IBV_WC_RECV_RDMA_WITH_IMM, len);
		EQUAL(wc.wc_flags & ~IBV_WC_GRH, IBV_WC_WITH_IMM);
		EQUAL(ntohl(wc.imm_data), len);
		same(&p.b, 4096, 0, len, len);
		untouched(&p.b, 0, 64);
		good(p.a.out, 1, IBV_WC_RDMA_WRITE);
	}
	drop(&p);
}

static void rc_read(long len)
{
	struct pair p;

	MAKE_PAIR(&p, RC);
	for (int i = 0; i < 3; i++) {
		fill(&p.b, 300, len, i);
		REMOTE(&p.a, i, IBV_WR_RDMA_READ, 4096, len, &p.b, 300);
		struct ibv_wc wc = good(p.a.out, i, IBV_WC_RDMA_READ);
		EQUAL(wc.byte_len, len);
		same(&p.a, 4096, 0, len, i);
		untouched(&p.a, 4096 + len, 64), untouched(&p.a, 4096 - 64, 64);
	}
	quiet(p.b.in);
	drop(&p);
}

static void rc_read_pieces(long each)
{
	struct pair p;

	MAKE_PAIR(&p, RC, .each = each);
	for (int i = 0; i < 3; i++) {
		size_t len = i ? 2500 : 30;
		fill(&p.b, 0, len, i);
		struct ibv_sge to[] = { piece(&p.a, 1, 10), piece(&p.a, 4000, 15), piece(&p.a, 8000, len - 25) };
		struct ibv_send_wr wr = { .wr_id = i, .opcode = IBV_WR_RDMA_READ, .sg_list = to, .num_sge = 3, .send_flags = IBV_SEND_SIGNALED,
					  .wr.rdma = { .remote_addr = (uintptr_t)p.b.bytes, .rkey = p.b.mr->rkey } };
		post(&p.a, &wr);
		good(p.a.out, i, IBV_WC_RDMA_READ);
		same(&p.a, 1, 0, 10, i), same(&p.a, 4000, 10, 15, i), same(&p.a, 8000, 25, len - 25, i);
	}
	drop(&p);
}

/* More reads than may be outstanding, small and large ones, with writes between them. */
static void rc_many_reads(long depth)
{
	struct pair p;

	MAKE_PAIR(&p, RC, .reads = depth, .sends = 64);
	for (int round = 0; round < 5; round++) {
		fill(&p.b, 0, 30000, round);
		for (int i = 0; i < 24; i++) {
			if (i % 6 == 5)
				REMOTE(&p.a, i, IBV_WR_RDMA_WRITE, 60000, 100, &p.b, 60000);
			else
				REMOTE(&p.a, i, IBV_WR_RDMA_READ, i * 1200, i % 2 ? 1200 : 17, &p.b, i * 1200);
		}
		for (int i = 0; i < 24; i++)
			good(p.a.out, i, i % 6 == 5 ? IBV_WC_RDMA_WRITE : IBV_WC_RDMA_READ);
		for (int i = 0; i < 24; i++)
			if (i % 6 != 5)
				same(&p.a, i * 1200, i * 1200, i % 2 ? 1200 : 17, round);
	}
	drop(&p);
}

static uint64_t number(struct end *e, size_t at)
{
	uint64_t value;

	memcpy(&value, e->bytes + at, 8);
	return value;
}

#define ATOMIC(e, id, op, to, other, at, first, second) \
	post_one(e, (struct ibv_send_wr){ .wr_id = id, .opcode = op, .send_flags = IBV_SEND_SIGNALED, \
		 .wr.atomic = { .remote_addr = (uintptr_t)(other)->bytes + (at), .rkey = (other)->mr->rkey, .compare_add = first, .swap = second } }, to, 8)

static void rc_add(long each)
{
	struct pair p;
	uint64_t value = 0x00000000fffffff0, step = 0x0000000100000011;

	MAKE_PAIR(&p, RC, .each = each);
	NEED(device.atomic_cap != IBV_ATOMIC_NONE);
	memcpy(p.b.bytes + 1024, &value, 8);
	for (int i = 0; i < 10; i++, value += step) {
		ATOMIC(&p.a, i, IBV_WR_ATOMIC_FETCH_AND_ADD, 4096 + 8 * i, &p.b, 1024, step, 0);
		struct ibv_wc wc = good(p.a.out, i, IBV_WC_FETCH_ADD);
		EQUAL(wc.byte_len, 8);
		EQUAL(number(&p.a, 4096 + 8 * i), value);
		EQUAL(number(&p.b, 1024), value + step);
	}
	untouched(&p.b, 1024 - 8, 8), untouched(&p.b, 1024 + 8, 8);
	drop(&p);
}

static void rc_swap(long each)
{
	struct pair p;
	uint64_t value = 0x0123456789abcdef;

	MAKE_PAIR(&p, RC, .each = each);
	memcpy(p.b.bytes + 8, &value, 8);
	ATOMIC(&p.a, 1, IBV_WR_ATOMIC_CMP_AND_SWP, 0, &p.b, 8, 1, 2);
	EQUAL(good(p.a.out, 1, IBV_WC_COMP_SWAP).byte_len, 8);
	EQUAL(number(&p.a, 0), value);
	EQUAL(number(&p.b, 8), value);
	ATOMIC(&p.a, 2, IBV_WR_ATOMIC_CMP_AND_SWP, 0, &p.b, 8, value, 0xfedcba9876543210);
	good(p.a.out, 2, IBV_WC_COMP_SWAP);
	EQUAL(number(&p.a, 0), value);
	EQUAL(number(&p.b, 8), (long long)0xfedcba9876543210);
	untouched(&p.b, 0, 8), untouched(&p.b, 16, 8);
	drop(&p);
}

/* Both sides add to one number at the same time, and no addition is lost. */
static void rc_adds_from_both(long)
{
	struct pair p, q;

	MAKE_PAIR(&p, RC, .reads = 8);
	MAKE_PAIR(&q, RC, .reads = 8);
	memset(p.b.bytes, 0, 8);
	for (int round = 0; round < 20; round++) {
		for (int i = 0; i < 8; i++) {
			ATOMIC(&p.a, i, IBV_WR_ATOMIC_FETCH_AND_ADD, 8 * i, &p.b, 0, 1, 0);
			ATOMIC(&q.b, i, IBV_WR_ATOMIC_FETCH_AND_ADD, 8 * i, &p.b, 0, 1 << 20, 0);
		}
		for (int i = 0; i < 8; i++)
			good(p.a.out, i, IBV_WC_FETCH_ADD), good(q.b.out, i, IBV_WC_FETCH_ADD);
	}
	EQUAL(number(&p.b, 0), 160 + (160 << 20));
	drop(&p), drop(&q);
}

/* The receive is posted after the message was sent; the sender tries until then. */
static void rc_late_receive(long)
{
	struct pair p;

	MAKE_PAIR(&p, RC);
	for (int i = 0; i < 3; i++) {
		fill(&p.a, 0, 3000, i);
		SEND(&p.a, 1, 0, i ? 3000 : 10);
		SEND(&p.a, 2, 0, 5);
		quiet(p.a.out), quiet(p.b.in);
		post_receive(&p.b, 3, 0, 4096);
		received(&p.b, 3, IBV_WC_RECV, i ? 3000 : 10);
		same(&p.b, 0, 0, i ? 3000 : 10, i);
		post_receive(&p.b, 4, 0, 4096);
		received(&p.b, 4, IBV_WC_RECV, 5);
		good(p.a.out, 1, IBV_WC_SEND), good(p.a.out, 2, IBV_WC_SEND);
	}
	/* The same for the receive that a write with an immediate takes. */
	REMOTE(&p.a, 5, IBV_WR_RDMA_WRITE_WITH_IMM, 0, 2000, &p.b, 8192, .imm_data = htonl(5));
	quiet(p.a.out);
	post_receive(&p.b, 6, 0, 0);
	received(&p.b, 6, IBV_WC_RECV_RDMA_WITH_IMM, 2000);
	good(p.a.out, 5, IBV_WC_RDMA_WRITE);
	same(&p.b, 8192, 0, 2000, 2);
	drop(&p);
}

/* Only the last request of a batch is signaled, and its completion stands for all. */
static void rc_unsignaled(long)
{
	struct pair p;

	MAKE_PAIR(&p, RC);
	for (int round = 0; round < 8; round++) {
		for (int i = 0; i < 16; i++)
			post_receive(&p.b, i, i * 64, 64);
		for (int i = 0; i < 16; i++) {
			fill(&p.a, i * 64, 40, round * 16 + i);
			SEND(&p.a, i, i * 64, 40, .send_flags = i == 15 ? IBV_SEND_SIGNALED : 0);
		}
		good(p.a.out, 15, IBV_WC_SEND);
		for (int i = 0; i < 16; i++) {
			received(&p.b, i, IBV_WC_RECV, 40);
			same(&p.b, i * 64, 0, 40, round * 16 + i);
		}
	}
	quiet(p.a.out);
	drop(&p);
}

/* A fenced send waits for the read before it, and sends what that has read. */
static void rc_fence(long)
{
	struct pair p;

	MAKE_PAIR(&p, RC);
	for (int i = 0; i < 20; i++) {
		fill(&p.b, 0, 5000, i);
		post_receive(&p.b, 3, 16384, 5000);
		REMOTE(&p.a, 1, IBV_WR_RDMA_READ, 0, 5000, &p.b, 0);
		SEND(&p.a, 2, 0, 5000, .send_flags = IBV_SEND_SIGNALED | IBV_SEND_FENCE);
		received(&p.b, 3, IBV_WC_RECV, 5000);
		same(&p.b, 16384, 0, 5000, i);
		good(p.a.out, 1, IBV_WC_RDMA_READ), good(p.a.out, 2, IBV_WC_SEND);
	}
	drop(&p);
}

/* Rings of a few requests, filled many times, with requests of all lengths. */
static void rings_wrap(long type)
{
	struct pair p;

	MAKE_PAIR(&p, .type = type, .sends = 5, .receives = 7, .inlined = 150);
	for (int i = 0; i < 1500; i++) {
		struct end *from = i % 7 == 3 ? &p.b : &p.a, *to = i % 7 == 3 ? &p.a : &p.b;
		size_t len = (size_t)rand() % (i % 5 ? 300 : 3000);
		int pieces = 1 + rand() % 4, flags = IBV_SEND_SIGNALED | (len <= 150 && i % 3 == 0 ? IBV_SEND_INLINE : 0);
		struct ibv_sge sge[4];
		fill(from, 0, len, i);
		for (int n = 0; n < pieces; n++)
			sge[n] = piece(from, len * n / pieces, len * (n + 1) / pieces - len * n / pieces);
		struct ibv_send_wr wr = { .wr_id = i, .opcode = IBV_WR_SEND, .sg_list = sge, .num_sge = pieces, .send_flags = flags };
		memset(to->bytes + 8192, 0xee, len + 16);
		post_receive(to, i, 8192, 4096);
		post(from, &wr);
		received(to, i, IBV_WC_RECV, len);
		same(to, 8192, 0, len, i);
		untouched(to, 8192 + len, 16);
		good(from->out, i, IBV_WC_SEND);
	}
	drop(&p);
}

static void rc_both_ways(long)
{
	struct pair p;
	enum { EACH = 200, AHEAD = 16 };

	MAKE_PAIR(&p, RC);
	struct end *ends[] = { &p.a, &p.b };
	int sent[2] = { 0 }, got[2] = { 0 }, done[2] = { 0 };
	for (int e = 0; e < 2; e++)
		for (int i = 0; i < AHEAD; i++)
			post_receive(ends[e], i, 32768 + i * 1500, 1500);
	for (double until = now() + LATE; got[0] + got[1] + done[0] + done[1] < 4 * EACH;) {
		struct ibv_wc wc;
		if (now() > until)
			fail("sent %d and %d, done %d and %d, received %d and %d", sent[0], sent[1], done[0], done[1], got[0], got[1]);
		for (int e = 0; e < 2; e++) {
			if (sent[e] < EACH && sent[e] - done[e] < AHEAD) {
				int slot = sent[e] % AHEAD;
				fill(ends[e], slot * 1500, 1500, sent[e] * 2 + e);
				SEND(ends[e], sent[e], slot * 1500, 1 + sent[e] % 1500), sent[e]++;
			}
			if (ibv_poll_cq(ends[e]->out, 1, &wc)) {
				EQUAL(wc.status, 0);
				EQUAL(wc.wr_id, done[e]);
				done[e]++;
			}
			if (ibv_poll_cq(ends[e]->in, 1, &wc)) {
				int i = got[e]++;
				EQUAL(wc.status, 0);
				EQUAL(wc.wr_id, i);
				EQUAL(wc.byte_len, 1 + i % 1500);
				same(ends[e], 32768 + i % AHEAD * 1500, 0, wc.byte_len, i * 2 + !e);
				post_receive(ends[e], i + AHEAD, 32768 + i % AHEAD * 1500, 1500);
			}
		}
	}
	drop(&p);
}

static void rc_mtu(long mtu)
{
	struct pair p;

	MAKE_PAIR(&p, RC, .mtu = mtu);
	fill(&p.a, 0, 10001, mtu);
	post_receive(&p.b, 1, 0, 10001);
	SEND(&p.a, 2, 0, 10001);
	received(&p.b, 1, IBV_WC_RECV, 10001);
	same(&p.b, 0, 0, 10001, mtu);
	good(p.a.out, 2, IBV_WC_SEND);
	REMOTE(&p.b, 3, IBV_WR_RDMA_READ, 20000, 10001, &p.a, 0);
	good(p.b.out, 3, IBV_WC_RDMA_READ);
	same(&p.b, 20000, 0, 10001, mtu);
	drop(&p);
}

static void rc_long_messages(long)
{
	struct pair p;
	size_t len = 3 << 20;

	MAKE_PAIR(&p, RC);
	struct end big[2] = { p.a, p.b };
	for (int i = 0; i < 2; i++) {
		NEED(!posix_memalign((void **)&big[i].bytes, 4096, len));
		NEED(big[i].mr = ibv_reg_mr(pd, big[i].bytes, len, ALL_RIGHTS));
	}
	fill(&big[0], 0, len, 77);
	REMOTE(&big[0], 1, IBV_WR_RDMA_WRITE, 3, len - 3, &big[1], 3);
	good(p.a.out, 1, IBV_WC_RDMA_WRITE);
	same(&big[1], 3, 3, len - 3, 77);
	memset(big[0].bytes, 0, len);
	REMOTE(&big[0], 2, IBV_WR_RDMA_READ, 3, len - 3, &big[1], 3);
	good(p.a.out, 2, IBV_WC_RDMA_READ);
	same(&big[0], 3, 3, len - 3, 77);
	for (int i = 0; i < 2; i++) {
		EQUAL(ibv_dereg_mr(big[i].mr), 0);
		free(big[i].bytes);
	}
	drop(&p);
}
