#!/bin/sh
# Lane dropin-dpdk: DPDK's testpmd, of several releases of Debian, which reads and writes the rings of a virtual ConnectX itself, with libibverbs and with the drop-in for it. Runs in the guest; see lib/guest.sh.
#
# kernels: 6.1 7.x
# by default: 7.x
# due: later $MLX5 $DROPIN
# order: 4
# limit: 1800
# vhca: --port roce
# cargo: UVERBS_DROPIN build --profile dropin --package uverbs-c
# cargo: UVERBS_MLX5 build --profile dropin --package uverbs-c-mlx5
# packages: ibverbs-utils ibverbs-providers
# datapath: bookworm trixie sid
# shellcheck disable=SC2317  # `step` calls the functions by name

vm=$(dirname "$0")/../..
# shellcheck source=tests/vm/lib/guest.sh
. "$vm/lib/guest.sh"
# shellcheck source=tests/vm/mlx5/device.sh
. "$vm/mlx5/device.sh"
# shellcheck source=tests/vm/lib/dropin-common.sh
. "$vm/lib/dropin-common.sh"

# The flows of this mode are those of libibverbs: rules with a count action, whose counters are read. Completions are compressed, as DPDK asks for by
# default. DPDK 25.11 by default has one memory for the rings of all sends, which needs commands to the firmware.
session() { # session LIBRARY [--two]
    case $suite in
    sid) more=txq_mem_algn=0 ;;
    *) more= ;;
    esac
    # shellcheck disable=SC2086  # words or none
    mkdir -p /tmp/dpdk && "$PYTHON" "$vm/dropin/dpdk/session" ${2:-} "$root" "$1" "$pci" "$MLX5_CONTROL" dv_flow_en=0 $more
}

# What a user of testpmd sees: equal with both libraries, and with every packet of every rule counted.
testpmd() {
    session - >"$OUT/$name.theirs" || return
    session /tmp/dropin >"$OUT/$name.ours" || return
    cat "$OUT/$name.ours"
    diff "$OUT/$name.theirs" "$OUT/$name.ours" >&2 || return
    grep -qx 'wrong counts: 0 of 11' "$OUT/$name.ours" && grep -qx 'exit status 0' "$OUT/$name.ours"
}

# Two processes with one port. They need memory that both can map.
two_processes() {
    session - --two >"$OUT/$name.theirs" || return
    session /tmp/dropin --two >"$OUT/$name.ours" || return
    cat "$OUT/$name.ours"
    diff "$OUT/$name.theirs" "$OUT/$name.ours" >&2 || return
    grep -qx 'second: 7 packets: .*' "$OUT/$name.ours" && grep -qx 'second sent: 8' "$OUT/$name.ours" && grep -qx 'second: exit status 0' "$OUT/$name.ours"
}

# Large pages.
make_shared() { echo 100 >/proc/sys/vm/nr_hugepages && mkdir -p /dev/hugepages && mount -t hugetlbfs none /dev/hugepages; }

begin make_device
step shared-memory make_shared
step roots mount -t 9p -o ro,trans=virtio,version=9p2000.L,msize=524288,cache=loose roots /mnt || finish
pci=$(basename "$(readlink "/sys/class/infiniband/$device/device")")
for suite in $DATAPATH; do
    eval "root=/mnt/\$(basename \"\$DATAPATH_$suite\")"
    step "$suite-root" enter "$root" || continue
    step "$suite-testpmd" testpmd
    step "$suite-two-processes" two_processes
    # The driver makes queues of its own when memory is first registered, and keeps them.
    [ -e "$OUT/resources.before" ] || resources >"$OUT/resources.before"
done
step libraries only_ours_was_loaded
step resources resources_are_as_before
step kernel-log kernel_log_is_clean
finish
