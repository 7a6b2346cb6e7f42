// What posting and polling cost in user space on an EFA, through whichever libibverbs and libefa the loader finds: see README.md.
//
//     efa efa DEVICE   instructions, system calls and calls of the allocator, of each operation, over reliable datagrams and over UD

#include "rows.h"

#include <errno.h>
#include <infiniband/efadv.h>
#include <unistd.h>

enum { MANY = 16, DEPTH = 256, MESSAGE = 32, QKEY = 0x11 };
// Microseconds in which everything that was posted certainly completes.
enum { SURELY = 20000 };

static struct ibv_pd *pd;
static struct ibv_mr *mr;
static struct ibv_ah *ah;
static struct ibv_sge room, bytes, wide;
static struct ibv_recv_wr receives[MANY];
static struct ibv_send_wr sends[MANY];
static struct ibv_wc completions[MANY];
static char message[MESSAGE] = "message";

// A queue pair that sends to itself, with reliable datagrams or with UD.
struct side {
    struct ibv_cq_ex *sent, *received;
    struct ibv_qp *qp;
    struct ibv_qp_ex *extended;
};

static struct ibv_cq_ex *create_cq(void)
{
    struct ibv_cq_init_attr_ex attr = {.cqe = DEPTH, .wc_flags = IBV_WC_EX_WITH_BYTE_LEN};
    struct ibv_cq_ex *cq = ibv_create_cq_ex(pd->context, &attr);
    check(cq != NULL, "ibv_create_cq_ex");
    return cq;
}

static struct side make(int is_reliable)
{
    struct side side = {.sent = create_cq(), .received = create_cq()};
    struct ibv_qp_init_attr_ex attr = {
        .send_cq = ibv_cq_ex_to_cq(side.sent),
        .recv_cq = ibv_cq_ex_to_cq(side.received),
        .cap = {DEPTH, DEPTH, 1, 1, MESSAGE},
        .qp_type = is_reliable ? IBV_QPT_DRIVER : IBV_QPT_UD,
        .comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS,
        .pd = pd,
        .send_ops_flags = IBV_QP_EX_WITH_SEND | (is_reliable ? IBV_QP_EX_WITH_RDMA_READ : 0),
    };
    struct efadv_qp_init_attr reliable = {.driver_qp_type = EFADV_QP_DRIVER_TYPE_SRD};
    side.qp = is_reliable ? efadv_create_qp_ex(pd->context, &attr, &reliable, sizeof reliable)
                          : ibv_create_qp_ex(pd->context, &attr);
    check(side.qp != NULL, "a queue pair");
    side.extended = ibv_qp_to_qp_ex(side.qp);
    check(side.extended != NULL, "ibv_qp_to_qp_ex");
    datagrams_to_ready(side.qp, QKEY);
    return side;
}

static void prepare(struct side *side, int count, struct ibv_sge *data, unsigned flags)
{
    for (int i = 0; i < count; i++) {
        int is_last = i + 1 == count;
        receives[i] = (struct ibv_recv_wr){i, is_last ? NULL : &receives[i + 1], &wide, 1};
        sends[i] = (struct ibv_send_wr){
            .wr_id = i,
            .next = is_last ? NULL : &sends[i + 1],
            .sg_list = data,
            .num_sge = 1,
            .opcode = IBV_WR_SEND,
            .send_flags = IBV_SEND_SIGNALED | flags,
            .wr.ud = {.ah = ah, .remote_qpn = side->qp->qp_num, .remote_qkey = QKEY},
        };
    }
}

static void post_receives(struct side *side)
{
    struct ibv_recv_wr *bad;
    check(!ibv_post_recv(side->qp, receives, &bad), "ibv_post_recv");
}

static void post_sends(struct side *side)
{
    struct ibv_send_wr *bad;
    check(!ibv_post_send(side->qp, sends, &bad), "ibv_post_send");
}

static void wr_sends(struct side *side, int count, int is_inline)
{
    struct ibv_qp_ex *qp = side->extended;
    ibv_wr_start(qp);
    for (int i = 0; i < count; i++) {
        qp->wr_id = i;
        qp->wr_flags = IBV_SEND_SIGNALED;
        ibv_wr_send(qp);
        ibv_wr_set_ud_addr(qp, ah, side->qp->qp_num, QKEY);
        if (is_inline)
            ibv_wr_set_inline_data(qp, message, MESSAGE);
        else
            ibv_wr_set_sge(qp, room.lkey, room.addr, MESSAGE);
    }
    check(!ibv_wr_complete(qp), "ibv_wr_complete");
}

static void wr_reads(struct side *side, int count)
{
    struct ibv_qp_ex *qp = side->extended;
    ibv_wr_start(qp);
    for (int i = 0; i < count; i++) {
        qp->wr_id = i;
        qp->wr_flags = IBV_SEND_SIGNALED;
        ibv_wr_rdma_read(qp, mr->rkey, room.addr + 2048);
        ibv_wr_set_ud_addr(qp, ah, side->qp->qp_num, QKEY);
        ibv_wr_set_sge(qp, room.lkey, room.addr, MESSAGE);
    }
    check(!ibv_wr_complete(qp), "ibv_wr_complete");
}

