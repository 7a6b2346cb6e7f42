#!/bin/sh
# Lane mlx5-path: what posting and polling cost on the virtual ConnectX, with raw packets, and reads of counters, through this crate, through the
# drop-in and through libibverbs. Runs in the guest; see lib/guest.sh, beside/README.md.
#
# kernels: 6.1
# order: 8
# packages: gcc libc6-dev libibverbs-dev
# vhca:
# cargo: UVERBS_BESIDE build --release --package uverbs-beside
# cargo: UVERBS_DROPIN build --profile dropin --package uverbs-c
# cargo: UVERBS_MLX5 build --profile dropin --package uverbs-c-mlx5
# compile: UVERBS_PATH beside/path.c -libverbs
# compile: UVERBS_READS beside/reads.c -libverbs
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

# Frames that are sent come back, as with a loopback plug.
plug() {
    control_line && printf 'loop on\n' >&9 && read -r answer <&9 && [ "$answer" = ok ]
}

begin make_device

step plug plug || finish
path_steps frames
read_steps
step unload unload
step kernel-log kernel_log_is_clean
finish
