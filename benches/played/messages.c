// What posting and polling cost through whichever libibverbs the loader finds, on a device that is played in this process.
// `messages.rs` does the same in Rust, with the same names.
//
//     messages DEVICE   a line `name: cost system-calls allocations locked-instructions` of each operation

#include "rows.h"

// The most inline data, on iWARP and elsewhere.
enum { LARGEST_OF_IWARP = 80, LARGEST = 200, PIECES = 4 };

static struct ibv_context *context;
// libsiw has neither extended interfaces nor datagrams: those rows are left out.
static int is_iwarp;
static struct ibv_pd *pd;
static struct ibv_mr *mr;
static struct ibv_srq *shared;
static struct ibv_ah *ah;
// For requests of one piece, of several, with a shared queue, for datagrams; one that completes everything in one queue; several in turn.
static struct pair {
    struct ibv_qp *qp;
    struct ibv_qp_ex *extended;
    struct ibv_cq_ex *sent, *received;
} own, wide, sharing, datagrams, both, several[PAIRS];
static union ibv_gid gid;
static struct ibv_sge room, bytes, pieces[PIECES], parts[2], large, headed;
static struct ibv_data_buf buffers[2];
static struct ibv_recv_wr receives[MANY];
static struct ibv_send_wr sends[MANY];
static struct ibv_wc completions[MANY];
static char message[256] __attribute__((aligned(64)));

static struct ibv_cq_ex *create_cq(void)
{
    if (is_iwarp) {
        struct ibv_cq *plain = ibv_create_cq(context, 2 * DEPTH, NULL, NULL, 0);
        check(plain != NULL, "ibv_create_cq");
        return (struct ibv_cq_ex *)plain;
    }
    struct ibv_cq_init_attr_ex attr = {.cqe = 2 * DEPTH, .wc_flags = IBV_WC_EX_WITH_BYTE_LEN};
    struct ibv_cq_ex *cq = ibv_create_cq_ex(context, &attr);
    check(cq != NULL, "ibv_create_cq_ex");
    return cq;
}

static struct pair create(enum ibv_qp_type type, struct ibv_qp_cap cap, struct ibv_cq_ex *sent,
                          struct ibv_cq_ex *received, struct ibv_srq *srq)
{
    struct ibv_qp_init_attr_ex attr = {
        .send_cq = ibv_cq_ex_to_cq(sent),
        .recv_cq = ibv_cq_ex_to_cq(received),
        .srq = srq,
        .cap = cap,
        .qp_type = type,
        .comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS,
        .pd = pd,
        .send_ops_flags =
            IBV_QP_EX_WITH_SEND | (type == IBV_QPT_RC ? IBV_QP_EX_WITH_RDMA_WRITE | IBV_QP_EX_WITH_RDMA_READ : 0),
    };
    if (is_iwarp)
        attr.comp_mask = IBV_QP_INIT_ATTR_PD;
    struct pair pair = {ibv_create_qp_ex(context, &attr), NULL, sent, received};
    check(pair.qp != NULL, "ibv_create_qp_ex");
    pair.extended = is_iwarp ? NULL : ibv_qp_to_qp_ex(pair.qp);
    if (type == IBV_QPT_RC)
        to_ready(pair.qp, &gid);
    else
        datagrams_to_ready(pair.qp, QKEY);
    return pair;
}

static void make(const char *device)
{
    context = open_device(device);
    is_iwarp = context->device->node_type == IBV_NODE_RNIC;
    pd = ibv_alloc_pd(context);
    check(pd != NULL, "ibv_alloc_pd");
    check(!ibv_query_gid(context, PORT, gid_index(), &gid), "ibv_query_gid");
    char *memory = aligned_alloc(4096, 4096);
    mr = ibv_reg_mr(pd, memory, 4096, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ);
    check(mr != NULL, "ibv_reg_mr");
    struct ibv_srq_init_attr shared_attr = {.attr = {.max_wr = DEPTH, .max_sge = 1}};
    shared = ibv_create_srq(pd, &shared_attr);
    check(shared != NULL, "ibv_create_srq");
    struct ibv_qp_cap one = {DEPTH, DEPTH, 1, 1, MESSAGE}, more = {DEPTH, DEPTH, PIECES, 1, LARGEST};
    if (is_iwarp)
        more.max_inline_data = LARGEST_OF_IWARP;
    own = create(IBV_QPT_RC, one, create_cq(), create_cq(), NULL);
    wide = create(IBV_QPT_RC, more, create_cq(), create_cq(), NULL);
    sharing = create(IBV_QPT_RC, one, create_cq(), create_cq(), shared);
    if (!is_iwarp)
        datagrams = create(IBV_QPT_UD, one, create_cq(), create_cq(), NULL);
    struct ibv_cq_ex *common = create_cq();
    both = create(IBV_QPT_RC, one, common, common, NULL);
    struct ibv_cq_ex *sent = create_cq(), *received = create_cq();
    for (int i = 0; i < PAIRS; i++)
        several[i] = create(IBV_QPT_RC, one, sent, received, NULL);
    struct ibv_ah_attr way = route(&gid);
    ah = is_iwarp ? NULL : ibv_create_ah(pd, &way);
    check(is_iwarp || ah, "ibv_create_ah");
    room = (struct ibv_sge){(uintptr_t)memory, MESSAGE, mr->lkey};
    bytes = (struct ibv_sge){(uintptr_t)message, MESSAGE, 0};
    for (int i = 0; i < PIECES; i++)
        pieces[i] = (struct ibv_sge){(uintptr_t)memory + 64 * i, i ? 48 : 16, mr->lkey};
    // A header and a payload.
    parts[0] = (struct ibv_sge){(uintptr_t)message, 16, 0};
    parts[1] = (struct ibv_sge){(uintptr_t)message + 64, 48, 0};
    for (int i = 0; i < 2; i++)
        buffers[i] = (struct ibv_data_buf){(void *)(uintptr_t)parts[i].addr, parts[i].length};
    large = (struct ibv_sge){(uintptr_t)memory + 1024, 512, mr->lkey};
    headed = (struct ibv_sge){(uintptr_t)memory + 1024, HEADER + MESSAGE, mr->lkey};
}

