// What posting and polling cost on an EFA, through whichever libibverbs and libefa the loader finds: over reliable datagrams, which
// libibverbs does not have, and over UD. `datagrams.rs` does the same in Rust, with the same names.
//
//     efa DEVICE   a line `name: cost system-calls allocations locked-instructions` of each operation
//
// Requests have at most two pieces, and 32 bytes of inline data, or 80 in wide slots, which libefa has had since rdma-core 60. Reads and
// writes exist only after ibv_wr_start; older libefa does not have writes. Those rows are left out where they cannot be.

#include "rows.h"

#include <infiniband/efadv.h>

enum { WIDEST = 80 };

static struct ibv_pd *pd;
static struct ibv_mr *mr;
static struct ibv_ah *ah;
static struct pair {
    struct ibv_qp *qp;
    struct ibv_qp_ex *extended;
    struct ibv_cq_ex *sent, *received;
} own, narrow, wide, datagrams, both, several[PAIRS];
static int has_writes;
static struct ibv_sge room, bytes, pieces[2], parts[2], headed;
static struct ibv_data_buf buffers[2];
static struct ibv_recv_wr receives[MANY];
static struct ibv_send_wr sends[MANY];
static struct ibv_wc completions[MANY];
static char message[128] __attribute__((aligned(64)));

static struct ibv_cq_ex *create_cq(void)
{
    struct ibv_cq_init_attr_ex attr = {.cqe = 2 * DEPTH, .wc_flags = IBV_WC_EX_WITH_BYTE_LEN};
    struct ibv_cq_ex *cq = ibv_create_cq_ex(pd->context, &attr);
    check(cq != NULL, "ibv_create_cq_ex");
    return cq;
}

// A queue pair for reliable datagrams, or for UD. `qp` is NULL if there is none of this form.
static struct pair create(enum ibv_qp_type type, int segments, int inline_bytes, uint64_t operations,
                          struct ibv_cq_ex *sent, struct ibv_cq_ex *received)
{
    struct ibv_qp_init_attr_ex attr = {
        .send_cq = ibv_cq_ex_to_cq(sent),
        .recv_cq = ibv_cq_ex_to_cq(received),
        .cap = {DEPTH, DEPTH, segments, 1, inline_bytes},
        .qp_type = type,
        .comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS,
        .pd = pd,
        .send_ops_flags = IBV_QP_EX_WITH_SEND | operations,
    };
    struct efadv_qp_init_attr reliable = {.driver_qp_type = EFADV_QP_DRIVER_TYPE_SRD};
    struct pair pair = {.sent = sent, .received = received};
    pair.qp = type == IBV_QPT_DRIVER ? efadv_create_qp_ex(pd->context, &attr, &reliable, sizeof reliable)
                                     : ibv_create_qp_ex(pd->context, &attr);
    if (!pair.qp)
        return pair;
    pair.extended = ibv_qp_to_qp_ex(pair.qp);
    check(pair.extended != NULL, "ibv_qp_to_qp_ex");
    datagrams_to_ready(pair.qp, QKEY);
    return pair;
}

static struct pair create_reliable(int segments, struct ibv_cq_ex *sent, struct ibv_cq_ex *received)
{
    struct pair pair = create(IBV_QPT_DRIVER, segments, MESSAGE, IBV_QP_EX_WITH_RDMA_READ, sent, received);
    check(pair.qp != NULL, "a queue pair for reliable datagrams");
    return pair;
}

static void make(const char *device)
{
    struct ibv_context *context = open_device(device);
    pd = ibv_alloc_pd(context);
    check(pd != NULL, "ibv_alloc_pd");
    char *memory = aligned_alloc(4096, 4096);
    mr = ibv_reg_mr(pd, memory, 4096, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ);
    check(mr != NULL, "ibv_reg_mr");
    struct ibv_ah_attr way = {.is_global = 1, .port_num = PORT};
    check(!ibv_query_gid(context, PORT, 0, &way.grh.dgid), "ibv_query_gid");
    ah = ibv_create_ah(pd, &way);
    check(ah != NULL, "ibv_create_ah");
    uint64_t remote = IBV_QP_EX_WITH_RDMA_READ | IBV_QP_EX_WITH_RDMA_WRITE;
    struct ibv_cq_ex *sent = create_cq(), *received = create_cq();
    own = create(IBV_QPT_DRIVER, 1, MESSAGE, remote, sent, received);
    has_writes = own.qp != NULL;
    if (!has_writes)
        own = create_reliable(1, sent, received);
    narrow = create_reliable(2, create_cq(), create_cq());
    wide = create(IBV_QPT_DRIVER, 2, WIDEST, IBV_QP_EX_WITH_RDMA_READ, create_cq(), create_cq());
    datagrams = create(IBV_QPT_UD, 1, MESSAGE, 0, create_cq(), create_cq());
    check(datagrams.qp != NULL, "a queue pair for datagrams");
    struct ibv_cq_ex *common = create_cq();
    both = create_reliable(1, common, common);
    sent = create_cq(), received = create_cq();
    for (int i = 0; i < PAIRS; i++)
        several[i] = create_reliable(1, sent, received);
    room = (struct ibv_sge){(uintptr_t)memory, MESSAGE, mr->lkey};
    bytes = (struct ibv_sge){(uintptr_t)message, MESSAGE, 0};
    for (int i = 0; i < 2; i++) {
        pieces[i] = (struct ibv_sge){(uintptr_t)memory + 64 * i, i ? 48 : 16, mr->lkey};
        parts[i] = (struct ibv_sge){(uintptr_t)message + 64 * i, 16, 0};
        buffers[i] = (struct ibv_data_buf){message + 64 * i, 16};
    }
    headed = (struct ibv_sge){(uintptr_t)memory + 1024, HEADER + WIDEST, mr->lkey};
}

