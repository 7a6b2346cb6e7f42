// Rows by name: what each operation costs, and how it is measured. Used by messages.c and efa.c.
//
// Counts are the smallest of several turns. With PLAYED_CLOCK the cost is in hundredths of cycles, of a burst of the same call again and
// again, before the device executes anything: the median of many bursts.

#include "../../tests/vm/beside/device.h"

#include <errno.h>
#include <unistd.h>

enum { MANY = 16, DEPTH = 256, MESSAGE = 32, HEADER = 40, QKEY = 0x11, PAIRS = 4 };
// The turns before those that are measured use every slot of each queue at least once. Calls of a burst, for one request and for several.
enum { WARM = 40, TURNS = 3, CLOCK_TURNS = 201, BURST = 16, BURST_OF_MANY = 8, ROWS = 128 };

static struct row {
    const char *name;
    long costs[CLOCK_TURNS], calls, allocations, locked;
    int turns;
} rows[ROWS];

static int is_warm, is_clock;

static struct row *row(const char *name)
{
    struct row *row = rows;
    while (row->name && strcmp(row->name, name))
        row++;
    check(row < rows + ROWS - 1, "rows");
    row->name = name;
    return row;
}

static int burst(int count)
{
    return !is_clock ? 1 : count == MANY ? BURST_OF_MANY : BURST;
}

// Does the operation, on `count` requests or completions with each call, as often as a burst has calls: once if it is counted, without a
// loop around it.
#define ROW(name, count, operation)                                                                                    \
    do {                                                                                                               \
        struct row *row_ = is_warm && (name) ? row(name) : NULL;                                                       \
        int calls_ = burst(count);                                                                                     \
        if (row_ && !is_clock) {                                                                                       \
            begin();                                                                                                   \
            operation;                                                                                                 \
            end(row_, 1);                                                                                              \
            break;                                                                                                     \
        }                                                                                                              \
        if (row_)                                                                                                      \
            begin();                                                                                                   \
        for (int i_ = 0; i_ < calls_; i_++) {                                                                          \
            operation;                                                                                                 \
            __asm__ volatile("" ::: "memory");                                                                         \
        }                                                                                                              \
        if (row_)                                                                                                      \
            end(row_, calls_);                                                                                         \
    } while (0)

static inline void begin(void)
{
    check(!getppid(), "libplayed.so is preloaded");
}

static inline void end(struct row *row, int calls)
{
    long spent = getppid();
    row->calls = getppid();
    row->allocations = getppid();
    row->locked = getppid();
    row->costs[row->turns++] = is_clock ? spent * 100 / calls : spent;
}

static int by_size(const void *a, const void *b)
{
    long one = *(const long *)a, other = *(const long *)b;
    return (one > other) - (one < other);
}

static long cost(struct row *row)
{
    qsort(row->costs, row->turns, sizeof *row->costs, by_size);
    return row->costs[is_clock ? row->turns / 2 : 0];
}

// Names of the same operation on one request and on several.
#define BOTH(name) count == 1 ? name : name " 16"

// Calls `turn` as often as needed, and prints what each row cost beyond the first two, which are empty operations.
static void measure(void (*turn)(void))
{
    for (int i = 0; i < WARM + (is_clock ? CLOCK_TURNS : TURNS); i++) {
        is_warm = i >= WARM;
        ROW("nothing", 1, (void)0);
        ROW("nothing 16", MANY, (void)0);
        turn();
    }
    long nothing[2] = {cost(&rows[0]), cost(&rows[1])};
    for (struct row *row = rows + 2; row->name; row++) {
        size_t length = strlen(row->name);
        int is_many = strstr(row->name, "poll 16,") == row->name;
        is_many |= length > 3 && !strcmp(row->name + length - 3, " 16");
        printf("%s: %ld %ld %ld %ld\n", row->name, cost(row) - nothing[is_many], row->calls, row->allocations,
               row->locked);
    }
}
