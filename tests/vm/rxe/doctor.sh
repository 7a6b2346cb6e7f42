#!/bin/sh
# Lane doctor: `uverbs doctor` on the kernel's software RoCE device, with each cause made on purpose, and after it was put right. Runs in the
# guest; see lib/guest.sh.
#
# kernels: 6.1 7.x
# by default: 7.x
# due: src/bin/uverbs/doctor src/device tests/vm/lib/guest.sh $RUNNER
# order: 9
# limit: 900
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

silent() { # silent CHECK: it was not found
    ! grep -q "\"check\":\"$1\"" "$OUT/$name.json" || { echo "$1 was found" >&2; return 1; }
}

# IPv6 is disabled: the entry of the hardware address is still there.
no_ipv6() {
    doctor 0 && silent gid-without-address && sysctl -qw net.ipv6.conf.dummy0.disable_ipv6=1 &&
        doctor 0 && found gid-without-address note "index 0" && ip address del 192.0.2.1/24 dev dummy0 && until_true 10 has_no_address &&
        doctor 7 && found gid-without-address problem "net.ipv6.conf.dummy0.disable_ipv6=0" && silent gid-index &&
        sysctl -qw net.ipv6.conf.dummy0.disable_ipv6=0 && ip address add 192.0.2.1/24 dev dummy0 &&
        until_true 10 device_is_ready && until_true 10 has_local
}

# The limit is that of the group above the program's.
cgroup() {
    groups=/sys/fs/cgroup above=/sys/fs/cgroup/above
    [ -e "$groups/cgroup.controllers" ] || mount -t cgroup2 none "$groups" || return
    echo +rdma >"$groups/cgroup.subtree_control" && mkdir "$above" && echo +rdma >"$above/cgroup.subtree_control" && mkdir "$above/job" &&
        doctor 0 in_job && silent cgroup-limit && echo "$device hca_handle=0" >"$above/rdma.max" && doctor 7 in_job &&
        found cgroup-limit problem "rdma.max of /above" && rmdir "$above/job" "$above"
}

in_job() { sh -c "echo \$\$ >$above/job/cgroup.procs && exec \"\$@\"" sh "$@"; }

# A program without privileges, as root may open a file of any mode.
# shellcheck disable=SC3045  # dash and bash have `ulimit -l`
manager_denied() {
    chmod 600 /dev/infiniband/rdma_cm
    failed=0
    (ulimit -l unlimited && doctor 6 nobody && found manager-denied warning "mode 0600") || failed=1
    chmod 666 /dev/infiniband/rdma_cm
    (ulimit -l unlimited && doctor 0 nobody && silent manager-denied) || failed=1
    return "$failed"
}

# With a file in place of /etc/hosts, which is the host's.
own_name() {
    printf '127.0.0.1 localhost\n127.0.1.1 %s\n' "$(hostname)" >/tmp/hosts && mount --bind /tmp/hosts /etc/hosts || return
    failed=0
    { doctor 0 && found own-name note "127.0.1.1"; } || failed=1
    printf '192.0.2.1 %s\n' "$(hostname)" >/tmp/hosts
    { doctor 0 && silent own-name; } || failed=1
    umount /etc/hosts
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

near=198.51.100.1
there=198.51.100.2
by="env" # the program that starts the one on the other side

peer() { # peer DEVICE STATUS...: both sides run it, this one with rxe, and it ends with one of these
    ip netns exec far "$by" "$UVERBS_BIN" doctor "$1" --watch 10ms --json --peer "$near" >"$OUT/$name.far.json" 2>"$OUT/$name.far.err" &
    server=$!
    shift
    ended=0
    "$UVERBS_BIN" doctor "$device" --watch 10ms --json --peer "$there" >"$OUT/$name.json" || ended=$?
    ended_there=0
    wait "$server" || ended_there=$?
    cat "$OUT/$name.json" "$OUT/$name.far.json" "$OUT/$name.far.err"
    # The other side sees a problem only where this one may.
    case $* in *7*) most=7 ;; *) most=6 ;; esac
    for wanted; do [ "$ended" -ne "$wanted" ] || [ "$ended_there" -gt "$most" ] || return 0; done
    echo "exit status $ended here and $ended_there there" >&2
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

