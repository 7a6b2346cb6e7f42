/*
 * The tables of functions in a context: which functions are there, and those that only old programs call.
 *
 * usage: slots DEVICE
 */
#include "robust.h"
#include <stddef.h>

static struct ibv_context *context;

#define SLOT(table, field) printf("%s: %s\n", #field, (table)->field ? "there" : "null")

static void operations(void)
{
	struct ibv_context_ops *ops = &context->ops;

	SLOT(ops, _compat_query_device);
	SLOT(ops, _compat_query_port);
	SLOT(ops, _compat_alloc_pd);
	SLOT(ops, _compat_dealloc_pd);
	SLOT(ops, _compat_reg_mr);
	SLOT(ops, _compat_rereg_mr);
	SLOT(ops, _compat_dereg_mr);
	SLOT(ops, alloc_mw);
	SLOT(ops, bind_mw);
	SLOT(ops, dealloc_mw);
	SLOT(ops, _compat_create_cq);
	SLOT(ops, poll_cq);
	SLOT(ops, req_notify_cq);
	SLOT(ops, _compat_cq_event);
	SLOT(ops, _compat_resize_cq);
	SLOT(ops, _compat_destroy_cq);
	SLOT(ops, _compat_create_srq);
	SLOT(ops, _compat_modify_srq);
	SLOT(ops, _compat_query_srq);
	SLOT(ops, _compat_destroy_srq);
	SLOT(ops, post_srq_recv);
	SLOT(ops, _compat_create_qp);
	SLOT(ops, _compat_query_qp);
	SLOT(ops, _compat_modify_qp);
	SLOT(ops, _compat_destroy_qp);
	SLOT(ops, post_send);
	SLOT(ops, post_recv);
	SLOT(ops, _compat_create_ah);
	SLOT(ops, _compat_destroy_ah);
	SLOT(ops, _compat_attach_mcast);
	SLOT(ops, _compat_detach_mcast);
	SLOT(ops, _compat_async_event);
}

static void extended(void)
{
	struct verbs_context *all = verbs_get_ctx(context);

	MUST(all);
	SLOT(all, query_port);
	SLOT(all, advise_mr);
	SLOT(all, alloc_null_mr);
	SLOT(all, read_counters);
	SLOT(all, attach_counters_point_flow);
	SLOT(all, create_counters);
	SLOT(all, destroy_counters);
	SLOT(all, reg_dm_mr);
	SLOT(all, alloc_dm);
	SLOT(all, free_dm);
	SLOT(all, modify_flow_action_esp);
	SLOT(all, destroy_flow_action);
	SLOT(all, create_flow_action_esp);
	SLOT(all, modify_qp_rate_limit);
	SLOT(all, alloc_parent_domain);
	SLOT(all, dealloc_td);
	SLOT(all, alloc_td);
	SLOT(all, modify_cq);
	SLOT(all, post_srq_ops);
	SLOT(all, destroy_rwq_ind_table);
	SLOT(all, create_rwq_ind_table);
	SLOT(all, destroy_wq);
	SLOT(all, modify_wq);
	SLOT(all, create_wq);
	SLOT(all, query_rt_values);
	SLOT(all, create_cq_ex);
	SLOT(all, priv);
	SLOT(all, query_device_ex);
	SLOT(all, ibv_destroy_flow);
	SLOT(all, ABI_placeholder2);
	SLOT(all, ibv_create_flow);
	SLOT(all, ABI_placeholder1);
	SLOT(all, open_qp);
	SLOT(all, create_qp_ex);
	SLOT(all, get_srq_num);
	SLOT(all, create_srq_ex);
	SLOT(all, open_xrcd);
	SLOT(all, close_xrcd);
	SLOT(all, _ABI_placeholder3);
	printf("flows of old programs: %d %d\n", (void *)all->ABI_placeholder1 == (void *)all->ibv_create_flow,
	       (void *)all->ABI_placeholder2 == (void *)all->ibv_destroy_flow);
	printf("has room for all: %d\n", all->sz >= sizeof(*all));
}

/* The size of a port's attributes when this was the only call for them. */
enum { FIRST_PORT_ATTR = 48 };

