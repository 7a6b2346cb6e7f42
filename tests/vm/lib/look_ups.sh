# shellcheck shell=sh
# Datagrams by the kernel's connection manager, with udaddy and mckey of rdma-core on the other side, for lanes that source this after
# connections.sh and have the lines `# packages: rdmacm-utils` and `# cargo: EXAMPLE_LOOK_UPS ...`. They set address and the interface of
# the group's route.

group=239.1.2.3

ours_answer() { "$EXAMPLE_LOOK_UPS" listen "$address:$manager_port"; }
ours_ask() { "$EXAMPLE_LOOK_UPS" ask "$address:$manager_port"; }
# Its port is $manager_port; `-p` is another option.
theirs_answer() { udaddy -b "$address"; }
theirs_ask() { udaddy -s "$address"; }
ours_hear() { "$EXAMPLE_LOOK_UPS" hear "$group" "$address"; }
ours_tell() { "$EXAMPLE_LOOK_UPS" tell "$group" "$address"; }
# Each waits for three seconds after it has joined.
theirs_hear() { stdbuf -oL mckey -m "$group" -b "$address"; }
theirs_tell() { mckey -m "$group" -b "$address" -s; }

# The group was joined: both programs say so.
hears() { grep -q joined "$OUT/$name.first"; }

# meet READY FIRST SECOND: runs FIRST, and when READY is true SECOND.
# shellcheck disable=SC2154  # who sources this has $name
meet() {
    timeout 60 sh -c ". '$vm/lib/connections.sh'; . '$vm/lib/look_ups.sh'; $2" >"$OUT/$name.first" 2>&1 &
    first=$!
    until_true 30 "$1" || { cat "$OUT/$name.first" >&2; return 1; }
    # A listener is shown a moment before it listens.
    sleep 0.5
    status=0
    timeout 60 sh -c ". '$vm/lib/connections.sh'; . '$vm/lib/look_ups.sh'; $3" || status=$?
    wait "$first" || { echo "the first side: exit status $?: $(cat "$OUT/$name.first")" >&2; return 1; }
    cat "$OUT/$name.first"
    return "$status"
}

look_up_both_ways() {
    export vm address manager_port EXAMPLE_LOOK_UPS
    # The programs of rdma-core want a route to the group.
    step group-route ip route add "$group" dev "$interface"
    for pair in 'ours ours' 'theirs ours' 'ours theirs'; do
        # shellcheck disable=SC2086  # two words
        set -- $pair
        step "look-up-$1-$2" meet listens_for_calls "$1_answer" "$2_ask"
        step "group-$1-$2" meet hears "$1_hear" "$2_tell"
    done
}