no_carrier() {
    ip -n far link set far0 down && until_true 10 grep -q DOWN "/sys/class/infiniband/$device/ports/1/state" && examine 7 &&
        found port-state problem "near0 is up and has no carrier" && ip -n far link set far0 up &&
        until_true 10 grep -q ACTIVE "/sys/class/infiniband/$device/ports/1/state" && until_true 10 has_neighbour_address && examine 0
}

has_neighbour_address() { ip -6 address show dev near0 | grep -q 'fe80.* scope link $'; }

examine() { doctor "$1" one_device; }

one_device() { # the device of the other namespace is left out
    program=$1
    shift 2
    "$program" doctor "$device" "$@"
}

# Two interfaces in one network, and then each with a table of its own.
one_network() {
    ip link add near1 type veth peer name far1 netns far && ip address add 198.51.100.3/24 dev near1 && ip link set near1 up &&
        ip -n far link set far1 up && rdma link add rxe2 type rxe netdev near1 && until_true 10 has_its_address rxe2 6403 || return
    device=rxe2
    failed=0
    { sysctl -qw net.ipv4.conf.all.rp_filter=1 && examine 6 && found route-elsewhere warning "198.51.100.3 (near1) to its own network leave by near0; rp_filter is strict" &&
        ip route add 198.51.100.0/24 dev near1 table 100 && ip rule add from 198.51.100.3 table 100 && examine 0 && silent route-elsewhere &&
        ip rule del from 198.51.100.3 table 100 && sysctl -qw net.ipv4.conf.all.rp_filter=0; } || failed=1
    device=rxe0
    rdma link delete rxe2 && ip link delete near1 && return "$failed"
}

neighbour_silent() { # a program sends to an address that nobody has
    examine 0 && silent neighbour-silent &&
        "$PYTHON" -c 'import socket; socket.socket(type=socket.SOCK_DGRAM).sendto(b"x", ("198.51.100.77", 9))' &&
        until_true 10 grep -q '^198.51.100.77 .* 0x0 ' /proc/net/arp && examine 0 &&
        found neighbour-silent note "nobody on near0 answers for 198.51.100.77" && ip neighbour flush dev near0
}

# The address is on a VLAN alone, and there is no link-local one.
vlan_alone() {
    modprobe 8021q && ip address del 198.51.100.1/24 dev near0 && sysctl -qw net.ipv6.conf.near0.disable_ipv6=1 && examine 7 &&
        found no-address warning "" && ip link add link near0 name near0.5 type vlan id 5 &&
        sysctl -qw net.ipv6.conf.near0/5.disable_ipv6=1 && ip address add 198.51.100.1/24 dev near0.5 && ip link set near0.5 up &&
        until_true 10 has_its_address "$device" 6401 && examine 0 && silent no-address && ip link delete near0.5 &&
        sysctl -qw net.ipv6.conf.near0.disable_ipv6=0 && ip address add 198.51.100.1/24 dev near0 &&
        until_true 10 has_its_address "$device" 6401 && until_true 10 has_neighbour_address
}

bridge_port() {
    modprobe bridge && ip link add br0 type bridge && ip link set br0 up && ip address del 198.51.100.1/24 dev near0 &&
        ip link set near0 master br0 && ip address add 198.51.100.1/24 dev br0 && until_true 10 has_its_address "$device" 6401 &&
        examine 7 && found bridge-port problem "netdev br0" && ip link set near0 nomaster && ip link delete br0 &&
        ip address add 198.51.100.1/24 dev near0 && until_true 10 has_its_address "$device" 6401 && examine 0 && silent bridge-port
}

# With a third wire, over which the two sides can talk whatever is wrong with the first one.
make_way() {
    ip link add way0 type veth peer name way1 netns far && ip address add 203.0.113.1/24 dev way0 && ip link set way0 up &&
        ip -n far address add 203.0.113.2/24 dev way1 && ip -n far link set way1 up && near=203.0.113.1 there=203.0.113.2
}

