#!/bin/sh
# Lane dropin-pyverbs: the test suites of the pyverbs of Debian 13 and sid on rxe, with those releases' libibverbs and with the drop-in, in roots of their own.
# Runs in the guest; see lib/guest.sh.
#
# kernels: 6.1 7.x
# order: 3
# cargo: UVERBS_DROPIN build --profile dropin --package uverbs-c
# cargo: UVERBS_MLX5 build --profile dropin --package uverbs-c-mlx5
# roots: trixie sid
# shellcheck disable=SC2317  # `step` calls the functions by name

vm=$(dirname "$0")/..
# shellcheck source=tests/vm/lib/guest.sh
. "$vm/lib/guest.sh"
# shellcheck source=tests/vm/lib/dropin-common.sh
. "$vm/lib/dropin-common.sh"
# shellcheck source=tests/vm/lib/pyverbs.sh
. "$vm/lib/pyverbs.sh"

# As in the lane dropin: work that rxe leaves to a worker goes first, on the same processor.
suite() { # suite ours|theirs: a line for each test
    echo 1 >/sys/devices/virtual/workqueue/cpumask || return
    "$1" timeout 800 taskset -c 0 chrt --idle 0 chroot "$root" /tmp/pyverbs "$device" dummy0
}

begin make_device
cp "$vm/lib/pyverbs" /tmp/pyverbs
for suite in $ROOTS; do
    eval "root=\$ROOT_$suite"
    release=$suite-
    step "$suite-root" enter "$root" || continue
    step "$suite-pyverbs-theirs" suite theirs
    step "$suite-pyverbs-ours" suite ours
    step "$suite-pyverbs" same_results
done
step libraries only_ours_was_loaded
step resources resources_are_as_before
step kernel-log kernel_log_is_clean
finish