static void old_queries(void)
{
	struct ibv_device_attr by_name, by_slot;
	union {
		struct ibv_port_attr attr;
		unsigned char bytes[64];
	} port, slot;
	int (*query_device)(struct ibv_context *, struct ibv_device_attr *);
	int (*query_port)(struct ibv_context *, uint8_t, void *);

	memset(&by_name, 0, sizeof(by_name));
	memset(&by_slot, 0, sizeof(by_slot));
	memset(&port, 0, sizeof(port));
	memset(&slot, 0x5a, sizeof(slot));
	query_device = (void *)context->ops._compat_query_device;
	query_port = (void *)context->ops._compat_query_port;
	NUMBER("query_device", ibv_query_device(context, &by_name));
	NUMBER("query_device by its slot", query_device(context, &by_slot));
	printf("the same device: %d\n", !memcmp(&by_name, &by_slot, sizeof(by_name)));
	NUMBER("query_port", ibv_query_port(context, 1, &port.attr));
	NUMBER("query_port by its slot", query_port(context, 1, &slot));
	printf("the same port: %d\n", !memcmp(&port, &slot, FIRST_PORT_ATTR));
	printf("behind it: %02x %02x\n", slot.bytes[FIRST_PORT_ATTR], slot.bytes[63]);
	NUMBER("query_port 0 by its slot", query_port(context, 0, &slot));
}

/* As in an inline function of the header of libibverbs 1.1.8. */
static void old_flow(void)
{
	struct verbs_context *all = verbs_get_ctx(context);
	struct ibv_flow *(*create_flow)(struct ibv_qp *, struct ibv_flow_attr *) = (void *)all->ABI_placeholder1;
	struct ibv_flow_attr rule = { .type = IBV_FLOW_ATTR_NORMAL, .size = sizeof(rule), .port = 1 };
	struct ibv_pd *pd = ibv_alloc_pd(context);
	struct ibv_cq *cq = ibv_create_cq(context, 4, NULL, NULL, 0);
	struct ibv_qp *qp;

	MUST(pd && cq);
	MUST(qp = make_qp(pd, cq, NULL, IBV_QPT_UD));
	OBJECT("create_flow", ibv_create_flow(qp, &rule));
	OBJECT("create_flow of old programs", create_flow(qp, &rule));
	MUST(!ibv_destroy_qp(qp) && !ibv_destroy_cq(cq) && !ibv_dealloc_pd(pd));
}

static void old_queries_apart(const char *name) { (void)name; context = open_device(); old_queries(); }
static void old_flow_apart(const char *name) { (void)name; context = open_device(); old_flow(); }

/* What no driver here has. */
static void refusals(const char *name)
{
	struct ibv_td_init_attr td = { 0 };
	struct ibv_alloc_dm_attr dm = { .length = 64 };
	struct ibv_xrcd_init_attr xrcd = { .comp_mask = IBV_XRCD_INIT_ATTR_FD | IBV_XRCD_INIT_ATTR_OFLAGS, .fd = -1, .oflags = O_CREAT };
	struct ibv_values_ex values = { .comp_mask = IBV_VALUES_MASK_RAW_CLOCK };
	struct ibv_flow_action_esp_attr esp = { 0 };
	struct ibv_parent_domain_init_attr parent = { 0 };
	struct ibv_qp_open_attr open = { 0 };
	struct ibv_pd *pd;

	(void)name;
	context = open_device();
	MUST(pd = ibv_alloc_pd(context));
	parent.pd = pd;
	OBJECT("alloc_td", ibv_alloc_td(context, &td));
	OBJECT("alloc_dm", ibv_alloc_dm(context, &dm));
	OBJECT("alloc_parent_domain", ibv_alloc_parent_domain(context, &parent));
	OBJECT("alloc_null_mr", ibv_alloc_null_mr(pd));
	OBJECT("open_xrcd", ibv_open_xrcd(context, &xrcd));
	OBJECT("open_qp", ibv_open_qp(context, &open));
	OBJECT("create_flow_action_esp", ibv_create_flow_action_esp(context, &esp));
	NUMBER("query_rt_values", ibv_query_rt_values_ex(context, &values));
}

int main(int count, char **arguments)
{
	begin(count, arguments);
	context = open_device();
	operations();
	extended();
	MUST(!ibv_close_device(context));
	apart("queries of old programs", old_queries_apart);
	apart("flows of old programs", old_flow_apart);
	apart("refusals", refusals);
	return 0;
}
