// The reads of `uverbs bench read` through libibverbs, with the same flows, loop and figures; see README.md.
//
//     peer bench DEVICE MODE COUNTERS SAMPLES BATCH    closed loop, one JSON object with the fields of ours
//     peer marks DEVICE MODE READS                     reads between marks, for count.c
//     peer first DEVICE                                everything up to the first read, between marks
//
// MODE is volatile, or driver-cached (IBV_READ_COUNTERS_ATTR_PREFER_CACHED).

#include <infiniband/verbs.h>
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "mark.h"

enum { PORT = 1, POINTS = 2, WARM_UP = 1000 };

static void check(int ok, const char *what)
{
    if (!ok) {
        perror(what);
        exit(1);
    }
}

static uint64_t now(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return time.tv_sec * UINT64_C(1000000000) + time.tv_nsec;
}

static struct ibv_context *open_device(const char *name)
{
    struct ibv_device **list = ibv_get_device_list(NULL), **device = list;
    check(list != NULL, "ibv_get_device_list");
    while (*device && strcmp(ibv_get_device_name(*device), name))
        device++;
    check(*device != NULL, "the device");
    struct ibv_context *context = ibv_open_device(*device);
    check(context != NULL, "ibv_open_device");
    ibv_free_device_list(list);
    return context;
}

static struct ibv_qp *make_qp(struct ibv_context *context)
{
    struct ibv_pd *pd = ibv_alloc_pd(context);
    check(pd != NULL, "ibv_alloc_pd");
    struct ibv_cq *cq = ibv_create_cq(context, 1, NULL, NULL, 0);
    check(cq != NULL, "ibv_create_cq");
    struct ibv_qp_init_attr init = {
        .send_cq = cq,
        .recv_cq = cq,
        .qp_type = IBV_QPT_RAW_PACKET,
        .cap = { .max_send_wr = 1, .max_recv_wr = 1, .max_send_sge = 1, .max_recv_sge = 1 },
    };
    struct ibv_qp *qp = ibv_create_qp(pd, &init);
    check(qp != NULL, "ibv_create_qp");
    struct ibv_qp_attr attr = { .qp_state = IBV_QPS_INIT, .port_num = PORT };
    check(!ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_PORT), "to INIT");
    attr.qp_state = IBV_QPS_RTR;
    check(!ibv_modify_qp(qp, &attr, IBV_QP_STATE), "to RTR");
    attr.qp_state = IBV_QPS_RTS;
    check(!ibv_modify_qp(qp, &attr, IBV_QP_STATE), "to RTS");
    return qp;
}

// Counters of packets and bytes, and a flow for an address that nobody has.
static struct ibv_counters *make_counters(struct ibv_context *context, struct ibv_qp *qp, uint32_t number)
{
    struct ibv_counters_init_attr init = { 0 };
    struct ibv_counters *counters = ibv_create_counters(context, &init);
    check(counters != NULL, "ibv_create_counters");
    enum ibv_counter_description points[POINTS] = { IBV_COUNTER_PACKETS, IBV_COUNTER_BYTES };
    for (uint32_t index = 0; index < POINTS; index++) {
        struct ibv_counter_attach_attr point = { .counter_desc = points[index], .index = index };
        check(!ibv_attach_counters_point_flow(counters, &point, NULL), "ibv_attach_counters_point_flow");
    }
    struct {
        struct ibv_flow_attr attr;
        struct ibv_flow_spec_eth eth;
        struct ibv_flow_spec_counter_action count;
    } __attribute__((packed)) rule = {
        .attr = { .type = IBV_FLOW_ATTR_NORMAL, .size = sizeof rule, .num_of_specs = 2, .port = PORT },
        .eth = { .type = IBV_FLOW_SPEC_ETH, .size = sizeof rule.eth },
        .count = { .type = IBV_FLOW_SPEC_ACTION_COUNT, .size = sizeof rule.count, .counters = counters },
    };
    uint8_t address[6] = { 0x02, 0xfe, number >> 24, number >> 16, number >> 8, number };
    memcpy(rule.eth.val.dst_mac, address, sizeof address);
    memset(rule.eth.mask.dst_mac, 0xff, sizeof address);
    check(ibv_create_flow(qp, &rule.attr) != NULL, "ibv_create_flow");
    return counters;
}

