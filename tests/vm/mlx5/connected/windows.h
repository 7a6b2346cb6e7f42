/* Memory windows of both types, and keys that are invalidated. */

static struct ibv_mw *make_window(enum ibv_mw_type type)
{
	struct ibv_mw *mw = ibv_alloc_mw(pd, type);

	NEED(mw);
	return mw;
}

static struct ibv_mw_bind_info part(struct end *e, size_t at, size_t len, int rights)
{
	return (struct ibv_mw_bind_info){ .mr = e->mr, .addr = (uintptr_t)e->bytes + at, .length = len, .mw_access_flags = rights };
}

static void bind_first(struct end *e, struct ibv_mw *mw, size_t at, size_t len, int rights)
{
	struct ibv_mw_bind bind = { .wr_id = 77, .send_flags = IBV_SEND_SIGNALED, .bind_info = part(e, at, len, rights) };
	uint32_t before = mw->rkey;

	EQUAL(ibv_bind_mw(e->qp, mw, &bind), 0);
	good(e->out, 77, IBV_WC_BIND_MW);
	if (len)
		NEED(mw->rkey != before);
}

static void post_bind(struct end *e, struct ibv_mw *mw, struct ibv_mw_bind_info info)
{
	struct ibv_send_wr wr = { .wr_id = 78, .opcode = IBV_WR_BIND_MW, .send_flags = IBV_SEND_SIGNALED,
				  .bind_mw = { .mw = mw, .rkey = ibv_inc_rkey(mw->rkey), .bind_info = info } };

	post(e, &wr);
	mw->rkey = wr.bind_mw.rkey;
}

static void bind_second(struct end *e, struct ibv_mw *mw, size_t at, size_t len, int rights)
{
	post_bind(e, mw, part(e, at, len, rights));
	good(e->out, 78, IBV_WC_BIND_MW);
}

static void bind_any(struct end *e, struct ibv_mw *mw, size_t at, size_t len, int rights)
{
	(mw->type == IBV_MW_TYPE_1 ? bind_first : bind_second)(e, mw, at, len, rights);
}

/* What one side does to the other with a key. */
static void use(struct end *e, uint64_t id, enum ibv_wr_opcode op, size_t at, size_t len, uint64_t address, uint32_t key)
{
	post_one(e, (struct ibv_send_wr){ .wr_id = id, .opcode = op, .send_flags = IBV_SEND_SIGNALED, .wr.rdma = { address, key } }, at, len);
}

/* Using an invalid key ends the connection. */
static void refused(struct pair *p, enum ibv_wr_opcode op, uint64_t address, uint32_t key)
{
	use(&p->a, 99, op, 0, 8, address, key);
	bad(p->a.out, 99, IBV_WC_REM_ACCESS_ERR);
	event(IBV_EVENT_QP_ACCESS_ERR, p->b.qp);
	EQUAL(state_of(&p->a), IBV_QPS_ERR);
	EQUAL(state_of(&p->b), IBV_QPS_ERR);
}

static void window_use(long type)
{
	struct pair p;

	/* Only the window gives the other side access. */
	MAKE_PAIR(&p, RC, .mr_access = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_MW_BIND | IBV_ACCESS_REMOTE_ATOMIC);
	struct ibv_mw *mw = make_window(type);
	uintptr_t at = (uintptr_t)p.b.bytes + 5000;
	bind_any(&p.b, mw, 5000, 2000, IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_ATOMIC);
	fill(&p.a, 0, 2000, 1);
	use(&p.a, 1, IBV_WR_RDMA_WRITE, 0, 2000, at, mw->rkey);
	good(p.a.out, 1, IBV_WC_RDMA_WRITE);
	same(&p.b, 5000, 0, 2000, 1);
	untouched(&p.b, 4900, 100), untouched(&p.b, 7000, 100);
	use(&p.a, 2, IBV_WR_RDMA_READ, 8192, 1999, at + 1, mw->rkey);
	good(p.a.out, 2, IBV_WC_RDMA_READ);
	same(&p.a, 8192, 1, 1999, 1);
	struct ibv_send_wr wr = { .wr_id = 3, .opcode = IBV_WR_ATOMIC_FETCH_AND_ADD, .send_flags = IBV_SEND_SIGNALED,
				  .wr.atomic = { .remote_addr = at + 1000, .rkey = mw->rkey, .compare_add = 1 } };
	uint64_t before = number(&p.b, 6000);
	post_one(&p.a, wr, 16384, 8);
	good(p.a.out, 3, IBV_WC_FETCH_ADD);
	EQUAL(number(&p.a, 16384), before);
	EQUAL(number(&p.b, 6000), before + 1);
	EQUAL(ibv_dealloc_mw(mw), 0);
	refused(&p, IBV_WR_RDMA_READ, at, mw->rkey);
	drop(&p);
}

