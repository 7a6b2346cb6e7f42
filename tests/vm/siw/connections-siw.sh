#!/bin/sh
# Lane connections-siw: connections by the kernel's connection manager on its software iWARP device, also with programs of librdmacm on the
# other side. Runs in the guest; see lib/guest.sh.
#
# kernels: 6.1 7.x
# by default: 7.x
# due: src/cm src/kernel/manager uverbs-abi/src/cm.rs src/driver/siw tests/any/connections.rs tests/any/managers.rs docs/examples/connections.rs
# due: tests/vm/lib/connections.sh tests/vm/siw/device.sh tests/vm/siw/socket.sh
# due: tests/vm/siw/connections-siw.sh
# order: 20
# only: 6.1 7.x
# packages: mmdebstrap rdmacm-utils
# module: SIW_MODULE siw
# cargo: EXAMPLE_CONNECTIONS build --profile guest --example connections
# tests: any::connections any::managers
# shellcheck disable=SC2317  # `step` calls the functions by name

vm=$(dirname "$0")/..
# shellcheck source=tests/vm/lib/guest.sh
. "$vm/lib/guest.sh"
# shellcheck source=tests/vm/siw/device.sh
. "$vm/siw/device.sh"
# shellcheck source=tests/vm/lib/connections.sh
. "$vm/lib/connections.sh"
# shellcheck source=tests/vm/siw/socket.sh
. "$vm/siw/socket.sh"

# shellcheck disable=SC2034  # lib/connections.sh reads it
address=$UVERBS_TEST_ADDRESS

begin make_siw
for test in $TESTS; do run_tests "$test"; done
talk_both_ways
step resources resources_are_as_before
step kernel-log kernel_log_is_clean
finish
