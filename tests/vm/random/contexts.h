/* Open devices, their answers and events, protection domains, regions and windows. */
#pragma once
#include "world.h"

static void open_device(int at)
{
	struct ibv_device **list = ibv_get_device_list(NULL);

	for (int i = 0; list && list[i]; i++)
		if (!strcmp(ibv_get_device_name(list[i]), device_name))
			contexts[at] = ibv_open_device(list[i]);
	if (made(contexts[at]))
		fcntl(contexts[at]->async_fd, F_SETFL, fcntl(contexts[at]->async_fd, F_GETFL) | O_NONBLOCK);
	ibv_free_device_list(list);
}

/* Closing a context with objects left over would leave them without their device. */
static int has_objects(const struct ibv_context *context)
{
	int has = 0;

	for (int i = 0; i < PLACES; i++) {
		has |= domains[i] && domains[i]->context == context;
		has |= channels[i] && channels[i]->context == context;
		has |= completions[i] && completions[i]->context == context;
		has |= counters[i] && counters[i]->context == context;
		has |= tables[i] && tables[i]->context == context;
	}
	return has;
}

static int compare_texts(const void *one, const void *two)
{
	return strcmp(one, two);
}

static void events(struct ibv_context *context)
{
	char texts[64][32];
	struct ibv_async_event event;
	int count = 0;

	settle();
	while (count < 64 && !ibv_get_async_event(context, &event)) {
		const char *kind = "";
		int at = -1;
		for (int i = 0; i < PLACES; i++) {
			switch (event.event_type) {
			case IBV_EVENT_CQ_ERR:
				kind = "q", at = event.element.cq == completions[i] ? i : at;
				break;
			case IBV_EVENT_QP_FATAL:
			case IBV_EVENT_QP_REQ_ERR:
			case IBV_EVENT_QP_ACCESS_ERR:
			case IBV_EVENT_COMM_EST:
			case IBV_EVENT_SQ_DRAINED:
			case IBV_EVENT_PATH_MIG:
			case IBV_EVENT_PATH_MIG_ERR:
			case IBV_EVENT_QP_LAST_WQE_REACHED:
				kind = "x", at = event.element.qp == pairs[i].qp ? i : at;
				break;
			case IBV_EVENT_SRQ_ERR:
			case IBV_EVENT_SRQ_LIMIT_REACHED:
				kind = "s", at = event.element.srq == shared[i] ? i : at;
				break;
			case IBV_EVENT_WQ_FATAL:
				kind = "b", at = event.element.wq == work_queues[i] ? i : at;
				break;
			default:
				kind = "p", at = event.element.port_num;
			}
		}
		snprintf(texts[count++], sizeof(*texts), "%d %s%d", event.event_type, kind, at);
		ibv_ack_async_event(&event);
	}
	qsort(texts, count, sizeof(*texts), compare_texts);
	say("ok %d", count);
	for (int i = 0; i < count; i++)
		say(" %s;", texts[i]);
}

static void context_step(void)
{
	int at = place(1);
	struct ibv_context *context = contexts[at];

	if (is("open")) {
		NEEDS(!context && !strcmp(word[2], "plain"));
		open_device(at);
		return;
	}
	NEEDS(context);
	if (is("drop-context")) {
		NEEDS(!has_objects(context));
		if (done(ibv_close_device(context)))
			contexts[at] = NULL;
	} else if (is("device")) {
		struct ibv_device_attr attr = { 0 };
		if (done(ibv_query_device(context, &attr)))
			say(" %08x", sum_of((uint8_t *)&attr, offsetof(struct ibv_device_attr, phys_port_cnt)));
	} else if (is("port")) {
		struct ibv_port_attr attr = { 0 };
		if (done(ibv_query_port(context, arg[2], &attr)))
			say(" %d %d %d %#x %d", attr.state, attr.max_mtu, attr.gid_tbl_len, attr.port_cap_flags, attr.link_layer);
	} else if (is("gid")) {
		union ibv_gid gid = { { 0 } };
		if (done(ibv_query_gid(context, arg[2], arg[3], &gid)))
			say(" %08x", sum_of(gid.raw, 16));
	} else if (is("gids")) {
		struct ibv_gid_entry entries[64];
		memset(entries, 0, sizeof(entries));
		say("%zd", ibv_query_gid_table(context, entries, 64, 0));
		say(" %08x", sum_of((uint8_t *)entries, sizeof(entries)));
	} else if (is("pkey")) {
		__be16 pkey = 0;
		if (done(ibv_query_pkey(context, arg[2], arg[3], &pkey)))
			say(" %#x", pkey);
	} else if (is("events")) {
		events(context);
	} else {
		ABSENT;
	}
}

