#!/bin/sh
# Lane wire-rxe: a soft device on a wire, in a process without any privilege, and the kernel's software RoCE device in another network
# namespace, with a wire between them. Runs in the guest; see lib/guest.sh.
#
# kernels: 7.x
# by default: 7.x
# due: src/roce src/soft/wire src/bin/uverbs/target.rs
# order: 21
# only: 7.x
# cargo: UVERBS_BIN build --profile guest --features cli --bin uverbs
# shellcheck disable=SC2317  # `step` calls the functions by name

vm=$(dirname "$0")/..
# shellcheck source=tests/vm/lib/guest.sh
. "$vm/lib/guest.sh"

soft_address=192.0.2.1
rxe_address=192.0.2.2
tcp_port=18515

make_wire() {
    modprobe rdma_rxe && modprobe ib_uverbs && modprobe veth && ip netns add far && ip link set lo up &&
        ip link add near0 type veth peer name far0 netns far &&
        ip address add "$soft_address/24" dev near0 && ip link set near0 up &&
        ip -n far address add "$rxe_address/24" dev far0 && ip -n far link set far0 up && ip -n far link set lo up &&
        ip netns exec far rdma link add rxe0 type rxe netdev far0 &&
        until_true 10 port_is_ready
}

port_is_ready() {
    port=/sys/class/infiniband/rxe0/ports/1
    grep -q ACTIVE "$port/state" && grep -q 'ffff:c000:0202$' "$port/gids/1"
}

listening() { # listening [NAMESPACE...]: a server waits on the TCP port
    "$@" ss -Hltn "sport = :$tcp_port" | grep -q .
}

soft() { # soft OPTION...: a ping on the soft device, as user nobody and without a device file
    timeout 120 setpriv --reuid=65534 --regid=65534 --clear-groups --bounding-set=-all \
        "$UVERBS_BIN" ping --device "soft@$soft_address" "$@"
}

ours() { ip netns exec far timeout 120 "$UVERBS_BIN" ping --device rxe0 "$@"; }
# Debian's program, with the same options.
theirs() { # theirs [HOST]
    ip netns exec far timeout 120 ibv_rc_pingpong -d rxe0 -g 1 -n 200 -s 4000 "$@"
}

soft_serves() { # soft_serves CLIENT OPTION...
    client=$1
    shift
    soft "$@" >"$OUT/$name.server" 2>&1 &
    server=$!
    until_true 20 listening && "$client" "$@" "$soft_address"
    ends "$?"
}

soft_calls() { # soft_calls SERVER OPTION...
    there=$1
    shift
    "$there" "$@" >"$OUT/$name.server" 2>&1 &
    server=$!
    until_true 20 listening ip netns exec far && soft "$@" "$rxe_address"
    ends "$?"
}

ends() { # ends STATUS: of the client; that of the server counts too
    wait "$server" || { echo "server: exit status $?: $(cat "$OUT/$name.server")" >&2; return 1; }
    cat "$OUT/$name.server"
    return "$1"
}

# Debian's programs take other options.
theirs_calls() {
    soft --iters 200 --size 4000 >"$OUT/$name.server" 2>&1 &
    server=$!
    until_true 20 listening && theirs "$soft_address"
    ends "$?"
}

theirs_serves() {
    theirs >"$OUT/$name.server" 2>&1 &
    server=$!
    until_true 20 listening ip netns exec far && soft --iters 200 --size 4000 "$rxe_address"
    ends "$?"
}

nothing_was_wrong() { # the counters of rxe
    cat /sys/class/infiniband/rxe0/ports/1/hw_counters/retry_exceeded_err >&2 &&
        [ "$(cat /sys/class/infiniband/rxe0/ports/1/hw_counters/retry_exceeded_err)" -eq 0 ]
}

lossy() { # both directions of the wire
    modprobe sch_netem && tc qdisc add dev near0 root netem delay 100us loss 1% duplicate 1% reorder 1% &&
        tc -n far qdisc add dev far0 root netem delay 100us loss 1% duplicate 1% reorder 1%
}

begin make_wire
for op in send write read atomic; do
    size=4000
    [ "$op" = atomic ] && size=8
    step "$op-soft-serves" soft_serves ours --op "$op" --iters 200 --size "$size"
    step "$op-soft-calls" soft_calls ours --op "$op" --iters 200 --size "$size"
done
for size in 1 1024 20000; do
    step "send-$size" soft_calls ours --iters 100 --size "$size"
    step "write-$size" soft_calls ours --op write --iters 100 --size "$size"
    step "read-$size" soft_calls ours --op read --iters 100 --size "$size"
done
step uc soft_serves ours --transport uc --iters 200
step ud-soft-serves soft_serves ours --transport ud --iters 200
step ud-soft-calls soft_calls ours --transport ud --iters 200
step shared-soft-serves soft_serves ours --qps 8 --iters 200
step shared-soft-calls soft_calls ours --qps 8 --iters 200
step pingpong-calls theirs_calls
step pingpong-serves theirs_serves
step no-retries-exceeded nothing_was_wrong
if step lossy-wire lossy; then
    step lossy-send soft_calls ours --iters 5000 --size 64 --timeout 60s
    step lossy-long soft_serves ours --iters 300 --size 20000 --timeout 60s
    step lossy-read soft_calls ours --op read --iters 300 --size 20000 --timeout 60s
    step lossy-atomic soft_calls ours --op atomic --iters 500 --timeout 60s
fi
step kernel-log kernel_log_is_clean
finish
