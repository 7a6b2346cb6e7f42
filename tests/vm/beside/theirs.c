// The operations of src/operations.rs through libibverbs, measured in the same way; see README.md.
//
//     theirs clock                    passes if the clock counts instructions
//     theirs instructions DEVICE N    instructions of each operation: the least of N batches
//     theirs calls DEVICE             each operation once between two marks, to be seen by strace

#include "device.h"

#include <unistd.h>

enum { BATCH = 10, MANY = 16, DEPTH = 256, INLINE = 32, PAGE = 4096, ROWS = 64 };

static struct row {
    const char *name;
    int64_t least;
} rows[ROWS];

static int marking; // marks for strace instead of instructions
static int marked;  // the operations are warm: now they are marked
static int batch = BATCH;

static void mark(const char *side, const char *name)
{
    char path[64];
    snprintf(path, sizeof path, "/beside/%s/%s", side, name);
    if (marked)
        access(path, F_OK);
}

static int64_t begin(const char *name)
{
    if (!marking)
        return now();
    mark("begin", name);
    return 0;
}

static void end(const char *name, int64_t begun)
{
    int64_t spent = marking ? 0 : now() - begun;
    if (marking)
        mark("end", name);
    for (struct row *row = rows; row < rows + ROWS; row++) {
        if (!row->name)
            *row = (struct row){name, spent};
        if (strcmp(row->name, name))
            continue;
        if (spent < row->least)
            row->least = spent;
        return;
    }
    check(0, "rows");
}

// One operation, `batch` times.
#define TIMED(name, ...)                                                                                               \
    do {                                                                                                               \
        int64_t begun = begin(name);                                                                                   \
        for (int i = 0; i < batch; i++)                                                                                \
            __VA_ARGS__;                                                                                               \
        end(name, begun);                                                                                              \
    } while (0)

// One object for each turn of a batch.
static struct ibv_context *contexts[BATCH];
static struct ibv_pd *pds[BATCH];
static void *memory[BATCH];
static struct ibv_mr *mrs[BATCH];
static struct ibv_comp_channel *channels[BATCH];
static struct ibv_cq *cqs[BATCH];
static struct ibv_qp *qps[BATCH];
static struct ibv_ah *ahs[BATCH];
static struct ibv_srq *srqs[BATCH];
static struct ibv_mw *mws[BATCH];

// Not a constant, so that the C library clears the memory, as ours does.
static volatile size_t page = PAGE;

static void register_page(struct ibv_pd *pd, int i)
{
    memory[i] = aligned_alloc(page, page);
    check(memory[i] != NULL, "aligned_alloc");
    memset(memory[i], 0, page);
    mrs[i] = ibv_reg_mr(pd, memory[i], PAGE, IBV_ACCESS_LOCAL_WRITE);
    check(mrs[i] != NULL, "ibv_reg_mr");
}

static void deregister_page(int i)
{
    check(!ibv_dereg_mr(mrs[i]), "ibv_dereg_mr");
    free(memory[i]);
}

static struct ibv_qp *create_qp(struct ibv_pd *pd, enum ibv_qp_type type, struct ibv_cq *send_cq,
                                struct ibv_cq *recv_cq)
{
    struct ibv_qp_init_attr attr = {
        .send_cq = send_cq,
        .recv_cq = recv_cq,
        .qp_type = type,
        .cap = {.max_send_wr = DEPTH,
                .max_recv_wr = DEPTH,
                .max_send_sge = 1,
                .max_recv_sge = 1,
                .max_inline_data = INLINE},
    };
    struct ibv_qp *qp = ibv_create_qp(pd, &attr);
    check(qp != NULL, "ibv_create_qp");
    return qp;
}