address_of_both() {
    peer rxe1 0 && silent peer-address-twice && ip -n far address del 198.51.100.2/24 dev far0 &&
        ip -n far address add 198.51.100.1/24 dev far0 && until_true 10 has_its_address rxe1 6401 && peer rxe1 6 &&
        found peer-address-twice warning 198.51.100.1 && ip -n far address del 198.51.100.1/24 dev far0 &&
        ip -n far address add 198.51.100.2/24 dev far0 && until_true 10 has_its_address rxe1 6402
}

# The peer has an address of a network that is that of another interface here, and has no route back. Link-local addresses still reach each
# other. Without the strict rp_filter there, ARP is answered, and rxe's messages arrive without any route.
no_route() {
    ip netns exec far sysctl -qw net.ipv4.conf.all.rp_filter=1 && ip -n far address del 198.51.100.2/24 dev far0 &&
        ip -n far address add 192.0.2.2/24 dev far0 && until_true 10 has_other_address && peer rxe1 6 &&
        found peer-route warning "packets from 198.51.100.1 (near0) to 192.0.2.2 leave by dummy0" &&
        grep -qF "no route leads from 192.0.2.2 to 198.51.100.1" "$OUT/$name.far.json" && ip -n far address del 192.0.2.2/24 dev far0 &&
        ip -n far address add 198.51.100.2/24 dev far0 && ip netns exec far sysctl -qw net.ipv4.conf.all.rp_filter=0 &&
        until_true 10 has_its_address rxe1 6402 && peer rxe1 0 && silent peer-route
}

has_other_address() { cat /sys/class/infiniband/rxe1/ports/1/gids/* | grep -q 'ffff:c000:0202$'; }

# The peer's interface answers to no ARP.
neighbour_gone() {
    ip -n far link set far0 arp off && ip neighbour flush dev near0 && peer rxe1 6 7 && found peer-neighbour problem 198.51.100.2 &&
        ip -n far link set far0 arp on && ip neighbour flush dev near0 && peer rxe1 0 && silent peer-neighbour
}

# The other side has a /sys of its own, in which configfs is mounted only if somebody does so.
traffic_class() {
    manager=/sys/kernel/config/rdma_cm
    printf '#!/bin/sh\nmount -t configfs none /sys/kernel/config && exec "$@"\n' >/tmp/with-configfs && chmod +x /tmp/with-configfs || return
    [ -e "$manager" ] || mount -t configfs none /sys/kernel/config || return
    mkdir "$manager/$device" && echo 104 >"$manager/$device/ports/1/default_roce_tos" && peer rxe1 0 && silent peer-traffic-class &&
        by=/tmp/with-configfs && peer rxe1 6 &&
        found peer-traffic-class warning "104 (DSCP 26) here, and 0 (DSCP 0) at the peer" && mkdir "$manager/rxe1" &&
        echo 104 >"$manager/rxe1/ports/1/default_roce_tos" && peer rxe1 0 && silent peer-traffic-class &&
        rmdir "$manager/$device" "$manager/rxe1"
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
step no-ipv6 no_ipv6
step cgroup cgroup
step manager-denied manager_denied
step own-name own_name
step resources resources_are_as_before
step make-wire make_wire
step peer-soft peer_soft
step no-carrier no_carrier
step one-network one_network
step neighbour-silent neighbour_silent
step vlan-alone vlan_alone
step bridge-port bridge_port
# Before this kernel, rxe has no sockets of its own in a namespace.
case $(uname -r) in
6.*) ;;
*)
    step peer-rxe peer_rxe && step peer-packets peer_packets && ip link set near0 mtu 1500
    step make-way make_way
    step address-of-both address_of_both
    step no-route no_route
    step neighbour-gone neighbour_gone
    step traffic-class traffic_class
    ;;
esac
step kernel-log kernel_log_is_clean
finish
