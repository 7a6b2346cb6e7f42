#!/bin/sh
# Lane connections-faults: what goes wrong around connections by the kernel's connection manager, at each of their steps, on the kernel's
# software iWARP and RoCE devices. Runs in the guest; see lib/guest.sh.
#
# kernels: 6.1 7.x
# by default: 7.x
# due: later src/cm src/kernel/manager tests/vm/peers/src/faults.rs tests/vm/lib/connection_faults.sh tests/vm/lib/connection_faults.results
# order: 20
# only: 6.1 7.x
# limit: 1800
# module: SIW_MODULE siw
# cargo: UVERBS_PEERS build --profile guest --package uverbs-peers
# passes: UVERBS_KINDS
# passes: UVERBS_FAULTS
# shellcheck disable=SC2317  # `step` calls the functions by name

vm=$(dirname "$0")/..
# shellcheck source=tests/vm/lib/guest.sh
. "$vm/lib/guest.sh"
# shellcheck source=tests/vm/siw/device.sh
. "$vm/siw/device.sh"
# shellcheck source=tests/vm/lib/connection_faults.sh
. "$vm/lib/connection_faults.sh"

make_both() { # siw on dummy0, rxe on dummy1
    modprobe -q crc32_generic
    make_siw && modprobe rdma_rxe && ip link add dummy1 address 52:54:00:12:34:57 type dummy &&
        ip address add 198.51.100.1/24 dev dummy1 && ip link set dummy1 up && rdma link add rxe0 type rxe netdev dummy1 &&
        until_true 10 is_ready rxe && resources >"$OUT/resources.before"
}

# The names of a kind.
of_kind() {
    case $1 in
    siw) device=siw0 net=dummy0 address=192.0.2.1 hardware=52:54:00:12:34:56 ;;
    rxe) device=rxe0 net=dummy1 address=198.51.100.1 hardware=52:54:00:12:34:57 ;;
    esac
}

is_ready() { # is_ready KIND: the port is up, and on RoCE its address is in the table
    of_kind "$1"
    grep -q ACTIVE "/sys/class/infiniband/$device/ports/1/state" && {
        [ "$1" = siw ] || grep -q 'ffff:c633:6401$' "/sys/class/infiniband/$device/ports/1/gids/1"
    }
}

# What goes wrong, and how it is put right. A removal waits for processes that have the device open where its driver cannot let go of
# them: rxe of 6.1, and siw.
go_wrong_none() { :; }
put_right_none() { :; }
go_wrong_remove() {
    rdma link delete "$device" &
    removal=$!
    until_true 10 is_gone
}
is_gone() { ! rdma link show "$device/1" >/dev/null 2>&1; }
put_right_remove() { wait "$removal" && rdma link add "$device" type "$kind" netdev "$net"; }
go_wrong_down() { ip link set "$net" down; }
put_right_down() { ip link set "$net" up && mend; }
# What rxe's own queue pair of the connection manager sends while there is no route or no GID moves it to the error state, where the kernel
# leaves it: there are no more connections before the device is made again (docs/internals/kernels.md). rxe of 6.1 does not show that state.
mend() {
    case $kind-$(uname -r) in
    rxe-6.1.*) is_broken=true ;;
    *) is_broken=$(rdma resource show qp | grep -q "$device/1 .* type GSI state ERR" && echo true || echo false) ;;
    esac
    if "$is_broken"; then
        rdma link delete "$device" && rdma link add "$device" type "$kind" netdev "$net"
    fi
}
go_wrong_hardware() { ip link set "$net" address 52:54:00:12:34:99; }
put_right_hardware() { ip link set "$net" address "$hardware" && mend; }
go_wrong_client() { kill -KILL "$client"; }
put_right_client() { :; }
go_wrong_server() { kill -KILL "$server"; }
put_right_server() { :; }

# Connections with messages. Those of siw are sometimes left in a socket (socket.sh), and flushed when the other side leaves: the run is made
# again.
connects() {
    tries=1
    until timeout 60 "$UVERBS_PEERS" cycles "$address" 3; do
        [ "$kind" = siw ] && [ "$tries" -lt 5 ] || return 1
        tries=$((tries + 1))
    done
}

# It works again, and nothing is left. The sides were in time.
works_again() { # works_again KIND [FAULT]
    resources_are_as_before || return
    kind=$1
    of_kind "$kind"
    connects || return
    [ -z "${2:-}" ] || is_in_time "$OUT/$kind-$2"-*.client "$OUT/$kind-$2"-*.server
}

# A process that changes its user: the kernel refuses the manager of before, and answers another one.
changes_user() { # changes_user KIND
    of_kind "$1"
    timeout 60 "$UVERBS_PEERS" user "$address:$port" 65534 || return
    for call in listen resolve address device; do
        grep -q "^$call: PermissionDenied: .*with the same user: open another manager" "$OUT/$name.out" || { echo "$call" >&2; return 1; }
    done
    grep -q '^another manager listens' "$OUT/$name.out"
}

# Many clients of a listener with a backlog of two: each is connected, refused, or not answered.
many_clients() { # many_clients KIND
    of_kind "$1"
    timeout 300 "$UVERBS_PEERS" crowd "$address:$port" 1000 || return
    read -r connected _ refused _ unanswered _ <"$OUT/$name.out"
    echo "compared: $(cat "$OUT/$name.out")"
    [ $((connected + refused + unanswered)) -eq 1000 ] && [ "$connected" -gt 0 ]
}

says_why() { # says_why PATTERN COMMAND...: it fails, and says why
    wanted=$1
    shift
    if "$@" >"$OUT/$name.said" 2>&1; then echo "it has succeeded" >&2; return 1; fi
    cat "$OUT/$name.said"
    grep -q "$wanted" "$OUT/$name.said"
}

manager_file=/dev/infiniband/rdma_cm
no_permission() {
    chmod 600 "$manager_file" || return
    says_why 'this process may not open /dev/infiniband/rdma_cm' setpriv --reuid=65534 --regid=65534 --clear-groups --bounding-set=-all \
        "$UVERBS_PEERS" reach "$address:$port"
    status=$?
    chmod 666 "$manager_file" && return "$status"
}

no_module() {
    modprobe -r rdma_ucm && [ ! -e "$manager_file" ] || return
    says_why 'load the kernel module rdma_ucm' "$UVERBS_PEERS" reach "$address:$port"
    status=$?
    modprobe rdma_ucm && return "$status"
}

steps_of() { # steps_of FAULT
    case $1 in
    none) echo message ;;
    *) echo address route request accepted connected message ;;
    esac
}

begin make_both
for kind in ${UVERBS_KINDS:-rxe siw}; do
    for fault in ${UVERBS_FAULTS:-none remove down hardware client server}; do
        for at in $(steps_of "$fault"); do
            step "$kind-$fault-$at" meets "$kind" "$at" "$fault"
        done
        step "$kind-after-$fault" works_again "$kind" "$fault"
    done
    step "$kind-user" changes_user "$kind"
    step "$kind-after-user" works_again "$kind"
done
step no-permission no_permission
step no-module no_module
step rxe-crowd many_clients rxe
step rxe-after-crowd works_again rxe
step resources resources_are_as_before
step kernel-log kernel_log_is_clean
finish
