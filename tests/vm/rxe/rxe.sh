#!/bin/sh
# Lane rxe: the kernel's software RoCE device on a dummy network interface. Runs in the guest; see lib/guest.sh.
#
# kernels: 6.1 6.12 7.x
# by default: 7.x
# due: $RXE $TESTS src/bin/uverbs $EXAMPLES
# due: tests/vm/rxe/faults.sh tests/vm/lib/statistics.sh tests/vm/lib/compare-statistics
# order: 2
# limit: 1800
# cargo: UVERBS_BIN build --profile guest --features cli --bin uverbs
# cargo: EXAMPLE_COMPLETION_COUNTERS build --profile guest --example completion_counters
# cargo: EXAMPLE_COUNTER_WATCH build --profile guest --example counter_watch
# cargo: EXAMPLE_DATAGRAMS build --profile guest --example datagrams
# cargo: EXAMPLE_RC_PINGPONG build --profile guest --example rc_pingpong
# cargo: EXAMPLE_READ_LATENCY build --profile guest --example read_latency
# cargo: EXAMPLE_SHARED_RECEIVES build --profile guest --example shared_receives
# cargo: EXAMPLE_STATISTICS build --profile guest --example statistics
# tests: any::device any::credentials any::connected any::orders any::completion_counter any::wait_objects any::counted_traffic
# tests: any::counted_queues any::shared_receives any::multicast any::drain any::queues asynchronous fork
# tests: any::windows any::window_states any::errno any::errno_objects any::queue_pairs any::transitions any::messages any::grid
# tests: card::rss card::offloads any::failures any::lives any::xrc any::xrc_commands any::statistics allocations
# tests: cycles faults any::requests
# On debug kernels of 6.1 this one ends with a report, and with it what looks at locks.
# tests: any::memory
# shellcheck disable=SC2317  # `step` calls the functions by name

vm=$(dirname "$0")/..
# shellcheck source=tests/vm/lib/guest.sh
. "$vm/lib/guest.sh"

# shellcheck source=tests/vm/rxe/faults.sh
. "$vm/rxe/faults.sh"
# shellcheck source=tests/vm/lib/statistics.sh
. "$vm/lib/statistics.sh"
# shellcheck source=tests/vm/lib/examples.sh
. "$vm/lib/examples.sh"

