#!/bin/sh
# Lane dropin-devx: programs that send commands to the firmware (DEVX) and create flows by matchers, with libibverbs and libmlx5 and with
# the drop-in for both, on a virtual ConnectX with DEVX. Runs in the guest; see lib/guest.sh.
#
# kernels: 6.1 7.x
# by default: 7.x
# due: later $MLX5 $DROPIN
# order: 4
# limit: 1200
# packages: ibverbs-utils ibverbs-providers gcc libc6-dev libibverbs-dev
# vhca: --port roce --cap cmd_hca_cap.log_max_uctx=20 --cap cmd_hca_cap.qos=1 --cap cmd_hca_cap.hca_cap_2=1 --cap cmd_hca_cap.general_obj_types=0x100000000000
# cargo: UVERBS_DROPIN build --profile dropin --package uverbs-c
# cargo: UVERBS_MLX5 build --profile dropin --package uverbs-c-mlx5
# consumers: bookworm trixie sid
# compile: MLX5_DEVX dropin/devx/devx.c -libverbs -lmlx5
# shellcheck disable=SC2317  # `step` calls the functions by name

vm=$(dirname "$0")/../..
# shellcheck source=tests/vm/lib/guest.sh
. "$vm/lib/guest.sh"
# shellcheck source=tests/vm/mlx5/device.sh
. "$vm/mlx5/device.sh"
# shellcheck source=tests/vm/lib/both-sides.sh
. "$vm/lib/both-sides.sh"
# shellcheck source=tests/vm/lib/dropin-common.sh
. "$vm/lib/dropin-common.sh"

# Every call: what it returns, and of a command the firmware's status. Equal with both libraries.
calls() {
    for side in theirs ours; do
        "$side" timeout 120 chroot "$root" /tmp/mlx5-devx "$device" "$MLX5_CONTROL" >"$OUT/$name.$side" || return
        tail -n 1 "$OUT/$name.$side" | grep -qx end || return
    done
    # Only versions after 56 have counters of a bulk.
    if ! grep -q ^bulk "$OUT/$name.theirs"; then
        grep -qx 'bulk: 0:0 0:0 0:0 0:0 0:0 2:120 0:0 0:0' "$OUT/$name.ours" && sed -i '/^bulk/d' "$OUT/$name.ours" || return
    fi
    echo "compared: $(wc -l <"$OUT/$name.ours") lines"
    diff "$OUT/$name.theirs" "$OUT/$name.ours" >&2 || return
    grep -qx 'completion: opcode 2, 60 bytes, tag 4660, to 01' "$OUT/$name.ours" &&
        grep -qx '3 packets, 180 bytes' "$OUT/$name.ours" && grep -qx 'eventfd 1' "$OUT/$name.ours"
}

# DPDK's driver with its flows by commands to the firmware or by software steering, which is its default. What it says of why a port cannot
# be used is recorded, and not compared: the libraries end at different places.
testpmd() { # testpmd ours|theirs ARGUMENT
    printf 'show port summary all\nquit\n' | "$1" timeout 120 chroot "$root" dpdk-testpmd --no-shconf --no-huge -m 100 --no-telemetry \
        --lcores '(0-1)@0' -a "$pci,$2" -- -i --total-num-mbufs=2048 >"$OUT/$name.$1" 2>&1
    echo "$1 $2: $(grep -c '^Number of available ports: 1' "$OUT/$name.$1") port"
    grep '^mlx5.*: ' "$OUT/$name.$1" | grep -v socket
}

# Without flows of its own, the driver uses the commands to the firmware that it finds.
ports() {
    for side in theirs ours; do
        for mode in dv_flow_en=0 dv_flow_en=1; do
            testpmd "$side" "$mode"
            cp "$OUT/$name.$side" "$OUT/$name.$side.$mode"
        done
    done
    grep -q '^Number of available ports: 1' "$OUT/$name.theirs.dv_flow_en=0" || return
    grep -q '^Number of available ports: 1' "$OUT/$name.ours.dv_flow_en=0"
}

# The line stays open so that it stays raw.
make_card() { make_device && with_address "$device" 10.0.0.1 && control_line; }

root=
begin make_card
pci=$(basename "$(readlink "/sys/class/infiniband/$device/device")")
cp "$MLX5_DEVX" /tmp/mlx5-devx
for suite in $CONSUMERS; do
    eval "root=\$CONSUMERS_$suite"
    step "$suite-root" enter "$root" || continue
    step "$suite-calls" calls
    step "$suite-dpdk" ports
    [ -e "$OUT/resources.before" ] || resources >"$OUT/resources.before"
done
step only-ours-was-loaded only_ours_was_loaded
step resources resources_are_as_before
step kernel-log kernel_log_is_clean
finish
