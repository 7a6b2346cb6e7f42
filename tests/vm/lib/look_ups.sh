# shellcheck shell=sh
# Datagrams by the kernel's connection manager, with udaddy and mckey of librdmacm on the other side, for lanes that source this after
# stock.sh and have the line `# cargo: EXAMPLE_LOOK_UPS ...`. They set address; server_place is how the side that is called or hears is
# started, if it is at another place, and near_address is then the address here. Each program is that of the machine's Debian, and that of sid.

group=239.1.2.3

ours_answer() { "$EXAMPLE_LOOK_UPS" listen "$address:$manager_port"; }
ours_ask() { "$EXAMPLE_LOOK_UPS" ask "$address:$manager_port"; }
# Its port is $manager_port; `-p` is another option.
theirs_answer() { $within udaddy -b "$address"; }
theirs_ask() { $within udaddy -s "$address"; }
ours_hear() { "$EXAMPLE_LOOK_UPS" hear "$group" "$address"; }
ours_tell() { "$EXAMPLE_LOOK_UPS" tell "$group" "${near_address:-$address}"; }
# Each waits for three seconds after it has joined.
theirs_hear() { $within stdbuf -oL mckey -m "$group" -b "$address"; }
theirs_tell() { $within mckey -m "$group" -b "${near_address:-$address}" -s; }

# The group was joined: both programs say so.
# shellcheck disable=SC2154  # who sources this has $name
hears() { grep -q joined "$OUT/$name.first"; }

# meet READY FIRST SECOND: runs FIRST, and when READY is true SECOND.
# shellcheck disable=SC2154  # who sources this has $name
meet() {
    # shellcheck disable=SC2086  # several words
    timeout 60 ${server_place:-} sh -c ". '$vm/lib/connections.sh'; . '$vm/lib/look_ups.sh'; $2" >"$OUT/$name.first" 2>&1 &
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

# shellcheck disable=SC2154  # the runner has $ROOT_sid
look_up_both_ways() {
    export vm address near_address manager_port EXAMPLE_LOOK_UPS within
    within=
    step look-up-ours-ours meet listens_for_calls ours_answer ours_ask
    step group-ours-ours meet hears ours_hear ours_tell
    # shellcheck disable=SC2154  # stock.sh has it
    for release in $releases; do
        within=
        [ "$release" = debian-12 ] || within="chroot $ROOT_sid"
        step "look-up-$release-ours" meet listens_for_calls theirs_answer ours_ask
        step "look-up-ours-$release" meet listens_for_calls ours_answer theirs_ask
        step "group-$release-ours" meet hears theirs_hear ours_tell
        step "group-ours-$release" meet hears ours_hear theirs_tell
    done
    within=
}