device_node() {
    verbs=$(grep -lx "$device" /sys/class/infiniband_verbs/*/ibdev) || return
    node=/dev/infiniband/$(basename "${verbs%/ibdev}")
    ls -l "$node" && test -c "$node"
}

# The pings: 100 messages each way, with ours on one side and Debian's pingpong program on the other, or with ours on both.

address=192.0.2.1
tcp_port=18515

listening() { # a server waits on the TCP port
    ss -Hltn "sport = :$tcp_port" | grep -q .
}

ping_pair() { # ping_pair KIND CLIENT SERVER, each being ours or theirs
    ping_side "$1" "$3" >"$OUT/$name.server" 2>&1 &
    server=$!
    until_true 10 listening || { cat "$OUT/$name.server" >&2; return 1; }
    status=0
    ping_side "$1" "$2" "$address" || status=$?
    wait "$server" || { echo "server: exit status $?: $(cat "$OUT/$name.server")" >&2; return 1; }
    cat "$OUT/$name.server"
    return "$status"
}

ping_side() { # ping_side KIND ours|theirs [HOST]: KIND is that of a pingpong program; srq is followed by a number of queue pairs
    case $2-$1 in
    ours-srq*) options="--qps ${1#srq}" ;;
    ours-*) options="--transport $1" ;;
    theirs-srq*) options="-q ${1#srq}" ;;
    *) options= ;;
    esac
    # shellcheck disable=SC2086  # words
    case $2 in
    ours) timeout 60 "$UVERBS_BIN" ping --device "$device" --iters 100 --size 1024 $options ${3:+"$3"} ;;
    theirs) timeout 60 "ibv_${1%%[0-9]*}_pingpong" -d "$device" -g 1 -n 100 -s 1024 $options ${3:+"$3"} ;;
    esac
}

ping_loopback() {
    for options in "--transport rc" "--transport ud" "--qps 16" "--qps 16 --transport ud"; do
        for how in "" --counter; do
            # shellcheck disable=SC2086  # words
            timeout 60 "$UVERBS_BIN" ping --device "$device" --loopback --iters 100 $options $how || return
        done
    done
}

ping_refused() { # rxe has no extended connections, and that is said
    code=0
    "$UVERBS_BIN" ping --device "$device" --loopback --transport xrc || code=$?
    test "$code" -eq 5 && grep -q '^uverbs: xrcd.open: .*extended reliable connections' "$OUT/$name.err"
}

ping_interrupted() { # a server that is ended before anybody came has no result, and says so
    "$UVERBS_BIN" ping --device "$device" 2>"$OUT/$name.server" &
    server=$!
    until_true 10 listening || { cat "$OUT/$name.server" >&2; return 1; }
    kill -INT "$server"
    code=0
    wait "$server" || code=$?
    cat "$OUT/$name.server"
    test "$code" -eq 1 && grep -q '^uverbs: ended before the two sides had connected$' "$OUT/$name.server"
}

# Half of what discovery uses may be missing in a container or a sandbox. The program must work all the same.

works() { # works DEVICE DRIVER COMMAND...: with COMMAND in front the device is listed, described and, if it is rxe, used
    of=$1 driver=$2
    shift 2
    "$@" "$UVERBS_BIN" devices | tee "$OUT/$name.devices" && grep -qw "$of" "$OUT/$name.devices" &&
        "$@" "$UVERBS_BIN" info "$of" >"$OUT/$name.info" && grep -w "driver:.*$driver" "$OUT/$name.info" &&
        "$@" "$UVERBS_BIN" stat --all "$of" | tee "$OUT/$name.stat" || return
    if [ "$driver" = rxe ]; then
        "$@" "$UVERBS_BIN" ping --device "$of" --loopback --iters 10
    fi
}

without_sysfs() {
    works "$device" rxe unshare --mount sh -c 'mount -t tmpfs none /sys && exec "$@"' sh || return
    # Everything is the same, except for what the kernel tells by netlink alone.
    unshare --mount sh -c 'mount -t tmpfs none /sys && exec "$@"' sh "$UVERBS_BIN" info "$device" | diff "$OUT/info.out" -
}

without_netlink() {
    for errno in EPERM EAFNOSUPPORT EPROTONOSUPPORT; do
        works "$device" rxe "$vm/lib/without-netlink" "$errno" || return
    done
    # Where sysfs does not name the driver either, the device itself is asked.
    verbs=$(grep -lx "$device" /sys/class/infiniband_verbs/*/ibdev) || return
    tree=/tmp/tree/class/infiniband_verbs/$(basename "${verbs%/ibdev}")
    mkdir -p "$tree" "/tmp/tree/class/infiniband/$device/ports/1" && cp "$verbs" "${verbs%/ibdev}/abi_version" "$tree" || return
    works "$device" rxe env SYSFS_PATH=/tmp/tree "$vm/lib/without-netlink" EPERM || return
    grep "^$device  *unknown " "$OUT/$name.devices"
}

# Rates while there is traffic: each reading has one, and packets were sent in the meantime.
stat_watch() {
    "$UVERBS_BIN" ping --device "$device" --loopback --iters 1000000 --timeout 60s >"$OUT/$name.ping" 2>&1 &
    traffic=$!
    status=0
    "$UVERBS_BIN" stat "$device/1" --watch 500ms --count 5 --json >"$OUT/$name.json" || status=$?
    "$UVERBS_BIN" stat "$device/1" --watch 500ms --count 2 || status=$?
    kill -INT "$traffic"
    wait "$traffic"
    test "$status" -eq 0 && test "$(wc -l <"$OUT/$name.json")" -eq 5 && "$PYTHON" -c 'import json, sys
for number, line in enumerate(sys.stdin):
    rows = {row["name"]: row for row in json.loads(line)["devices"][0]["counters"] if row["source"] == "hw_counters"}
    sent = rows["sent_pkts"]
    assert (sent["per_second"] is None) == (number == 0) and sent["unit"] == "packets", sent
    print(sent["value"], sent["per_second"])
assert sent["per_second"] > 0, sent' <"$OUT/$name.json"
}

# A device that is deleted while it is watched is reported as gone.
stat_vanishes() {
    ip link add dummy1 type dummy && ip link set dummy1 up && rdma link add rxe1 type rxe netdev dummy1 || return
    "$UVERBS_BIN" stat rxe1 --watch 100ms >"$OUT/$name.pages" 2>"$OUT/$name.said" &
    watch=$!
    until_true 10 grep -q '^rxe1 (rxe)' "$OUT/$name.pages" && rdma link delete rxe1 && ip link delete dummy1
    status=$?
    code=0
    wait "$watch" || code=$?
    cat "$OUT/$name.said"
    test "$status" -eq 0 && test "$code" -eq 1 && grep -q '^uverbs: rxe1: statistics.read: device gone (ENODEV)' "$OUT/$name.said"
}

