#!/bin/sh
# Lane doctor: `uverbs doctor` on the kernel's software RoCE device, with each cause made on purpose, and after it was put right. Runs in the
# guest; see lib/guest.sh.
#
# kernels: 6.1 7.x
# by default: 7.x
# due: src/bin/uverbs/doctor src/device tests/vm/lib/guest.sh $RUNNER
# order: 9
# limit: 600
# cargo: UVERBS_BIN build --profile guest --features cli --bin uverbs
# shellcheck disable=SC2317  # `step` calls the functions by name

vm=$(dirname "$0")/..
# shellcheck source=tests/vm/lib/guest.sh
. "$vm/lib/guest.sh"

doctor() { # doctor STATUS [COMMAND...]: the program, started by the command, ends with this status
    wanted=$1
    shift
    ended=0
    "$@" "$UVERBS_BIN" doctor --watch 10ms --json >"$OUT/$name.json" || ended=$?
    cat "$OUT/$name.json"
    [ "$ended" -eq "$wanted" ] || { echo "exit status $ended, and not $wanted" >&2; return 1; }
}

found() { # found CHECK SEVERITY [TEXT]: it was found, and says so
    grep -q "\"check\":\"$1\",\"severity\":\"$2\"" "$OUT/$name.json" && grep -qF "${3:-}" "$OUT/$name.json" || {
        echo "$1 was not found as a $2 with ${3:-any text}" >&2
        return 1
    }
}

no_device() {
    doctor 7 && found no-device problem "modprobe rdma_rxe"
}

notes_alone() { # with the connection manager's module
    modprobe rdma_ucm && until_true 10 test -e /dev/infiniband/rdma_cm && doctor 0 && found gid-index note "192.0.2.1, RoCE v2, dummy0"
}

no_manager() {
    [ ! -e /dev/infiniband/rdma_cm ] || { echo "the module is loaded already" >&2; return 1; }
    doctor 6 && found no-manager warning "modprobe rdma_ucm"
}

link_down() {
    ip link set dummy0 down && until_true 10 grep -q DOWN "/sys/class/infiniband/$device/ports/1/state" &&
        doctor 7 && found port-state problem "ip link set dummy0 up"
}

link_up() {
    ip link set dummy0 up && until_true 10 device_is_ready && until_true 10 has_local
}

has_local() { # the link-local address, which the interface gets some time after it is up
    ip -6 address show dev dummy0 | grep -q 'fe80.* scope link $'
}

local_only() {
    ip address del 192.0.2.1/24 dev dummy0 && until_true 10 has_no_address && doctor 6 && found link-local-only warning "ip addr add ADDRESS/24 dev dummy0"
}

has_no_address() { ! grep -q 'ffff:c000:0201$' "/sys/class/infiniband/$device/ports/1/gids/1"; }

address_again() {
    ip address add 192.0.2.1/24 dev dummy0 && until_true 10 device_is_ready && doctor 0
}

small_packets() {
    ip link set dummy0 mtu 700 && doctor 0 && found packet-size note "the MTU of dummy0 is 700" && ip link set dummy0 mtu 4200 &&
        doctor 0 && ! grep -q packet-size "$OUT/$name.json" && ip link set dummy0 mtu 1500
}

no_node() {
    mv /dev/infiniband/uverbs0 /dev/infiniband/elsewhere
    failed=0
    { doctor 7 && found no-node problem uverbs0; } || failed=1
    mv /dev/infiniband/elsewhere /dev/infiniband/uverbs0
    return "$failed"
}

denied() {
    chmod 600 /dev/infiniband/uverbs0
    failed=0
    { doctor 7 nobody && found open-denied problem "mode 0600, owner 0, group 0"; } || failed=1
    chmod 666 /dev/infiniband/uverbs0
    return "$failed"
}

nobody() {
    setpriv --reuid=65534 --regid=65534 --clear-groups --bounding-set=-all --inh-caps=-all "$@"
}

# shellcheck disable=SC3045  # dash and bash have `ulimit -l`
little_memory() {
    (ulimit -l 64 && doctor 7 nobody && found memory-limit problem "64 KiB") &&
        (ulimit -l 8192 && doctor 6 nobody && found memory-limit warning "8 MiB") &&
        (ulimit -l unlimited && doctor 0 nobody)
}