// A list of `count` requests, and of as many receives.
static void prepare(int count, struct ibv_sge *data, int number, unsigned flags)
{
    for (int i = 0; i < count; i++) {
        int is_last = i + 1 == count;
        receives[i] = (struct ibv_recv_wr){i, is_last ? NULL : &receives[i + 1], data == &room ? &room : &large, 1};
        sends[i] = (struct ibv_send_wr){
            .wr_id = i,
            .next = is_last ? NULL : &sends[i + 1],
            .sg_list = data,
            .num_sge = number,
            .opcode = IBV_WR_SEND,
            .send_flags = IBV_SEND_SIGNALED | flags,
        };
    }
}

// For the memory after the first part, with an operation for each.
static void set_remote(int at, enum ibv_wr_opcode opcode)
{
    sends[at].opcode = opcode;
    sends[at].wr.rdma.remote_addr = room.addr + 2048;
    sends[at].wr.rdma.rkey = mr->rkey;
}

static inline void post_receives(struct ibv_qp *qp)
{
    struct ibv_recv_wr *bad;
    check(!ibv_post_recv(qp, receives, &bad), "ibv_post_recv");
}

static inline void post_sends(struct ibv_qp *qp)
{
    struct ibv_send_wr *bad;
    check(!ibv_post_send(qp, sends, &bad), "ibv_post_send");
}

static inline void post_shared(void)
{
    struct ibv_recv_wr *bad;
    check(!ibv_post_srq_recv(shared, receives, &bad), "ibv_post_srq_recv");
}

static inline void poll(struct ibv_cq_ex *cq, int count, int found)
{
    check(ibv_poll_cq(ibv_cq_ex_to_cq(cq), count, completions) == found, "ibv_poll_cq");
}

static inline void poll_extended(struct ibv_cq_ex *cq, int count)
{
    struct ibv_poll_cq_attr attr = {0};
    check(!ibv_start_poll(cq, &attr), "ibv_start_poll");
    for (int i = 0; i < count; i++) {
        check(!i || !ibv_next_poll(cq), "ibv_next_poll");
        check(cq->status == IBV_WC_SUCCESS && ibv_wc_read_byte_len(cq) == MESSAGE, "a receive");
    }
    ibv_end_poll(cq);
}

static inline void poll_nothing_extended(struct ibv_cq_ex *cq)
{
    struct ibv_poll_cq_attr attr = {0};
    check(ibv_start_poll(cq, &attr) == ENOENT, "ibv_start_poll");
}

// What a request after `ibv_wr_start` has for data.
enum data { ONE, INLINE, LIST, INLINE_LIST };

static inline void wr_set(struct ibv_qp_ex *qp, enum data data)
{
    if (data == ONE)
        ibv_wr_set_sge(qp, room.lkey, room.addr, MESSAGE);
    else if (data == INLINE)
        ibv_wr_set_inline_data(qp, message, MESSAGE);
    else if (data == LIST)
        ibv_wr_set_sge_list(qp, 2, pieces);
    else
        ibv_wr_set_inline_data_list(qp, 2, buffers);
}

static inline void wr_sends(struct ibv_qp_ex *qp, int count, enum data data)
{
    ibv_wr_start(qp);
    for (int i = 0; i < count; i++) {
        qp->wr_id = i;
        // librxe does not set the second flag by itself.
        qp->wr_flags = IBV_SEND_SIGNALED | (data == INLINE || data == INLINE_LIST ? IBV_SEND_INLINE : 0);
        ibv_wr_send(qp);
        wr_set(qp, data);
    }
    check(!ibv_wr_complete(qp), "ibv_wr_complete");
}

