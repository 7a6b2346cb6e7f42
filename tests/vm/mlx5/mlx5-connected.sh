#!/bin/sh
# Lane mlx5-connected: queue pairs of all kinds on an InfiniBand port of a virtual ConnectX. Runs in the guest; see lib/guest.sh.
#
# kernels: 6.1 6.12 7.x
# by default: 7.x
# due: later $CARD tests/vm/mlx5/connected tests/vm/lib/both-sides.sh
# order: 7
# packages: ibverbs-utils perftest gcc libc6-dev libibverbs-dev
# vhca: --port infiniband
# compile: MLX5_CONNECTED mlx5/connected/connected.c -libverbs
# shellcheck disable=SC2317  # `step` calls the functions by name

vm=$(dirname "$0")/..
# shellcheck source=tests/vm/lib/guest.sh
. "$vm/lib/guest.sh"
# shellcheck source=tests/vm/mlx5/device.sh
. "$vm/mlx5/device.sh"

# shellcheck source=tests/vm/lib/both-sides.sh
. "$vm/lib/both-sides.sh"

connected() { # connected [VARIABLE=VALUE...]: every line it prints is a check that passed, or one that says why it cannot be
    env "$@" timeout 300 "$MLX5_CONNECTED" "$device" -1 || return
    grep -qx 'pass all' "$OUT/$name.out"
}

begin make_device
step ibv_devinfo ibv_devinfo -v
pingpongs ''
perftests ''
perftest_options ''
step connected connected
step connected-128 connected MLX5_CQE_SIZE=128
record_skips connected-128
step connected-signed connected MLX5_QP_SIGNATURE=1 MLX5_SRQ_SIGNATURE=1 MLX5_SCATTER_TO_CQE=0
record_skips connected-signed
# The driver registers memory by work requests that change keys, if the device can change all of a key that way.
step umr-card other_card cmd_hca_cap.umr_modify_entity_size_disabled=0
step connected-umr connected
step pingpong-umr pingpong rc -c
step unload unload
step kernel-log kernel_log_is_clean
finish