static void window_range(long type)
{
	struct pair p;

	MAKE_PAIR(&p, RC);
	struct ibv_mw *mw = make_window(type);
	bind_any(&p.b, mw, 4096, 16, IBV_ACCESS_REMOTE_WRITE);
	uintptr_t at = (uintptr_t)p.b.bytes + 4096;
	use(&p.a, 1, IBV_WR_RDMA_WRITE, 0, 8, at + 8, mw->rkey);
	good(p.a.out, 1, IBV_WC_RDMA_WRITE);
	refused(&p, IBV_WR_RDMA_WRITE, at + 9, mw->rkey);
	untouched(&p.b, 4096 + 16, 64);
	EQUAL(ibv_dealloc_mw(mw), 0);
	drop(&p);
}

static void window_rights(long type)
{
	struct pair p;

	MAKE_PAIR(&p, RC);
	struct ibv_mw *mw = make_window(type);
	bind_any(&p.b, mw, 0, 4096, IBV_ACCESS_REMOTE_READ);
	use(&p.a, 1, IBV_WR_RDMA_READ, 0, 8, (uintptr_t)p.b.bytes, mw->rkey);
	good(p.a.out, 1, IBV_WC_RDMA_READ);
	refused(&p, IBV_WR_RDMA_WRITE, (uintptr_t)p.b.bytes, mw->rkey);
	EQUAL(ibv_dealloc_mw(mw), 0);
	drop(&p);
}

/* When a window is bound again its old key becomes invalid. */
static void window_rebound(long)
{
	struct pair p;

	MAKE_PAIR(&p, RC);
	struct ibv_mw *mw = make_window(IBV_MW_TYPE_1);
	bind_first(&p.b, mw, 0, 4096, IBV_ACCESS_REMOTE_WRITE);
	uint32_t old = mw->rkey;
	bind_first(&p.b, mw, 8192, 4096, IBV_ACCESS_REMOTE_WRITE);
	use(&p.a, 1, IBV_WR_RDMA_WRITE, 0, 8, (uintptr_t)p.b.bytes + 8192, mw->rkey);
	good(p.a.out, 1, IBV_WC_RDMA_WRITE);
	refused(&p, IBV_WR_RDMA_WRITE, (uintptr_t)p.b.bytes + 8192, old);
	EQUAL(ibv_dealloc_mw(mw), 0);
	drop(&p);
}

static void window_unbound(long)
{
	struct pair p;

	MAKE_PAIR(&p, RC);
	struct ibv_mw *mw = make_window(IBV_MW_TYPE_1);
	bind_first(&p.b, mw, 0, 4096, IBV_ACCESS_REMOTE_WRITE);
	use(&p.a, 1, IBV_WR_RDMA_WRITE, 0, 8, (uintptr_t)p.b.bytes, mw->rkey);
	good(p.a.out, 1, IBV_WC_RDMA_WRITE);
	bind_first(&p.b, mw, 0, 0, 0);
	refused(&p, IBV_WR_RDMA_WRITE, (uintptr_t)p.b.bytes, mw->rkey);
	EQUAL(ibv_dealloc_mw(mw), 0);
	drop(&p);
}

static void window_zero_based(long)
{
	struct pair p;

	MAKE_PAIR(&p, RC);
	struct ibv_mw *mw = make_window(IBV_MW_TYPE_2);
	bind_second(&p.b, mw, 5001, 100, IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_ZERO_BASED);
	fill(&p.a, 0, 90, 9);
	use(&p.a, 1, IBV_WR_RDMA_WRITE, 0, 90, 10, mw->rkey);
	good(p.a.out, 1, IBV_WC_RDMA_WRITE);
	same(&p.b, 5011, 0, 90, 9);
	refused(&p, IBV_WR_RDMA_WRITE, 93, mw->rkey);
	EQUAL(ibv_dealloc_mw(mw), 0);
	drop(&p);
}