static struct ibv_counters **all;
static uint32_t count, flags;

static void read_all(void)
{
    static uint64_t values[POINTS];
    for (uint32_t i = 0; i < count; i++)
        check(!ibv_read_counters(all[i], values, POINTS, flags), "ibv_read_counters");
}

static void prepare(const char *device, const char *mode, uint32_t counters)
{
    check(!strcmp(mode, "volatile") || !strcmp(mode, "driver-cached"), "the mode");
    flags = strcmp(mode, "volatile") ? IBV_READ_COUNTERS_ATTR_PREFER_CACHED : 0;
    struct ibv_context *context = open_device(device);
    struct ibv_qp *qp = make_qp(context);
    all = calloc(counters, sizeof *all);
    check(all != NULL, "memory");
    for (count = 0; count < counters; count++)
        all[count] = make_counters(context, qp, count);
}

static int by_time(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return (x > y) - (x < y);
}

static void bench(const char *mode, uint64_t samples, uint32_t batch)
{
    uint64_t *times = calloc(samples, sizeof *times);
    check(times && samples, "memory for samples");
    uint64_t warm_up = samples / 10 < WARM_UP ? samples / 10 : WARM_UP;
    for (uint64_t i = 0; i < warm_up; i++)
        read_all();
    double sum = 0, squares = 0;
    for (uint64_t i = 0; i < samples; i++) {
        uint64_t begun = now();
        for (uint32_t turn = 0; turn < batch; turn++)
            read_all();
        times[i] = (now() - begun) / batch;
        sum += times[i];
    }
    qsort(times, samples, sizeof *times, by_time);
    for (uint64_t i = 0; i < samples; i++)
        squares += (times[i] - sum / samples) * (times[i] - sum / samples);
#define SHARE(share) times[(uint64_t)ceil((share) * samples) - 1]
    printf("{\"mode\":\"%s\",\"counters\":%u,\"threads\":1,\"count\":%lu,\"min_ns\":%lu,\"typical_ns\":%lu,"
           "\"mean_ns\":%.3f,\"stdev_ns\":%.3f,\"p99_ns\":%lu,\"p999_ns\":%lu,\"p9999_ns\":%lu,\"max_ns\":%lu,"
           "\"batch\":%u,\"device_kind\":\"virtual\",\"library\":\"libibverbs\"}\n",
           mode, count, samples, times[0], SHARE(0.5), sum / samples, sqrt(squares / samples), SHARE(0.99),
           SHARE(0.999), SHARE(0.9999), times[samples - 1], batch);
}

int main(int argc, char **argv)
{
    if (argc == 3 && !strcmp(argv[1], "first")) {
        mark_first();
        prepare(argv[2], "volatile", 1);
        read_all();
        mark_first_end();
        return 0;
    }
    if (argc == 5 && !strcmp(argv[1], "marks")) {
        prepare(argv[2], argv[3], 1);
        static uint64_t values[POINTS];
        for (int i = 0, reads = atoi(argv[4]); i < reads; i++) {
            // What the marks cost.
            mark_nothing();
            mark_nothing_end();
            mark_read();
            int error = ibv_read_counters(all[0], values, POINTS, flags);
            mark_read_end();
            check(!error, "ibv_read_counters");
        }
        return 0;
    }
    if (argc == 7 && !strcmp(argv[1], "bench")) {
        prepare(argv[2], argv[3], atoi(argv[4]));
        bench(argv[3], strtoull(argv[5], NULL, 10), atoi(argv[6]));
        return 0;
    }
    fprintf(stderr, "usage: peer bench DEVICE MODE COUNTERS SAMPLES BATCH | marks DEVICE MODE READS | first DEVICE\n");
    return 2;
}