// A list of `count` requests to a queue pair, and of as many receives.
static void prepare(int count, struct pair *to, struct ibv_sge *data, int number, unsigned flags)
{
    for (int i = 0; i < count; i++) {
        int is_last = i + 1 == count;
        receives[i] = (struct ibv_recv_wr){i, is_last ? NULL : &receives[i + 1], &headed, 1};
        sends[i] = (struct ibv_send_wr){
            .wr_id = i,
            .next = is_last ? NULL : &sends[i + 1],
            .sg_list = data,
            .num_sge = number,
            .opcode = IBV_WR_SEND,
            .send_flags = IBV_SEND_SIGNALED | flags,
            .wr.ud = {.ah = ah, .remote_qpn = to->qp->qp_num, .remote_qkey = QKEY},
        };
    }
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

// What a request after `ibv_wr_start` does, and what it has for data.
enum operation { SEND, READ, WRITE };
enum data { ONE, INLINE, LIST, INLINE_LIST };

static inline void wr(struct pair *pair, int count, enum operation operation, enum data data)
{
    struct ibv_qp_ex *qp = pair->extended;
    ibv_wr_start(qp);
    for (int i = 0; i < count; i++) {
        qp->wr_id = i;
        qp->wr_flags = IBV_SEND_SIGNALED;
        if (operation == SEND)
            ibv_wr_send(qp);
        else if (operation == READ)
            ibv_wr_rdma_read(qp, mr->rkey, room.addr + 2048);
        else
            ibv_wr_rdma_write(qp, mr->rkey, room.addr + 2048);
        ibv_wr_set_ud_addr(qp, ah, pair->qp->qp_num, QKEY);
        if (data == ONE)
            ibv_wr_set_sge(qp, room.lkey, room.addr, MESSAGE);
        else if (data == INLINE)
            ibv_wr_set_inline_data(qp, message, MESSAGE);
        else if (data == LIST)
            ibv_wr_set_sge_list(qp, 2, pieces);
        else
            ibv_wr_set_inline_data_list(qp, 2, buffers);
    }
    check(!ibv_wr_complete(qp), "ibv_wr_complete");
}

// The device executes what was posted; then its completions are taken.
static void settle(struct pair *pair)
{
    sched_yield();
    struct ibv_cq_ex *queues[2] = {pair->sent, pair->received};
    for (int i = 0; i < 2; i++) {
        int taken;
        do {
            taken = ibv_poll_cq(ibv_cq_ex_to_cq(queues[i]), MANY, completions);
            for (int j = 0; j < taken; j++)
                check(completions[j].status == IBV_WC_SUCCESS, ibv_wc_status_str(completions[j].status));
        } while (taken > 0);
        check(!taken, "ibv_poll_cq");
    }
}

static void turn_of(int count)
{
    prepare(count, &own, &room, 1, 0);
    ROW(BOTH("post receive"), count, post_receives(own.qp));
    ROW(BOTH("post send"), count, post_sends(own.qp));
    sched_yield();
    ROW(BOTH("poll sent"), count, poll(own.sent, count, count));
    ROW(BOTH("poll"), count, poll(own.received, count, count));
    ROW(NULL, count, post_receives(own.qp));
    ROW(BOTH("wr_send"), count, wr(&own, count, SEND, ONE));
    sched_yield();
    ROW(BOTH("poll, extended"), count, poll_extended(own.received, count));
    settle(&own);
    prepare(count, &own, &bytes, 1, IBV_SEND_INLINE);
    ROW(NULL, count, post_receives(own.qp));
    ROW(BOTH("post send, inline"), count, post_sends(own.qp));
    settle(&own);
    ROW(NULL, count, post_receives(own.qp));
    ROW(BOTH("wr_send, inline"), count, wr(&own, count, SEND, INLINE));
    settle(&own);
    ROW(BOTH("wr_rdma_read"), count, wr(&own, count, READ, ONE));
    sched_yield();
    ROW(BOTH("poll read"), count, poll(own.sent, count, count));
    if (!has_writes)
        return;
    ROW(BOTH("wr_rdma_write"), count, wr(&own, count, WRITE, ONE));
    sched_yield();
    ROW(BOTH("poll write"), count, poll(own.sent, count, count));
}

static void turn_pieces(int count)
{
    static const struct {
        uint32_t length;
        const char *names[2];
    } sizes[] = {
        {1, {"post send, inline 1", "post send, inline 1 16"}},
        {8, {"post send, inline 8", "post send, inline 8 16"}},
        {64, {"post send, inline 64", "post send, inline 64 16"}},
        {WIDEST, {"post send, inline 80", "post send, inline 80 16"}},
    };
    prepare(count, &narrow, pieces, 2, 0);
    ROW(NULL, count, post_receives(narrow.qp));
    ROW(BOTH("post send, 2 pieces"), count, post_sends(narrow.qp));
    settle(&narrow);
    ROW(NULL, count, post_receives(narrow.qp));
    ROW(BOTH("wr_send, 2 pieces"), count, wr(&narrow, count, SEND, LIST));
    settle(&narrow);
    prepare(count, &narrow, parts, 2, IBV_SEND_INLINE);
    ROW(NULL, count, post_receives(narrow.qp));
    ROW(BOTH("post send, inline, 2 pieces"), count, post_sends(narrow.qp));
    settle(&narrow);
    ROW(NULL, count, post_receives(narrow.qp));
    ROW(BOTH("wr_send, inline, 2 pieces"), count, wr(&narrow, count, SEND, INLINE_LIST));
    settle(&narrow);
    for (unsigned i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        struct ibv_sge some = {(uintptr_t)message, sizes[i].length, 0};
        struct pair *pair = sizes[i].length > MESSAGE ? &wide : &narrow;
        if (!pair->qp)
            continue;
        prepare(count, pair, &some, 1, IBV_SEND_INLINE);
        ROW(NULL, count, post_receives(pair->qp));
        ROW(sizes[i].names[count > 1], count, post_sends(pair->qp));
        settle(pair);
    }
}

static void turn_datagrams(int count)
{
    prepare(count, &datagrams, &room, 1, 0);
    ROW(NULL, count, post_receives(datagrams.qp));
    ROW(BOTH("post datagram"), count, post_sends(datagrams.qp));
    sched_yield();
    ROW(BOTH("poll datagram"), count, poll(datagrams.received, count, count));
    settle(&datagrams);
    ROW(NULL, count, post_receives(datagrams.qp));
    ROW(BOTH("wr_send, datagram"), count, wr(&datagrams, count, SEND, ONE));
    settle(&datagrams);
}

// Polls of what is not all of one kind, or of one queue pair.
static void turn_polls(void)
{
    prepare(2, &own, &room, 1, 0);
    ROW(NULL, 2, post_receives(own.qp));
    ROW(NULL, 2, post_sends(own.qp));
    sched_yield();
    ROW("poll 2", 2, poll(own.received, 2, 2));
    settle(&own);
    prepare(1, &both, &room, 1, 0);
    ROW(NULL, 2, post_receives(both.qp));
    ROW(NULL, 2, post_sends(both.qp));
    sched_yield();
    ROW("poll 2, a send and a receive", 2, poll(both.sent, 2, 2));
    // Four messages, and twelve requests in all.
    prepare(4, &both, &room, 1, 0);
    ROW(NULL, MANY, post_receives(both.qp));
    ROW(NULL, MANY, post_sends(both.qp));
    ROW(NULL, MANY, wr(&both, 8, READ, ONE));
    sched_yield();
    ROW("poll 16, of several kinds", MANY, poll(both.sent, MANY, MANY));
    settle(&both);
    for (int i = 0; i < MANY * burst(MANY); i++) {
        struct pair *pair = &several[i % PAIRS];
        prepare(1, pair, &room, 1, 0);
        post_receives(pair->qp);
        post_sends(pair->qp);
        sched_yield();
    }
    ROW("poll 16, of queue pairs in turn", MANY, poll(several->received, MANY, MANY));
    settle(several);
    ROW("poll empty", 1, poll(own.received, 1, 0));
    ROW("poll empty, extended", 1, poll_nothing_extended(own.received));
}

static void turn(void)
{
    for (int count = 1; count <= MANY; count += MANY - 1) {
        turn_of(count);
        turn_pieces(count);
        turn_datagrams(count);
    }
    turn_polls();
}

int main(int argc, char **argv)
{
    if (argc != 2) {
        fprintf(stderr, "usage: efa DEVICE\n");
        return 2;
    }
    is_clock = getenv("PLAYED_CLOCK") != NULL;
    make(argv[1]);
    measure(turn);
    return 0;
}
