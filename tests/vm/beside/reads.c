// What reads of counters cost, through whichever libibverbs the loader finds: see README.md.
//
//     reads counts DEVICE    instructions, system calls and calls of the allocator of each kind of read
//     reads first DEVICE     the same of all from the list of devices to the first values
//     reads times DEVICE     nanoseconds of each kind of read: the median

#include "count.h"
#include "device.h"

enum { POINTS = 2, WARM = 32, TURNS = 3, TIMES = 500 };

// What is read. All use the same call but the last, since C has no prepared reads.
static const struct kind {
    const char *name;
    uint32_t flags;
} kinds[] = {
    {"read counters", 0},
    {"read counters, prepared", 0},
    {"read counters, cached", IBV_READ_COUNTERS_ATTR_PREFER_CACHED},
};
enum { KINDS = sizeof kinds / sizeof *kinds };

static struct ibv_counters *counters;
static uint64_t values[POINTS];

// A raw packet queue pair, and counters of packets and bytes for an address that nobody has.
static void make(const char *device)
{
    struct ibv_context *context = open_device(device);
    struct ibv_pd *pd = ibv_alloc_pd(context);
    check(pd != NULL, "ibv_alloc_pd");
    struct ibv_cq *cq = ibv_create_cq(context, 1, NULL, NULL, 0);
    check(cq != NULL, "ibv_create_cq");
    struct ibv_qp_init_attr init = {
        .send_cq = cq,
        .recv_cq = cq,
        .qp_type = IBV_QPT_RAW_PACKET,
        .cap = {.max_send_wr = 1, .max_recv_wr = 1, .max_send_sge = 1, .max_recv_sge = 1},
    };
    struct ibv_qp *qp = ibv_create_qp(pd, &init);
    check(qp != NULL, "ibv_create_qp");
    raw_to_ready(qp);
    struct ibv_counters_init_attr none = {0};
    counters = ibv_create_counters(context, &none);
    check(counters != NULL, "ibv_create_counters");
    enum ibv_counter_description points[POINTS] = {IBV_COUNTER_PACKETS, IBV_COUNTER_BYTES};
    for (uint32_t index = 0; index < POINTS; index++) {
        struct ibv_counter_attach_attr point = {.counter_desc = points[index], .index = index};
        check(!ibv_attach_counters_point_flow(counters, &point, NULL), "ibv_attach_counters_point_flow");
    }
    struct {
        struct ibv_flow_attr attr;
        struct ibv_flow_spec_eth eth;
        struct ibv_flow_spec_counter_action count;
    } __attribute__((packed)) rule = {
        .attr = {.type = IBV_FLOW_ATTR_NORMAL, .size = sizeof rule, .num_of_specs = 2, .port = PORT},
        .eth = {.type = IBV_FLOW_SPEC_ETH, .size = sizeof rule.eth, .val.dst_mac = {2, 0xfe}},
        .count = {.type = IBV_FLOW_SPEC_ACTION_COUNT, .size = sizeof rule.count, .counters = counters},
    };
    memset(rule.eth.mask.dst_mac, 0xff, sizeof rule.eth.mask.dst_mac);
    check(ibv_create_flow(qp, &rule.attr) != NULL, "ibv_create_flow");
}

static int by_time(const void *a, const void *b)
{
    int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return (x > y) - (x < y);
}

static void counts(void)
{
    struct cost nothing = {0};
    for (int turn = 0; turn < TURNS; turn++) {
        begin();
        end(&nothing);
    }
    for (const struct kind *kind = kinds; kind < kinds + KINDS; kind++) {
        struct cost least = {0};
        int error = 0;
        for (int turn = 0; turn < WARM; turn++)
            error |= ibv_read_counters(counters, values, POINTS, kind->flags);
        for (int turn = 0; turn < TURNS; turn++) {
            begin();
            error |= ibv_read_counters(counters, values, POINTS, kind->flags);
            end(&least);
        }
        check(!error, kind->name);
        printf("%s: %ld %ld %ld\n", kind->name, least.instructions - nothing.instructions, least.calls, least.allocations);
    }
}

static void times(void)
{
    for (const struct kind *kind = kinds; kind < kinds + KINDS; kind++) {
        static int64_t spent[TIMES];
        for (int i = 0; i < TIMES; i++) {
            int64_t begun = now();
            check(!ibv_read_counters(counters, values, POINTS, kind->flags), kind->name);
            spent[i] = now() - begun;
        }
        qsort(spent, TIMES, sizeof *spent, by_time);
        printf("%s: %ld\n", kind->name, (long)spent[TIMES / 2]);
    }
}

int main(int argc, char **argv)
{
    check(!prepare_count(), "sigaction");
    if (argc == 3 && !strcmp(argv[1], "first")) {
        struct cost all = {0};
        begin();
        make(argv[2]);
        int error = ibv_read_counters(counters, values, POINTS, 0);
        end(&all);
        check(!error, "ibv_read_counters");
        printf("open to first read: %ld %ld %ld\n", all.instructions, all.calls, all.allocations);
    } else if (argc == 3 && !strcmp(argv[1], "counts")) {
        make(argv[2]);
        counts();
    } else if (argc == 3 && !strcmp(argv[1], "times")) {
        make(argv[2]);
        times();
    } else {
        fprintf(stderr, "usage: reads counts|first|times DEVICE\n");
        return 2;
    }
    return 0;
}
