#!/bin/sh
# Lane wire-rxe: a soft device on a wire, in a process without any privilege and in a network namespace of its own, and the kernel's
# software RoCE device, with a wire between them. Runs in the guest; see lib/guest.sh.
#
# kernels: 6.1 7.x
# by default: 7.x
# due: src/roce src/soft/wire src/bin/uverbs/target.rs
# order: 21
# packages: perftest
# cargo: UVERBS_DROPIN build --profile dropin --package uverbs-c
# cargo: UVERBS_BIN build --profile guest --features cli --bin uverbs
# shellcheck disable=SC2317  # `step` calls the functions by name

vm=$(dirname "$0")/..
# shellcheck source=tests/vm/lib/guest.sh
. "$vm/lib/guest.sh"
# shellcheck source=tests/vm/lib/dropin-common.sh
. "$vm/lib/dropin-common.sh"

soft_address=192.0.2.1
rxe_address=192.0.2.2
tcp_port=18515

make_wire() {
    modprobe rdma_rxe && modprobe ib_uverbs && modprobe veth && ip netns add far && ip link set lo up &&
        ip link add near0 type veth peer name far0 netns far &&
        ip address add "$rxe_address/24" dev near0 && ip link set near0 up &&
        ip -n far address add "$soft_address/24" dev far0 && ip -n far link set far0 up && ip -n far link set lo up &&
        rdma link add rxe0 type rxe netdev near0 &&
        until_true 10 port_is_ready
}

port_is_ready() {
    port=/sys/class/infiniband/rxe0/ports/1
    grep -q ACTIVE "$port/state" && grep -q 'ffff:c000:0202$' "$port/gids/1"
}

# rxe of 6.1 uses the first network namespace only (rxe_net_init, rxe_net.c), so the soft device is in the other one.
far() { ip netns exec far "$@"; }

serves() { # serves [NAMESPACE...]: a server waits on the TCP port
    "$@" ss -Hltn "sport = :$tcp_port" | grep -q .
}

soft() { # soft OPTION...: a ping on the soft device, as user nobody and without a device file
    far timeout 120 setpriv --reuid=65534 --regid=65534 --clear-groups --bounding-set=-all \
        "$UVERBS_BIN" ping --device "soft@$soft_address" "$@"
}

on_rxe() { timeout 120 "$UVERBS_BIN" ping --device rxe0 "$@"; }
# Debian's program, with the same options.
pingpong() { # pingpong [HOST]
    timeout 120 ibv_rc_pingpong -d rxe0 -g 1 -n 200 -s 4000 "$@"
}

soft_serves() { # soft_serves CLIENT OPTION...
    client=$1
    shift
    soft "$@" >"$OUT/$name.server" 2>&1 &
    server=$!
    until_true 20 serves far && "$client" "$@" "$soft_address"
    ends "$?"
}

soft_calls() { # soft_calls SERVER OPTION...
    there=$1
    shift
    "$there" "$@" >"$OUT/$name.server" 2>&1 &
    server=$!
    until_true 20 serves && soft "$@" "$rxe_address"
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
    until_true 20 serves far && pingpong "$soft_address"
    ends "$?"
}

theirs_serves() {
    pingpong >"$OUT/$name.server" 2>&1 &
    server=$!
    until_true 20 serves && soft --iters 200 --size 4000 "$rxe_address"
    ends "$?"
}

# perftest with the drop-in on the wire as user nobody, and with Debian's libibverbs on rxe. Of a bandwidth, the client's line is the figure.
dropin() { # dropin PROGRAM OPTION...
    program=$1
    shift
    far timeout 120 setpriv --reuid=65534 --regid=65534 --clear-groups --bounding-set=-all \
        env UVERBS_SOFT="$soft_address" LD_LIBRARY_PATH=/tmp/dropin "$program" -d soft0 -x 0 -F "$@"
}

