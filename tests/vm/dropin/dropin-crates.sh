#!/bin/sh
# Lane dropin-crates: examples and tests of the crates of Rust's registry that bind libibverbs, with the drop-in for it, on rxe. Runs in the guest; see
# lib/guest.sh.
#
# kernels: 6.1
# order: 6
# only: 6.1
# packages: cmake make pkg-config libclang-dev gcc libc6-dev libibverbs-dev librdmacm-dev libnl-3-dev libnl-route-3-dev
# cargo: UVERBS_DROPIN build --profile dropin --package uverbs-c
# cargo: UVERBS_MLX5 build --profile dropin --package uverbs-c-mlx5
# crates: CRATES
# shellcheck disable=SC2317  # `step` calls the functions by name

vm=$(dirname "$0")/..
# shellcheck source=tests/vm/lib/guest.sh
. "$vm/lib/guest.sh"

# shellcheck source=tests/vm/lib/dropin-common.sh
. "$vm/lib/dropin-common.sh"

# The name that is written in the examples of ibverbs-rs.
device=mlx5_0

begin make_device
modprobe rdma_ucm
sed "s,CRATES,$CRATES,g; s,QUIETLY,$vm/dropin/releases/quietly,g; s,RANKS,$vm/dropin/releases/ranks,g" "$vm/dropin/releases/lists/crates.list" >/tmp/crates.list
step programs "$PYTHON" "$vm/dropin/releases/programs" /tmp/crates.list bookworm / "DEVICE=$device" "ADDRESS=$address" GID=1
step libraries only_ours_was_loaded
step resources resources_are_as_before
step kernel-log kernel_log_is_clean
finish
