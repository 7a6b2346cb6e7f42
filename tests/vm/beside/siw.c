// What posting and polling cost in user space on the software iWARP device, through whichever libibverbs the loader finds: see README.md.
// librdmacm connects two queue pairs of this process. libsiw has no extended interfaces, so there are only rows for the plain ones.
//
//     siw ADDRESS   instructions, system calls and calls of the allocator, of each operation

#include "rows.h"

#include <arpa/inet.h>
#include <rdma/rdma_cma.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum { MANY = 16, DEPTH = 256, MESSAGE = 32, SURELY = 20000 };

static struct rdma_event_channel *channel;
static struct rdma_cm_id *here, *there;
static struct ibv_pd *pd;
static struct ibv_cq *sent, *received;
static struct ibv_srq *shared;
static struct ibv_mr *mr;
static char memory[4096], message[MESSAGE] = "message";
static struct ibv_sge room, bytes;
static struct ibv_recv_wr receives[MANY];
static struct ibv_send_wr sends[MANY];
static struct ibv_wc completions[MANY];

static struct rdma_cm_id *expect(enum rdma_cm_event_type wanted)
{
    struct rdma_cm_event *event;
    check(!rdma_get_cm_event(channel, &event), "rdma_get_cm_event");
    if (event->event != wanted) {
        fprintf(stderr, "%s, not %s\n", rdma_event_str(event->event), rdma_event_str(wanted));
        exit(1);
    }
    struct rdma_cm_id *id = event->id;
    rdma_ack_cm_event(event);
    return id;
}

static void make_qp(struct rdma_cm_id *id, struct ibv_srq *srq)
{
    struct ibv_qp_init_attr attr = {
        .send_cq = sent,
        .recv_cq = received,
        .srq = srq,
        .cap = {DEPTH, DEPTH, 1, 1, MESSAGE},
        .qp_type = IBV_QPT_RC,
    };
    check(!rdma_create_qp(id, pd, &attr), "rdma_create_qp");
}

// Two connected queue pairs. If there is a shared queue, the second takes its receives from it.
static void join(const char *host, int port, int is_sharing)
{
    struct rdma_cm_id *server;
    struct sockaddr_in place = {.sin_family = AF_INET, .sin_port = htons(port)};
    struct rdma_conn_param parameters = {.responder_resources = 8, .initiator_depth = 8};
    check(inet_pton(AF_INET, host, &place.sin_addr) == 1, "an address");
    channel = rdma_create_event_channel();
    check(channel != NULL, "rdma_create_event_channel");
    check(!rdma_create_id(channel, &server, NULL, RDMA_PS_TCP), "rdma_create_id");
    check(!rdma_bind_addr(server, (struct sockaddr *)&place) && !rdma_listen(server, 1), "rdma_listen");
    check(!rdma_create_id(channel, &here, NULL, RDMA_PS_TCP), "rdma_create_id");
    check(!rdma_resolve_addr(here, NULL, (struct sockaddr *)&place, 5000), "rdma_resolve_addr");
    expect(RDMA_CM_EVENT_ADDR_RESOLVED);
    check(!rdma_resolve_route(here, 5000), "rdma_resolve_route");
    expect(RDMA_CM_EVENT_ROUTE_RESOLVED);
    if (!pd) {
        pd = ibv_alloc_pd(here->verbs);
        check(pd != NULL, "ibv_alloc_pd");
        sent = ibv_create_cq(here->verbs, DEPTH, NULL, NULL, 0);
        received = ibv_create_cq(here->verbs, DEPTH, NULL, NULL, 0);
        check(sent && received, "ibv_create_cq");
        mr = ibv_reg_mr(pd, memory, sizeof memory,
                        IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ);
        check(mr != NULL, "ibv_reg_mr");
        struct ibv_srq_init_attr attr = {.attr = {.max_wr = DEPTH, .max_sge = 1}};
        shared = ibv_create_srq(pd, &attr);
        check(shared != NULL, "ibv_create_srq");
    }
    make_qp(here, NULL);
    check(!rdma_connect(here, &parameters), "rdma_connect");
    there = expect(RDMA_CM_EVENT_CONNECT_REQUEST);
    make_qp(there, is_sharing ? shared : NULL);
    check(!rdma_accept(there, &parameters), "rdma_accept");
    expect(RDMA_CM_EVENT_ESTABLISHED);
    expect(RDMA_CM_EVENT_ESTABLISHED);
    room = (struct ibv_sge){(uintptr_t)memory, MESSAGE, mr->lkey};
    bytes = (struct ibv_sge){(uintptr_t)message, MESSAGE, 0};
}