static inline void wr_remote(struct ibv_qp_ex *qp, int count, int is_read)
{
    ibv_wr_start(qp);
    for (int i = 0; i < count; i++) {
        qp->wr_id = i;
        qp->wr_flags = IBV_SEND_SIGNALED;
        if (is_read)
            ibv_wr_rdma_read(qp, mr->rkey, room.addr + 2048);
        else
            ibv_wr_rdma_write(qp, mr->rkey, room.addr + 2048);
        wr_set(qp, ONE);
    }
    check(!ibv_wr_complete(qp), "ibv_wr_complete");
}

static inline void wr_datagrams(struct ibv_qp_ex *qp, int count)
{
    ibv_wr_start(qp);
    for (int i = 0; i < count; i++) {
        qp->wr_id = i;
        qp->wr_flags = IBV_SEND_SIGNALED;
        ibv_wr_send(qp);
        ibv_wr_set_ud_addr(qp, ah, datagrams.qp->qp_num, QKEY);
        wr_set(qp, ONE);
    }
    check(!ibv_wr_complete(qp), "ibv_wr_complete");
}

// The device executes what was posted; then its completions are taken.
static void settle_in(struct ibv_cq_ex *cq)
{
    sched_yield();
    int taken;
    do {
        taken = ibv_poll_cq(ibv_cq_ex_to_cq(cq), MANY, completions);
        for (int i = 0; i < taken; i++)
            check(completions[i].status == IBV_WC_SUCCESS, ibv_wc_status_str(completions[i].status));
    } while (taken > 0);
    check(!taken, "ibv_poll_cq");
}

static void settle(struct pair *pair)
{
    settle_in(pair->sent);
    settle_in(pair->received);
}

static void turn_of(int count)
{
    prepare(count, &room, 1, 0);
    ROW(BOTH("post receive"), count, post_receives(own.qp));
    ROW(BOTH("post send"), count, post_sends(own.qp));
    sched_yield();
    ROW(BOTH("poll sent"), count, poll(own.sent, count, count));
    ROW(BOTH("poll"), count, poll(own.received, count, count));
    if (!is_iwarp) {
        ROW(NULL, count, post_receives(own.qp));
        ROW(BOTH("wr_send"), count, wr_sends(own.extended, count, ONE));
        sched_yield();
        ROW(BOTH("poll, extended"), count, poll_extended(own.received, count));
    }
    settle(&own);
    prepare(count, &bytes, 1, IBV_SEND_INLINE);
    ROW(NULL, count, post_receives(own.qp));
    ROW(BOTH("post send, inline"), count, post_sends(own.qp));
    settle(&own);
    if (is_iwarp)
        return;
    ROW(NULL, count, post_receives(own.qp));
    ROW(BOTH("wr_send, inline"), count, wr_sends(own.extended, count, INLINE));
    settle(&own);
}

static void turn_pieces(int count)
{
    prepare(count, pieces, 2, 0);
    ROW(NULL, count, post_receives(wide.qp));
    ROW(BOTH("post send, 2 pieces"), count, post_sends(wide.qp));
    settle(&wide);
    if (!is_iwarp) {
        ROW(NULL, count, post_receives(wide.qp));
        ROW(BOTH("wr_send, 2 pieces"), count, wr_sends(wide.extended, count, LIST));
        settle(&wide);
    }
    prepare(count, pieces, PIECES, 0);
    ROW(NULL, count, post_receives(wide.qp));
    ROW(BOTH("post send, 4 pieces"), count, post_sends(wide.qp));
    settle(&wide);
    prepare(count, parts, 2, IBV_SEND_INLINE);
    ROW(NULL, count, post_receives(wide.qp));
    ROW(BOTH("post send, inline, 2 pieces"), count, post_sends(wide.qp));
    settle(&wide);
    if (!is_iwarp) {
        ROW(NULL, count, post_receives(wide.qp));
        ROW(BOTH("wr_send, inline, 2 pieces"), count, wr_sends(wide.extended, count, INLINE_LIST));
        settle(&wide);
    }
    static const struct {
        uint32_t length;
        const char *names[2];
    } sizes[] = {
        {1, {"post send, inline 1", "post send, inline 1 16"}},
        {8, {"post send, inline 8", "post send, inline 8 16"}},
        {64, {"post send, inline 64", "post send, inline 64 16"}},
        {LARGEST_OF_IWARP, {"post send, inline 80", "post send, inline 80 16"}},
        {128, {"post send, inline 128", "post send, inline 128 16"}},
        {LARGEST, {"post send, inline 200", "post send, inline 200 16"}},
    };
    for (unsigned i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        if (is_iwarp ? sizes[i].length > LARGEST_OF_IWARP : sizes[i].length == LARGEST_OF_IWARP)
            continue;
        struct ibv_sge some = {(uintptr_t)message, sizes[i].length, 0};
        prepare(count, &some, 1, IBV_SEND_INLINE);
        ROW(NULL, count, post_receives(wide.qp));
        ROW(sizes[i].names[count > 1], count, post_sends(wide.qp));
        settle(&wide);
    }
}

