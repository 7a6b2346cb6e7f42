#!/bin/sh
# Lane dropin-programs: what programs of several releases of Debian do with the drop-in for libibverbs, end to end, on rxe. They are in roots made of those
# releases' packages. Runs in the guest; see guest.sh.
#
# order: 2
# packages: binutils
# cargo: UVERBS_DROPIN build --profile dropin --package uverbs-c
# consumers: bookworm trixie sid
# shellcheck disable=SC2317  # `step` calls the functions by name

here=$(dirname "$0")
# shellcheck source=tests/vm/guest.sh
. "$here/guest.sh"

# shellcheck source=tests/vm/dropin-common.sh
. "$here/dropin-common.sh"

# What the guest has of its own, and directories to write in.
furnish() { # furnish ROOT
    enter "$1" && mount -t tmpfs var "$1/var" && mkdir -p "$1/var/tmp" "$1/var/run" "$1/var/lib"
}

programs() { # programs SUITE ROOT GROUP
    "$PYTHON" "$here/dropin/programs" "$here/dropin/programs.list" "$2" "$1" "$3" "$device" "$address"
}

begin make_device
modprobe rdma_ucm
ip link set lo up

for suite in $CONSUMERS; do
    eval "root=\$CONSUMERS_$suite"
    step "$suite-root" furnish "$root" || continue
    step "$suite-rdma-core" programs "$suite" "$root" rdma-core
done
step libraries only_ours_was_loaded
step resources resources_are_as_before
step kernel-log kernel_log_is_clean
finish
