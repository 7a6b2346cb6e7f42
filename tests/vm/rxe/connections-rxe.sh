#!/bin/sh
# Lane connections-rxe: connections by the kernel's connection manager on its software RoCE device, also with programs of librdmacm on the
# other side. Runs in the guest; see lib/guest.sh.
#
# kernels: 6.1 7.x
# by default: 7.x
# due: src/cm src/kernel/manager uverbs-abi/src/cm.rs src/driver/rxe tests/any/connections.rs tests/any/cm_messages.rs
# due: docs/examples/connections.rs docs/examples/key_value.rs src/tokio
# due: tests/vm/lib/stock.sh tests/vm/peers/src src/bin/uverbs/ping src/bin/uverbs/target.rs
# due: tests/any/look_ups.rs tests/any/managers.rs docs/examples/look_ups.rs tests/vm/lib/look_ups.sh
# due: tests/vm/lib/connections.sh tests/vm/lib/managed_perftest.sh tests/vm/rxe/connections-rxe.sh
# order: 20
# packages: mmdebstrap rdmacm-utils perftest
# cargo: UVERBS_BIN build --profile guest --features cli --bin uverbs
# cargo: EXAMPLE_CONNECTIONS build --profile guest --example connections
# cargo: EXAMPLE_KEY_VALUE build --profile guest --features tokio --example key_value
# cargo: UVERBS_PEERS build --profile guest --package uverbs-peers
# passes: UVERBS_WHOLE
# roots: sid
# tests: any::connections any::cm_messages any::look_ups any::managers
# cargo: EXAMPLE_LOOK_UPS build --profile guest --example look_ups
# cargo: UVERBS_DROPIN build --profile dropin --package uverbs-c
# shellcheck disable=SC2317  # `step` calls the functions by name

vm=$(dirname "$0")/..
# shellcheck source=tests/vm/lib/guest.sh
. "$vm/lib/guest.sh"
# shellcheck source=tests/vm/lib/dropin-common.sh
. "$vm/lib/dropin-common.sh"
# shellcheck source=tests/vm/lib/connections.sh
. "$vm/lib/connections.sh"
# shellcheck source=tests/vm/lib/stock.sh
. "$vm/lib/stock.sh"
# shellcheck source=tests/vm/lib/look_ups.sh
. "$vm/lib/look_ups.sh"
# shellcheck source=tests/vm/lib/managed_perftest.sh
. "$vm/lib/managed_perftest.sh"

# shellcheck disable=SC2034  # lib/connections.sh reads it
address=192.0.2.1
UVERBS_TEST_ADDRESS=$address
export UVERBS_TEST_ADDRESS

# A group is found by its route.
make_manager() { make_device && modprobe rdma_ucm && ip route add 239.1.2.3 dev dummy0; }

begin make_manager
for test in $TESTS; do run_tests "$test"; done
talk_both_ways
step table table_is_read
ping_both_ways
stock_both_ways
ping_here
look_up_both_ways
managed_perftests
step resources resources_are_as_before
step kernel-log kernel_log_is_clean
finish
