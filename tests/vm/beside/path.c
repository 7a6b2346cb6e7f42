// What posting and polling cost in user space, through whichever libibverbs the loader finds: see README.md.
//
//     path messages DEVICE   instructions, system calls and calls of the allocator, of each operation, with messages over a
//                            reliable connection
//     path frames DEVICE     the same with raw Ethernet frames, which the wire has to bring back
//     path start DEVICE N    nanoseconds until a new process has the device open: the least of N processes
//     path open DEVICE       opens the device and prints the time by the clock; for `start`, and to be seen by strace

#include "rows.h"

#include <errno.h>
#include <inttypes.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

enum { MANY = 16, DEPTH = 256, MESSAGE = 32, FRAME = 60 };
// The bytes of a global header before a received datagram, a queue key, and microseconds in which everything that was posted certainly
// completes.
enum { HEADER = 40, QKEY = 0x11, SURELY = 20000 };

// A queue pair that sends to itself, one that does so with receives from a shared queue, one for datagrams, and requests for them.
static struct ibv_cq_ex *sent, *received;
static struct ibv_qp *qp, *sharing, *datagrams;
static struct ibv_qp_ex *extended, *extended_datagrams;
static struct ibv_ah *ah;
static struct ibv_srq *shared;
static struct ibv_mr *mr;
static struct ibv_sge room, bytes, wide;
static struct ibv_recv_wr receives[MANY];
static struct ibv_send_wr sends[MANY];
static struct ibv_wc completions[MANY];
// A message consists of no more than the first bytes of this. A frame has the address for which `bring_up` directs frames to the queue
// pair.
static char message[FRAME] = {2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 1, 0x88, 0xb5};
static uint32_t size;

static struct ibv_cq_ex *create_cq(struct ibv_context *context)
{
    struct ibv_cq_init_attr_ex attr = {.cqe = DEPTH, .wc_flags = IBV_WC_EX_WITH_BYTE_LEN};
    struct ibv_cq_ex *cq = ibv_create_cq_ex(context, &attr);
    check(cq != NULL, "ibv_create_cq_ex");
    return cq;
}

// A raw packet queue pair receives the frames for its address.
static void bring_up(void)
{
    raw_to_ready(qp);
    struct {
        struct ibv_flow_attr attr;
        struct ibv_flow_spec_eth eth;
    } rule = {
        .attr = {.type = IBV_FLOW_ATTR_NORMAL, .size = sizeof rule, .num_of_specs = 1, .port = PORT},
        .eth = {.type = IBV_FLOW_SPEC_ETH, .size = sizeof rule.eth},
    };
    memcpy(rule.eth.val.dst_mac, message, 6);
    memset(rule.eth.mask.dst_mac, 0xff, 6);
    check(ibv_create_flow(qp, &rule.attr) != NULL, "ibv_create_flow");
}

