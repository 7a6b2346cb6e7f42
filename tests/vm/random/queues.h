/* Completion channels, completion queues, shared receive queues, and receives. */
#pragma once
#include "world.h"

struct taken {
	struct ibv_wc wc;
	int at;
};

/* Completions of one queue pair and one direction are in order. Order between others means nothing. */
static int compare_taken(const void *one, const void *two)
{
	const struct taken *a = one, *b = two;
	int by = place_of(a->wc.qp_num) - place_of(b->wc.qp_num);

	if (!by)
		by = (int)(a->wc.wr_id / 100) - (int)(b->wc.wr_id / 100);
	return by ? by : a->at - b->at;
}

/* What a completion tells about a window. */
static void learn(const struct ibv_wc *wc)
{
	for (int i = 0; i < PLACES; i++) {
		struct window *window = &windows[i];
		if (!window->mw || window->state != ASKED || window->wr_id != wc->wr_id || window->by->qp_num != wc->qp_num)
			continue;
		window->state = wc->status ? UNKNOWN : BOUND;
		if (!wc->status)
			window->mw->rkey = window->next;
	}
}

/* Takes completions until there are this many, or until none come any more. */
static int take(struct ibv_cq *cq, struct taken *all, int most)
{
	int count = 0, was_running = something_runs;

	do {
		int got;
		while (count < most && (got = ibv_poll_cq(cq, 1, &all[count].wc)) != 0) {
			if (got < 0) {
				say("poll %d ", got);
				return count;
			}
			/* A card writes no number for a receive of raw packets, and libmlx5 passes that on. */
			if (control && all[count].wc.wr_id >= 200 && all[count].wc.wr_id < 500)
				all[count].wc.qp_num = 0;
			learn(&all[count].wc);
			all[count].at = count;
			count++;
			was_running = 1;
		}
		if (count == most)
			break;
		if (was_running-- > 0)
			usleep(patience);
		else
			break;
	} while (1);
	return count;
}

static void tell(struct taken *all, int count)
{
	qsort(all, count, sizeof(*all), compare_taken);
	say("ok %d", count);
	for (int i = 0; i < count; i++) {
		const struct ibv_wc *wc = &all[i].wc;
		say("; %d x%d ", (int)wc->wr_id, place_of(wc->qp_num));
		if (wc->status) {
			say("%s", ibv_wc_status_str(wc->status));
			continue;
		}
		int is_receive = wc->opcode & IBV_WC_RECV;
		say("op %d flags %#x len %d", wc->opcode, wc->wc_flags, is_receive ? (int)wc->byte_len : 0);
		if (wc->wc_flags & IBV_WC_WITH_IMM)
			say(" imm %#x", be32toh(wc->imm_data));
		if (is_receive)
			say(" from x%d pkey %d path %d %d %d", wc->wc_flags & IBV_WC_GRH ? place_of(wc->src_qp) : 0, wc->pkey_index, wc->slid,
			    wc->sl, wc->dlid_path_bits);
	}
}

static void poll_step(void)
{
	static struct taken all[4096];
	struct ibv_cq *cq = completions[place(1)];

	NEEDS(cq);
	int most = is("poll") ? (int)arg[2] : 64;
	if (most < 16)
		settle();
	int count = take(cq, all, most);
	something_runs = something_runs && count == most;
	tell(all, count);
}

static void channel_step(void)
{
	int at = place(1);
	struct ibv_comp_channel *channel = channels[at];

	if (is("channel")) {
		NEEDS(!channel && contexts[place(2)]);
		if (made(channel = channels[at] = ibv_create_comp_channel(contexts[place(2)])))
			fcntl(channel->fd, F_SETFL, fcntl(channel->fd, F_GETFL) | O_NONBLOCK);
		return;
	}
	NEEDS(channel);
	if (is("channel-wait")) {
		struct pollfd wanted = { channel->fd, POLLIN, 0 };
		settle();
		say("ok %d", poll(&wanted, 1, 0));
	} else if (is("channel-next")) {
		struct ibv_cq *cq;
		void *cookie;
		settle();
		if (done(ibv_get_cq_event(channel, &cq, &cookie))) {
			say(" q%d %d", (int)(uintptr_t)cookie, cq == completions[(uintptr_t)cookie % PLACES]);
			ibv_ack_cq_events(cq, 1);
		}
	} else if (is("drop-channel")) {
		if (done(ibv_destroy_comp_channel(channel)))
			channels[at] = NULL;
	} else {
		ABSENT;
	}
}

