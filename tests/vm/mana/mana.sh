#!/bin/sh
# Lane mana: the kernel's mana drivers on a virtual MANA: reliable connections whose packets are numbered here. Runs in the guest; see
# lib/guest.sh.
#
# kernels: 7.x
# by default: 7.x
# due: $DRIVER !src/mlx5 !src/driver/mlx5 !src/driver/rxe !src/driver/siw !src/driver/efa !src/counters !src/flow
# due: tests/vmana tests/vpci tests/vm/lib/mlx5.py tests/vm/mana/device.sh $TESTS src/bin/uverbs tests/vm/lib/statistics.sh
# due: tests/vm/lib/compare-statistics
# order: 6
# only: 6.12 7.x
# vmana:
# cargo: UVERBS_BIN build --profile guest --features cli --bin uverbs
# tests: any::device any::completion_counter any::wait_objects any::without_queues any::statistics allocations asynchronous fork
# shellcheck disable=SC2317  # `step` calls the functions by name

vm=$(dirname "$0")/..
# shellcheck source=tests/vm/lib/guest.sh
. "$vm/lib/guest.sh"
# shellcheck source=tests/vm/mana/device.sh
. "$vm/mana/device.sh"
# shellcheck source=tests/vm/lib/statistics.sh
. "$vm/lib/statistics.sh"

ping() { # ping [OPTION...]
    timeout 120 "$UVERBS_BIN" ping --device "$device" --loopback --transport rc --iters 50 "$@"
}

list_mana() { "$UVERBS_BIN" devices && grep -qw "$device .*mana" "$OUT/$name.out"; }

# shellcheck disable=SC2119  # one device
begin make_mana

step devices list_mana
describe_device
step ping ping
step ping-read ping --op read
step ping-write ping --op write
step stat-agrees stat_agrees
for test in $TESTS; do run_tests "$test"; done
step up-and-down up_and_down
step resources resources_are_as_before
step complaints no_complaints
step nothing-is-left nothing_is_left
step kernel-log kernel_log_is_clean
finish