/* A window of type 2 is valid only for the connection on which it was bound, one of type 1 for all. */
static void window_of_another(long type)
{
	struct pair p, q;

	MAKE_PAIR(&p, RC);
	MAKE_PAIR(&q, RC);
	struct ibv_mw *mw = make_window(type);
	bind_any(&p.b, mw, 0, 4096, IBV_ACCESS_REMOTE_WRITE);
	if (type == IBV_MW_TYPE_1) {
		use(&q.a, 1, IBV_WR_RDMA_WRITE, 0, 8, (uintptr_t)p.b.bytes, mw->rkey);
		good(q.a.out, 1, IBV_WC_RDMA_WRITE);
	} else {
		refused(&q, IBV_WR_RDMA_WRITE, (uintptr_t)p.b.bytes, mw->rkey);
	}
	use(&p.a, 1, IBV_WR_RDMA_WRITE, 0, 8, (uintptr_t)p.b.bytes, mw->rkey);
	good(p.a.out, 1, IBV_WC_RDMA_WRITE);
	EQUAL(ibv_dealloc_mw(mw), 0);
	drop(&p), drop(&q);
}

static void window_bound_twice(long)
{
	struct pair p;

	MAKE_PAIR(&p, RC);
	struct ibv_mw *mw = make_window(IBV_MW_TYPE_2);
	bind_second(&p.b, mw, 0, 4096, IBV_ACCESS_REMOTE_WRITE);
	post_bind(&p.b, mw, part(&p.b, 0, 4096, IBV_ACCESS_REMOTE_WRITE));
	struct ibv_wc wc = completion(p.b.out);
	NEED(wc.status == IBV_WC_MW_BIND_ERR || wc.status == IBV_WC_LOC_QP_OP_ERR || wc.status == IBV_WC_LOC_PROT_ERR);
	EQUAL(state_of(&p.b), IBV_QPS_ERR);
	EQUAL(ibv_dealloc_mw(mw), 0);
	drop(&p);
}

/* A window over a read-only region lets nobody write. */
static void window_over_read_only(long)
{
	struct pair p;

	make_pair_of(&p, (struct shape){ RC }, (struct shape){ RC, .mr_access = IBV_ACCESS_MW_BIND | IBV_ACCESS_REMOTE_READ });
	struct ibv_mw *mw = make_window(IBV_MW_TYPE_2);
	bind_second(&p.b, mw, 0, 4096, IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_WRITE);
	use(&p.a, 1, IBV_WR_RDMA_READ, 0, 8, (uintptr_t)p.b.bytes, mw->rkey);
	good(p.a.out, 1, IBV_WC_RDMA_READ);
	refused(&p, IBV_WR_RDMA_WRITE, (uintptr_t)p.b.bytes, mw->rkey);
	untouched(&p.b, 0, 64);
	EQUAL(ibv_dealloc_mw(mw), 0);
	drop(&p);
}

static void local_invalidate(long)
{
	struct pair p;

	MAKE_PAIR(&p, RC);
	struct ibv_mw *mw = make_window(IBV_MW_TYPE_2);
	uintptr_t at = (uintptr_t)p.b.bytes;
	for (int i = 0; i < 3; i++) {
		bind_second(&p.b, mw, 0, 4096, IBV_ACCESS_REMOTE_WRITE);
		use(&p.a, 1, IBV_WR_RDMA_WRITE, 0, 8, at, mw->rkey);
		good(p.a.out, 1, IBV_WC_RDMA_WRITE);
		struct ibv_send_wr wr = { .wr_id = 5, .opcode = IBV_WR_LOCAL_INV, .send_flags = IBV_SEND_SIGNALED, .invalidate_rkey = mw->rkey };
		post(&p.b, &wr);
		good(p.b.out, 5, IBV_WC_LOCAL_INV);
	}
	refused(&p, IBV_WR_RDMA_WRITE, at, mw->rkey);
	EQUAL(ibv_dealloc_mw(mw), 0);
	drop(&p);
}

