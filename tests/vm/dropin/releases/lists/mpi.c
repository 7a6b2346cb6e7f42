/*
 * What MPI programs do with a network, in each of MPI's ways: messages of many sizes, collectives, and one-sided access. For the
 * lists of programs. Every rank must find what it expects, and the first one prints what was done.
 */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { LARGEST = 1 << 18 };

static int rank, ranks;
static unsigned char *sent, *came;

static void check(int holds, const char *what)
{
    if (holds)
        return;
    fprintf(stderr, "rank %d: %s\n", rank, what);
    MPI_Abort(MPI_COMM_WORLD, 1);
}

static void fill(unsigned char *bytes, int size, int seed)
{
    for (int at = 0; at < size; at++)
        bytes[at] = (unsigned char)(seed + at * 7);
}

static int is_filled(const unsigned char *bytes, int size, int seed)
{
    for (int at = 0; at < size; at++)
        if (bytes[at] != (unsigned char)(seed + at * 7))
            return 0;
    return 1;
}

static void ping_pong(void)
{
    for (int size = 1; size <= LARGEST; size *= 8) {
        int other = rank ^ 1;
        if (other >= ranks)
            continue;
        for (int turn = 0; turn < 4; turn++) {
            if ((turn & 1) == (rank & 1)) {
                fill(sent, size, turn + size);
                MPI_Send(sent, size, MPI_BYTE, other, turn, MPI_COMM_WORLD);
            } else {
                MPI_Recv(came, size, MPI_BYTE, other, turn, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
                check(is_filled(came, size, turn + size), "a message has other contents");
            }
        }
    }
}

static void all_to_all(void)
{
    int each = LARGEST / ranks;
    for (int to = 0; to < ranks; to++)
        fill(sent + to * each, each, rank * 16 + to);
    MPI_Alltoall(sent, each, MPI_BYTE, came, each, MPI_BYTE, MPI_COMM_WORLD);
    for (int from = 0; from < ranks; from++)
        check(is_filled(came + from * each, each, from * 16 + rank), "MPI_Alltoall brought something else");

    long mine = rank + 1, sum = 0;
    MPI_Allreduce(&mine, &sum, 1, MPI_LONG, MPI_SUM, MPI_COMM_WORLD);
    check(sum == (long)ranks * (ranks + 1) / 2, "MPI_Allreduce came to another sum");
}

static void one_sided(void)
{
    MPI_Win window;
    unsigned char *memory;
    int next = (rank + 1) % ranks, before = (rank + ranks - 1) % ranks, size = LARGEST / 2;
    MPI_Win_allocate(LARGEST, 1, MPI_INFO_NULL, MPI_COMM_WORLD, &memory, &window);
    memset(memory, 0, LARGEST);
    MPI_Win_fence(0, window);
    fill(sent, size, rank);
    MPI_Put(sent, size, MPI_BYTE, next, 0, size, MPI_BYTE, window);
    MPI_Win_fence(0, window);
    check(is_filled(memory, size, before), "MPI_Put left something else");
    MPI_Get(came, size, MPI_BYTE, next, 0, size, MPI_BYTE, window);
    MPI_Win_fence(0, window);
    check(is_filled(came, size, rank), "MPI_Get brought something else");

    /* Each rank adds to a number of the first. */
    long one = 1, old;
    MPI_Win_lock_all(0, window);
    for (int times = 0; times < 10; times++) {
        MPI_Fetch_and_op(&one, &old, MPI_LONG, 0, size, MPI_SUM, window);
        MPI_Win_flush(0, window);
    }
    MPI_Win_unlock_all(window);
    MPI_Barrier(MPI_COMM_WORLD);
    if (rank == 0) {
        memcpy(&old, memory + size, sizeof old);
        check(old == 10L * ranks, "MPI_Fetch_and_op came to another sum");
    }
    MPI_Barrier(MPI_COMM_WORLD);
    MPI_Win_free(&window);
}

int main(int argc, char **argv)
{
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    sent = malloc(LARGEST), came = malloc(LARGEST);
    check(sent && came, "no memory");
    ping_pong();
    all_to_all();
    one_sided();
    if (rank == 0)
        printf("%d ranks: messages, collectives and one-sided access are right\n", ranks);
    free(sent), free(came);
    MPI_Finalize();
    return 0;
}
