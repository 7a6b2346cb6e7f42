#!/bin/sh
# Lane connections-siw: connections by the kernel's connection manager on its software iWARP device, also with programs of librdmacm on the
# other side. Runs in the guest; see lib/guest.sh.
#
# kernels: 6.1 7.x
# by default: 7.x
# due: src/cm src/kernel/manager uverbs-abi/src/cm.rs src/driver/siw tests/any/connections.rs tests/any/cm_messages.rs
# due: docs/examples/connections.rs docs/examples/key_value.rs src/tokio
# due: tests/vm/lib/stock.sh tests/vm/peers/src src/bin/uverbs/ping src/bin/uverbs/target.rs
# due: tests/any/look_ups.rs tests/any/managers.rs
# due: tests/vm/lib/connections.sh tests/vm/siw/device.sh tests/vm/siw/socket.sh
# due: tests/vm/siw/connections-siw.sh
# order: 20
# only: 6.1 7.x
# packages: mmdebstrap rdmacm-utils
# module: SIW_MODULE siw
# cargo: UVERBS_BIN build --profile guest --features cli --bin uverbs
# cargo: EXAMPLE_CONNECTIONS build --profile guest --example connections
# cargo: EXAMPLE_KEY_VALUE build --profile guest --features tokio --example key_value
# cargo: UVERBS_PEERS build --profile guest --package uverbs-peers
# passes: UVERBS_WHOLE
# roots: sid
# tests: any::connections any::cm_messages any::look_ups any::managers
# shellcheck disable=SC2317  # `step` calls the functions by name

vm=$(dirname "$0")/..
# shellcheck source=tests/vm/lib/guest.sh
. "$vm/lib/guest.sh"
# shellcheck source=tests/vm/siw/device.sh
. "$vm/siw/device.sh"
# shellcheck source=tests/vm/lib/dropin-common.sh
. "$vm/lib/dropin-common.sh"
# shellcheck source=tests/vm/lib/connections.sh
. "$vm/lib/connections.sh"
# libsiw takes the 145th page of a context's rings for one that the kernel could not map, since it has the key that means this
# (`siw_create_qp`, siw.c, rdma-core 44 and 65). Each connection of cmtime has four pages.
# shellcheck disable=SC2034  # lib/stock.sh reads it
many=30
# shellcheck source=tests/vm/lib/stock.sh
. "$vm/lib/stock.sh"
# shellcheck source=tests/vm/siw/socket.sh
. "$vm/siw/socket.sh"

# shellcheck disable=SC2034  # lib/connections.sh reads it
address=$UVERBS_TEST_ADDRESS

begin make_siw
for test in $TESTS; do run_tests "$test"; done
talk_both_ways
step table table_is_read
ping_both_ways
stock_both_ways
ping_here
step resources resources_are_as_before
step kernel-log kernel_log_is_clean
finish
