#!/bin/sh
# Lane efa: the kernel's efa driver on a virtual EFA: queues, reliable datagrams, completion counters. Runs in the guest; see lib/guest.sh.
#
# kernels: 6.1 7.x
# by default: 7.x
# due: $DRIVER !src/mlx5 !src/driver/mlx5 !src/driver/rxe !src/driver/siw !src/counters !src/flow
# due: tests/vefa tests/vpci tests/vm/lib/mlx5.py tests/vm/lib/modules.py tests/vm/efa/device.sh tests/vm/lib/dropin-common.sh
# due: $TESTS src/bin/uverbs tests/vm/lib/statistics.sh tests/vm/lib/compare-statistics $EXAMPLES
# order: 6
# only: 6.1 7.x
# vefa:
# module: EFA_MODULE efa
# cargo: UVERBS_BIN build --profile guest --features cli --bin uverbs
# cargo: EXAMPLE_COUNTER_WATCH build --profile guest --example counter_watch
# cargo: EXAMPLE_DATAGRAMS build --profile guest --example datagrams
# cargo: EXAMPLE_RC_PINGPONG build --profile guest --example rc_pingpong
# cargo: EXAMPLE_READ_LATENCY build --profile guest --example read_latency
# cargo: EXAMPLE_SHARED_RECEIVES build --profile guest --example shared_receives
# cargo: EXAMPLE_STATISTICS build --profile guest --example statistics
# cargo: EXAMPLE_COMPLETION_COUNTERS build --profile guest --example completion_counters
# tests: any::reliable_datagrams any::device any::memory any::queues any::completion_counter any::wait_objects any::without_queues
# tests: any::drain any::statistics allocations asynchronous fork
# shellcheck disable=SC2317  # `step` calls the functions by name

vm=$(dirname "$0")/..
# shellcheck source=tests/vm/lib/guest.sh
. "$vm/lib/guest.sh"
# shellcheck source=tests/vm/efa/device.sh
. "$vm/efa/device.sh"
# shellcheck source=tests/vm/lib/statistics.sh
. "$vm/lib/statistics.sh"
# shellcheck source=tests/vm/lib/examples.sh
. "$vm/lib/examples.sh"

ping() { # ping TRANSPORT [OPTION...]
    transport=$1
    shift
    timeout 120 "$UVERBS_BIN" ping --device "$device" --loopback --transport "$transport" --iters 50 "$@"
}

list_efa() { "$UVERBS_BIN" devices && grep -qw "$device .*efa" "$OUT/$name.out"; }

has_writes() { case $(uname -r) in 6.1.*) false ;; *) true ;; esac; }

# The device counts where the kernel has an object for its counters.
counted() { # counted KERNEL
    case $1 in 6.* | 7.[012].*) source=software ;; *) source='hardware, read from memory' ;; esac
    timeout 60 "$EXAMPLE_COMPLETION_COUNTERS" "$device" && grep -q "^counted by $source: 16 sent, 16 received" "$OUT/$name.out"
}

# shellcheck disable=SC2119  # one device
begin make_efa

step devices list_efa
describe_device
step ping-srd ping srd
step ping-ud ping ud
step ping-srd-read ping srd --op read
! has_writes || step ping-srd-write ping srd --op write
step counted counted "$(uname -r)"
play_examples completion_counters='16 sent, 16 received' counter_watch='!unsupported' datagrams='"an answer" with the number 7' \
    rc_pingpong='!unsupported' read_latency='!unsupported' shared_receives='!unsupported' statistics='of kind'
step stat-agrees stat_agrees
step stat-objects stat_objects "$UVERBS_BIN" ping --device "$device" --transport srd --timeout 60s
step stat-pages stat_pages
for test in $TESTS; do run_tests "$test"; done
step resources resources_are_as_before
step complaints no_complaints
step nothing-is-left nothing_is_left
step kernel-log kernel_log_is_clean
finish
