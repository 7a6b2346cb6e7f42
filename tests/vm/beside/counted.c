// A library for programs that cannot set the trap flag themselves, to be preloaded. Every fourth `getppid` begins a count
// and answers 0; the three calls behind it end it, and answer with the instructions, the system calls and the calls of the
// allocator.

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
