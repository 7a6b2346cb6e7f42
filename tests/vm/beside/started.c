// started N PROGRAM ARGUMENTS...: what a program costs from its start to its end, as the smallest of N runs, and its page faults. The
// guest's clock counts each run; it counts the instructions of the kernel and of user space (README.md).

#include <spawn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>

static int64_t now(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return time.tv_sec * INT64_C(1000000000) + time.tv_nsec;
}

int main(int argc, char **argv)
{
    extern char **environ;
    int runs = argc > 2 ? atoi(argv[1]) : 0;
    if (runs < 1) {
        fprintf(stderr, "usage: started N PROGRAM ARGUMENTS...\n");
        return 2;
    }
    int64_t least = INT64_MAX;
    long faults = 0;
    for (int i = 0; i < runs; i++) {
        pid_t child;
        int status;
        struct rusage used;
        int64_t begun = now();
        if (posix_spawn(&child, argv[2], NULL, NULL, argv + 2, environ) || wait4(child, &status, 0, &used) != child || status) {
            fprintf(stderr, "started: %s has failed\n", argv[2]);
            return 1;
        }
        int64_t spent = now() - begun;
        if (spent < least) {
            least = spent;
            faults = used.ru_minflt;
        }
    }
    fprintf(stderr, "instructions: %ld\nfaults: %ld\n", (long)least, faults);
    return 0;
}