static void settle(struct ibv_cq_ex *cq, int count)
{
    while (count > 0) {
        int taken = ibv_poll_cq(ibv_cq_ex_to_cq(cq), MANY, completions);
        check(taken >= 0, "ibv_poll_cq");
        for (int i = 0; i < taken; i++)
            check(completions[i].status == IBV_WC_SUCCESS, ibv_wc_status_str(completions[i].status));
        count -= taken;
        if (!taken)
            sched_yield();
    }
}

static int poll_extended(struct ibv_cq_ex *cq, int count)
{
    struct ibv_poll_cq_attr attr = {0};
    int taken = 0;
    if (ibv_start_poll(cq, &attr))
        return 0;
    do {
        taken++;
        check(cq->status == IBV_WC_SUCCESS && ibv_wc_read_byte_len(cq) >= MESSAGE, "a completion");
    } while (taken < count && !ibv_next_poll(cq));
    ibv_end_poll(cq);
    return taken;
}

// Polls once for everything that completes. If something has not come by then it is waited for, and the poll does not count.
static void poll_when_there(const char *name, struct ibv_cq_ex *cq, int count, int is_extended)
{
    int taken = 0;
    if (is_warm) {
        struct cost *least = row(name), cost = {0};
        usleep(SURELY);
        if (is_extended) {
            begin();
            taken = poll_extended(cq, count);
            end(&cost);
        } else {
            begin();
            taken = ibv_poll_cq(ibv_cq_ex_to_cq(cq), count, completions);
            end(&cost);
        }
        check(taken >= 0, "ibv_poll_cq");
        if (taken == count && (!least->instructions || cost.instructions < least->instructions))
            *least = cost;
    }
    settle(cq, count - taken);
}

static struct side reliable, unreliable;

// The names of the rows of one side, for `count` requests at a time.
struct names {
    const char *post, *post_inline, *wr, *wr_inline, *poll, *poll_extended, *poll_sent;
};

static void messages(struct side *side, int count, const struct names *names)
{
    for (int is_inline = 0; is_inline <= 1; is_inline++) {
        prepare(side, count, is_inline ? &bytes : &room, is_inline ? IBV_SEND_INLINE : 0);
        COUNTED(count == 1 ? "post receive" : "post receive 16", post_receives(side));
        COUNTED(is_inline ? names->post_inline : names->post, post_sends(side));
        settle(side->sent, count);
        poll_when_there(names->poll, side->received, count, 0);
        post_receives(side);
        COUNTED(is_inline ? names->wr_inline : names->wr, wr_sends(side, count, is_inline));
        poll_when_there(names->poll_sent, side->sent, count, 0);
        poll_when_there(names->poll_extended, side->received, count, 1);
    }
}

static void turn(void)
{
    static const struct names names[2][2] = {
        {{"post send", "post send, inline", "wr_send", "wr_send, inline", "poll", "poll, extended", "poll sent"},
         {"post send 16", "post send 16, inline", "wr_send 16", "wr_send 16, inline", "poll 16", "poll 16, extended",
          "poll sent 16"}},
        {{"post datagram", "post datagram, inline", "wr_send, datagram", "wr_send, datagram, inline", "poll datagram",
          "poll datagram, extended", "poll sent datagram"},
         {"post datagram 16", "post datagram 16, inline", "wr_send 16, datagram", "wr_send 16, datagram, inline",
          "poll datagram 16", "poll datagram 16, extended", "poll sent datagram 16"}},
    };
    COUNTED("nothing", (void)0);
    for (int is_many = 0; is_many <= 1; is_many++) {
        int count = is_many ? MANY : 1;
        messages(&reliable, count, &names[0][is_many]);
        messages(&unreliable, count, &names[1][is_many]);
        COUNTED(is_many ? "wr_rdma_read 16" : "wr_rdma_read", wr_reads(&reliable, count));
        poll_when_there(is_many ? "poll read 16" : "poll read", reliable.sent, count, 0);
    }
    COUNTED("poll empty", check(!ibv_poll_cq(ibv_cq_ex_to_cq(reliable.received), 1, completions), "ibv_poll_cq"));
    struct ibv_poll_cq_attr attr = {0};
    COUNTED("poll empty, extended", check(ibv_start_poll(reliable.received, &attr) == ENOENT, "ibv_start_poll"));
}

int main(int argc, char **argv)
{
    if (argc != 3 || strcmp(argv[1], "efa")) {
        fprintf(stderr, "usage: efa efa DEVICE\n");
        return 2;
    }
    struct ibv_context *context = open_device(argv[2]);
    pd = ibv_alloc_pd(context);
    check(pd != NULL, "ibv_alloc_pd");
    char *memory = aligned_alloc(4096, 4096);
    mr = ibv_reg_mr(pd, memory, 4096, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ);
    check(mr != NULL, "ibv_reg_mr");
    room = (struct ibv_sge){(uintptr_t)memory, MESSAGE, mr->lkey};
    bytes = (struct ibv_sge){(uintptr_t)message, MESSAGE, 0};
    // Has room for the header of a datagram.
    wide = (struct ibv_sge){(uintptr_t)memory + 1024, 40 + MESSAGE, mr->lkey};
    struct ibv_ah_attr way = {.is_global = 1, .port_num = PORT};
    check(!ibv_query_gid(context, PORT, 0, &way.grh.dgid), "ibv_query_gid");
    ah = ibv_create_ah(pd, &way);
    check(ah != NULL, "ibv_create_ah");
    reliable = make(1);
    unreliable = make(0);
    count_turns(turn);
    return 0;
}
