#!/bin/sh
# Lane connections-veth: connections between two hosts, which are two network namespaces with a wire between them, each with the kernel's
# software RoCE device. Runs in the guest; see lib/guest.sh.
#
# kernels: 7.x
# by default: 7.x
# due: src/cm src/kernel/manager docs/examples/connections.rs src/bin/uverbs/ping
# due: tests/vm/lib/connections.sh tests/vm/lib/stock.sh tests/vm/peers/src
# order: 20
# only: 7.x
# packages: mmdebstrap rdmacm-utils
# cargo: UVERBS_BIN build --profile guest --features cli --bin uverbs
# cargo: EXAMPLE_CONNECTIONS build --profile guest --example connections
# cargo: UVERBS_PEERS build --profile guest --package uverbs-peers
# passes: UVERBS_WHOLE
# roots: sid
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

# The server is at the far end.
# shellcheck disable=SC2034  # lib/connections.sh reads them
address=192.0.2.2 server_place="ip netns exec far"

make_wire() {
    modprobe rdma_rxe && modprobe rdma_ucm && modprobe veth && ip netns add far &&
        ip link add near0 address 52:54:00:00:00:01 type veth peer name far0 address 52:54:00:00:00:02 netns far &&
        ip address add 192.0.2.1/24 dev near0 && ip link set near0 up &&
        ip -n far address add 192.0.2.2/24 dev far0 && ip -n far link set far0 up && ip -n far link set lo up &&
        rdma link add rxe0 type rxe netdev near0 && ip netns exec far rdma link add rxe1 type rxe netdev far0 &&
        until_true 10 ports_are_ready && resources >"$OUT/resources.before"
}

ports_are_ready() {
    for port in /sys/class/infiniband/rxe[01]/ports/1; do
        grep -q ACTIVE "$port/state" && grep -q 'ffff:c000:020[12]$' "$port/gids/1" || return
    done
}

forget() { ip neigh flush dev near0 && ip -n far neigh flush dev far0; }
know() { "$UVERBS_PEERS" reach "$address:$manager_port" >&2; }

# How long a program takes in ms: the least of ten times, each after a command, because
# other work on the machine adds as much as is measured.
time_of() { # time_of COMMAND PROGRAM ARGUMENTS...
    before=$1 least=
    shift
    for _ in 1 2 3; do
        "$before" || return
        begun=$(date +%s%N)
        "$@" >&2 || return
        took=$((($(date +%s%N) - begun) / 1000000))
        [ -n "$least" ] && [ "$least" -le "$took" ] || least=$took
    done
    echo "$least"
}

# What a program of librdmacm takes longer if neither side knows the other.
theirs_with_new_neighbour() {
    known=$(time_of know "$@" rping -c -a "$address" -p "$manager_port" -C 1) &&
        new=$(time_of forget "$@" rping -c -a "$address" -p "$manager_port" -C 1) && echo $((new - known))
}

# How long our connection takes in ms, without the start of the program: the least of ten times, each after a command, because
# other work on the machine adds as much as is measured.
reach_after() { # reach_after COMMAND
    for _ in 1 2 3 4 5 6 7 8 9 10; do
        "$1" && "$UVERBS_PEERS" reach "$address:$manager_port" || return
    done | sort -n | head -n 1
}

# A server of librdmacm; clients of ours, of librdmacm 44, and with UVERBS_WHOLE of 65.
new_neighbour() {
    until_true 30 nobody_listens || return
    ip netns exec far rping -s -P -a "$address" -p "$manager_port" &
    server=$!
    until_true 30 listens_for_calls && sleep 0.5 || return
    known=$(reach_after know) && ours=$(reach_after forget) && old=$(theirs_with_new_neighbour env) && new=$old
    [ -z "${UVERBS_WHOLE:-}" ] || new=$(theirs_with_new_neighbour chroot "$ROOT_sid")
    status=$?
    kill "$server"
    [ "$status" -eq 0 ] && [ -n "$known" ] && [ -n "$ours" ] && [ -n "$old" ] && [ -n "$new" ] || return 1
    said="a connection to a new neighbour: $ours ms, to a known one $known; librdmacm 44 takes $old ms more than to a known one"
    [ -z "${UVERBS_WHOLE:-}" ] || said="$said, 65 $new ms"
    echo "compared: $said"
    # On both sides what it takes more: all of a connection takes three times as long on a machine that is busy.
    more=$((ours - known))
    [ "$old" -gt 0 ] && [ $((10 * more)) -le "$old" ] && [ $((10 * more)) -le "$new" ]
}

begin make_wire
talk_both_ways
ping_both_ways
# The same programs as in connections-rxe.
[ -z "${UVERBS_WHOLE:-}" ] || stock_both_ways
step new-neighbour new_neighbour
step resources resources_are_as_before
step kernel-log kernel_log_is_clean
finish