static void cq_step(void)
{
	int at = place(1);
	struct ibv_cq *cq = completions[at];

	if (is("cq") || is("cq-plain")) {
		struct ibv_context *context = contexts[place(2)];
		struct ibv_comp_channel *channel = NULL;
		NEEDS(!cq && context);
		if (is("cq") && arg[4] != NONE) {
			channel = channels[place(4)];
			NEEDS(channel && channel->context == context);
		}
		cq = ibv_create_cq(context, arg[3], (void *)(uintptr_t)at, channel, is("cq") ? arg[5] : 0);
		if (made(completions[at] = cq))
			say(" %d", cq->cqe);
		return;
	}
	NEEDS(cq);
	if (is("cq-resize")) {
		settle();
		if (done(ibv_resize_cq(cq, arg[2])))
			say(" %d", cq->cqe);
	} else if (is("notify")) {
		settle();
		done(ibv_req_notify_cq(cq, arg[2]));
	} else if (is("moderate")) {
		struct ibv_modify_cq_attr attr = { IBV_CQ_ATTR_MODERATE, { arg[2], arg[3] } };
		done(ibv_modify_cq(cq, &attr));
	} else {
		settle();
		if (done(ibv_destroy_cq(cq)))
			completions[at] = NULL;
	}
}

/* The same receive, this many times. */
static struct ibv_recv_wr *receives(int count, int first, const struct region *region, uint64_t offset, uint64_t len)
{
	static struct ibv_recv_wr list[32];
	static struct ibv_sge sge;

	sge = (struct ibv_sge){ region->address + offset, len, region->mr->lkey };
	for (int i = 0; i < count; i++)
		list[i] = (struct ibv_recv_wr){ first + i, i + 1 < count ? &list[i + 1] : NULL, &sge, 1 };
	return list;
}

static void srq_step(void)
{
	int at = place(1);
	struct ibv_srq *srq = shared[at];

	if (is("srq") || is("srq-plain")) {
		struct ibv_pd *pd = domains[place(2)];
		struct ibv_srq_init_attr init = { (void *)(uintptr_t)at, { arg[3], 1, 0 } };
		if (is("srq"))
			init.attr.max_sge = arg[4], init.attr.srq_limit = arg[5];
		NEEDS(!control && !srq && pd);
		if (made(shared[at] = ibv_create_srq(pd, &init)))
			say(" %d %u", init.attr.max_wr >= arg[3], init.attr.max_sge);
		return;
	}
	NEEDS(srq);
	if (is("srq-query")) {
		struct ibv_srq_attr attr = { 0 };
		settle();
		if (done(ibv_query_srq(srq, &attr)))
			say(" %d %d", attr.srq_limit, attr.max_sge);
	} else if (is("srq-arm")) {
		struct ibv_srq_attr attr = { .srq_limit = arg[2] };
		done(ibv_modify_srq(srq, &attr, IBV_SRQ_LIMIT));
	} else if (is("srq-resize")) {
		struct ibv_srq_attr attr = { .max_wr = arg[2] };
		settle();
		done(ibv_modify_srq(srq, &attr, IBV_SRQ_MAX_WR));
	} else if (is("srq-recv")) {
		const struct region *region = &regions[place(2)];
		struct ibv_recv_wr *bad = NULL;
		NEEDS(region->mr);
		something_runs = 1;
		if (!done(ibv_post_srq_recv(srq, receives(arg[5], 300, region, arg[3], arg[4]), &bad)))
			say(" at %d", bad ? (int)bad->wr_id : -1);
	} else {
		settle();
		if (done(ibv_destroy_srq(srq)))
			shared[at] = NULL;
	}
}
