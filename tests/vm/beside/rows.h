// Operations by name, with the smallest cost of each; prints one line per operation. Used by path.c, efa.c and siw.c.

#include "count.h"
#include "device.h"

// The turns before those that are counted use every slot of each queue at least once.
enum { WARM = 32, TURNS = 3, ROWS = 64 };

static struct row {
    const char *name;
    struct cost least;
} rows[ROWS];

static int is_warm;

static struct cost *row(const char *name)
{
    struct row *row = rows;
    while (row->name && strcmp(row->name, name))
        row++;
    check(row < rows + ROWS - 1, "rows");
    row->name = name;
    return &row->least;
}

// One operation.
#define COUNTED(name, operation)                                                                                       \
    do {                                                                                                               \
        struct cost *least = row(name);                                                                                \
        if (!is_warm) {                                                                                                \
            operation;                                                                                                 \
            break;                                                                                                     \
        }                                                                                                              \
        begin();                                                                                                       \
        operation;                                                                                                     \
        end(least);                                                                                                    \
    } while (0)

// Calls `turn` as often as needed.
static void take_turns(void (*turn)(void))
{
    for (int i = 0; i < WARM + TURNS; i++) {
        is_warm = i >= WARM;
        turn();
    }
}

// Prints what each row cost beyond the first row, which is an empty operation.
static void print_rows(void)
{
    long nothing = rows[0].least.instructions;
    for (struct row *row = rows + 1; row->name; row++) {
        check(row->least.instructions > 0, row->name);
        printf("%s: %ld %ld %ld\n", row->name, row->least.instructions - nothing, row->least.calls,
               row->least.allocations);
    }
}

// Takes the turns of one function, and prints its rows.
static inline void count_turns(void (*turn)(void))
{
    check(!prepare_count(), "sigaction");
    take_turns(turn);
    print_rows();
}
