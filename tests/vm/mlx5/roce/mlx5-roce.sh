#!/bin/sh
# Lane mlx5-roce: queue pairs of all kinds over RoCE v2, on two virtual ConnectXes with a wire between them. Runs in the guest; see lib/guest.sh.
#
# kernels: 6.1 6.12 7.x
# by default: 7.x
# due: later $CARD tests/vm/lib/both-sides.sh $EXAMPLES
# order: 7
# packages: ibverbs-utils perftest rdmacm-utils gcc libc6-dev libibverbs-dev
# The first card has version 1 of RoCE in its table, before version 2.
# vhca: --port roce --wire one,two --cap roce_cap.roce_version=5
# vhca: --port roce --wire two,one --mac 52:54:00:ca:fe:02
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
# compile: MLX5_WIRE mlx5/roce/wire.c -libverbs
# passes: UVERBS_WHOLE
# shellcheck disable=SC2317  # `step` calls the functions by name

vm=$(dirname "$0")/../..
# shellcheck source=tests/vm/lib/guest.sh
. "$vm/lib/guest.sh"
# shellcheck source=tests/vm/mlx5/device.sh
. "$vm/mlx5/device.sh"
# shellcheck source=tests/vm/lib/dropin-common.sh
. "$vm/lib/dropin-common.sh"
# shellcheck source=tests/vm/lib/both-sides.sh
. "$vm/lib/both-sides.sh"
# shellcheck source=tests/vm/lib/examples.sh
. "$vm/lib/examples.sh"

begin make_hosts
gid=$(gid_of mlx5_0 10.0.0.1)
step ibv_devinfo ibv_devinfo -v
client_device=mlx5_1 client_gid=$(gid_of mlx5_1 10.0.0.2)
if plays 'theirs theirs'; then
    pingpongs ''
    perftests ''
    perftest_options ''
    # Back to one card for both sides.
    client_device='' client_gid=''
    pingpongs -loopback
    client_device=mlx5_1 client_gid=$(gid_of mlx5_1 10.0.0.2)
fi

# In the namespace of its card's interface, each takes that interface's IPv4 address, of version 2.
gid_of_card() {
    "$UVERBS_BIN" info mlx5_0 | grep 'ffff:0a00:0001, RoCE v1' || return
    status=0
    timeout 60 ip netns exec far "$UVERBS_BIN" ping --device mlx5_1 --iters 20 --loopback >"$OUT/$name.far" || status=1
    timeout 60 "$UVERBS_BIN" ping --device mlx5_0 --iters 20 --loopback >"$OUT/$name.near" || status=1
    cat "$OUT/$name.far" "$OUT/$name.near"
    grep -q '^gid  *[0-9]*, 10.0.0.2 (RoCE v2, ' "$OUT/$name.far" && grep -q '^gid  *[0-9]*, 10.0.0.1 (RoCE v2, ' "$OUT/$name.near" || status=1
    # The other card's interface is elsewhere.
    code=0
    timeout 60 "$UVERBS_BIN" ping --device mlx5_1 --loopback || code=$?
    [ "$code" -eq 3 ] && grep -q 'its network interface is not in this network namespace' "$OUT/$name.err" || status=1
    return "$status"
}

step gid-of-card gid_of_card
play_examples completion_counters='16 sent, 16 received' counter_watch='packets, .* at the end' datagrams='"to everybody"' \
    rc_pingpong='1000 round trips' read_latency='snapshot.read_cached' shared_receives='60 messages of 3 clients' statistics='of kind'
step library library_is_ours ibv_rc_pingpong
with_dropin

# Connections made by librdmacm. The client is in the network namespace of the second card. Packets of the connection manager go between
# the queue pairs 1 of both cards.
managed() { # managed SERVER CLIENT CHECK, the commands being for a shell, and CHECK a pattern of a line that each prints
    ${as_server:-} timeout 60 sh -c "exec $1" >"$OUT/$name.server" 2>&1 &
    server=$!
    status=0
    { until_true 30 listening manager && ${as_client:-} timeout 60 nsenter --net=/run/netns/far sh -c "exec $2"; } || status=$?
    wait "$server" || { echo "server: exit status $?: $(cat "$OUT/$name.server")" >&2; return 1; }
    cat "$OUT/$name.server"
    [ "$status" -eq 0 ] && grep -q "$3" "$OUT/$name.server" && grep -q "$3" "$OUT/$name.out"
}

for sides in ' ' 'ours theirs' 'theirs ours' 'ours ours'; do
    plays "$sides" || continue
    as_server=${sides% *} as_client=${sides#* }
    suffix=${as_server:+-$as_server-$as_client}
    step "rping$suffix" managed 'rping -s -a 10.0.0.1 -C 10 -v -V' 'rping -c -a 10.0.0.1 -C 10 -v -V' 'ping data: rdma-ping-9'
    step "rdma_client$suffix" managed rdma_server 'rdma_client -s 10.0.0.1' 'end 0'
done
as_server='' as_client=''
step only-ours-was-loaded only_ours_was_loaded

# Opens the control lines of both cards. Each card may drop only packets that leave it.
open_lines() {
    exec 8<>"$MLX5_CONTROL" 9<>"$MLX5_CONTROL_2" && stty raw -echo <&8 && stty raw -echo <&9
}

happened() { # happened LINE dropped|repeated|swapped: to how many packets
    ask "$1" wire | sed -n "s/^$2 //p"
}

# Both cards disturb packets while both send messages. Each message must arrive once, whole and in order.
mishap() { # mishap REQUEST NAME MESSAGES LEAST [MOST]: NAME is what the cards count it by, and how often that may be, for each
    request=$1 what=$2 messages=$3 least=$4 most=${5:-1000000}
    first=$(happened 8 "$what") && second=$(happened 9 "$what") && ask 8 "$request" && ask 9 "$request" || return
    # When the end of a message is lost, the card waits for it for 17 ms. Eight such waits must be longer than a card takes on a busy
    # machine.
    status=0
    timeout 300 "$MLX5_WIRE" mlx5_0 "$gid" mlx5_1 "$client_gid" "$messages" 12 || status=$?
    ask 8 'wire lose 0' && ask 9 'wire lose 0' || return
    first=$(($(happened 8 "$what") - first)) second=$(($(happened 9 "$what") - second))
    echo "$what: $first and $second"
    for times in "$first" "$second"; do
        [ "$times" -ge "$least" ] && [ "$times" -le "$most" ] || { echo "$what: $first and $second" >&2 && return 1; }
    done
    return "$status"
}

if plays 'theirs theirs'; then
    open_lines
    step perfect mishap 'wire lose 0' dropped 1000 0 0
    step drop mishap 'wire drop 5' dropped 100 5 5
    step repeat mishap 'wire repeat 200' repeated 500 200 200
    step swap mishap 'wire swap 200' swapped 500 200 200
    # Loses one packet in a hundred, in each direction: messages of 1.5 packets, other kinds of requests, and their answers.
    step lossy mishap 'wire lose 1 7' dropped 10000 100
    step very-lossy mishap 'wire lose 5 8' dropped 1000 50
    exec 8>&- 9>&-
fi
step kernel-log kernel_log_is_clean
finish
