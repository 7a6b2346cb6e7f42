#!/bin/sh
# Lane mlx5-queues: this crate's connected queue pairs on an InfiniBand port of a virtual ConnectX. Runs in the guest; see lib/guest.sh.
#
# kernels: 6.1 6.12 7.x
# by default: 7.x
# due: later $MLX5 $DROPIN $TESTS tests/vm/mlx5/connected src/bin/uverbs $EXAMPLES
# order: 4
# limit: 1800
# packages: ibverbs-utils perftest gcc libc6-dev libibverbs-dev
# vhca: --port infiniband
# cargo: UVERBS_BIN build --profile guest --features cli --bin uverbs
# cargo: EXAMPLE_COMPLETION_COUNTERS build --profile guest --example completion_counters
# cargo: EXAMPLE_COUNTER_WATCH build --profile guest --example counter_watch
# cargo: EXAMPLE_DATAGRAMS build --profile guest --example datagrams
# cargo: EXAMPLE_RC_PINGPONG build --profile guest --example rc_pingpong
# cargo: EXAMPLE_READ_LATENCY build --profile guest --example read_latency
# cargo: EXAMPLE_SHARED_RECEIVES build --profile guest --example shared_receives
# cargo: EXAMPLE_STATISTICS build --profile guest --example statistics
# cargo: UVERBS_DROPIN build --profile dropin --package uverbs-c
# cargo: UVERBS_MLX5 build --profile dropin --package uverbs-c-mlx5
# compile: MLX5_CONNECTED mlx5/connected/connected.c -libverbs
# compile: COUNTERS_EXAMPLE ../../docs/examples/counters.c -libverbs
# tests: any::connected any::completion_counter any::wait_objects any::counted_traffic any::counted_queues
# tests: any::shared_receives any::orders any::drain any::xrc any::xrc_commands any::lives any::queues
# tests: any::memory any::windows any::window_states any::errno_objects any::multicast asynchronous fork allocations any::threads any::sweep
# tests: any::grid
# shellcheck disable=SC2317  # `step` calls the functions by name

vm=$(dirname "$0")/../..
# shellcheck source=tests/vm/lib/guest.sh
. "$vm/lib/guest.sh"
# shellcheck source=tests/vm/mlx5/device.sh
. "$vm/mlx5/device.sh"

# shellcheck source=tests/vm/lib/dropin-common.sh
. "$vm/lib/dropin-common.sh"
# shellcheck source=tests/vm/lib/examples.sh
. "$vm/lib/examples.sh"

listens() { # a server waits on the TCP port
    ss -Hltn "sport = :18515" | grep -q .
}

# Runs one of Debian's programs as the server and as the client. Each side uses the drop-in library or libibverbs.
both() { # both SERVER CLIENT PROGRAM [OPTION...], the first two being ours or theirs
    as_server=$1 as_client=$2 program=$3
    shift 3
    "$as_server" timeout 60 "$program" -d "$device" "$@" >"$OUT/$name.server" 2>&1 &
    server=$!
    status=0
    { until_true 10 listens && "$as_client" timeout 60 "$program" -d "$device" "$@" 127.0.0.1; } || status=$?
    wait "$server" || { echo "server: exit status $?: $(cat "$OUT/$name.server")" >&2; return 1; }
    return "$status"
}

# 100 messages each way, with ours on one side and Debian's pingpong program on the other, or with ours on both.
ping() { # ping KIND CLIENT SERVER, each being ours or theirs
    ping_side "$1" "$3" >"$OUT/$name.server" 2>&1 &
    server=$!
    status=0
    { until_true 10 listens && ping_side "$1" "$2" 127.0.0.1; } || status=$?
    wait "$server" || { echo "server: exit status $?: $(cat "$OUT/$name.server")" >&2; return 1; }
    return "$status"
}

ping_side() { # ping_side KIND ours|theirs [HOST]: KIND is that of a pingpong program; srq is followed by a number of queue pairs
    case $2-$1 in
    ours-srq*) options="--qps ${1#srq}" ;;
    ours-xsrq) options="--transport xrc" ;;
    ours-*) options="--transport $1" ;;
    theirs-srq*) options="-q ${1#srq}" ;;
    *) options= ;;
    esac
    # shellcheck disable=SC2086  # words
    case $2 in
    ours) timeout 60 "$UVERBS_BIN" ping --device "$device" --iters 100 --size 1024 $options ${3:+"$3"} ;;
    theirs) timeout 60 "ibv_${1%%[0-9]*}_pingpong" -d "$device" -n 100 -s 1024 $options ${3:+"$3"} ;;
    esac
}

# 100 operations on the memory of the other process.
ping_op() { # ping_op TRANSPORT OPERATION
    timeout 60 "$UVERBS_BIN" ping --device "$device" --transport "$1" --op "$2" --iters 100 >"$OUT/$name.server" 2>&1 &
    server=$!
    status=0
    { until_true 10 listens && timeout 60 "$UVERBS_BIN" ping --device "$device" --transport "$1" --op "$2" --iters 100 127.0.0.1; } || status=$?
    wait "$server" || { echo "server: exit status $?: $(cat "$OUT/$name.server")" >&2; return 1; }
    return "$status"
}