other_namespace() { # the device is seen there, and its interface is not
    ip netns add other && doctor 6 ip netns exec other &&
        found foreign-gids warning "2 of its 2 addresses are of interfaces that are not in this network namespace"
}

exclusive() {
    ip netns delete other && rdma system set netns exclusive && doctor 0 && found exclusive-namespaces note "" && ip netns add other &&
        doctor 7 ip netns exec other && found exclusive-namespaces problem "rdma dev set DEVICE netns NAMESPACE" &&
        ip netns delete other && rdma system set netns shared
}

in_use() {
    ibv_rc_pingpong -d "$device" -g 1 >/dev/null 2>&1 &
    server=$!
    failed=0
    until_true 10 has_queue_pair && doctor 0 && found in-use note "ibv_rc_pingpong[$server]" &&
        found library note "ibv_rc_pingpong[$server]: /" || failed=1
    kill "$server"
    wait "$server"
    return "$failed"
}

# Two hosts, which are two network namespaces with a wire between them: this one with rxe, and the other with a soft device, or with rxe too.
make_wire() {
    rdma link delete "$device" && modprobe veth && ip netns add far && ip link set lo up &&
        ip link add near0 address 52:54:00:00:00:01 type veth peer name far0 address 52:54:00:00:00:02 netns far &&
        ip address add 198.51.100.1/24 dev near0 && ip link set near0 up &&
        ip -n far address add 198.51.100.2/24 dev far0 && ip -n far link set far0 up && ip -n far link set lo up &&
        rdma link add "$device" type rxe netdev near0 && until_true 10 has_its_address "$device" 6401
}

has_its_address() { cat "/sys/class/infiniband/$1/ports/1/gids/"* | grep -q "ffff:c633:$2\$"; }

peer() { # peer DEVICE STATUS...: both sides run it, this one with rxe, and it ends with one of these
    ip netns exec far "$UVERBS_BIN" doctor "$1" --watch 10ms --json --peer 198.51.100.1 >"$OUT/$name.far.json" 2>"$OUT/$name.far.err" &
    server=$!
    shift
    ended=0
    "$UVERBS_BIN" doctor "$device" --watch 10ms --json --peer 198.51.100.2 >"$OUT/$name.json" || ended=$?
    there=0
    wait "$server" || there=$?
    cat "$OUT/$name.json" "$OUT/$name.far.json" "$OUT/$name.far.err"
    for wanted; do [ "$ended" -ne "$wanted" ] || [ "$there" -gt 6 ] || return 0; done
    echo "exit status $ended here and $there there" >&2
    return 1
}

# A link-local address may reach nothing, which is a warning if another does.
peer_soft() {
    peer soft@198.51.100.2 0 6 && found peer-messages note '198.51.100.1 (RoCE v2) to index'
}

peer_rxe() {
    ip netns exec far rdma link add rxe1 type rxe netdev far0 && until_true 10 has_its_address rxe1 6402 &&
        peer rxe1 0 6 && found peer-messages note '198.51.100.1 (RoCE v2) to index'
}

# The interfaces have different MTUs.
peer_packets() {
    ip link set near0 mtu 4200 && until_true 10 has_large_packets && peer rxe1 6 7 && found peer-packet-size warning "packets of 4096 bytes here (the interface's MTU is 4200), and of 1024 at the peer"
}

has_large_packets() { "$UVERBS_BIN" devices "$device" | grep -qw 4096; }

has_queue_pair() { rdma resource show qp | grep -q "pid $server"; }

[ -n "${UVERBS_VM_COMMAND:-}" ] || step no-device no_device
begin make_device
step no-manager no_manager
step notes notes_alone
step link-down link_down
step link-up link_up
step local-only local_only
step address-again address_again
step small-packets small_packets
step no-node no_node
step denied denied
step little-memory little_memory
step other-namespace other_namespace
step exclusive exclusive
step in-use in_use
step resources resources_are_as_before
step make-wire make_wire
step peer-soft peer_soft
# Before this kernel, rxe has no sockets of its own in a namespace.
case $(uname -r) in
6.*) ;;
*) step peer-rxe peer_rxe && step peer-packets peer_packets ;;
esac
step kernel-log kernel_log_is_clean
finish
