#!/bin/sh
# Lane dropin-core: one program each of libibverbs, librdmacm, perftest, libfabric and UCX in several releases of Debian, with the drop-in for libibverbs, end to
# end, on rxe. Runs in the guest; see lib/guest.sh.
#
# kernels: 6.1 7.x
# by default: 6.1
# due: later $RXE $DROPIN tests/vm/lib/roots.py
# order: 5
# cargo: UVERBS_DROPIN build --profile dropin --package uverbs-c
# cargo: UVERBS_MLX5 build --profile dropin --package uverbs-c-mlx5
# roots: bookworm trixie sid

vm=$(dirname "$0")/..
# shellcheck source=tests/vm/lib/guest.sh
. "$vm/lib/guest.sh"

# shellcheck source=tests/vm/lib/dropin-common.sh
. "$vm/lib/dropin-common.sh"

begin make_device
in_releases core
finish
