#!/bin/sh
# Lane erdma: the kernel's erdma driver on a virtual eRDMA in RoCE mode: this crate's connected queue pairs. Runs in the guest; see lib/guest.sh.
#
# kernels: 7.x
# by default: 7.x
# due: later $DRIVER !src/mlx5 !src/efa !src/driver/mlx5 !src/driver/rxe !src/driver/siw !src/driver/efa !src/counters !src/flow
# due: tests/verdma tests/vpci src/roce tests/vm/erdma/device.sh tests/vm/lib/mlx5.py tests/vm/lib/modules.py
# order: 6
# limit: 1500
# only: 7.x
# verdma: --mac 52:54:00:ca:fe:01
# nic: mac=52:54:00:ca:fe:01
# module: ERDMA_MODULE erdma
# cargo: UVERBS_BIN build --profile guest --features cli --bin uverbs
# cargo: EXAMPLE_COUNTER_WATCH build --profile guest --example counter_watch
# cargo: EXAMPLE_DATAGRAMS build --profile guest --example datagrams
# cargo: EXAMPLE_RC_PINGPONG build --profile guest --example rc_pingpong
# cargo: EXAMPLE_READ_LATENCY build --profile guest --example read_latency
# cargo: EXAMPLE_SHARED_RECEIVES build --profile guest --example shared_receives
# cargo: EXAMPLE_STATISTICS build --profile guest --example statistics
# cargo: EXAMPLE_COMPLETION_COUNTERS build --profile guest --example completion_counters
# tests: any::connected any::device any::memory any::queues any::completion_counter any::wait_objects any::without_queues
# tests: any::counted_traffic any::drain any::statistics allocations asynchronous fork
# shellcheck disable=SC2317  # `step` calls the functions by name

vm=$(dirname "$0")/..
# shellcheck source=tests/vm/lib/guest.sh
. "$vm/lib/guest.sh"
# shellcheck source=tests/vm/erdma/device.sh
. "$vm/erdma/device.sh"
# shellcheck source=tests/vm/lib/statistics.sh
. "$vm/lib/statistics.sh"
# shellcheck source=tests/vm/lib/examples.sh
. "$vm/lib/examples.sh"

ping() { # ping [OPTION...]
    timeout 120 "$UVERBS_BIN" ping --device "$device" --loopback --iters 100 "$@"
}

list_erdma() { "$UVERBS_BIN" devices && grep -qw "$device .*erdma" "$OUT/$name.out"; }

# The counters of the port, which the device writes to memory of the kernel.
counts() { "$UVERBS_BIN" stat --all "$device" && [ "$(grep -cE '(tx|rx)_[a-z_]*cnt' "$OUT/$name.out")" -eq 11 ]; }

# A ping goes on when one in thirty packets is lost.
ping_lossy() { control lose 30 && ping && control lose 0; }

# shellcheck disable=SC2119  # one device
begin make_erdma

step devices list_erdma
describe_device
step ping ping
for op in read write atomic; do step "ping-$op" ping --op "$op"; done
step ping-lossy ping_lossy
step stat counts
step stat-agrees stat_agrees
play_examples completion_counters='!unsupported' counter_watch='!unsupported' datagrams='!unsupported' rc_pingpong='1000 round trips' \
    read_latency='!unsupported' shared_receives='!unsupported' statistics='of kind'
for test in $TESTS; do run_tests "$test"; done
step resources resources_are_as_before
step complaints no_complaints
step nothing-is-left nothing_is_left
step kernel-log kernel_log_is_clean
finish