# What rxe does not do is reported as such, though the kernel would accept it.
stat_unbound() {
    "$UVERBS_BIN" stat --qp "$device" && grep -q 'port 1, queue pairs: not counted one by one' "$OUT/$name.out"
}

# The choice of a GID. Each function makes what it needs, and removes it.

says() { # says CODE PATTERN OPTION...: a ping ends with this code and says this in one line
    wanted=$1 pattern=$2
    shift 2
    code=0
    timeout 60 "$UVERBS_BIN" ping "$@" 2>"$OUT/$name.said" || code=$?
    cat "$OUT/$name.said"
    [ "$code" -eq "$wanted" ] && [ "$(wc -l <"$OUT/$name.said")" -eq 1 ] && grep -q "$pattern" "$OUT/$name.said"
}

other_device() { # other_device ADDRESS [MODE]: rxe1 on an interface with this address; MODE is that of its link-local address
    ip link add dummy1 address 52:54:00:12:34:57 type dummy && ip link set dummy1 addrgenmode "${2:-eui64}" &&
        ip link set dummy1 up || return
    case $1 in
    *:*) ip addr add "$1" dev dummy1 nodad ;;
    *) ip addr add "$1" dev dummy1 ;;
    esac && rdma link add rxe1 type rxe netdev dummy1 && until_true 10 rxe1_is_ready
}

# The kernel fills the table on its own time: the default entry, and that of the address.
rxe1_is_ready() { [ "$("$UVERBS_BIN" info rxe1 | grep -c 'GID\[')" -ge 2 ]; }

no_other_device() {
    rdma link delete rxe1
    ip link delete dummy1
}