static void make(const char *device, int has_frames)
{
    size = has_frames ? FRAME : MESSAGE;
    struct ibv_context *context = open_device(device);
    struct ibv_pd *pd = ibv_alloc_pd(context);
    check(pd != NULL, "ibv_alloc_pd");
    void *memory = aligned_alloc(4096, 4096);
    memcpy(memory, message, size);
    int access = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ;
    mr = ibv_reg_mr(pd, memory, 4096, access);
    check(mr != NULL, "ibv_reg_mr");
    sent = create_cq(context);
    received = create_cq(context);
    struct ibv_qp_init_attr_ex attr = {
        .send_cq = ibv_cq_ex_to_cq(sent),
        .recv_cq = ibv_cq_ex_to_cq(received),
        .cap = {DEPTH, DEPTH, 1, 1, size},
        .qp_type = has_frames ? IBV_QPT_RAW_PACKET : IBV_QPT_RC,
        .comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS,
        .pd = pd,
        .send_ops_flags =
            IBV_QP_EX_WITH_SEND | (has_frames ? 0 : IBV_QP_EX_WITH_RDMA_WRITE | IBV_QP_EX_WITH_RDMA_READ),
    };
    qp = ibv_create_qp_ex(context, &attr);
    check(qp != NULL, "ibv_create_qp_ex");
    extended = ibv_qp_to_qp_ex(qp);
    check(extended != NULL, "ibv_qp_to_qp_ex");
    room = (struct ibv_sge){(uintptr_t)memory, size, mr->lkey};
    bytes = (struct ibv_sge){(uintptr_t)message, size, 0};
    wide = (struct ibv_sge){(uintptr_t)memory + 1024, HEADER + size, mr->lkey};
    if (has_frames) {
        bring_up();
        return;
    }
    union ibv_gid gid;
    check(!ibv_query_gid(context, PORT, gid_index(), &gid), "ibv_query_gid");
    to_ready(qp, &gid);
    struct ibv_srq_init_attr shared_attr = {.attr = {.max_wr = DEPTH, .max_sge = 1}};
    shared = ibv_create_srq(pd, &shared_attr);
    check(shared != NULL, "ibv_create_srq");
    attr.srq = shared;
    sharing = ibv_create_qp_ex(context, &attr);
    check(sharing != NULL, "ibv_create_qp_ex");
    to_ready(sharing, &gid);
    attr.srq = NULL;
    // Receives, which the queue pair before has none of.
    attr.cap = (struct ibv_qp_cap){DEPTH, DEPTH, 1, 1, size};
    attr.qp_type = IBV_QPT_UD;
    attr.send_ops_flags = IBV_QP_EX_WITH_SEND;
    datagrams = ibv_create_qp_ex(context, &attr);
    check(datagrams != NULL, "ibv_create_qp_ex");
    extended_datagrams = ibv_qp_to_qp_ex(datagrams);
    check(extended_datagrams != NULL, "ibv_qp_to_qp_ex");
    datagrams_to_ready(datagrams, QKEY);
    struct ibv_ah_attr way = route(&gid);
    ah = ibv_create_ah(pd, &way);
    check(ah != NULL, "ibv_create_ah");
}

// A list of `count` requests.
static void prepare(int count, struct ibv_sge *data, unsigned flags)
{
    for (int i = 0; i < count; i++) {
        int is_last = i + 1 == count;
        receives[i] = (struct ibv_recv_wr){i, is_last ? NULL : &receives[i + 1], &room, 1};
        sends[i] = (struct ibv_send_wr){
            .wr_id = i,
            .next = is_last ? NULL : &sends[i + 1],
            .sg_list = data,
            .num_sge = 1,
            .opcode = IBV_WR_SEND,
            .send_flags = IBV_SEND_SIGNALED | flags,
        };
    }
}

// The same for the memory after the first part, or for the queue pair of datagrams.
static void prepare_remote(int count, enum ibv_wr_opcode opcode)
{
    prepare(count, &room, 0);
    for (int i = 0; i < count; i++) {
        sends[i].opcode = opcode;
        sends[i].wr.rdma.remote_addr = room.addr + 2048;
        sends[i].wr.rdma.rkey = mr->rkey;
    }
}

static void prepare_datagrams(int count)
{
    prepare(count, &room, 0);
    for (int i = 0; i < count; i++) {
        receives[i].sg_list = &wide;
        sends[i].wr.ud.ah = ah;
        sends[i].wr.ud.remote_qpn = datagrams->qp_num;
        sends[i].wr.ud.remote_qkey = QKEY;
    }
}

static void post_receives(struct ibv_qp *qp)
{
    struct ibv_recv_wr *bad;
    check(!ibv_post_recv(qp, receives, &bad), "ibv_post_recv");
}

static void post_sends(struct ibv_qp *qp)
{
    struct ibv_send_wr *bad;
    check(!ibv_post_send(qp, sends, &bad), "ibv_post_send");
}

static void post_shared(void)
{
    struct ibv_recv_wr *bad;
    check(!ibv_post_srq_recv(shared, receives, &bad), "ibv_post_srq_recv");
}

static void wr_sends(int count, int is_inline)
{
    ibv_wr_start(extended);
    for (int i = 0; i < count; i++) {
        extended->wr_id = i;
        // librxe does not set the second flag by itself.
        extended->wr_flags = IBV_SEND_SIGNALED | (is_inline ? IBV_SEND_INLINE : 0);
        ibv_wr_send(extended);
        if (is_inline)
            ibv_wr_set_inline_data(extended, message, size);
        else
            ibv_wr_set_sge(extended, room.lkey, room.addr, size);
    }
    check(!ibv_wr_complete(extended), "ibv_wr_complete");
}

