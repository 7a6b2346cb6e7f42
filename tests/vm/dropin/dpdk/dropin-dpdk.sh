#!/bin/sh
# Lane dropin-dpdk: DPDK's testpmd, of several releases of Debian, on the rings of a virtual ConnectX, with libibverbs and with the drop-in for it. Runs in the guest; see lib/guest.sh.
#
# kernels: 6.1 7.x
# order: 2
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

begin make_device
finish
