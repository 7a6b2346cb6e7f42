#!/bin/sh
# Lane siw: the kernel's software iWARP device on a dummy network interface: this crate described beside libibverbs, and tests of queues whose
# connections the kernel's connection manager makes. Runs in the guest; see guest.sh.
#
# order: 9
# kernels: 6.1 7.x
# packages: mmdebstrap
# module: SIW_MODULE siw
# cargo: UVERBS_BIN build --profile guest --features cli --bin uverbs
# tests: any::managed any::without_queues any::device any::memory any::wait_objects any::completion_counter any::statistics asynchronous fork
# shellcheck disable=SC2317  # `step` calls the functions by name

here=$(dirname "$0")
# shellcheck source=tests/vm/guest.sh
. "$here/guest.sh"
# shellcheck source=tests/vm/siw-device.sh
. "$here/siw-device.sh"
# shellcheck source=tests/vm/statistics.sh
. "$here/statistics.sh"

list_siw() {
    "$UVERBS_BIN" devices && grep -qw "$device .*siw" "$OUT/$name.out"
}

# When nobody connects the program's queue pairs, it says who would have to.
ping_refused() {
    code=0
    timeout 60 "$UVERBS_BIN" ping --device "$device" --loopback --iters 1 || code=$?
    test "$code" -ne 0 && grep 'connection manager' "$OUT/$name.err"
}

begin make_siw

step devices list_siw
describe_device
step ping-refused ping_refused
step stat-agrees stat_agrees
step stat-pages stat_pages
for test in $TESTS; do run_tests "$test"; done
step resources resources_are_as_before
step kernel-log kernel_log_is_clean
finish
