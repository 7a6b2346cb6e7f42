#!/bin/sh
# Lane connections-mlx5: connections by the kernel's connection manager between two virtual ConnectXes with RoCE v2 and a wire between them,
# also with programs of librdmacm on the other side. Runs in the guest; see lib/guest.sh.
#
# kernels: 7.x
# by default: 7.x
# due: later src/cm src/kernel/manager uverbs-abi/src/cm.rs tests/vhca tests/vm/peers/src
# due: later tests/vm/lib/connections.sh tests/vm/lib/stock.sh tests/vm/lib/look_ups.sh tests/vm/lib/managed_perftest.sh tests/vm/lib/both-sides.sh
# order: 20
# packages: mmdebstrap rdmacm-utils perftest
# vhca: --port roce --wire one,two
# vhca: --port roce --wire two,one --mac 52:54:00:ca:fe:02
# cargo: UVERBS_BIN build --profile guest --features cli --bin uverbs
# cargo: EXAMPLE_CONNECTIONS build --profile guest --example connections
# cargo: EXAMPLE_KEY_VALUE build --profile guest --features tokio --example key_value
# cargo: EXAMPLE_LOOK_UPS build --profile guest --example look_ups
# cargo: UVERBS_PEERS build --profile guest --package uverbs-peers
# cargo: UVERBS_DROPIN build --profile dropin --package uverbs-c
# passes: UVERBS_WHOLE
# roots: sid
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
# shellcheck source=tests/vm/lib/connections.sh
. "$vm/lib/connections.sh"
# shellcheck source=tests/vm/lib/stock.sh
. "$vm/lib/stock.sh"
# shellcheck source=tests/vm/lib/look_ups.sh
. "$vm/lib/look_ups.sh"
# shellcheck source=tests/vm/lib/managed_perftest.sh
. "$vm/lib/managed_perftest.sh"

# The server is at the second card, whose interface is in a network namespace of its own.
# shellcheck disable=SC2034  # the files above read them
address=10.0.0.2 near_address=10.0.0.1 server_place="nsenter --net=/run/netns/far" server_device=mlx5_1

# A group is found by its route. At the first memory region the driver creates a queue of its own (`mlx5r_umr_resource_init`, umr.c, 7.3).
make_both() {
    make_hosts && modprobe rdma_ucm && ip route add 239.1.2.3 dev "$near" && ip -n far route add 239.1.2.3 dev "$far" &&
        "$UVERBS_BIN" ping --device mlx5_0 --iters 1 --loopback >&2 &&
        $server_place "$UVERBS_BIN" ping --device mlx5_1 --iters 1 --loopback >&2 && resources >"$OUT/resources.before"
}

begin make_both
talk_both_ways
step table table_is_read
ping_both_ways
stock_both_ways
look_up_both_ways
managed_perftests
step resources resources_are_as_before
step kernel-log kernel_log_is_clean
finish
