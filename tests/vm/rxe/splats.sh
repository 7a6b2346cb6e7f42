#!/bin/sh
# Lane splats: the kernel has its checks, and what they would report is noticed as the last step of the other lanes would notice it. The
# lines are the kernel's, but the lane writes them to the log itself. Runs in the guest; see lib/guest.sh.
#
# only: 6.1-debug 7.x-debug
# shellcheck disable=SC2317  # `step` calls the functions by name

vm=$(dirname "$0")/..
# shellcheck source=tests/vm/lib/guest.sh
. "$vm/lib/guest.sh"

log_is_there() {
    [ -w /dev/kmsg ] && [ -e "$KMEMLEAK" ]
}

locks_are_watched() {
    grep '^ *debug_locks: *1' /proc/lockdep_stats
}

noticed() { # noticed LINE: as a line of the kernel's log, the last step finds it
    dmesg --clear
    echo "<4>$1" >/dev/kmsg
    until_true 20 said "$1"
}

said() {
    ! dmesg | unknown_splats log "$SPLATS" >"$OUT/$name.said" && grep -F "$1" "$OUT/$name.said"
}

passed_over() { # passed_over LINE: it is no report
    dmesg --clear
    echo "<6>$1" >/dev/kmsg
    dmesg | unknown_splats log "$SPLATS"
}

leak() { # the module keeps no pointer to what it allocates at its start
    modprobe kmemleak-test && ! nothing_is_leaked && grep do_init_module "$OUT/leaks.log"
}

begin log_is_there

# The lock checker stops at its first report.
step locks locks_are_watched
step clean kernel_log_is_clean
step lock noticed 'WARNING: lock held when returning to user space!'
step warning noticed 'WARNING: CPU: 0 PID: 1 at drivers/test.c:1 test+0x0/0x1'
step bounds noticed 'UBSAN: array-index-out-of-bounds in drivers/test.c:1:1'
step references noticed 'refcount_t: saturated; leaking memory.'
step address noticed 'BUG: KASAN: use-after-free in test+0x0/0x1'
step object noticed 'ODEBUG: free active (active state 0) object type: test'
step oops noticed 'Oops: 0000 [#1] PREEMPT SMP KASAN'
step hang noticed 'INFO: task test:1 blocked for more than 5 seconds.'
step bug noticed 'kernel BUG at drivers/test.c:1!'
step other passed_over 'test: a device was added'
step leak leak
finish
