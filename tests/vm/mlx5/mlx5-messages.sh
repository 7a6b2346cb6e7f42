#!/bin/sh
# Lane mlx5-messages: what posting and polling cost on an InfiniBand port of a virtual ConnectX, with messages over a reliable connection, through
# this crate, through the drop-in and through libibverbs. Runs in the guest; see lib/guest.sh, beside/README.md.
#
# kernels: 6.1
# order: 8
# packages: gcc libc6-dev libibverbs-dev
# vhca: --port infiniband
# cargo: UVERBS_BESIDE build --release --package uverbs-beside
# cargo: UVERBS_DROPIN build --profile dropin --package uverbs-c
# cargo: UVERBS_MLX5 build --profile dropin --package uverbs-c-mlx5
# compile: UVERBS_PATH beside/path.c -libverbs
# compile: UVERBS_COUNTED beside/counted.c -shared -fPIC
# roots: sid
# shellcheck disable=SC2317  # `step` calls the functions by name

vm=$(dirname "$0")/..
# shellcheck source=tests/vm/lib/guest.sh
. "$vm/lib/guest.sh"
# shellcheck source=tests/vm/mlx5/device.sh
. "$vm/mlx5/device.sh"
# shellcheck source=tests/vm/lib/dropin-common.sh
. "$vm/lib/dropin-common.sh"
# shellcheck source=tests/vm/beside/path.sh
. "$vm/beside/path.sh"

begin make_device
path_steps messages connected
step unload unload
step kernel-log kernel_log_is_clean
finish