static void domain_step(void)
{
	int at = place(1);

	if (is("pd")) {
		NEEDS(!domains[at] && contexts[place(2)]);
		made(domains[at] = ibv_alloc_pd(contexts[place(2)]));
	} else {
		NEEDS(domains[at]);
		if (done(ibv_dealloc_pd(domains[at])))
			domains[at] = NULL;
	}
}

static void registered(int at, struct ibv_mr *mr, uint8_t *start, size_t len, uint64_t address)
{
	if (made(mr))
		regions[at] = (struct region){ mr, start, address, len };
}

static void region_step(void)
{
	int at = place(1);
	struct region *region = &regions[at];
	struct ibv_pd *pd = domains[place(2)];

	if (is("mr") || is("mr-of") || is("mr-dmabuf")) {
		uint8_t *start = is("mr-of") ? memory + arg[3] : areas[at];
		NEEDS(!region->mr && pd);
		if (is("mr")) {
			/* Filled as when new. A piece with a huge length is never reached. */
			memset(areas[at], 0, ROOM);
			registered(at, ibv_reg_mr(pd, areas[at], arg[3], rights(4)), areas[at], arg[3], (uintptr_t)areas[at]);
		} else if (is("mr-of") && arg[5] == NONE) {
			registered(at, ibv_reg_mr(pd, start, arg[4], rights(6)), start, arg[4], (uintptr_t)start);
		} else if (is("mr-of")) {
			registered(at, ibv_reg_mr_iova(pd, start, arg[4], arg[5], rights(6)), start, arg[4], arg[5]);
		} else {
			int fd = memfd_create("random", 0);
			registered(at, ibv_reg_dmabuf_mr(pd, 0, arg[3], 0, fd, rights(4)), areas[at], 0, 0);
			close(fd);
		}
		return;
	}
	NEEDS(region->mr);
	if (is("mr-read") || is("mr-write")) {
		NEEDS(arg[2] <= region->len && arg[3] <= region->len - arg[2]);
		settle();
		if (is("mr-read")) {
			say("ok %08x", sum_of(region->memory + arg[2], arg[3]));
			return;
		}
		for (size_t i = 0; i < arg[3]; i++)
			region->memory[arg[2] + i] = i * arg[4];
		say("ok");
	} else if (is("mr-facts")) {
		say("ok %zu %d %d %d", region->mr->length, region->mr->addr == region->memory,
		    region->mr->lkey == region->mr->rkey, region->mr->pd != NULL);
	} else if (is("mr-access")) {
		settle();
		done(ibv_rereg_mr(region->mr, IBV_REREG_MR_CHANGE_ACCESS, NULL, NULL, 0, rights(2)));
	} else if (is("mr-domain")) {
		NEEDS(pd && pd->context == region->mr->context);
		settle();
		done(ibv_rereg_mr(region->mr, IBV_REREG_MR_CHANGE_PD, pd, NULL, 0, 0));
	} else if (is("mr-memory")) {
		settle();
		int error = ibv_rereg_mr(region->mr, IBV_REREG_MR_CHANGE_TRANSLATION, NULL, memory + arg[2], arg[3], 0);
		if (done(error))
			region->memory = memory + arg[2], region->len = arg[3], region->address = (uintptr_t)region->memory;
	} else {
		settle();
		if (done(ibv_dereg_mr(region->mr)))
			region->mr = NULL;
	}
}

static void memory_step(void)
{
	NEEDS(arg[1] + arg[2] <= MEMORY);
	settle();
	memset(memory + arg[1], arg[3], arg[2]);
	say("ok");
}

static void release_window(struct window *window)
{
	settle();
	if (done(ibv_dealloc_mw(window->mw)))
		memset(window, 0, sizeof(*window));
}

