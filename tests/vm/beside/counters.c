// What a read of a completion counter costs on an EFA through libibverbs of rdma-core 65, and through libfabric's provider for it.
// Functions that are newer than the machine's headers are looked up by name.
//
//     counters DEVICE   instructions, system calls and calls of the allocator, of each read

#include "rows.h"

#include <dlfcn.h>
#include <rdma/fabric.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_errno.h>

// As in infiniband/verbs.h of rdma-core 65.
struct counter;
struct init {
    uint32_t comp_mask, type, flags;
};

static struct counter *counter;
static int (*read_counter)(struct counter *, uint64_t *);
static struct fid_cntr *fabric_counter;
static volatile uint64_t sink;

static void *named(const char *name)
{
    void *found = dlsym(RTLD_DEFAULT, name);
    check(found != NULL, name);
    return found;
}

static void must(int status, const char *what)
{
    if (status) {
        fprintf(stderr, "%s: %s\n", what, fi_strerror(-status));
        exit(1);
    }
}

static void open_fabric(void)
{
    struct fi_info *hints = fi_allocinfo(), *info;
    struct fid_fabric *fabric;
    struct fid_domain *domain;
    struct fi_cntr_attr attr = {.events = FI_CNTR_EVENTS_COMP, .wait_obj = FI_WAIT_NONE};
    check(hints != NULL, "fi_allocinfo");
    hints->fabric_attr->prov_name = strdup("efa");
    hints->ep_attr->type = FI_EP_RDM;
    hints->caps = FI_MSG;
    hints->domain_attr->mr_mode = FI_MR_LOCAL | FI_MR_VIRT_ADDR | FI_MR_ALLOCATED | FI_MR_PROV_KEY;
    hints->mode = FI_CONTEXT | FI_CONTEXT2;
    must(fi_getinfo(FI_VERSION(1, 17), NULL, NULL, 0, hints, &info), "fi_getinfo");
    must(fi_fabric(info->fabric_attr, &fabric, NULL), "fi_fabric");
    must(fi_domain(fabric, info, &domain, NULL), "fi_domain");
    must(fi_cntr_open(domain, &attr, &fabric_counter, NULL), "fi_cntr_open");
}

static void turn(void)
{
    uint64_t value;
    COUNTED("nothing", (void)0);
    COUNTED("ibv_read_comp_cntr", read_counter(counter, &value));
    COUNTED("fi_cntr_read", sink = fi_cntr_read(fabric_counter));
}

int main(int argc, char **argv)
{
    if (argc != 2) {
        fprintf(stderr, "usage: counters DEVICE\n");
        return 2;
    }
    struct ibv_context *context = open_device(argv[1]);
    struct counter *(*create)(struct ibv_context *, struct init *) = named("ibv_create_comp_cntr");
    read_counter = named("ibv_read_comp_cntr");
    struct init init = {0};
    counter = create(context, &init);
    check(counter != NULL, "ibv_create_comp_cntr");
    open_fabric();
    count_turns(turn);
    return 0;
}