/* The other side invalidates the window with a message that names its key. */
static void send_with_invalidate(long len)
{
	struct pair p;

	MAKE_PAIR(&p, RC);
	struct ibv_mw *mw = make_window(IBV_MW_TYPE_2);
	uintptr_t at = (uintptr_t)p.b.bytes;
	for (int i = 0; i < 3; i++) {
		bind_second(&p.b, mw, 0, 4096, IBV_ACCESS_REMOTE_WRITE);
		use(&p.a, 1, IBV_WR_RDMA_WRITE, 0, 8, at, mw->rkey);
		good(p.a.out, 1, IBV_WC_RDMA_WRITE);
		fill(&p.a, 0, len, i);
		post_receive(&p.b, 6, 8192, 4096);
		SEND(&p.a, 2, 0, len, .opcode = IBV_WR_SEND_WITH_INV, .invalidate_rkey = mw->rkey);
		struct ibv_wc wc = received(&p.b, 6, IBV_WC_RECV, len);
		EQUAL(wc.wc_flags & ~IBV_WC_GRH, IBV_WC_WITH_INV);
		EQUAL(wc.invalidated_rkey, mw->rkey);
		same(&p.b, 8192, 0, len, i);
		good(p.a.out, 2, IBV_WC_SEND);
	}
	refused(&p, IBV_WR_RDMA_WRITE, at, mw->rkey);
	EQUAL(ibv_dealloc_mw(mw), 0);
	drop(&p);
}

/* A window that is not bound, and a key that is not a window's, cannot be invalidated. */
static void invalidate_wrong(long of_region)
{
	struct pair p;

	MAKE_PAIR(&p, RC);
	struct ibv_mw *mw = make_window(IBV_MW_TYPE_2);
	post_receive(&p.b, 1, 0, 64), post_receive(&p.b, 2, 0, 64);
	SEND(&p.a, 3, 0, 8, .opcode = IBV_WR_SEND_WITH_INV, .invalidate_rkey = of_region ? p.b.mr->rkey : mw->rkey);
	struct ibv_wc wc = completion(p.a.out);
	NEED(wc.status == IBV_WC_REM_ACCESS_ERR || wc.status == IBV_WC_REM_OP_ERR || wc.status == IBV_WC_REM_INV_REQ_ERR);
	EQUAL(state_of(&p.b), IBV_QPS_ERR);
	wc = completion(p.b.in);
	NEED(wc.wr_id == 1 && wc.status != IBV_WC_SUCCESS);
	bad(p.b.in, 2, IBV_WC_WR_FLUSH_ERR);
	struct ibv_async_event any;
	next_event(&any, QUIET);
	EQUAL(ibv_dealloc_mw(mw), 0);
	drop(&p);
}

/* A region that is registered again: with other rights, with other memory, in another domain. */
static void reregistered(long)
{
	struct pair p;
	uint8_t *other;

	MAKE_PAIR(&p, RC, .mr_access = IBV_ACCESS_LOCAL_WRITE);
	NEED(!posix_memalign((void **)&other, 4096, ROOM));
	EQUAL(ibv_rereg_mr(p.b.mr, IBV_REREG_MR_CHANGE_ACCESS, NULL, NULL, 0, ALL_RIGHTS), 0);
	REMOTE(&p.a, 1, IBV_WR_RDMA_WRITE, 0, 100, &p.b, 0);
	good(p.a.out, 1, IBV_WC_RDMA_WRITE);
	EQUAL(ibv_rereg_mr(p.b.mr, IBV_REREG_MR_CHANGE_TRANSLATION, NULL, other, ROOM, 0), 0);
	uint8_t *old = p.b.bytes;
	p.b.bytes = other;
	fill(&p.a, 0, 5000, 3);
	REMOTE(&p.a, 2, IBV_WR_RDMA_WRITE, 0, 5000, &p.b, 777);
	good(p.a.out, 2, IBV_WC_RDMA_WRITE);
	same(&p.b, 777, 0, 5000, 3);
	struct ibv_pd *another = ibv_alloc_pd(context);
	NEED(another);
	EQUAL(ibv_rereg_mr(p.b.mr, IBV_REREG_MR_CHANGE_PD, another, NULL, 0, 0), 0);
	refused(&p, IBV_WR_RDMA_WRITE, (uintptr_t)other, p.b.mr->rkey);
	free(old);
	drop(&p);
	EQUAL(ibv_dealloc_pd(another), 0);
}