perftest_serves() { # perftest_serves PROGRAM OPTION...: the server is on rxe
    program=$1
    shift
    timeout 120 "$program" -d rxe0 -x 1 -F "$@" >"$OUT/$name.server" 2>&1 &
    server=$!
    until_true 20 serves && dropin "$program" "$@" "$rxe_address"
    ends "$?"
}

perftest_calls() { # perftest_calls PROGRAM OPTION...: the client is on rxe
    program=$1
    shift
    dropin "$program" "$@" >"$OUT/$name.server" 2>&1 &
    server=$!
    until_true 20 serves far && timeout 120 "$program" -d rxe0 -x 1 -F "$@" "$soft_address"
    ends "$?"
}

# The same program with both sides on rxe, and with both on soft devices: the figures to be compared.
beside_rxe() { # beside_rxe PROGRAM OPTION...
    program=$1
    shift
    timeout 120 "$program" -d rxe0 -x 1 -F "$@" >"$OUT/$name.server" 2>&1 &
    server=$!
    until_true 20 serves && timeout 120 "$program" -d rxe0 -x 1 -F "$@" "$rxe_address" >"$OUT/$name.rxe"
    ends "$?" >/dev/null || return
    soft_address=127.0.0.2 dropin "$program" "$@" >"$OUT/$name.server" 2>&1 &
    server=$!
    until_true 20 serves far && soft_address=127.0.0.3 dropin "$program" "$@" 127.0.0.1 >"$OUT/$name.soft"
    ends "$?" >/dev/null || return
    for both in rxe soft; do
        echo "compared: $program $* on $both: $(grep -E '^ *[0-9]+ +[0-9]+' "$OUT/$name.$both" | tail -n 1 | tr -s ' \t' ' ')"
    done
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
    step "$op-soft-serves" soft_serves on_rxe --op "$op" --iters 200 --size "$size"
    step "$op-soft-calls" soft_calls on_rxe --op "$op" --iters 200 --size "$size"
done
for size in 1 1024 20000; do
    step "send-$size" soft_calls on_rxe --iters 100 --size "$size"
    step "write-$size" soft_calls on_rxe --op write --iters 100 --size "$size"
    step "read-$size" soft_calls on_rxe --op read --iters 100 --size "$size"
done
step uc soft_serves on_rxe --transport uc --iters 200
step ud-soft-serves soft_serves on_rxe --transport ud --iters 200
step ud-soft-calls soft_calls on_rxe --transport ud --iters 200
step shared-soft-serves soft_serves on_rxe --qps 8 --iters 200
step shared-soft-calls soft_calls on_rxe --qps 8 --iters 200
for kind in send_lat write_lat read_lat atomic_lat; do
    step "ib_$kind-serves" perftest_serves "ib_$kind" -n 500
    step "ib_$kind-calls" perftest_calls "ib_$kind" -n 500
done
for kind in send_bw write_bw read_bw; do
    step "ib_$kind-serves" perftest_serves "ib_$kind" -n 500 -s 20000
    step "ib_$kind-calls" perftest_calls "ib_$kind" -n 500 -s 20000
done
step beside-write_bw beside_rxe ib_write_bw -n 5000
step beside-send_bw beside_rxe ib_send_bw -n 20000 -s 4096
step beside-read_bw beside_rxe ib_read_bw -n 5000
step beside-send_lat beside_rxe ib_send_lat -n 300 -s 64
step pingpong-calls theirs_calls
step pingpong-serves theirs_serves
step no-retries-exceeded nothing_was_wrong
if step lossy-wire lossy; then
    step lossy-send soft_calls on_rxe --iters 5000 --size 64 --timeout 60s
    step lossy-long soft_serves on_rxe --iters 300 --size 20000 --timeout 60s
    step lossy-read soft_calls on_rxe --op read --iters 300 --size 20000 --timeout 60s
    step lossy-atomic soft_calls on_rxe --op atomic --iters 500 --timeout 60s
fi
step kernel-log kernel_log_is_clean
finish
