#!/bin/sh
# Lane dropin-programs: what programs of several releases of Debian do with the drop-in for libibverbs, end to end, on rxe. They are in roots made of those
# releases' packages. Runs in the guest; see guest.sh.
#
# order: 2
# cargo: UVERBS_DROPIN build --profile dropin --package uverbs-c
# consumers: bookworm trixie sid
# shellcheck disable=SC2317  # `step` calls the functions by name

here=$(dirname "$0")
# shellcheck source=tests/vm/guest.sh
. "$here/guest.sh"

# shellcheck source=tests/vm/dropin-common.sh
. "$here/dropin-common.sh"

begin make_device
modprobe rdma_ucm

for suite in $CONSUMERS; do
    eval "root=\$CONSUMERS_$suite"
    step "$suite-root" enter "$root" || continue
    step "$suite-programs" "$PYTHON" "$here/dropin/programs" "$here/dropin/programs.list" "$root" "$device" "$address"
done
step libraries only_ours_was_loaded
step resources resources_are_as_before
step kernel-log kernel_log_is_clean
finish
