#!/bin/sh
# Lane dropin-mlx5: programs in C, with libibverbs and with the drop-in for it, on a virtual ConnectX. Runs in the guest; see
# lib/guest.sh.
#
# kernels: 6.1 7.x
# by default: 7.x
# due: later $MLX5 $DROPIN
# order: 6
# packages: gcc libc6-dev libibverbs-dev
# vhca:
# cargo: UVERBS_DROPIN build --profile dropin --package uverbs-c
# cargo: UVERBS_MLX5 build --profile dropin --package uverbs-c-mlx5
# compile: COUNTERS_EXAMPLE ../../docs/examples/counters.c -libverbs
# compile: MLX5_PEER mlx5/peer.c -libverbs
# compile: MLX5_EXTENDED dropin/mlx5/extended.c -libverbs -pthread
# compile: MLX5_REFUSALS dropin/mlx5/refusals.c -libverbs
# compile: MLX5_THREADS dropin/mlx5/threads.c -libverbs -pthread
# compile: SIZES dropin/sizes/sizes.c -libverbs
# shellcheck disable=SC2317  # `step` calls the functions by name

vm=$(dirname "$0")/../..
# shellcheck source=tests/vm/lib/guest.sh
. "$vm/lib/guest.sh"

# shellcheck source=tests/vm/mlx5/device.sh
. "$vm/mlx5/device.sh"

# shellcheck source=tests/vm/lib/dropin-common.sh
. "$vm/lib/dropin-common.sh"

# Seven frames of 60 bytes for the address that the example counts, and one for another address.
frames() {
    cat <<END
stty -F $MLX5_CONTROL raw -echo && exec 3<>$MLX5_CONTROL
ask() { echo "\$1" >&3; until [ "\$answer" = ok ]; do read -r answer <&3 || exit 1; done; answer=; }
ask "send 0200000001020200000000010800$(printf '%092d' 0) 7"
ask "send 0200000001030200000000010800$(printf '%092d' 0) 1"
END
}

counters() { # counters ours|theirs
    "$1" "$COUNTERS_EXAMPLE" "$device" 02:00:00:00:01:02 "$(frames)"
}

# A device may or may not count the four bytes at the end of each frame. Both libraries must report the same.
counted() {
    counters theirs >"$OUT/$name.theirs" || return
    counters ours >"$OUT/$name.ours" || return
    cat "$OUT/$name.ours"
    diff "$OUT/$name.theirs" "$OUT/$name.ours" >&2 || return
    head -n 1 "$OUT/$name.ours" | grep -qx 'packets 0, bytes 0' &&
        tail -n 1 "$OUT/$name.ours" | grep -q '^packets 7, bytes [1-9]'
}

# Runs a program with each library. Neither may find anything wrong, and their outputs must be equal except for the lines of the list.
both() { # both PROGRAM [LIST]
    for side in theirs ours; do
        "$side" timeout 120 "$1" "$device" "$MLX5_CONTROL" >"$OUT/$name.$side" || return
    done
    cat "$OUT/$name.ours"
    diff "$OUT/$name.theirs" "$OUT/$name.ours" | grep '^[<>]' >"$OUT/$name.differences"
    grep '^[<>]' "${2:-/dev/null}" | diff - "$OUT/$name.differences" >&2 &&
        tail -n 1 "$OUT/$name.ours" | grep -qx 'pass all'
}

begin make_device

step library library_is_ours ibv_devinfo
step devices same_output ibv_devices
step devinfo same_output ibv_devinfo -v
step counters counted
step peer both "$MLX5_PEER"
record_skips peer
step extended both "$MLX5_EXTENDED"
record_skips extended
step refusals both "$MLX5_REFUSALS" "$vm/dropin/mlx5/refusals.differences"
step threads both "$MLX5_THREADS"
step sizes same_sizes "$SIZES"
# This card needs headers in the request, and cuts large sends into packets.
offload_caps=per_protocol_networking_offload_caps
step other-card other_card "$offload_caps.wqe_inline_mode=0" "$offload_caps.max_lso_cap=16"
step peer-other-card both "$MLX5_PEER"
record_skips peer-other-card
step extended-other-card both "$MLX5_EXTENDED"
step sizes-other-card same_sizes "$SIZES" raw-tso
step libraries only_ours_was_loaded
step unload unload
step kernel-log kernel_log_is_clean
finish
