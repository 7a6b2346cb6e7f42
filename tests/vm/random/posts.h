/* Requests of queue pairs. */
#pragma once
#include "queues.h"
#include "world.h"

static const char *const operations[] = { "send", "write", "read", "send-imm", "write-imm", "send-inv", "swap", "add" };

/* Posts the same request a number of times. Region, offset, length, flags and times are the arguments from `at` on. */
static void post(struct ibv_qp *qp, struct ibv_send_wr request, int at)
{
	static uint8_t bytes[1 << 16];
	struct ibv_send_wr list[8], *bad = NULL;
	const struct region *region = &regions[place(at)];
	uint64_t flags = arg[at + 3], times = arg[at + 4];
	struct ibv_sge sge;

	NEEDS(region->mr && qp->state >= IBV_QPS_RTS);
	sge = (struct ibv_sge){ region->address + arg[at + 1], arg[at + 2], region->mr->lkey };
	if (flags & 8)
		sge = (struct ibv_sge){ (uintptr_t)bytes, arg[at + 2] < sizeof(bytes) ? arg[at + 2] : sizeof(bytes), 0 };
	request.sg_list = &sge, request.num_sge = 1;
	request.send_flags = (flags & 1 ? 0 : IBV_SEND_SIGNALED) | (flags & 2 ? IBV_SEND_SOLICITED : 0) |
			     (flags & 4 ? IBV_SEND_FENCE : 0) | (flags & 8 ? IBV_SEND_INLINE : 0);
	for (uint64_t i = 0; i < times; i++) {
		list[i] = request;
		list[i].wr_id = 100 + i;
		list[i].next = i + 1 < times ? &list[i + 1] : NULL;
	}
	something_runs = 1;
	if (!done(ibv_post_send(qp, list, &bad)))
		say(" at %d", bad ? (int)bad->wr_id : -1);
}

/* Whether queue pairs of this type have the operation. */
static int has(const struct ibv_qp *qp, int operation)
{
	if (qp->qp_type == IBV_QPT_UC)
		return operation == 0 || operation == 1 || operation == 3 || operation == 4;
	return qp->qp_type == IBV_QPT_RC;
}

static void send_step(void)
{
	static const enum ibv_wr_opcode opcodes[] = { IBV_WR_SEND, IBV_WR_RDMA_WRITE, IBV_WR_RDMA_READ, IBV_WR_SEND_WITH_IMM,
						      IBV_WR_RDMA_WRITE_WITH_IMM, IBV_WR_SEND_WITH_INV, IBV_WR_ATOMIC_CMP_AND_SWP,
						      IBV_WR_ATOMIC_FETCH_AND_ADD };
	struct ibv_qp *qp = pairs[place(1)].qp;
	int operation = WORD(2, operations);
	struct window *window = is("send-window") ? &windows[place(3)] : NULL;
	struct ibv_send_wr wr = { .opcode = opcodes[operation] };
	uint64_t address;
	uint32_t key;

	NEEDS(qp && has(qp, operation));
	if (window) {
		NEEDS(window->mw && window->state == BOUND);
		address = window->address + arg[4], key = window->mw->rkey;
	} else {
		const struct region *region = &regions[place(3)];
		NEEDS(region->mr);
		address = region->address + arg[4], key = region->mr->rkey;
	}
	switch (operation) {
	case 5:
		/* Only once for each bind, and only for what is certainly bound. */
		NEEDS(!window || (window->mw->type == IBV_MW_TYPE_2 && arg[9] == 1));
		wr.invalidate_rkey = key;
		if (window)
			window->state = UNKNOWN;
		break;
	case 6:
	case 7:
		wr.wr.atomic.remote_addr = address, wr.wr.atomic.rkey = key;
		wr.wr.atomic.compare_add = operation == 7 ? 3 : 0, wr.wr.atomic.swap = 5;
		break;
	default:
		wr.wr.rdma.remote_addr = address, wr.wr.rdma.rkey = key;
	}
	if (operation == 3 || operation == 4)
		wr.imm_data = htobe32(0xabcd);
	post(qp, wr, 5);
}

static void datagram(void)
{
	struct ibv_qp *qp = pairs[place(1)].qp, *to = pairs[place(3)].qp;
	int is_group = !strcmp(word[5], "group");
	struct ibv_send_wr wr = { .opcode = strcmp(word[5], "imm") ? IBV_WR_SEND : IBV_WR_SEND_WITH_IMM };

	NEEDS(qp && qp->qp_type == IBV_QPT_UD && handles[place(2)] && handles[place(2)]->context == qp->context);
	NEEDS(is_group || to);
	wr.imm_data = htobe32(0xabcd);
	wr.wr.ud.ah = handles[place(2)], wr.wr.ud.remote_qkey = arg[4];
	wr.wr.ud.remote_qpn = is_group ? 0xffffff : to->qp_num;
	post(qp, wr, 6);
}

/* A UDP frame over IPv4, to one of the addresses that rules name. */
static void frame(uint8_t *bytes, size_t len, int to)
{
	static const uint8_t rest[] = { 2, 0, 0, 0, 0, 0xee, 8, 0, 0x45, 0, 0, 40, 0, 0, 0x40, 0, 64, 17, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2,
					0x12, 0x34, 0x12, 0xb7, 0, 20 };

	memset(bytes, 0, len);
	bytes[0] = 2, bytes[5] = to;
	memcpy(bytes + 6, rest, sizeof(rest));
}

static void frame_step(void)
{
	struct ibv_qp *qp = pairs[place(1)].qp;
	const struct region *region = &regions[place(2)];
	uint8_t header[64];

	NEEDS(qp && qp->qp_type == IBV_QPT_RAW_PACKET && qp->state >= IBV_QPS_RTS && region->mr);
	struct ibv_sge sge = { region->address, arg[4], region->mr->lkey };
	struct ibv_send_wr wr = { .wr_id = 100, .sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_SEND }, *bad;
	if (is("large-frame")) {
		frame(header, 54, 1);
		wr.opcode = IBV_WR_TSO, wr.send_flags = IBV_SEND_SIGNALED;
		wr.tso.hdr = header, wr.tso.hdr_sz = 54, wr.tso.mss = arg[3];
	} else {
		NEEDS(region->len >= 64);
		frame(region->memory, 64, arg[3]);
		wr.send_flags = (arg[5] & 1 ? 0 : IBV_SEND_SIGNALED) | (arg[5] & 8 ? IBV_SEND_IP_CSUM : 0);
	}
	something_runs = 1;
	done(ibv_post_send(qp, &wr, &bad));
}

static void receive_step(void)
{
	struct ibv_qp *qp = pairs[place(1)].qp;
	const struct region *region = &regions[place(2)];
	struct ibv_recv_wr *bad = NULL;

	NEEDS(qp && region->mr);
	something_runs = 1;
	int error = ibv_post_recv(qp, receives(arg[5], 200, region, arg[3], arg[4]), &bad);
	/* librxe reports the first request that it does not post only if it has looked at one. */
	if (!done(error) && (control || (qp->state != IBV_QPS_RESET && !qp->srq)))
		say(" at %d", bad ? (int)bad->wr_id : -1);
}
