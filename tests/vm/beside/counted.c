// A library to be preloaded into programs that cannot set the trap flag themselves. Every fourth `getppid` begins a count and returns 0.
// The next three calls end it, and return the instructions, the system calls and the allocator calls.

#include "count.h"

#include <unistd.h>

pid_t getppid(void)
{
    static struct cost counted;
    static unsigned turn;
    switch (turn++ % 4) {
    case 0:
        counted = (struct cost){0};
        if (prepare_count())
            return -1;
        begin();
        return 0;
    case 1:
        end(&counted);
        return counted.instructions;
    case 2:
        return counted.calls;
    default:
        return counted.allocations;
    }
}
