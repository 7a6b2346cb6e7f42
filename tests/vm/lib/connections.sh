# shellcheck shell=sh
# Connections by the kernel's connection manager, with programs of rdma-core on the other side, for lanes that source this after guest.sh
# and have the lines `# packages: rdmacm-utils` and `# cargo: EXAMPLE_CONNECTIONS ...`. They set address; server_place is how the server is
# started, if it is at another place.

manager_port=7174

listens_for_calls() { # anybody listens on the port
    rdma resource show cm_id 2>/dev/null | grep -q "state LISTEN .*:$manager_port "
}
nobody_listens() { ! listens_for_calls; }

ours_listen() { "$EXAMPLE_CONNECTIONS" listen "$address:$manager_port"; }
ours_connect() { "$EXAMPLE_CONNECTIONS" connect "$address:$manager_port"; }
theirs_listen() { rdma_server -s "$address" -p "$manager_port"; }
theirs_connect() { rdma_client -s "$address" -p "$manager_port"; }

# Whether the kernel has left a message in a socket; lanes of devices over TCP have their own (siw/socket.sh).
lies_for_good() { false; }

# shellcheck disable=SC2154  # who sources this has $name
try_talk() { # try_talk SERVER CLIENT, each being ours or theirs: one message each way
    is_left=
    until_true 30 nobody_listens || return
    # shellcheck disable=SC2086  # several words
    timeout 120 ${server_place:-} sh -c ". '$vm/lib/connections.sh'; . '$vm/lib/stock.sh'; $1_listen" >"$OUT/$name.server" 2>&1 &
    server=$!
    until_true 30 listens_for_calls || { cat "$OUT/$name.server" >&2; return 1; }
    # A listener is shown a moment before it listens.
    sleep 0.5
    timeout 120 sh -c ". '$vm/lib/connections.sh'; . '$vm/lib/stock.sh'; $2_connect" &
    client=$!
    while kill -0 "$client" 2>/dev/null && [ -z "$is_left" ]; do
        sleep 0.2
        if lies_for_good && kill -0 "$client" 2>/dev/null; then
            is_left=yes
            kill "$client" "$server" 2>/dev/null
        fi
    done
    status=0
    wait "$client" || status=$?
    wait "$server" || { echo "server: exit status $?: $(cat "$OUT/$name.server")" >&2; return 1; }
    cat "$OUT/$name.server"
    return "$status"
}

# A try whose message the kernel has been seen to leave in the socket is made again; any other failure is one.
talk() {
    tries=1
    until try_talk "$@"; do
        [ -n "$is_left" ] && [ "$tries" -lt 8 ] || return 1
        echo "the kernel does not look at a message of try $tries, which is made again" >&2
        tries=$((tries + 1))
    done
}

talk_both_ways() {
    export vm address manager_port EXAMPLE_CONNECTIONS
    for pair in 'ours ours' 'theirs ours' 'ours theirs'; do
        # shellcheck disable=SC2086  # two words
        step "talk-$(echo "$pair" | tr ' ' -)" talk $pair
    done
}

# The table of the example of requests as futures. `name` is the step's.
table_listen() { "$EXAMPLE_KEY_VALUE" serve "$address:$manager_port"; }
table_connect() { "$EXAMPLE_KEY_VALUE" get "$address:$manager_port" red orange mauve; }
table_is_read() {
    export vm address manager_port EXAMPLE_KEY_VALUE
    # shellcheck disable=SC2154  # the step has it
    talk table table && grep -qx 'orange: ffa500' "$OUT/$name.out" && grep -qx 'mauve: no such key' "$OUT/$name.out"
}

# The program's ping, and its exchange of rping. Each function is one side.
ping_listen() { "$UVERBS_BIN" ping --cm --iters 50 --timeout 50s "$@"; }
ping_connect() { "$UVERBS_BIN" ping --cm "$address" --iters 50 --timeout 50s "$@"; }
write_listen() { ping_listen --op write; }
write_connect() { ping_connect --op write; }
read_listen() { ping_listen --op read; }
read_connect() { ping_connect --op read; }
ours_rping_listen() { ping_listen --rping; }
ours_rping_connect() { ping_connect --rping; }

ping_both_ways() {
    export UVERBS_BIN
    for pair in 'ping ping' 'write write' 'read read' 'ours_rping ours_rping'; do
        # shellcheck disable=SC2086  # two words
        step "ping-$(echo "$pair" | tr ' _' '--')" talk $pair
    done
    step ping-refused ping_refused
}

# At an address of this host.
# shellcheck disable=SC2154  # who sources this has $device
ping_here() {
    step ping-loopback "$UVERBS_BIN" ping --cm --loopback "$address" --iters 50
    step info-address info_of_address
}

ping_refused() { # nobody listens
    code=0
    "$UVERBS_BIN" ping --cm "$address:9" --iters 1 2>"$OUT/$name.told" || code=$?
    cat "$OUT/$name.told"
    test "$code" -eq 1 && grep 'nobody listens on this port there' "$OUT/$name.told"
}

# shellcheck disable=SC2154  # who sources this has $device
info_of_address() { "$UVERBS_BIN" info "$address" | grep -w "$device"; }
