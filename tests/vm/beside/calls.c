// A library that is preloaded into programs. It counts what each call that posts, polls or waits costs the program in user space. To the
// file that CALLS_OUTPUT names it writes the median of each kind of call, how many calls there were, and their smallest, largest and mean
// cost. Then it writes what all of them cost together for each completion. Polls that found nothing are left out of that, as there are as
// many of those as there was time for.
//
// The first `ibv_create_cq` replaces functions in the context by functions of this file. `ibv_qp_to_qp_ex` replaces those that begin and
// end the posting of extended requests.

#include "count.h"

#include <dlfcn.h>
#include <infiniband/verbs.h>
#include <stdio.h>
#include <string.h>

enum { KINDS = 12, MOST = 1 << 16 };

static struct kind {
    const char *name;
    long several;
    unsigned instructions[MOST];
} kinds[KINDS];

static long all, completions;

static int by_size(const void *left, const void *right)
{
    unsigned a = *(const unsigned *)left, b = *(const unsigned *)right;
    return (a > b) - (a < b);
}

static void add(const char *name, struct cost cost)
{
    all += cost.instructions;
    if (!name)
        return;
    struct kind *kind = kinds;
    while (kind->name && strcmp(kind->name, name))
        if (++kind == kinds + KINDS)
            abort();
    kind->name = name;
    if (kind->several < MOST)
        kind->instructions[kind->several++] = cost.instructions;
}

static void __attribute__((destructor)) print(void)
{
    const char *path = getenv("CALLS_OUTPUT");
    FILE *file = path ? fopen(path, "w") : NULL;
    if (!file)
        return;
    for (struct kind *kind = kinds; kind < kinds + KINDS && kind->name; kind++) {
        qsort(kind->instructions, kind->several, sizeof *kind->instructions, by_size);
        double sum = 0;
        for (long i = 0; i < kind->several; i++)
            sum += kind->instructions[i];
        fprintf(file, "%s: %u (%ld calls, %u to %u, %.1f)\n", kind->name, kind->instructions[kind->several / 2], kind->several,
                kind->instructions[0], kind->instructions[kind->several - 1], sum / kind->several);
    }
    if (completions)
        fprintf(file, "for each completion: %ld (%ld completions)\n", (all + completions / 2) / completions, completions);
    fclose(file);
}

// Calls a function of the library and counts it.
#define COUNTED(type, call, name)                                                                                      \
    ({                                                                                                                 \
        struct cost cost = {0};                                                                                        \
        begin();                                                                                                       \
        type answer = (call);                                                                                          \
        end(&cost);                                                                                                    \
        add((name), cost);                                                                                             \
        answer;                                                                                                        \
    })

static struct ibv_context_ops real;
static void (*real_start)(struct ibv_qp_ex *);
static int (*real_complete)(struct ibv_qp_ex *);

static int post_send(struct ibv_qp *qp, struct ibv_send_wr *wr, struct ibv_send_wr **bad)
{
    return COUNTED(int, real.post_send(qp, wr, bad), "post send");
}

static int post_recv(struct ibv_qp *qp, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad)
{
    return COUNTED(int, real.post_recv(qp, wr, bad), "post receive");
}

static int poll_cq(struct ibv_cq *cq, int most, struct ibv_wc *wc)
{
    struct cost cost = {0};
    begin();
    int found = real.poll_cq(cq, most, wc);
    end(&cost);
    completions += found;
    // How often a poll finds another number depends on how two programs take turns.
    add(found == 0 ? "poll empty" : found == 1 ? "poll" : found == 2 ? "poll 2" : found == 16 ? "poll 16" : NULL, cost);
    if (!found)
        all -= cost.instructions;
    return found;
}

static int req_notify_cq(struct ibv_cq *cq, int solicited)
{
    return COUNTED(int, real.req_notify_cq(cq, solicited), "request event");
}

// Everything from wr_start to wr_complete counts as one call: what the program does between them is the same with every library.
static void wr_start(struct ibv_qp_ex *qp)
{
    begin();
    real_start(qp);
}

static int wr_complete(struct ibv_qp_ex *qp)
{
    struct cost cost = {0};
    int answer = real_complete(qp);
    end(&cost);
    add("post send", cost);
    return answer;
}

struct ibv_cq *ibv_create_cq(struct ibv_context *context, int cqe, void *own, struct ibv_comp_channel *channel, int vector)
{
    struct ibv_cq *(*create)(struct ibv_context *, int, void *, struct ibv_comp_channel *, int) = dlsym(RTLD_NEXT, "ibv_create_cq");
    if (!real.poll_cq) {
        if (prepare_count())
            abort();
        real = context->ops;
        context->ops.post_send = post_send;
        context->ops.post_recv = post_recv;
        context->ops.poll_cq = poll_cq;
        context->ops.req_notify_cq = req_notify_cq;
    }
    return create(context, cqe, own, channel, vector);
}

struct ibv_qp_ex *ibv_qp_to_qp_ex(struct ibv_qp *qp)
{
    struct ibv_qp_ex *(*extended)(struct ibv_qp *) = dlsym(RTLD_NEXT, "ibv_qp_to_qp_ex");
    struct ibv_qp_ex *answer = extended(qp);
    if (answer && answer->wr_start != wr_start) {
        real_start = answer->wr_start;
        real_complete = answer->wr_complete;
        answer->wr_start = wr_start;
        answer->wr_complete = wr_complete;
    }
    return answer;
}

int ibv_get_cq_event(struct ibv_comp_channel *channel, struct ibv_cq **cq, void **own)
{
    static int (*get)(struct ibv_comp_channel *, struct ibv_cq **, void **);
    if (!get)
        get = dlsym(RTLD_NEXT, "ibv_get_cq_event");
    return COUNTED(int, get(channel, cq, own), "get event");
}

void ibv_ack_cq_events(struct ibv_cq *cq, unsigned several)
{
    static void (*ack)(struct ibv_cq *, unsigned);
    if (!ack)
        ack = dlsym(RTLD_NEXT, "ibv_ack_cq_events");
    COUNTED(int, (ack(cq, several), 0), "acknowledge events");
}
