#!/bin/sh
# Lane mlx5-queues: this crate's connected queue pairs on an InfiniBand port of a virtual ConnectX. Runs in the guest; see guest.sh.
#
# order: 4
# packages: ibverbs-utils
# boot: --append=tsc=reliable
# vhca: --port infiniband
# cargo: UVERBS_BIN build --profile guest --features cli --bin uverbs
# tests: any::connected any::completion_counter any::wait_objects any::counted_traffic any::counted_queues
# shellcheck disable=SC2317  # `step` calls the functions by name

here=$(dirname "$0")
# shellcheck source=tests/vm/guest.sh
. "$here/guest.sh"
# shellcheck source=tests/vm/mlx5-device.sh
. "$here/mlx5-device.sh"

listens() { # a server waits on the TCP port
    ss -Hltn "sport = :18515" | grep -q .
}

# 100 messages each way, ours on one side and Debian's pingpong program on the other, or ours on both.
ping() { # ping TRANSPORT CLIENT SERVER, each being ours or theirs
    ping_side "$1" "$3" >"$OUT/$name.server" 2>&1 &
    server=$!
    status=0
    { until_true 10 listens && ping_side "$1" "$2" 127.0.0.1; } || status=$?
    wait "$server" || { echo "server: exit status $?: $(cat "$OUT/$name.server")" >&2; return 1; }
    return "$status"
}

ping_side() { # ping_side TRANSPORT ours|theirs [HOST]
    case $2 in
    ours) timeout 60 "$UVERBS_BIN" ping --device "$device" --transport "$1" --iters 100 --size 1024 ${3:+"$3"} ;;
    theirs) timeout 60 "ibv_$1_pingpong" -d "$device" -n 100 -s 1024 ${3:+"$3"} ;;
    esac
}

begin make_device
for transport in rc ud; do
    step "ping-$transport-client" ping "$transport" ours theirs
    step "ping-$transport-server" ping "$transport" theirs ours
    step "ping-$transport-both" ping "$transport" ours ours
    step "ping-$transport-loopback" timeout 60 "$UVERBS_BIN" ping --device "$device" --loopback --transport "$transport" --iters 100
done
export UVERBS_TEST_CONTROL="$MLX5_CONTROL"
resources >"$OUT/resources.before"
for test in $TESTS; do run_tests "$test"; done
step resources resources_are_as_before
step unload unload
step kernel-log kernel_log_is_clean
finish
