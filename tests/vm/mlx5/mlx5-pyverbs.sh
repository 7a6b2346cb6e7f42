#!/bin/sh
# Lane mlx5-pyverbs: the test suite of pyverbs on a virtual ConnectX with RoCE v2, with libibverbs and with the drop-in. Runs in the guest; see
# lib/guest.sh.
#
# kernels: 6.1 6.12 7.x
# order: 6
# packages: ibverbs-utils python3-pyverbs
# vhca: --port roce
# cargo: UVERBS_DROPIN build --profile dropin --package uverbs-c
# cargo: UVERBS_MLX5 build --profile dropin --package uverbs-c-mlx5
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
# shellcheck source=tests/vm/lib/pyverbs.sh
. "$vm/lib/pyverbs.sh"

root=
# Tests of mlx5's own interface need libmlx5, which the drop-in replaces.
begin make_card
step library library_is_ours /usr/bin/ibv_devinfo
step pyverbs-mlx5 suite theirs test_mlx5
step pyverbs-theirs suite theirs -test_mlx5
step pyverbs-ours suite ours -test_mlx5
# docs/guide/drop-in.md lists what is missing.
step pyverbs same_results 'test_\(parent_domain\|shared_pd\)\.'
step kernel-log kernel_log_is_clean
finish
