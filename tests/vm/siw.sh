#!/bin/sh
# Lane siw: the kernel's software iWARP device on a dummy network interface. This crate has no queues for it: it is listed and
# described, memory is registered, and the rest is refused. Runs in the guest; see guest.sh.
#
# order: 9
# kernels: 6.1
# packages: mmdebstrap
# module: SIW_MODULE siw
# cargo: UVERBS_BIN build --profile guest --features cli --bin uverbs
# tests: any::without_queues any::statistics
# shellcheck disable=SC2317  # `step` calls the functions by name

here=$(dirname "$0")
# shellcheck source=tests/vm/guest.sh
. "$here/guest.sh"
# shellcheck source=tests/vm/statistics.sh
. "$here/statistics.sh"

device=siw0

make_siw() {
    # rdma_ucm brings ib_core and iw_cm, which connect iWARP's queue pairs.
    modprobe rdma_ucm && modprobe libcrc32c && insmod "$SIW_MODULE" && modprobe dummy numdummies=0 &&
        ip link add dummy0 address 52:54:00:12:34:56 type dummy &&
        ip address add 192.0.2.1/24 dev dummy0 &&
        ip link set dummy0 up &&
        rdma link add "$device" type siw netdev dummy0 &&
        until_true 10 grep -q ACTIVE "/sys/class/infiniband/$device/ports/1/state" &&
        resources >"$OUT/resources.before"
}

list_siw() {
    "$UVERBS_BIN" devices && grep -qw "$device .*siw" "$OUT/$name.out"
}

# A program that wants queues is told that there are none.
ping_refused() {
    code=0
    timeout 60 "$UVERBS_BIN" ping --device "$device" --loopback --iters 1 || code=$?
    test "$code" -ne 0 && grep 'no queues on siw' "$OUT/$name.err"
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