ping_ipv6() { # ping_ipv6 [HOST PATTERN]: without one, both sides are in one process
    if [ $# -eq 0 ]; then
        timeout 60 "$UVERBS_BIN" ping --device rxe1 --loopback --iters 10
        return
    fi
    timeout 60 "$UVERBS_BIN" ping --device rxe1 --iters 10 >"$OUT/$name.server" 2>&1 &
    server=$!
    status=0
    { until_true 10 listening && timeout 60 "$UVERBS_BIN" ping --device rxe1 --iters 10 "$1" >"$OUT/$name.client"; } || status=$?
    wait "$server" || status=$?
    cat "$OUT/$name.client" "$OUT/$name.server"
    # The server takes an address of the client's family, whatever comes first.
    [ "$status" -eq 0 ] && grep -q "^gid  *$2: the address from which" "$OUT/$name.client" && grep -q "^gid  *$2: " "$OUT/$name.server"
}

# Without an IPv4 address the entry at index 0 is a link-local one.
gid_ipv6() {
    other_device fd00::2/64 || return
    status=0
    ping_ipv6 && grep -q '^gid  *1, fd00::2 (RoCE v2, dummy1): the first in the order of choice' "$OUT/$name.out" || status=1
    ping_ipv6 fd00::2 '1, fd00::2 (RoCE v2, dummy1)' || status=1
    ping_ipv6 fe80::5054:ff:fe12:3457%dummy1 '0, fe80::5054:ff:fe12:3457 (RoCE v2, dummy1)' || status=1
    # With both families, the server follows the client.
    ip addr add 198.51.100.1/24 dev dummy1 && until_true 10 has_ipv4 || status=1
    ping_ipv6 198.51.100.1 '[0-9]*, 198.51.100.1 (RoCE v2, dummy1)' || status=1
    ping_ipv6 fd00::2 '1, fd00::2 (RoCE v2, dummy1)' || status=1
    no_other_device
    return "$status"
}

has_ipv4() { "$UVERBS_BIN" info rxe1 | grep -q '198.51.100.1'; }

# An interface without a link-local address has the GID of one all the same, at index 0.
gid_without_address() {
    other_device fd00::2/64 none || return
    status=0
    ping_ipv6 && grep -q '^gid  *1, fd00::2 (RoCE v2, dummy1): the first in the order of choice' "$OUT/$name.out" || status=1
    says 1 '(ENETUNREACH): no route from GID 0 to fe80::5054:ff:fe12:3457' --device rxe1 --loopback --gid-index 0 || status=1
    ip addr del fd00::2/64 dev dummy1 && until_true 10 has_no_address || status=1
    says 3 'GID 0, fe80::5054:ff:fe12:3457 (RoCE v2, dummy1): the interface does not have this address' --device rxe1 --loopback || status=1
    no_other_device
    return "$status"
}

has_no_address() { ! "$UVERBS_BIN" info rxe1 | grep -q 'fd00::2'; }

# The interface is down: so says its port, whichever index is given.
gid_down() {
    other_device 198.51.100.1/24 && ip link set dummy1 down || return
    status=0
    for given in '' '--gid-index 1'; do
        # shellcheck disable=SC2086  # words
        says 1 'port 1 of rxe1 is not active (state DOWN, .*ip link set dummy1 up' --device rxe1 --loopback $given || status=1
    done
    no_other_device
    return "$status"
}

# From another network namespace, which sees the device but not its interface.
gid_namespace() {
    ip netns add far && ip -n far link set lo up || return
    status=0
    elsewhere="ip netns exec far $UVERBS_BIN"
    code=0
    $elsewhere ping --device "$device" --loopback 2>"$OUT/$name.said" || code=$?
    cat "$OUT/$name.said"
    [ "$code" -eq 3 ] && grep -q 'GID 1, 192.0.2.1 (RoCE v2, dummy0): its network interface is not in this network namespace' \
        "$OUT/$name.said" && grep -q 'run in the network namespace of the interface' "$OUT/$name.said" || status=1
    # The same index, and the same name, in the other namespace.
    ip -n far link add dummy0 index "$(cat /sys/class/net/dummy0/ifindex)" type dummy && ip -n far link set dummy0 up &&
        ip -n far addr add 203.0.113.1/24 dev dummy0 || status=1
    code=0
    $elsewhere ping --device "$device" --loopback 2>"$OUT/$name.said" || code=$?
    cat "$OUT/$name.said"
    [ "$code" -eq 3 ] && grep -q 'GID 1, 192.0.2.1 (RoCE v2, dummy0): the interface does not have this address' "$OUT/$name.said" ||
        status=1
    # Who names it gets it: the kernel looks for routes in the namespace of the GID's interface.
    $elsewhere ping --device "$device" --loopback --iters 10 --gid-index 1 || status=1
    ip netns delete far
    return "$status"
}

# A port whose packets have 256 bytes: a size that nobody gave is not blamed.
ping_small() {
    other_device 198.51.100.1/24 && ip link set dummy1 mtu 400 || return
    status=0
    until_true 10 has_small_packets || status=1
    timeout 60 "$UVERBS_BIN" ping --device rxe1 --loopback --transport ud --iters 10 &&
        grep -q '^messages .* 256 bytes each' "$OUT/$name.out" || status=1
    timeout 60 "$UVERBS_BIN" ping --device rxe1 --loopback --iters 10 || status=1
    says 2 '^uverbs: --size 257: a message is at most 256 bytes' --device rxe1 --loopback --transport ud --size 257 || status=1
    no_other_device
    return "$status"
}

has_small_packets() { "$UVERBS_BIN" info rxe1 | grep -q 'active_mtu:.*256'; }

begin make_device

# On 7.x nothing has loaded ib_uverbs yet; asking for the device over netlink loads it, and only then is there a device node. So this
# comes first.
step devices list_devices
step node device_node
describe_device
for kind in rc ud srq16 srq1; do
    step "ping-$kind-client" ping_pair "$kind" ours theirs
    step "ping-$kind-server" ping_pair "$kind" theirs ours
    step "ping-$kind-both" ping_pair "$kind" ours ours
done
step ping-loopback ping_loopback
step ping-refused ping_refused
step ping-interrupted ping_interrupted
step gid-ipv6 gid_ipv6
step gid-without-address gid_without_address
step gid-down gid_down
step gid-namespace gid_namespace
step ping-small ping_small
play_examples completion_counters='16 sent, 16 received' counter_watch='!unsupported' datagrams='"to everybody"' rc_pingpong='1000 round trips' \
    read_latency='!unsupported' shared_receives='60 messages of 3 clients' statistics='sent_pkts\|cm_mra\|of kind'
step stat-agrees stat_agrees
step stat-objects stat_objects ibv_srq_pingpong -d "$device" -g 1 -q 5
step stat-pages stat_pages
step stat-watch stat_watch
step stat-unbound stat_unbound
step stat-vanishes stat_vanishes
step without-sysfs without_sysfs
step without-netlink without_netlink
step kill-rc-client kill_in_traffic rc client
step kill-rc-server kill_in_traffic rc server
step kill-ud-client kill_in_traffic ud client
step kill-loopback kill_both rc
for test in $TESTS; do
    run_tests "$test"
    case $test in faults) step memory-limit without_privilege ;; esac
done
step resources resources_are_as_before
step kernel-log kernel_log_is_clean
finish