static void prepare(int count, enum ibv_wr_opcode opcode, int is_inline)
{
    for (int i = 0; i < count; i++) {
        int is_last = i == count - 1;
        receives[i] = (struct ibv_recv_wr){i, is_last ? NULL : &receives[i + 1], &room, 1};
        sends[i] = (struct ibv_send_wr){
            .wr_id = i,
            .next = is_last ? NULL : &sends[i + 1],
            .sg_list = is_inline ? &bytes : &room,
            .num_sge = 1,
            .opcode = opcode,
            .send_flags = IBV_SEND_SIGNALED | (is_inline ? IBV_SEND_INLINE : 0),
        };
        sends[i].wr.rdma.remote_addr = room.addr + 2048;
        sends[i].wr.rdma.rkey = mr->rkey;
    }
}

static void post_receives(void)
{
    struct ibv_recv_wr *bad;
    check(!ibv_post_recv(there->qp, receives, &bad), "ibv_post_recv");
}

static void post_shared(void)
{
    struct ibv_recv_wr *bad;
    check(!ibv_post_srq_recv(shared, receives, &bad), "ibv_post_srq_recv");
}

static void post_sends(void)
{
    struct ibv_send_wr *bad;
    check(!ibv_post_send(here->qp, sends, &bad), "ibv_post_send");
}

static void poll_nothing(void)
{
    check(!ibv_poll_cq(received, 1, completions), "ibv_poll_cq");
}

static void settle(struct ibv_cq *cq, int count)
{
    while (count > 0) {
        int taken = ibv_poll_cq(cq, MANY, completions);
        check(taken >= 0, "ibv_poll_cq");
        for (int i = 0; i < taken; i++)
            check(completions[i].status == IBV_WC_SUCCESS, ibv_wc_status_str(completions[i].status));
        count -= taken;
        if (!taken)
            sched_yield();
    }
}

// Polls once for everything that completes. If something has not come by then it is waited for, and the poll does not count.
static void poll_when_there(const char *name, struct ibv_cq *cq, int count)
{
    int taken = 0;
    if (is_warm) {
        struct cost *least = row(name), cost = {0};
        usleep(SURELY);
        begin();
        taken = ibv_poll_cq(cq, count, completions);
        end(&cost);
        check(taken >= 0, "ibv_poll_cq");
        if (taken == count && (!least->instructions || cost.instructions < least->instructions))
            *least = cost;
    }
    settle(cq, count - taken);
}

// One message and several, from memory and inline.
static void messages(void)
{
    static const char *const names[2][4] = {
        {"post receive", "post send", "post send, inline", "poll"},
        {"post receive 16", "post send 16", "post send 16, inline", "poll 16"},
    };
    for (int is_many = 0; is_many <= 1; is_many++) {
        int count = is_many ? MANY : 1;
        for (int is_inline = 0; is_inline <= 1; is_inline++) {
            prepare(count, IBV_WR_SEND, is_inline);
            COUNTED(names[is_many][0], post_receives());
            COUNTED(names[is_many][is_inline ? 2 : 1], post_sends());
            settle(sent, count);
            poll_when_there(names[is_many][3], received, count);
        }
    }
    COUNTED("poll empty", poll_nothing());
}

static void remote(void)
{
    static const char *const names[2][2][2] = {
        {{"post write", "poll write"}, {"post read", "poll read"}},
        {{"post write 16", "poll write 16"}, {"post read 16", "poll read 16"}},
    };
    for (int is_many = 0; is_many <= 1; is_many++) {
        for (int is_read = 0; is_read <= 1; is_read++) {
            const char *const *name = names[is_many][is_read];
            int count = is_many ? MANY : 1;
            prepare(count, is_read ? IBV_WR_RDMA_READ : IBV_WR_RDMA_WRITE, 0);
            COUNTED(name[0], post_sends());
            poll_when_there(name[1], sent, count);
        }
    }
}

static void sharing(void)
{
    static const char *const names[2][2] = {
        {"post shared receive", "poll shared receive"},
        {"post shared receive 16", "poll shared receive 16"},
    };
    for (int is_many = 0; is_many <= 1; is_many++) {
        int count = is_many ? MANY : 1;
        prepare(count, IBV_WR_SEND, 0);
        COUNTED(names[is_many][0], post_shared());
        post_sends();
        settle(sent, count);
        poll_when_there(names[is_many][1], received, count);
    }
}

static void nothing(void)
{
}

int main(int argc, char **argv)
{
    check(argc == 2, "usage: siw ADDRESS");
    check(!prepare_count(), "sigaction");
    is_warm = 1;
    COUNTED("nothing", nothing());
    join(argv[1], 18600, 0);
    take_turns(messages);
    take_turns(remote);
    join(argv[1], 18601, 1);
    take_turns(sharing);
    print_rows();
    return 0;
}
