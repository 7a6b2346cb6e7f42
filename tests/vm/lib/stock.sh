# shellcheck shell=sh
# Programs of librdmacm on one side of connections and ours on the other, for lanes that source this after connections.sh and dropin-common.sh,
# and have the lines
# `# cargo: UVERBS_PEERS ...`, `# passes: UVERBS_WHOLE` and `# roots: sid`. Each program is that of sid, and with UVERBS_WHOLE also that of the
# machine's Debian, whose rdma_server and rdma_client run in any case (talk_both_ways).

# The number of connections of ucmatose, and of cmtime. A lane may set the second one, for runs with librdmacm on one side.
few=10
releases=sid
[ -z "${UVERBS_WHOLE:-}" ] || releases="debian-12 sid"
[ -n "${many:-}" ] || if [ -n "${UVERBS_WHOLE:-}" ]; then many=1000; else many=100; fi

# `within` is how a program of a release is started; it is empty for the machine's own.
their_rping_listen() { $within rping -s -a "$address" -p "$manager_port" -C 50 -V; }
their_rping_connect() { $within rping -c -a "$address" -p "$manager_port" -C 50 -V; }
their_server_listen() { $within rdma_server -s "$address" -p "$manager_port"; }
their_client_connect() { $within rdma_client -s "$address" -p "$manager_port"; }
their_ucmatose_listen() { $within ucmatose -b "$address" -p "$manager_port" -c "$few"; }
their_ucmatose_connect() { $within ucmatose -s "$address" -p "$manager_port" -c "$few"; }
our_cmatose_listen() { "$UVERBS_PEERS" cmatose listen "$address:$manager_port" "$few"; }
our_cmatose_connect() { "$UVERBS_PEERS" cmatose connect "$address:$manager_port" "$few"; }
# This server serves until it is ended.
their_cmtime_listen() {
    rm -f "$OUT/cmtime.done"
    cmtime -b "$address" -p "$manager_port" -c "$many" &
    cmtime=$!
    until [ -e "$OUT/cmtime.done" ]; do sleep 0.2; done
    kill "$cmtime"
}
their_cmtime_connect() { cmtime -s "$address" -p "$manager_port" -c "$many"; }
our_cmtime_listen() { "$UVERBS_PEERS" cmtime listen "$address:$manager_port" "$many"; }
our_cmtime_connect() {
    "$UVERBS_PEERS" cmtime connect "$address:$manager_port" "$many"
    status=$?
    touch "$OUT/cmtime.done"
    return "$status"
}

# shellcheck disable=SC2154  # the runner has $ROOT_sid
stock_both_ways() {
    export UVERBS_PEERS OUT few many within
    step enter-sid enter "$ROOT_sid"
    for release in $releases; do
        within=
        [ "$release" = debian-12 ] || within="chroot $ROOT_sid"
        step "rping-$release-ours" talk their_rping ours_rping
        step "rping-ours-$release" talk ours_rping their_rping
        if [ -n "${UVERBS_WHOLE:-}" ]; then
            step "rdma_server-$release" talk their_server ours
            step "rdma_client-$release" talk ours their_client
        fi
        step "ucmatose-$release-ours" talk their_ucmatose our_cmatose
        step "ucmatose-ours-$release" talk our_cmatose their_ucmatose
    done
    within=
    if [ -n "${UVERBS_WHOLE:-}" ]; then
        all=$many
        many=1000
        step cmtime-ours-ours talk our_cmtime our_cmtime
        many=$all
    fi
    # That of sid has the two sides meet over TCP between its steps.
    step cmtime-debian-12-ours talk their_cmtime our_cmtime
    step cmtime-ours-debian-12 talk our_cmtime their_cmtime
}
