#!/bin/sh
# Lane mlx5-pyverbs-sid: the same as mlx5-pyverbs with the pyverbs, libibverbs and libmlx5 of Debian sid, in a root of its own. Runs in the guest; see
# lib/guest.sh.
#
# kernels: 6.1 7.x
# order: 3
# packages: ibverbs-utils ibverbs-providers
# vhca: --port roce
# cargo: UVERBS_DROPIN build --profile dropin --package uverbs-c
# cargo: UVERBS_MLX5 build --profile dropin --package uverbs-c-mlx5
# roots: sid
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

# docs/guide/drop-in.md lists what is missing. The domains of test_buf include parent domains.
# shellcheck disable=SC2154  # the runner's
card_of_release "$ROOT_sid" 'test_\(parent_domain\.\|shared_pd\.\|buf\..*_cc_pd\|phc_timestamp\.TimeStampTest\.test_timestamp_real_time\)'
finish
