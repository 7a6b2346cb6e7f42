// What both programs need: the clock, a device by its name, and a queue pair connected to itself.

#include <infiniband/verbs.h>
#include <sched.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { PORT = 1, GID_INDEX = 1 };

// The LID of the port, on InfiniBand.
static uint16_t lid;

static void check(int ok, const char *what)
{
    if (!ok) {
        perror(what);
        exit(1);
    }
}

static inline int64_t now(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return time.tv_sec * INT64_C(1000000000) + time.tv_nsec;
}

static inline struct ibv_context *open_device(const char *name)
{
    struct ibv_device **list = ibv_get_device_list(NULL), **device = list;
    check(list != NULL, "ibv_get_device_list");
    while (*device && strcmp(ibv_get_device_name(*device), name))
        device++;
    check(*device != NULL, "the device");
    struct ibv_context *context = ibv_open_device(*device);
    check(context != NULL, "ibv_open_device");
    ibv_free_device_list(list);
    struct ibv_port_attr attr;
    check(!ibv_query_port(context, PORT, &attr), "ibv_query_port");
    lid = attr.link_layer == IBV_LINK_LAYER_INFINIBAND ? attr.lid : 0;
    return context;
}

static inline int gid_index(void)
{
    return lid ? 0 : GID_INDEX;
}

static inline struct ibv_ah_attr route(const union ibv_gid *gid)
{
    return (struct ibv_ah_attr){
        .dlid = lid,
        .is_global = 1,
        .port_num = PORT,
        .grh = {.dgid = *gid, .sgid_index = gid_index(), .hop_limit = 64},
    };
}

// Connects a queue pair to itself.
static inline void to_ready(struct ibv_qp *qp, const union ibv_gid *gid)
{
    struct ibv_qp_attr attr = {
        .qp_state = IBV_QPS_INIT,
        .port_num = PORT,
        .qp_access_flags = IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ,
    };
    check(!ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS), "to INIT");
    attr = (struct ibv_qp_attr){
        .qp_state = IBV_QPS_RTR,
        .path_mtu = IBV_MTU_1024,
        .dest_qp_num = qp->qp_num,
        .rq_psn = 1,
        .max_dest_rd_atomic = 1,
        .min_rnr_timer = 12,
        .ah_attr = route(gid),
    };
    check(!ibv_modify_qp(qp, &attr,
                         IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
                             IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER),
          "to RTR");
    attr = (struct ibv_qp_attr){
        .qp_state = IBV_QPS_RTS,
        .sq_psn = 1,
        .timeout = 14,
        .retry_cnt = 7,
        .rnr_retry = 7,
        .max_rd_atomic = 1,
    };
    check(!ibv_modify_qp(qp, &attr,
                         IBV_QP_STATE | IBV_QP_SQ_PSN | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
                             IBV_QP_MAX_QP_RD_ATOMIC),
          "to RTS");
}

// The same for a raw packet queue pair, which has no connection.
static inline void raw_to_ready(struct ibv_qp *qp)
{
    struct ibv_qp_attr attr = {.qp_state = IBV_QPS_INIT, .port_num = PORT};
    check(!ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_PORT), "to INIT");
    attr.qp_state = IBV_QPS_RTR;
    check(!ibv_modify_qp(qp, &attr, IBV_QP_STATE), "to RTR");
    attr.qp_state = IBV_QPS_RTS;
    check(!ibv_modify_qp(qp, &attr, IBV_QP_STATE), "to RTS");
}

// And for a datagram queue pair.
static inline void datagrams_to_ready(struct ibv_qp *qp, uint32_t qkey)
{
    struct ibv_qp_attr attr = {.qp_state = IBV_QPS_INIT, .port_num = PORT, .qkey = qkey};
    check(!ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_QKEY), "to INIT");
    attr.qp_state = IBV_QPS_RTR;
    check(!ibv_modify_qp(qp, &attr, IBV_QP_STATE), "to RTR");
    attr.qp_state = IBV_QPS_RTS;
    check(!ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_SQ_PSN), "to RTS");
}
