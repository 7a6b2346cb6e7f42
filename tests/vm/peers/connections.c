// Connections one after the other through librdmacm, each with one message: what `costs.rs` does through this crate. Both sides are threads
// of one process, each with its own event channel.
//
// connections ADDRESS COUNT

#include <arpa/inet.h>
#include <err.h>
#include <pthread.h>
#include <stdlib.h>
#include <unistd.h>
#include <rdma/rdma_cma.h>

enum { SIZE = 100 };

static struct sockaddr_in address;
static int count;

struct end {
    struct rdma_event_channel *channel;
    struct ibv_pd *pd;
    struct ibv_cq *cq;
    struct ibv_mr *mr;
    char memory[SIZE];
};

static void check(int failed, const char *what)
{
    if (failed)
        err(1, "%s", what);
}

// Waits for an event of this kind, and returns its identifier.
static struct rdma_cm_id *next(struct end *end, enum rdma_cm_event_type kind)
{
    struct rdma_cm_event *event;
    for (;;) {
        check(rdma_get_cm_event(end->channel, &event), "rdma_get_cm_event");
        struct rdma_cm_id *id = event->id;
        enum rdma_cm_event_type type = event->event;
        rdma_ack_cm_event(event);
        if (type == kind)
            return id;
        if (type != RDMA_CM_EVENT_TIMEWAIT_EXIT)
            errx(1, "%s in place of %s", rdma_event_str(type), rdma_event_str(kind));
    }
}

static void make_queue_pair(struct end *end, struct rdma_cm_id *id)
{
    if (!end->pd) {
        check(!(end->pd = ibv_alloc_pd(id->verbs)), "ibv_alloc_pd");
        check(!(end->cq = ibv_create_cq(id->verbs, 2, NULL, NULL, 0)), "ibv_create_cq");
        check(!(end->mr = ibv_reg_mr(end->pd, end->memory, SIZE, IBV_ACCESS_LOCAL_WRITE)), "ibv_reg_mr");
    }
    struct ibv_qp_init_attr attributes = {
        .send_cq = end->cq,
        .recv_cq = end->cq,
        .cap = {.max_send_wr = 1, .max_recv_wr = 1, .max_send_sge = 1, .max_recv_sge = 1},
        .qp_type = IBV_QPT_RC,
    };
    check(rdma_create_qp(id, end->pd, &attributes), "rdma_create_qp");
}

static void settle(struct end *end)
{
    struct ibv_wc completion;
    int found;
    // A count of instructions must not depend on how often it has looked.
    while (!(found = ibv_poll_cq(end->cq, 1, &completion)))
        usleep(2000);
    if (found < 0 || completion.status)
        errx(1, "completion: %s", ibv_wc_status_str(completion.status));
}

static struct ibv_sge piece(struct end *end)
{
    return (struct ibv_sge){.addr = (uintptr_t)end->memory, .length = SIZE, .lkey = end->mr->lkey};
}

static void *serve(void *of)
{
    struct end *end = of;
    for (int i = 0; i < count; i++) {
        struct rdma_cm_id *id = next(end, RDMA_CM_EVENT_CONNECT_REQUEST);
        make_queue_pair(end, id);
        struct ibv_sge room = piece(end);
        struct ibv_recv_wr request = {.sg_list = &room, .num_sge = 1}, *bad;
        check(ibv_post_recv(id->qp, &request, &bad), "ibv_post_recv");
        struct rdma_conn_param parameters = {.responder_resources = 1, .initiator_depth = 1, .rnr_retry_count = 7};
        check(rdma_accept(id, &parameters), "rdma_accept");
        next(end, RDMA_CM_EVENT_ESTABLISHED);
        settle(end);
        next(end, RDMA_CM_EVENT_DISCONNECTED);
        rdma_disconnect(id);
        rdma_destroy_qp(id);
        check(rdma_destroy_id(id), "rdma_destroy_id");
    }
    return NULL;
}

static void call(struct end *end)
{
    struct rdma_cm_id *id;
    check(rdma_create_id(end->channel, &id, NULL, RDMA_PS_TCP), "rdma_create_id");
    check(rdma_resolve_addr(id, NULL, (struct sockaddr *)&address, 2000), "rdma_resolve_addr");
    next(end, RDMA_CM_EVENT_ADDR_RESOLVED);
    check(rdma_resolve_route(id, 2000), "rdma_resolve_route");
    next(end, RDMA_CM_EVENT_ROUTE_RESOLVED);
    make_queue_pair(end, id);
    struct rdma_conn_param parameters = {.responder_resources = 1, .initiator_depth = 1, .retry_count = 7, .rnr_retry_count = 7};
    check(rdma_connect(id, &parameters), "rdma_connect");
    next(end, RDMA_CM_EVENT_ESTABLISHED);
    struct ibv_sge message = piece(end);
    struct ibv_send_wr request = {.sg_list = &message, .num_sge = 1, .opcode = IBV_WR_SEND, .send_flags = IBV_SEND_SIGNALED}, *bad;
    check(ibv_post_send(id->qp, &request, &bad), "ibv_post_send");
    settle(end);
    check(rdma_disconnect(id), "rdma_disconnect");
    next(end, RDMA_CM_EVENT_DISCONNECTED);
    rdma_destroy_qp(id);
    check(rdma_destroy_id(id), "rdma_destroy_id");
}

int main(int argc, char **argv)
{
    address.sin_family = AF_INET;
    if (argc != 3 || inet_pton(AF_INET, argv[1], &address.sin_addr) != 1)
        errx(1, "usage: connections ADDRESS COUNT");
    count = atoi(argv[2]);
    struct end server = {.channel = rdma_create_event_channel()}, client = {.channel = rdma_create_event_channel()};
    check(!server.channel || !client.channel, "rdma_create_event_channel");
    struct rdma_cm_id *listener;
    check(rdma_create_id(server.channel, &listener, NULL, RDMA_PS_TCP), "rdma_create_id");
    check(rdma_bind_addr(listener, (struct sockaddr *)&address), "rdma_bind_addr");
    check(rdma_listen(listener, 0), "rdma_listen");
    address.sin_port = rdma_get_src_port(listener);
    pthread_t thread;
    check(pthread_create(&thread, NULL, serve, &server), "pthread_create");
    for (int i = 0; i < count; i++)
        call(&client);
    check(pthread_join(thread, NULL), "pthread_join");
    return 0;
}
