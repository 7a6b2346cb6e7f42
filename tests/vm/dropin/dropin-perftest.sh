#!/bin/sh
# Lane dropin-perftest: perftest, with all its flags, of several releases of Debian, with the drop-in for libibverbs, end to end, on rxe. Runs in the guest; see lib/guest.sh.
#
# kernels: 6.1 7.x
# order: 2
# limit: 2700
# cargo: UVERBS_DROPIN build --profile dropin --package uverbs-c
# cargo: UVERBS_MLX5 build --profile dropin --package uverbs-c-mlx5
# consumers: bookworm trixie sid

vm=$(dirname "$0")/..
# shellcheck source=tests/vm/lib/guest.sh
. "$vm/lib/guest.sh"

# shellcheck source=tests/vm/lib/dropin-common.sh
. "$vm/lib/dropin-common.sh"

begin make_device
in_releases perftest
finish
