# shellcheck shell=sh
# perftest with connections by librdmacm (-R), with the drop-in for libibverbs on one side, for lanes that source this after connections.sh
# and dropin-common.sh, and have the lines `# packages: perftest` and `# cargo: UVERBS_DROPIN ...`. They set address and device; server_place
# is how the server is started, if it is at another place, and server_device its device there.

# shellcheck disable=SC2086,SC2154  # several words, or none; who sources this has the variables
managed_perftest() { # managed_perftest SERVER CLIENT PROGRAM, the first two being ours or theirs
    with_server=$1 with_client=$2
    set -- "$3" -R -F -n 200
    until_true 30 nobody_listens_at_all || return
    "$with_server" ${server_place:-} timeout 100 "$@" -d "${server_device:-$device}" >"$OUT/$name.server" 2>&1 &
    server=$!
    status=0
    # The client connects a second time at once, and perftest crashes if the server is not there again by then.
    { until_true 60 listening manager && "$with_client" nice -n 19 timeout 100 "$@" -d "$device" "$address"; } || status=$?
    [ "$status" -eq 0 ] || { kill "$server"; pkill -x "$1"; } 2>/dev/null
    wait "$server" || { echo "server: exit status $?: $(cat "$OUT/$name.server")" >&2; return 1; }
    cat "$OUT/$name.server"
    return "$status"
}

nobody_listens_at_all() { ! rdma resource show cm_id 2>/dev/null | grep -q 'state LISTEN '; }

managed_perftests() { # as steps
    for sides in 'ours theirs' 'theirs ours'; do
        for test in ib_send_lat ib_send_bw ib_write_lat ib_write_bw ib_read_lat ib_read_bw; do
            # shellcheck disable=SC2086  # two words
            step "$test-$(echo "$sides" | tr ' ' -)" managed_perftest $sides "$test"
        done
    done
    step only-ours-was-loaded only_ours_was_loaded
}
