#!/bin/sh
# Lane connections-mlx5: connections by the kernel's connection manager over RoCE v2, between two virtual ConnectXes, also with programs of
# librdmacm on the other side. Runs in the guest; see lib/guest.sh.
#
# kernels: 6.1 7.x
# by default: 7.x
# due: later src/cm src/kernel/manager tests/any/connections.rs tests/any/cm_messages.rs docs/examples/connections.rs src/bin/uverbs/ping
# due: tests/vm/lib/connections.sh tests/vm/lib/stock.sh tests/vm/lib/both-sides.sh tests/vm/mlx5/two-roce.sh tests/vm/peers/src
# order: 10
# limit: 1800
# packages: mmdebstrap rdmacm-utils
# vhca: --port roce --wire one,two
# vhca: --port roce --wire two,one --mac 52:54:00:ca:fe:02
# cargo: UVERBS_BIN build --profile guest --features cli --bin uverbs
# cargo: EXAMPLE_CONNECTIONS build --profile guest --example connections
# cargo: UVERBS_PEERS build --profile guest --package uverbs-peers
# roots: sid
# tests: any::connections any::cm_messages any::managers any::look_ups
# shellcheck disable=SC2317  # `step` calls the functions by name

vm=$(dirname "$0")/..
# shellcheck source=tests/vm/lib/guest.sh
. "$vm/lib/guest.sh"
# shellcheck source=tests/vm/mlx5/device.sh
. "$vm/mlx5/device.sh"
# shellcheck source=tests/vm/lib/dropin-common.sh
. "$vm/lib/dropin-common.sh"
# shellcheck source=tests/vm/lib/both-sides.sh
. "$vm/lib/both-sides.sh"
# shellcheck source=tests/vm/mlx5/two-roce.sh
. "$vm/mlx5/two-roce.sh"
# shellcheck source=tests/vm/lib/connections.sh
. "$vm/lib/connections.sh"
# shellcheck source=tests/vm/lib/stock.sh
. "$vm/lib/stock.sh"

make_hosts() { make_cards && modprobe rdma_ucm && resources >"$OUT/resources.before"; }

begin make_hosts
# Both ends on the near card.
UVERBS_TEST_ADDRESS=10.0.0.1
export UVERBS_TEST_ADDRESS
for test in $TESTS; do run_tests "$test"; done
# The server is at the far end.
# shellcheck disable=SC2034  # lib/connections.sh reads them
address=10.0.0.2 server_place="ip netns exec far"
talk_both_ways
ping_both_ways
stock_both_ways
step resources resources_are_as_before
step kernel-log kernel_log_is_clean
finish
