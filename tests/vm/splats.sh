#!/bin/sh
# Lane splats: faults by order, of the kernel's own modules for that; each has to be noticed as the last step of the other lanes would
# notice it. Runs in the guest; see guest.sh.
#
# kernels: 6.1-debug 7.x-debug
# shellcheck disable=SC2317  # `step` calls the functions by name

here=$(dirname "$0")
# shellcheck source=tests/vm/guest.sh
. "$here/guest.sh"

make_modules_ready() {
    # A task that hangs is reported after this many seconds.
    echo 5 >/proc/sys/kernel/hung_task_timeout_secs
    modprobe lkdtm && [ -w /sys/kernel/debug/provoke-crash/DIRECT ]
}

locks_are_watched() {
    grep '^ *debug_locks: *1' /proc/lockdep_stats
}

noticed() { # noticed PATTERN COMMAND...: of what a command makes the kernel say, it fits a line that the last step finds
    pattern=$1
    shift
    dmesg --clear
    # The kernel may end the process.
    "$@" >"$OUT/$name.command" 2>&1
    until_true 20 said "$pattern"
}

said() {
    ! dmesg | unknown_splats log "$SPLATS" >"$OUT/$name.said" && grep -E "$1" "$OUT/$name.said"
}

fault() { # in a shell of its own
    sh -c 'echo "$1" >/sys/kernel/debug/provoke-crash/DIRECT' sh "$1"
}

hang() {
    fault HUNG_TASK &
}

leak() { # the module keeps no pointer to what it allocates at its start
    modprobe kmemleak-test && ! nothing_is_leaked && grep do_init_module "$OUT/leaks.log"
}

begin make_modules_ready

# The lock checker stops at its first report.
step locks locks_are_watched
step clean kernel_log_is_clean
step lock noticed 'lock held when returning to user space|Invalid wait context' fault SPINLOCKUP
step warning noticed 'WARNING: ' fault WARNING
step bounds noticed 'UBSAN: array-index-out-of-bounds' fault ARRAY_BOUNDS
step references noticed 'refcount_t: saturated' fault REFCOUNT_INC_OVERFLOW
step address noticed 'BUG: KASAN: ' fault READ_AFTER_FREE
step overrun noticed 'BUG: KASAN: ' fault SLAB_LINEAR_OVERFLOW
step list noticed list_debug.c fault CORRUPT_LIST_ADD
step leak leak
# After an oops the kernel does not look for hung tasks any more.
step hang noticed 'INFO: task ' hang
step bug noticed 'kernel BUG at' fault BUG
finish
