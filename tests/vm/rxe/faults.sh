# shellcheck shell=sh
# What goes wrong around processes that use the device. rxe.sh sources this and calls the steps.
#
# Each survives if nothing hangs, nothing is left behind, and a new run works. Those that one process can test are in
# tests/faults.rs, which finds the commands for it here.
# shellcheck disable=SC2154  # the variables are rxe.sh's and lib/guest.sh's

# The commands by which the tests take the device and its link away and bring them back.
export UVERBS_TEST_REMOVE="rdma link del $device"
export UVERBS_TEST_RESTORE="rdma link add $device type rxe netdev dummy0"
export UVERBS_TEST_LINK="ip link set dummy0"

endless_ping() { # endless_ping TRANSPORT [HOST]: one side of a ping that goes on for hours
    exec "$UVERBS_BIN" ping --device "$device" --transport "$1" --iters 1000000000 --size 1024 --timeout 10s ${2:+"$2"}
}

has_ended() { # has_ended PID
    ! kill -0 "$1" 2>/dev/null
}

is_sending() { # so many requests were sent, and then more
    sent=$(cat "/sys/class/infiniband/$device/ports/1/hw_counters/sent_pkts")
    [ "$sent" -gt $((${sent_before:-0} + 100)) ]
}

kill_in_traffic() { # kill_in_traffic TRANSPORT client|server: with SIGKILL, which no process can prepare for
    sent_before=$(cat "/sys/class/infiniband/$device/ports/1/hw_counters/sent_pkts")
    endless_ping "$1" >"$OUT/$name.server" 2>&1 &
    server=$!
    until_true 60 listening || { kill -KILL "$server"; return 1; }
    endless_ping "$1" "$address" >"$OUT/$name.client" 2>&1 &
    client=$!
    until_true 60 is_sending || { kill -KILL "$server" "$client"; return 1; }
    case $2 in
    client) victim=$client survivor=$server ;;
    server) victim=$server survivor=$client ;;
    esac
    kill -KILL "$victim"
    # The other side must notice by itself.
    until_true 60 has_ended "$survivor" || { kill -KILL "$survivor"; return 1; }
    status=0
    wait "$survivor" || status=$?
    cat "$OUT/$name.server" "$OUT/$name.client"
    [ "$status" -eq 1 ] || { echo "the survivor's exit status is $status" >&2; return 1; }
    resources_are_as_before && ping_pair "$1" ours ours
}

kill_both() { # kill_both TRANSPORT
    sent_before=$(cat "/sys/class/infiniband/$device/ports/1/hw_counters/sent_pkts")
    "$UVERBS_BIN" ping --device "$device" --loopback --transport "$1" --iters 1000000000 >/dev/null 2>&1 &
    loop=$!
    until_true 60 is_sending || { kill -KILL "$loop"; return 1; }
    kill -KILL "$loop"
    wait "$loop"
    resources_are_as_before && ping_pair "$1" ours ours
}
