#!/bin/sh
# The lane arm64-library of tests/vm/arm64: the library's unit tests, and Debian's own programs with the drop-in for libibverbs beside libibverbs, on rxe.
# Runs in the guest; see lib/guest.sh.
#
# cargo: UVERBS_DROPIN build --profile guest --package uverbs-c
# cargo: UNIT_TESTS test --profile guest --no-run --package uverbs --lib
# shellcheck disable=SC2317  # `step` calls the functions by name

vm=$(dirname "$0")/..
# shellcheck source=tests/vm/lib/guest.sh
. "$vm/lib/guest.sh"

# shellcheck source=tests/vm/lib/dropin-common.sh
. "$vm/lib/dropin-common.sh"

# These tests run directly in the guest, not under an emulating program, so that the CPU's counter is the kernel's clock.
unit_tests() {
    # One of the tests asks for more addresses than the guest has memory.
    echo 1 >/proc/sys/vm/overcommit_memory || return
    "$UNIT_TESTS" --show-output || return
    [ "$(cat /sys/devices/system/clocksource/clocksource0/current_clocksource)" = arch_sys_counter ] &&
        ! grep 'skipped: the counter of the CPU' "$OUT/$name.err" >&2
}

begin make_device

step unit-tests unit_tests
step library library_is_ours /usr/bin/ibv_devinfo
step devices same_output ibv_devices
step devinfo same_output ibv_devinfo -v
paired_pingpongs
step libraries only_ours_was_loaded
step resources resources_are_as_before
step kernel-log kernel_log_is_clean
finish
