// Marks that count.c sees: an instruction with a number in it that no other program has. `benches/path.rs` has the same.

#include <stdint.h>

#define MARK(name, number) \
    static __attribute__((noinline)) void name(void) \
    { \
        volatile uint64_t mark = UINT64_C(0x7576626d61726b00) + (number); \
        (void)mark; \
    }

MARK(mark_read, 1)
MARK(mark_read_end, 2)
MARK(mark_first, 3)
MARK(mark_first_end, 4)
MARK(mark_nothing, 5)
MARK(mark_nothing_end, 6)
