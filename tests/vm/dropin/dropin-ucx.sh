#!/bin/sh
# Lane dropin-ucx: UCX, and OpenMPI over it, of several releases of Debian, which read and write the rings of a virtual ConnectX themselves, with libibverbs and with the drop-in for it. Runs in the guest; see lib/guest.sh.
#
# kernels: 6.1 7.x
# order: 2
# limit: 1800
# vhca: --port roce
# cargo: UVERBS_DROPIN build --profile dropin --package uverbs-c
# cargo: UVERBS_MLX5 build --profile dropin --package uverbs-c-mlx5
# packages: ibverbs-utils ibverbs-providers
# consumers: bookworm trixie
# shellcheck disable=SC2317  # `step` calls the functions by name

vm=$(dirname "$0")/..
# shellcheck source=tests/vm/lib/guest.sh
. "$vm/lib/guest.sh"
# shellcheck source=tests/vm/mlx5/device.sh
. "$vm/mlx5/device.sh"
# shellcheck source=tests/vm/lib/both-sides.sh
. "$vm/lib/both-sides.sh"
# shellcheck source=tests/vm/lib/dropin-common.sh
. "$vm/lib/dropin-common.sh"

address=10.0.0.1

make_card() {
    make_device && with_address "$device" "$address" || return
    # From 6.12 on the driver makes queues of its own when memory is first registered, and keeps them.
    ibv_rc_pingpong -d "$device" -g 0 >/dev/null &
    until_true 20 listens 18515 && kill $! && ! wait $!
    resources >"$OUT/resources.before"
}

begin make_card
gid=$(gid_of "$device" "$address")
in_releases ucx mpi_programs
finish