# The commands that the card gets from both sides of a pingpong, with libibverbs and with ours.
commands() { # commands KIND
    stty -F "$MLX5_CONTROL" raw -echo || return
    for side in theirs ours; do
        trace=$OUT/$name.$side
        "$PYTHON" "$vm/mlx5/queues/commands" clear "$MLX5_CONTROL" || return
        "$side" timeout 60 "ibv_$1_pingpong" -d "$device" -n 50 >"$OUT/$name.server" 2>&1 &
        server=$!
        until_true 10 listens && "$PYTHON" "$vm/mlx5/queues/commands" mark "$MLX5_CONTROL" "$trace" &&
            "$side" timeout 60 "ibv_$1_pingpong" -d "$device" -n 50 127.0.0.1 && wait "$server" &&
            "$PYTHON" "$vm/mlx5/queues/commands" save "$MLX5_CONTROL" "$trace" || return
    done
    "$PYTHON" "$vm/mlx5/queues/commands" compare "$1" "$vm/mlx5/queues/commands.differences" "$OUT/$name.theirs" "$OUT/$name.ours"
}

# Memory regions of another device's memory; the other device is the kernel's udmabuf here.
dma_buf_test() {
    name_of=memory::memory_of_another_device_is_written_and_read_by_the_peer
    UVERBS_TEST_DEVICE=$device "$vm/mlx5/queues/dma-buf" "$(program_of any)" --show-output --exact "$name_of" || return
    if grep -q "^skipped.* on $device:" "$OUT/$name.out" "$OUT/$name.err"; then
        echo "the test did not run" >&2
        return 1
    fi
}

# Frames are not InfiniBand's: the program says which call failed.
counters_c() {
    code=0
    timeout 60 "$COUNTERS_EXAMPLE" "$device" 02:00:00:00:01:02 true || code=$?
    [ "$code" -eq 1 ] && [ "$(wc -l <"$OUT/$name.err")" -eq 1 ] && grep '^[a-zA-Z_ ]*: ' "$OUT/$name.err"
}

begin make_device
for kind in rc uc ud srq16 srq1 xsrq; do
    step "ping-$kind-client" ping "$kind" ours theirs
    step "ping-$kind-server" ping "$kind" theirs ours
    step "ping-$kind-both" ping "$kind" ours ours
done
for options in "--transport rc" "--transport uc" "--transport ud" "--transport xrc" "--qps 16"; do
    for how in "" --counter; do
        # shellcheck disable=SC2086  # words
        step "ping-${options#--* }-loopback$how" timeout 60 "$UVERBS_BIN" ping --device "$device" --loopback --iters 100 $options $how
    done
done
play_examples completion_counters='16 sent, 16 received' counter_watch='!.' datagrams='not sent to a group: on InfiniBand' \
    rc_pingpong='1000 round trips' read_latency='!.' shared_receives='60 messages of 3 clients' statistics='of kind'
step example-counters-c counters_c
for transport in rc xrc; do
    for op in write read atomic; do step "ping-$transport-$op" ping_op "$transport" "$op"; done
done
step ping-uc-write ping_op uc write
step library library_is_ours ibv_rc_pingpong
for kind in rc uc ud srq xsrq; do
    case $kind in rc | uc) compares=-c ;; *) compares= ;; esac
    for sides in "ours theirs" "theirs ours" "ours ours"; do
        # shellcheck disable=SC2086  # words
        step "dropin-$kind-$(echo "$sides" | tr ' ' -)" both $sides "ibv_${kind}_pingpong" -n 200 $compares
    done
    # shellcheck disable=SC2086
    step "dropin-$kind-events" both ours ours "ibv_${kind}_pingpong" -n 200 -e $compares
done
for kind in rc uc ud srq xsrq; do step "commands-$kind" commands "$kind"; done
for program in ib_send_lat ib_write_lat ib_read_lat ib_send_bw ib_write_bw ib_read_bw; do
    step "dropin-$program" both ours theirs "$program" -p 18515 -n 200 -F
done
step dropin-ib_atomic_lat both ours theirs ib_atomic_lat -p 18515 -n 200 -F -A FETCH_AND_ADD
step dropin-ib_send_lat-ud both theirs ours ib_send_lat -p 18515 -n 200 -F -c UD
step dropin-ib_write_bw-uc both theirs ours ib_write_bw -p 18515 -n 200 -F -c UC
for program in ib_send_lat ib_write_lat ib_read_lat ib_send_bw; do
    step "dropin-$program-xrc" both ours theirs "$program" -p 18515 -n 200 -F -c XRC
done
step dropin-ib_atomic_lat-xrc both theirs ours ib_atomic_lat -p 18515 -n 200 -F -c XRC
step dropin-ib_send_bw-srq both ours theirs ib_send_bw -p 18515 -n 200 -F --use-srq -q 4
step dropin-ib_send_lat-srq both theirs ours ib_send_lat -p 18515 -n 200 -F --use-srq
step only-ours-was-loaded only_ours_was_loaded
export UVERBS_TEST_CONTROL="$MLX5_CONTROL"
resources >"$OUT/resources.before"
for test in $TESTS; do run_tests "$test"; done
step resources resources_are_as_before
# Objects that the driver keeps for these cards do not count as left behind. The first card changes keys by work requests, so that regions
# move without new ones. The second also has paging, without which the driver takes no memory of other devices.
step umr-card other_card cmd_hca_cap.umr_modify_entity_size_disabled=0
run_tests any::memory -umr
step paging-card other_card cmd_hca_cap.pg=1
if [ -e /dev/udmabuf ]; then
    step dma-buf-theirs "$MLX5_CONNECTED" "$device" -1 dma-buf
    step dma-buf-ours ours "$MLX5_CONNECTED" "$device" -1 dma-buf
    step dma-buf-rust dma_buf_test
else
    record dma-buf skip "the kernel has no /dev/udmabuf"
fi
step unload unload
step kernel-log kernel_log_is_clean
finish
