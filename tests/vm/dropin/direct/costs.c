// What the flow rules of DPDK's Verbs mode cost in user space, with whichever libibverbs the loader finds: a rule with a count is created, its counters
// are read (`flow query`), and it is destroyed. The calls are those that its driver makes.
//
//     costs DEVICE    instructions, system calls and calls of the allocator of each

#include "../../beside/count.h"
#include "../../beside/device.h"

enum { POINTS = 2, RULES = 40, READ = 8 };

static struct rule {
    struct ibv_counters *counters;
    struct ibv_flow *flow;
} rules[RULES];

static struct ibv_context *context;
static struct ibv_qp *qp;

static void make(const char *device)
{
    context = open_device(device);
    struct ibv_pd *pd = ibv_alloc_pd(context);
    struct ibv_cq *cq = ibv_create_cq(context, 1, NULL, NULL, 0);
    check(pd && cq, "ibv_create_cq");
    struct ibv_qp_init_attr init = {
        .send_cq = cq,
        .recv_cq = cq,
        .qp_type = IBV_QPT_RAW_PACKET,
        .cap = {.max_send_wr = 1, .max_recv_wr = 1, .max_send_sge = 1, .max_recv_sge = 1},
    };
    qp = ibv_create_qp(pd, &init);
    check(qp != NULL, "ibv_create_qp");
    struct ibv_qp_attr state = {.qp_state = IBV_QPS_INIT, .port_num = PORT};
    check(!ibv_modify_qp(qp, &state, IBV_QP_STATE | IBV_QP_PORT), "INIT");
    state.qp_state = IBV_QPS_RTR;
    check(!ibv_modify_qp(qp, &state, IBV_QP_STATE), "RTR");
}

static int create(struct rule *rule, uint8_t last)
{
    struct ibv_counters_init_attr none = {0};
    if (!(rule->counters = ibv_create_counters(context, &none)))
        return 1;
    for (uint32_t index = 0; index < POINTS; index++) {
        struct ibv_counter_attach_attr point = {.counter_desc = index ? IBV_COUNTER_BYTES : IBV_COUNTER_PACKETS, .index = index};
        if (ibv_attach_counters_point_flow(rule->counters, &point, NULL))
            return 1;
    }
    struct {
        struct ibv_flow_attr attr;
        struct ibv_flow_spec_eth eth;
        struct ibv_flow_spec_ipv4_ext ip;
        struct ibv_flow_spec_tcp_udp udp;
        struct ibv_flow_spec_counter_action count;
    } __attribute__((packed)) wanted = {
        .attr = {.type = IBV_FLOW_ATTR_NORMAL, .size = sizeof wanted, .num_of_specs = 4, .port = PORT},
        .eth = {.type = IBV_FLOW_SPEC_ETH, .size = sizeof wanted.eth, .val.dst_mac = {2, 0xfe, 0, 0, 0, last}},
        .ip = {.type = IBV_FLOW_SPEC_IPV4_EXT, .size = sizeof wanted.ip, .val.dst_ip = 0x0100000a, .mask.dst_ip = ~0u},
        .udp = {.type = IBV_FLOW_SPEC_UDP, .size = sizeof wanted.udp, .val.dst_port = 0xb612, .mask.dst_port = 0xffff},
        .count = {.type = IBV_FLOW_SPEC_ACTION_COUNT, .size = sizeof wanted.count, .counters = rule->counters},
    };
    memset(wanted.eth.mask.dst_mac, 0xff, sizeof wanted.eth.mask.dst_mac);
    return !(rule->flow = ibv_create_flow(qp, &wanted.attr));
}

static int query(struct rule *rule)
{
    uint64_t values[POINTS];
    return ibv_read_counters(rule->counters, values, POINTS, IBV_READ_COUNTERS_ATTR_PREFER_CACHED);
}

static int destroy(struct rule *rule)
{
    return ibv_destroy_flow(rule->flow) || ibv_destroy_counters(rule->counters);
}

int main(int argc, char **argv)
{
    check(argc == 2 && !prepare_count(), "usage: costs DEVICE");
    make(argv[1]);
    struct cost nothing = {0}, created = {0}, read = {0}, destroyed = {0};
    int error = 0;
    begin();
    end(&nothing);
    // The least of several: the allocator's work differs.
    for (int at = 0; at < RULES; at++) {
        begin();
        error |= create(rules + at, at);
        end(&created);
    }
    check(!error, "create");
    for (int turn = 0; turn < READ; turn++) {
        begin();
        error |= query(rules + turn);
        end(&read);
    }
    check(!error, "query");
    for (int at = 0; at < RULES; at++) {
        begin();
        error |= destroy(rules + at);
        end(&destroyed);
    }
    check(!error, "destroy");
    const struct {
        const char *name;
        struct cost cost;
    } all[] = {{"query", read}, {"create", created}, {"destroy", destroyed}};
    for (int at = 0; at < 3; at++)
        printf("%s %ld %ld %ld\n", all[at].name, all[at].cost.instructions - nothing.instructions, all[at].cost.calls, all[at].cost.allocations);
    return 0;
}