static void control(const char *device)
{
    TIMED("open", contexts[i] = open_device(device));
    struct ibv_context *context = contexts[0];
    struct ibv_device_attr_ex device_attr;
    TIMED("query_device", check(!ibv_query_device_ex(context, NULL, &device_attr), "ibv_query_device_ex"));
    struct ibv_port_attr port_attr;
    TIMED("query_port", check(!ibv_query_port(context, PORT, &port_attr), "ibv_query_port"));

    TIMED("create_pd", check((pds[i] = ibv_alloc_pd(context)) != NULL, "ibv_alloc_pd"));
    struct ibv_pd *pd = pds[0];
    TIMED("create_mr", register_page(pd, i));
    TIMED("destroy_mr", deregister_page(i));
    TIMED("create_channel", check((channels[i] = ibv_create_comp_channel(context)) != NULL, "channel"));
    TIMED("create_cq", check((cqs[i] = ibv_create_cq(context, DEPTH, NULL, NULL, 0)) != NULL, "ibv_create_cq"));
    TIMED("create_qp_rc", qps[i] = create_qp(pd, IBV_QPT_RC, cqs[0], cqs[0]));
    union ibv_gid gid;
    check(!ibv_query_gid(context, PORT, GID_INDEX, &gid), "ibv_query_gid");
    TIMED("modify_to_rts", to_ready(qps[i], &gid));
    TIMED("destroy_qp_rc", check(!ibv_destroy_qp(qps[i]), "ibv_destroy_qp"));
    TIMED("create_qp_ud", qps[i] = create_qp(pd, IBV_QPT_UD, cqs[0], cqs[0]));
    TIMED("destroy_qp_ud", check(!ibv_destroy_qp(qps[i]), "ibv_destroy_qp"));
    struct ibv_srq_init_attr shared = { .attr = { .max_wr = DEPTH, .max_sge = 1 } };
    TIMED("create_srq", check((srqs[i] = ibv_create_srq(pd, &shared)) != NULL, "ibv_create_srq"));
    TIMED("destroy_srq", check(!ibv_destroy_srq(srqs[i]), "ibv_destroy_srq"));
    TIMED("create_mw", check((mws[i] = ibv_alloc_mw(pd, IBV_MW_TYPE_2)) != NULL, "ibv_alloc_mw"));
    TIMED("destroy_mw", check(!ibv_dealloc_mw(mws[i]), "ibv_dealloc_mw"));
    struct ibv_ah_attr way = route(&gid);
    TIMED("create_ah", check((ahs[i] = ibv_create_ah(pd, &way)) != NULL, "ibv_create_ah"));
    TIMED("destroy_ah", check(!ibv_destroy_ah(ahs[i]), "ibv_destroy_ah"));
    TIMED("destroy_cq", check(!ibv_destroy_cq(cqs[i]), "ibv_destroy_cq"));
    TIMED("destroy_channel", check(!ibv_destroy_comp_channel(channels[i]), "ibv_destroy_comp_channel"));
    TIMED("destroy_pd", check(!ibv_dealloc_pd(pds[i]), "ibv_dealloc_pd"));
    TIMED("close", check(!ibv_close_device(contexts[i]), "ibv_close_device"));
}

// A queue pair connected to itself, and requests for it.
static struct loop {
    struct ibv_cq *sent, *received, *idle;
    struct ibv_qp *qp;
    struct ibv_sge room, bytes;
    struct ibv_recv_wr recv[MANY];
    struct ibv_send_wr send[MANY];
} loop;

static char message[INLINE];

static void make_loop(const char *device)
{
    struct ibv_context *context = open_device(device);
    struct ibv_pd *pd = ibv_alloc_pd(context);
    check(pd != NULL, "ibv_alloc_pd");
    register_page(pd, 0);
    struct ibv_comp_channel *channel = ibv_create_comp_channel(context);
    check(channel != NULL, "ibv_create_comp_channel");
    loop.sent = ibv_create_cq(context, DEPTH, NULL, NULL, 0);
    loop.received = ibv_create_cq(context, DEPTH, NULL, NULL, 0);
    loop.idle = ibv_create_cq(context, DEPTH, NULL, channel, 0);
    check(loop.sent && loop.received && loop.idle, "ibv_create_cq");
    loop.qp = create_qp(pd, IBV_QPT_RC, loop.sent, loop.received);
    union ibv_gid gid;
    check(!ibv_query_gid(context, PORT, GID_INDEX, &gid), "ibv_query_gid");
    to_ready(loop.qp, &gid);
    loop.room = (struct ibv_sge){(uintptr_t)memory[0], INLINE, mrs[0]->lkey};
    loop.bytes = (struct ibv_sge){(uintptr_t)message, INLINE, 0};
    for (int i = 0; i < MANY; i++) {
        loop.recv[i] = (struct ibv_recv_wr){.wr_id = i, .sg_list = &loop.room, .num_sge = 1};
        loop.send[i] = (struct ibv_send_wr){
            .wr_id = i,
            .sg_list = &loop.bytes,
            .num_sge = 1,
            .opcode = IBV_WR_SEND,
            .send_flags = IBV_SEND_SIGNALED | IBV_SEND_INLINE,
        };
    }
}

