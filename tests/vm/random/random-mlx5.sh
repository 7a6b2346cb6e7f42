#!/bin/sh
# Lane random-mlx5: the same as lane random on a virtual ConnectX (tests/vhca). Runs in the guest; see lib/guest.sh.
#
# kernels: 6.1 7.x
# by default: 7.x
# due: later $MLX5 $DROPIN src/soft tests/random tests/common tests/vm/random tests/vm/lib/say.h
# order: 3
# packages: gcc libc6-dev libibverbs-dev
# The kernel's log is long, and is read at the end.
# boot: --append=log_buf_len=8M
# vhca: --cap cmd_hca_cap.log_max_uctx=20
# cargo: UVERBS_RANDOM build --profile guest --package uverbs-random
# cargo: UVERBS_DROPIN build --profile dropin --package uverbs-c
# cargo: UVERBS_MLX5 build --profile dropin --package uverbs-c-mlx5
# compile: RANDOM_VOICE random/voice.c -libverbs
# passes: UVERBS_RANDOM_SEED UVERBS_RANDOM_FROM UVERBS_RANDOM_COUNT UVERBS_RANDOM_SECONDS UVERBS_RANDOM_HOW UVERBS_RANDOM_PROGRAM UVERBS_RANDOM_VOICES
# shellcheck disable=SC2317  # `step` calls the functions by name

vm=$(dirname "$0")/..
# shellcheck source=tests/vm/lib/guest.sh
. "$vm/lib/guest.sh"

# shellcheck source=tests/vm/random/programs.sh
. "$vm/random/programs.sh"

# shellcheck source=tests/vm/lib/dropin-common.sh
. "$vm/lib/dropin-common.sh"

# shellcheck source=tests/vm/random/voices.sh
. "$vm/random/voices.sh"

# shellcheck source=tests/vm/mlx5/device.sh
. "$vm/mlx5/device.sh"

export UVERBS_TEST_CONTROL="$MLX5_CONTROL"
export UVERBS_TEST_REMOVE="sh $vm/mlx5/card.sh remove $device"
export UVERBS_TEST_RESTORE="sh $vm/mlx5/card.sh find $device"

# A warning about a receive queue that has stopped by itself (docs/internals/kernels.md).
export KNOWN_WARNING="Buggy Raw Packet QP state"

on_the_card() {
    control_line && voices flows differences-mlx5 "$MLX5_CONTROL" || return
    exec 9>&-
}

begin make_device

step programs programs flows
[ -n "${UVERBS_RANDOM_PROGRAM:-}" ] || step faults faults flows
if [ -z "${UVERBS_RANDOM_PROGRAM:-}" ] && [ "$voices" -gt 0 ]; then
    step voices on_the_card
    step libraries only_ours_was_loaded
fi
step kernel-log kernel_log_is_clean
finish