static void wr_remote(int count, int is_read)
{
    ibv_wr_start(extended);
    for (int i = 0; i < count; i++) {
        extended->wr_id = i;
        extended->wr_flags = IBV_SEND_SIGNALED;
        if (is_read)
            ibv_wr_rdma_read(extended, mr->rkey, room.addr + 2048);
        else
            ibv_wr_rdma_write(extended, mr->rkey, room.addr + 2048);
        ibv_wr_set_sge(extended, room.lkey, room.addr, size);
    }
    check(!ibv_wr_complete(extended), "ibv_wr_complete");
}

static void wr_datagrams(int count)
{
    ibv_wr_start(extended_datagrams);
    for (int i = 0; i < count; i++) {
        extended_datagrams->wr_id = i;
        extended_datagrams->wr_flags = IBV_SEND_SIGNALED;
        ibv_wr_send(extended_datagrams);
        ibv_wr_set_ud_addr(extended_datagrams, ah, datagrams->qp_num, QKEY);
        ibv_wr_set_sge(extended_datagrams, room.lkey, room.addr, size);
    }
    check(!ibv_wr_complete(extended_datagrams), "ibv_wr_complete");
}

static void poll(int count)
{
    check(ibv_poll_cq(ibv_cq_ex_to_cq(received), count, completions) == count, "ibv_poll_cq");
}

static void poll_extended(int count)
{
    struct ibv_poll_cq_attr attr = {0};
    check(!ibv_start_poll(received, &attr), "ibv_start_poll");
    for (int i = 0; i < count; i++) {
        check(!i || !ibv_next_poll(received), "ibv_next_poll");
        check(received->status == IBV_WC_SUCCESS && ibv_wc_read_byte_len(received) == size, "a receive");
    }
    ibv_end_poll(received);
}

static void poll_nothing(void)
{
    check(!ibv_poll_cq(ibv_cq_ex_to_cq(received), 1, completions), "ibv_poll_cq");
}

static void poll_nothing_extended(void)
{
    struct ibv_poll_cq_attr attr = {0};
    check(ibv_start_poll(received, &attr) == ENOENT, "ibv_start_poll");
}

static void settle_in(struct ibv_cq_ex *cq, int count)
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

// Waits until everything that was sent is acknowledged. Then everything has been received too, except datagrams.
static void settle(int count)
{
    settle_in(sent, count);
}

// Polls once for everything that completes. If something has not come by then it is waited for, and the poll does not count.
static void poll_when_there(const char *name, struct ibv_cq_ex *cq, int count)
{
    int taken = 0;
    if (is_warm) {
        struct cost *least = row(name), cost = {0};
        usleep(SURELY);
        begin();
        taken = ibv_poll_cq(ibv_cq_ex_to_cq(cq), count, completions);
        end(&cost);
        check(taken >= 0, "ibv_poll_cq");
        if (taken == count && (!least->instructions || cost.instructions < least->instructions))
            *least = cost;
    }
    settle_in(cq, count - taken);
}

// Operations on remote memory, and datagrams.
static void turn_others(void)
{
    for (int is_many = 0; is_many <= 1; is_many++) {
        int count = is_many ? MANY : 1;
        for (int is_read = 0; is_read <= 1; is_read++) {
            static const char *const names[2][2][3] = {
                {{"post write", "poll write", "wr_rdma_write"}, {"post read", "poll read", "wr_rdma_read"}},
                {{"post write 16", "poll write 16", "wr_rdma_write 16"},
                 {"post read 16", "poll read 16", "wr_rdma_read 16"}},
            };
            const char *const *name = names[is_many][is_read];
            prepare_remote(count, is_read ? IBV_WR_RDMA_READ : IBV_WR_RDMA_WRITE);
            COUNTED(name[0], post_sends(qp));
            poll_when_there(name[1], sent, count);
            COUNTED(name[2], wr_remote(count, is_read));
            settle(count);
        }
        prepare_datagrams(count);
        post_receives(datagrams);
        COUNTED(is_many ? "post datagram 16" : "post datagram", post_sends(datagrams));
        settle(count);
        poll_when_there(is_many ? "poll datagram 16" : "poll datagram", received, count);
        post_receives(datagrams);
        COUNTED(is_many ? "wr_send 16, datagram" : "wr_send, datagram", wr_datagrams(count));
        settle(count);
        settle_in(received, count);
    }
}

