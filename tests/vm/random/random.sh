#!/bin/sh
# Lane random: random programs on the kernel's software device, each held against the soft device; see tests/random/README.md. Runs
# in the guest; see lib/guest.sh.
#
# kernels: 6.1 6.12 7.x
# by default: 7.x
# due: later $RXE $DROPIN src/soft src/cm tests/random tests/common tests/vm/random tests/vm/lib/say.h
# order: 2
# packages: gcc libc6-dev libibverbs-dev
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

# How a program takes the device away and brings it back. Before Linux 7.3 the removal waits until everyone who has it open closes it.
case $(uname -r) in
6.*) ;;
*)
    export UVERBS_TEST_REMOVE="rdma link del $device"
    export UVERBS_TEST_RESTORE="rdma link add $device type rxe netdev dummy0"
    ;;
esac

# Programs of connections, a quarter as many: both sides are in the program, and their results are those of the soft network.
connections() { modprobe rdma_ucm && play_some "$((count / 4))" --about connections --how "${UVERBS_RANDOM_HOW:-alone}"; }

UVERBS_TEST_ADDRESS=192.0.2.1
export UVERBS_TEST_ADDRESS

begin make_device

step programs programs messages
[ -n "${UVERBS_RANDOM_PROGRAM:-}" ] || step connections connections
[ -n "${UVERBS_RANDOM_PROGRAM:-}" ] || step faults faults messages
if [ -z "${UVERBS_RANDOM_PROGRAM:-}" ] && [ "$voices" -gt 0 ]; then
    step voices voices messages differences
    step libraries only_ours_was_loaded
fi
step resources resources_are_as_before
step kernel-log kernel_log_is_clean
finish