static int bind_rights(int at)
{
	static const char *const words[] = { "all", "write", "read", "atomic", "zero-based", "none", "local" };
	static const int flags[] = {
		IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC, IBV_ACCESS_REMOTE_WRITE,
		IBV_ACCESS_REMOTE_READ, IBV_ACCESS_REMOTE_ATOMIC, IBV_ACCESS_REMOTE_READ | IBV_ACCESS_ZERO_BASED, 0,
		IBV_ACCESS_LOCAL_WRITE,
	};

	return flags[WORD(at, words)];
}

/*
 * Binds a window of either type. A window of type 2 is bound only if it is known to be unbound, and by a queue pair that is older
 * than the window.
 */
static void bind(struct pair *pair, struct window *window, struct region *region)
{
	int flags = (arg[7] & 1 ? 0 : IBV_SEND_SIGNALED) | (arg[7] & 2 ? IBV_SEND_FENCE : 0);
	int access = bind_rights(6) | (arg[7] & 4 ? IBV_ACCESS_ZERO_BASED : 0);
	struct ibv_mw_bind_info info = { region->mr, region->address + arg[4], arg[5], access };

	if (window->mw->type == IBV_MW_TYPE_1) {
		struct ibv_mw_bind one = { arg[8], flags, info };
		if (done(ibv_bind_mw(pair->qp, window->mw, &one)))
			window->address = info.mw_access_flags & IBV_ACCESS_ZERO_BASED ? 0 : info.addr, window->state = BOUND;
		return;
	}
	NEEDS(window->state == UNBOUND && window->made > pair->made);
	struct ibv_send_wr wr = { .wr_id = arg[8], .opcode = IBV_WR_BIND_MW, .send_flags = flags | IBV_SEND_SIGNALED }, *bad;
	window->next = ibv_inc_rkey(window->mw->rkey);
	wr.bind_mw.mw = window->mw, wr.bind_mw.rkey = window->next, wr.bind_mw.bind_info = info;
	if (done(ibv_post_send(pair->qp, &wr, &bad))) {
		window->state = ASKED, window->by = pair->qp, window->wr_id = arg[8];
		window->address = access & IBV_ACCESS_ZERO_BASED ? 0 : info.addr;
	}
}

/* Unbinds windows of type 2 that are certainly bound; see voice.c. */
static void unbind(struct pair *pair, struct window *window)
{
	NEEDS(window->mw->type == IBV_MW_TYPE_2 && window->state == BOUND && window->by == pair->qp);
	struct ibv_send_wr wr = { .wr_id = arg[3], .opcode = IBV_WR_LOCAL_INV, .send_flags = IBV_SEND_SIGNALED,
				  .invalidate_rkey = window->mw->rkey }, *bad;
	if (done(ibv_post_send(pair->qp, &wr, &bad)))
		window->state = UNKNOWN;
}

static void window_step(void)
{
	struct window *window = &windows[place(is("bind") || is("unbind") ? 2 : 1)];

	if (is("mw")) {
		struct ibv_pd *pd = domains[place(2)];
		NEEDS(!control && !window->mw && pd);
		if (made(window->mw = ibv_alloc_mw(pd, strcmp(word[3], "two") ? IBV_MW_TYPE_1 : IBV_MW_TYPE_2)))
			window->made = ++serial;
		return;
	}
	NEEDS(window->mw);
	if (is("mw-facts")) {
		say("ok %d %d", window->mw->type, window->state);
	} else if (is("destroy-mw") || is("drop-mw")) {
		release_window(window);
	} else if (is("bind") || is("unbind")) {
		struct pair *pair = &pairs[place(1)];
		NEEDS(pair->qp && pair->qp->context == window->mw->context && pair->qp->state >= IBV_QPS_RTS);
		NEEDS(pair->qp->qp_type == IBV_QPT_RC || pair->qp->qp_type == IBV_QPT_UC);
		something_runs = 1;
		if (is("unbind")) {
			unbind(pair, window);
			return;
		}
		NEEDS(regions[place(3)].mr && regions[place(3)].mr->context == window->mw->context);
		bind(pair, window, &regions[place(3)]);
	} else {
		ABSENT;
	}
}