/*
 * Memory of another device, here of the kernel's udmabuf (include/uapi/linux/udmabuf.h, Linux 6.12), from the middle of its second
 * page on.
 */
static void dma_buf(long)
{
	struct {
		uint32_t memory, flags;
		uint64_t offset, size;
	} wanted = { .size = 4 * 4096 };
	int memory = memfd_create("dma-buf", MFD_ALLOW_SEALING), maker = open("/dev/udmabuf", O_RDWR);
	const uint64_t iova = (1L << 40) + 8, offset = 4096 + 8, length = 8192;
	struct pair p;

	MAKE_PAIR(&p, RC);
	NEED(memory >= 0 && maker >= 0 && !ftruncate(memory, wanted.size) && !fcntl(memory, F_ADD_SEALS, F_SEAL_SHRINK));
	wanted.memory = memory;
	int fd = ioctl(maker, _IOW('u', 0x42, wanted), &wanted);
	NEED(fd >= 0);
	uint8_t *bytes = mmap(NULL, wanted.size, PROT_READ | PROT_WRITE, MAP_SHARED, memory, 0);
	NEED(bytes != MAP_FAILED);

	const struct {
		uint64_t offset, length, iova;
		int fd, error;
	} wrongs[] = {
		{ offset, length, iova, -1, EBADF }, { offset, length, iova, memory, EINVAL },
		{ offset, wanted.size, iova, fd, EINVAL }, { offset, length, iova + 1, fd, EINVAL },
	};
	for (int i = 0; i < 4; i++) {
		errno = 0;
		NEED(!ibv_reg_dmabuf_mr(pd, wrongs[i].offset, wrongs[i].length, wrongs[i].iova, wrongs[i].fd, ALL_RIGHTS));
		EQUAL(errno, wrongs[i].error);
	}

	struct ibv_mr *mr = ibv_reg_dmabuf_mr(pd, offset, length, iova, fd, ALL_RIGHTS);
	NEED(mr);
	/* The region keeps the memory. */
	EQUAL(close(fd), 0);
	fill(&p.a, 0, 5000, 3);
	use(&p.a, 1, IBV_WR_RDMA_WRITE, 0, 5000, iova + 777, mr->rkey);
	good(p.a.out, 1, IBV_WC_RDMA_WRITE);
	NEED(!memcmp(bytes + offset + 777, p.a.bytes, 5000));
	memset(bytes + offset, 0x5a, 100);
	use(&p.a, 2, IBV_WR_RDMA_READ, 6000, 100, iova, mr->rkey);
	good(p.a.out, 2, IBV_WC_RDMA_READ);
	NEED(!memcmp(p.a.bytes + 6000, bytes + offset, 100));

	/* On this side: messages are sent from this memory and received into it. */
	struct ibv_sge own = { iova + 8000, 100, mr->lkey };
	memset(bytes + offset + 8000, 0xa5, 100);
	post_receive(&p.b, 3, 0, 100);
	struct ibv_send_wr wr = { .wr_id = 4, .sg_list = &own, .num_sge = 1, .opcode = IBV_WR_SEND,
				  .send_flags = IBV_SEND_SIGNALED };
	post(&p.a, &wr);
	good(p.a.out, 4, IBV_WC_SEND);
	received(&p.b, 3, IBV_WC_RECV, 100);
	NEED(!memcmp(p.b.bytes, bytes + offset + 8000, 100));
	struct ibv_recv_wr room = { .wr_id = 5, .sg_list = &own, .num_sge = 1 }, *bad_room;
	EQUAL(ibv_post_recv(p.a.qp, &room, &bad_room), 0);
	memset(p.b.bytes, 0x77, 100);
	SEND(&p.b, 6, 0, 100);
	good(p.b.out, 6, IBV_WC_SEND);
	received(&p.a, 5, IBV_WC_RECV, 100);
	NEED(!memcmp(p.b.bytes, bytes + offset + 8000, 100));

	refused(&p, IBV_WR_RDMA_WRITE, iova + length - 7, mr->rkey);
	drop(&p);
	EQUAL(ibv_dereg_mr(mr), 0);
	munmap(bytes, wanted.size), close(memory), close(maker);
}
