// Counts what a program does in user space between `begin` and `end`: the processor traps after every instruction. Used by path.c, and by
// counted.c for programs in Rust.

// For the names of the registers.
#define _GNU_SOURCE

#include <signal.h>
#include <stdint.h>
#include <stdlib.h>
#include <ucontext.h>
#include <x86intrin.h>

// What was done between `begin` and `end`.
struct cost {
    long instructions, calls, allocations;
};

static volatile struct cost spent;

static int is_allocator(uintptr_t at)
{
    return at == (uintptr_t)malloc || at == (uintptr_t)calloc || at == (uintptr_t)realloc || at == (uintptr_t)free ||
           at == (uintptr_t)aligned_alloc || at == (uintptr_t)posix_memalign;
}

// The processor traps after every instruction; each trap counts one.
static void on_step(int signal, siginfo_t *info, void *context)
{
    (void)signal, (void)info;
    uintptr_t at = ((ucontext_t *)context)->uc_mcontext.gregs[REG_RIP];
    const unsigned char *code = (const unsigned char *)at;
    spent.instructions++;
    spent.calls += code[0] == 0x0f && code[1] == 0x05;
    spent.allocations += is_allocator(at);
}

static const unsigned long long TRAP = 0x100;

static int prepare_count(void)
{
    struct sigaction action = {.sa_sigaction = on_step, .sa_flags = SA_SIGINFO};
    return sigaction(SIGTRAP, &action, NULL);
}

static void begin(void)
{
    spent = (struct cost){0};
    __writeeflags(__readeflags() | TRAP);
}

static void end(struct cost *least)
{
    __writeeflags(__readeflags() & ~TRAP);
    if (!least->instructions || spent.instructions < least->instructions)
        *least = spent;
}