static void link_requests(int count)
{
    for (int i = 0; i < MANY; i++) {
        loop.recv[i].next = i + 1 < count ? &loop.recv[i + 1] : NULL;
        loop.send[i].next = i + 1 < count ? &loop.send[i + 1] : NULL;
    }
}

static void post_receive(void)
{
    struct ibv_recv_wr *bad;
    check(!ibv_post_recv(loop.qp, loop.recv, &bad), "ibv_post_recv");
}

static void post_send(void)
{
    struct ibv_send_wr *bad;
    check(!ibv_post_send(loop.qp, loop.send, &bad), "ibv_post_send");
}

static struct ibv_wc completions[MANY];

// Waits until everything that was sent is acknowledged, so that everything has been received too.
static void settle(int count)
{
    while (count > 0) {
        int taken = ibv_poll_cq(loop.sent, MANY, completions);
        check(taken >= 0, "ibv_poll_cq");
        for (int i = 0; i < taken; i++)
            check(completions[i].status == IBV_WC_SUCCESS, "a send");
        count -= taken;
        if (!taken)
            sched_yield();
    }
}

static void data(int many, const char *receive, const char *send, const char *poll)
{
    link_requests(many);
    TIMED(receive, post_receive());
    TIMED(send, post_send());
    settle(many * batch);
    TIMED(poll, check(ibv_poll_cq(loop.received, many, completions) == many, "ibv_poll_cq"));
    check(completions[0].status == IBV_WC_SUCCESS, "a receive");
}

static int clock_counts_instructions(void)
{
    const int64_t wanted = 2000000;
    int64_t least = INT64_MAX, empty = INT64_MAX;
    for (int i = 0; i < 100; i++) {
        int64_t count = wanted / 2, begun = now();
        __asm__ volatile("1: dec %0\n jnz 1b" : "+r"(count));
        int64_t spent = now() - begun;
        least = spent < least ? spent : least;
        begun = now();
        spent = now() - begun;
        empty = spent < empty ? spent : empty;
    }
    printf("%ld instructions took %ld ns by the clock\n", (long)wanted, (long)(least - empty));
    return labs(least - empty - wanted) > 50;
}

int main(int argc, char **argv)
{
    if (argc == 2 && !strcmp(argv[1], "clock"))
        return clock_counts_instructions();
    marking = argc == 3 && !strcmp(argv[1], "calls");
    if (!marking && (argc != 4 || strcmp(argv[1], "instructions"))) {
        fprintf(stderr, "usage: theirs clock | instructions DEVICE BATCHES | calls DEVICE\n");
        return 2;
    }
    const char *device = argv[2];
    int batches = marking ? 2 : atoi(argv[3]);
    if (marking)
        batch = 1;
    make_loop(device);
    for (int i = 0; i < batches; i++) {
        marked = marking && i + 1 == batches;
        int64_t nothing = begin("clock");
        end("clock", nothing);
        control(device);
        data(1, "post_receive", "post_send", "poll");
        data(MANY, "post_receive_16", "post_send_16", "poll_16");
        TIMED("poll_empty", check(ibv_poll_cq(loop.idle, 1, completions) == 0, "ibv_poll_cq"));
        TIMED("notify", check(!ibv_req_notify_cq(loop.idle, 0), "ibv_req_notify_cq"));
    }
    int64_t clock = 0;
    for (struct row *row = rows; !marking && row->name; row++) {
        if (!strcmp(row->name, "clock"))
            clock = row->least;
    }
    for (struct row *row = rows; !marking && row->name; row++) {
        if (strcmp(row->name, "clock"))
            printf("%s %ld\n", row->name, (long)((row->least - clock + BATCH / 2) / BATCH));
    }
    return 0;
}