static void turn(void)
{
    COUNTED("nothing", (void)0);
    prepare(1, &bytes, IBV_SEND_INLINE);
    COUNTED("post receive", post_receives(qp));
    COUNTED("post send, inline", post_sends(qp));
    settle(1);
    COUNTED("poll", poll(1));
    prepare(1, &room, 0);
    COUNTED("post receive", post_receives(qp));
    COUNTED("post send", post_sends(qp));
    settle(1);
    COUNTED("poll, extended", poll_extended(1));
    prepare(MANY, &bytes, IBV_SEND_INLINE);
    COUNTED("post receive 16", post_receives(qp));
    COUNTED("post send 16, inline", post_sends(qp));
    settle(MANY);
    COUNTED("poll 16", poll(MANY));
    prepare(MANY, &room, 0);
    COUNTED("post receive 16", post_receives(qp));
    COUNTED("post send 16", post_sends(qp));
    settle(MANY);
    COUNTED("poll 16, extended", poll_extended(MANY));
    for (int is_inline = 0; is_inline <= 1; is_inline++) {
        prepare(1, &bytes, 0);
        COUNTED("post receive", post_receives(qp));
        COUNTED(is_inline ? "wr_send, inline" : "wr_send", wr_sends(1, is_inline));
        settle(1);
        COUNTED("poll", poll(1));
        prepare(MANY, &bytes, 0);
        COUNTED("post receive 16", post_receives(qp));
        COUNTED(is_inline ? "wr_send 16, inline" : "wr_send 16", wr_sends(MANY, is_inline));
        settle(MANY);
        COUNTED("poll 16", poll(MANY));
    }
    COUNTED("poll empty", poll_nothing());
    COUNTED("poll empty, extended", poll_nothing_extended());
    for (int count = 1; shared && count <= MANY; count += MANY - 1) {
        prepare(count, &room, 0);
        COUNTED(count == 1 ? "post shared receive" : "post shared receive 16", post_shared());
        post_sends(sharing);
        settle(count);
        COUNTED(count == 1 ? "poll shared receive" : "poll shared receive 16", poll(count));
    }
    if (datagrams)
        turn_others();
}

static void measure(const char *device, int has_frames)
{
    make(device, has_frames);
    count_turns(turn);
}

static int64_t until_open(char *program, char *device)
{
    int ends[2], status;
    int64_t opened;
    check(!pipe(ends), "pipe");
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, ends[1], STDOUT_FILENO);
    char *arguments[] = {program, "open", device, NULL};
    extern char **environ;
    pid_t child;
    int64_t begun = now();
    check(!posix_spawn(&child, program, &actions, NULL, arguments, environ), "posix_spawn");
    check(waitpid(child, &status, 0) == child && !status, "waitpid");
    char text[32] = "";
    check(read(ends[0], text, sizeof text - 1) > 0 && sscanf(text, "%" SCNd64, &opened) == 1, "its time");
    close(ends[0]);
    close(ends[1]);
    posix_spawn_file_actions_destroy(&actions);
    return opened - begun;
}

int main(int argc, char **argv)
{
    if (argc == 3 && !strcmp(argv[1], "messages")) {
        measure(argv[2], 0);
    } else if (argc == 3 && !strcmp(argv[1], "frames")) {
        measure(argv[2], 1);
    } else if (argc == 3 && !strcmp(argv[1], "open")) {
        open_device(argv[2]);
        printf("%" PRId64 "\n", now());
    } else if (argc == 4 && !strcmp(argv[1], "start")) {
        int64_t least = INT64_MAX;
        for (int i = 0; i < atoi(argv[3]); i++) {
            int64_t spent = until_open(argv[0], argv[2]);
            least = spent < least ? spent : least;
        }
        printf("start: %" PRId64 "\n", least);
    } else {
        fprintf(stderr, "usage: path messages DEVICE | frames DEVICE | start DEVICE N | open DEVICE\n");
        return 2;
    }
    return 0;
}
