#!/bin/sh
# Lane siw: the kernel's software iWARP device on a dummy network interface: this crate described beside libibverbs, and tests of queues whose
# connections the kernel's connection manager makes. Runs in the guest; see lib/guest.sh.
#
# kernels: 6.1 7.x
# by default: 7.x
# due: src/driver/siw src/driver/ring/flagged.rs tests/any/managed.rs
# due: tests/common/manager.rs tests/vm/siw/device.sh tests/vm/lib/statistics.sh tests/vm/lib/compare-statistics $EXAMPLES
# order: 9
# only: 6.1 7.x
# packages: mmdebstrap
# module: SIW_MODULE siw
# cargo: UVERBS_BIN build --profile guest --features cli --bin uverbs
# cargo: EXAMPLE_COMPLETION_COUNTERS build --profile guest --example completion_counters
# cargo: EXAMPLE_COUNTER_WATCH build --profile guest --example counter_watch
# cargo: EXAMPLE_DATAGRAMS build --profile guest --example datagrams
# cargo: EXAMPLE_RC_PINGPONG build --profile guest --example rc_pingpong
# cargo: EXAMPLE_READ_LATENCY build --profile guest --example read_latency
# cargo: EXAMPLE_SHARED_RECEIVES build --profile guest --example shared_receives
# cargo: EXAMPLE_STATISTICS build --profile guest --example statistics
# tests: any::managed any::credentials any::without_queues any::device any::memory any::wait_objects any::completion_counter any::statistics asynchronous fork
# shellcheck disable=SC2317  # `step` calls the functions by name

vm=$(dirname "$0")/..
# shellcheck source=tests/vm/lib/guest.sh
. "$vm/lib/guest.sh"
# shellcheck source=tests/vm/siw/device.sh
. "$vm/siw/device.sh"
# shellcheck source=tests/vm/lib/statistics.sh
. "$vm/lib/statistics.sh"
# shellcheck source=tests/vm/lib/examples.sh
. "$vm/lib/examples.sh"

list_siw() {
    "$UVERBS_BIN" devices && grep -qw "$device .*siw" "$OUT/$name.out"
}

# When nobody connects the program's queue pairs, it says who would have to.
ping_refused() {
    code=0
    timeout 60 "$UVERBS_BIN" ping --device "$device" --loopback --iters 1 || code=$?
    test "$code" -ne 0 && grep 'connection manager' "$OUT/$name.err"
}

begin make_siw

step devices list_siw
describe_device
step ping-refused ping_refused
play_examples completion_counters='!unsupported' counter_watch='!unsupported' datagrams='!unsupported' rc_pingpong='!connection manager' \
    read_latency='!unsupported' shared_receives='!connection manager' statistics='of kind'
step stat-agrees stat_agrees
step stat-pages stat_pages
for test in $TESTS; do run_tests "$test"; done
step resources resources_are_as_before
step kernel-log kernel_log_is_clean
finish