static void turn_others(int count)
{
    prepare(count, &room, 1, 0);
    ROW(BOTH("post shared receive"), count, post_shared());
    ROW(NULL, count, post_sends(sharing.qp));
    sched_yield();
    ROW(BOTH("poll shared receive"), count, poll(sharing.received, count, count));
    settle(&sharing);
    for (int is_read = 0; is_read <= 1; is_read++) {
        for (int i = 0; i < count; i++)
            set_remote(i, is_read ? IBV_WR_RDMA_READ : IBV_WR_RDMA_WRITE);
        ROW(is_read ? BOTH("post read") : BOTH("post write"), count, post_sends(own.qp));
        sched_yield();
        ROW(is_read ? BOTH("poll read") : BOTH("poll write"), count, poll(own.sent, count, count));
        if (!is_iwarp)
            ROW(is_read ? BOTH("wr_rdma_read") : BOTH("wr_rdma_write"), count, wr_remote(own.extended, count, is_read));
        settle(&own);
    }
    if (is_iwarp)
        return;
    prepare(count, &room, 1, 0);
    for (int i = 0; i < count; i++) {
        receives[i].sg_list = &headed;
        sends[i].wr.ud.ah = ah;
        sends[i].wr.ud.remote_qpn = datagrams.qp->qp_num;
        sends[i].wr.ud.remote_qkey = QKEY;
    }
    ROW(NULL, count, post_receives(datagrams.qp));
    ROW(BOTH("post datagram"), count, post_sends(datagrams.qp));
    sched_yield();
    ROW(BOTH("poll datagram"), count, poll(datagrams.received, count, count));
    settle(&datagrams);
    ROW(NULL, count, post_receives(datagrams.qp));
    ROW(BOTH("wr_send, datagram"), count, wr_datagrams(datagrams.extended, count));
    settle(&datagrams);
}

// Polls of what is not all of one kind, or of one queue pair.
static void turn_polls(void)
{
    prepare(2, &room, 1, 0);
    ROW(NULL, 2, post_receives(own.qp));
    ROW(NULL, 2, post_sends(own.qp));
    sched_yield();
    ROW("poll 2", 2, poll(own.received, 2, 2));
    settle(&own);
    prepare(1, &room, 1, 0);
    ROW(NULL, 2, post_receives(both.qp));
    ROW(NULL, 2, post_sends(both.qp));
    sched_yield();
    ROW("poll 2, a send and a receive", 2, poll(both.sent, 2, 2));
    // Four messages, and twelve requests in all.
    prepare(4, &room, 1, 0);
    ROW(NULL, MANY, post_receives(both.qp));
    prepare(12, &room, 1, 0);
    for (int i = 0; i < 12; i++) {
        if (i < 8 && i % 4 == 1) {
            sends[i].sg_list = &bytes;
            sends[i].send_flags |= IBV_SEND_INLINE;
        } else if (i >= 8 || i % 4 > 1) {
            set_remote(i, i % 2 ? IBV_WR_RDMA_READ : IBV_WR_RDMA_WRITE);
        }
    }
    ROW(NULL, MANY, post_sends(both.qp));
    sched_yield();
    ROW("poll 16, of several kinds", MANY, poll(both.sent, MANY, MANY));
    settle(&both);
    prepare(1, &room, 1, 0);
    for (int i = 0; i < MANY * burst(MANY); i++) {
        post_receives(several[i % PAIRS].qp);
        post_sends(several[i % PAIRS].qp);
        sched_yield();
    }
    ROW("poll 16, of queue pairs in turn", MANY, poll(several->received, MANY, MANY));
    settle(several);
    ROW("poll empty", 1, poll(own.received, 1, 0));
    if (!is_iwarp)
        ROW("poll empty, extended", 1, poll_nothing_extended(own.received));
}

static void turn(void)
{
    for (int count = 1; count <= MANY; count += MANY - 1) {
        turn_of(count);
        turn_pieces(count);
        turn_others(count);
    }
    turn_polls();
}

int main(int argc, char **argv)
{
    if (argc != 2) {
        fprintf(stderr, "usage: messages DEVICE\n");
        return 2;
    }
    is_clock = getenv("PLAYED_CLOCK") != NULL;
    make(argv[1]);
    measure(turn);
    return 0;
}
