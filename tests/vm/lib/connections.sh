# shellcheck shell=sh
# Connections by the kernel's connection manager, with programs of rdma-core on the other side, for lanes that source this after guest.sh
# and have the lines `# packages: rdmacm-utils` and `# cargo: EXAMPLE_CONNECTIONS ...`. They set address.

manager_port=7174

listens_for_calls() { # anybody listens on the port
    rdma resource show cm_id 2>/dev/null | grep -q "state LISTEN .*:$manager_port "
}
nobody_listens() { ! listens_for_calls; }

ours_listen() { "$EXAMPLE_CONNECTIONS" listen "$address:$manager_port"; }
ours_connect() { "$EXAMPLE_CONNECTIONS" connect "$address:$manager_port"; }
theirs_listen() { rdma_server -s "$address" -p "$manager_port"; }
theirs_connect() { rdma_client -s "$address" -p "$manager_port"; }

# shellcheck disable=SC2154  # who sources this has $name
talk() { # talk SERVER CLIENT, each being ours or theirs: one message each way
    until_true 30 nobody_listens || return
    timeout 60 sh -c ". '$vm/lib/connections.sh'; $1_listen" >"$OUT/$name.server" 2>&1 &
    server=$!
    until_true 30 listens_for_calls || { cat "$OUT/$name.server" >&2; return 1; }
    # A listener is shown a moment before it listens.
    sleep 0.5
    status=0
    timeout 60 sh -c ". '$vm/lib/connections.sh'; $2_connect" || status=$?
    wait "$server" || { echo "server: exit status $?: $(cat "$OUT/$name.server")" >&2; return 1; }
    cat "$OUT/$name.server"
    return "$status"
}

talk_again() { # talk_again SERVER CLIENT: up to $tries times
    left=${tries:-1}
    until talk "$@"; do
        left=$((left - 1))
        [ "$left" -gt 0 ] || return
        echo "talked in vain, once more" >&2
    done
}

talk_both_ways() {
    export vm address manager_port EXAMPLE_CONNECTIONS
    for pair in 'ours ours' 'theirs ours' 'ours theirs'; do
        # shellcheck disable=SC2086  # two words
        step "talk-$(echo "$pair" | tr ' ' -)" talk_again $pair
    done
}
