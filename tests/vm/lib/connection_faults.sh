# shellcheck shell=sh
# A connection both of whose sides stop at a step, while something goes wrong, for lanes that source this after guest.sh and have the line
# `# cargo: UVERBS_PEERS ...`. They have the functions go_wrong_FAULT and put_right_FAULT for each fault, of_kind, which sets device, net and
# address, and is_ready; server_place is how the server is started, if it is at another place.
# shellcheck disable=SC2154  # who sources this has these variables

port=7174
# Milliseconds that a call may take beyond its deadline: those of a machine, and those of one that is emulated beside others.
promised=50 most=250

has_ended() { ! kill -0 "$1" 2>/dev/null; }
says() { grep -qs "^$2" "$OUT/$name.$1"; }
both_stop() { says server stops && says client stops; }

late() { sed -n 's/^late: //p' "$@"; }

# How late the clients of some steps were, of which half at least are in time: an emulated machine disturbs the others.
is_in_time() { # is_in_time FILE...
    late "$@" | sort -n >"$OUT/$name.late"
    middle=$(sed -n "$((($(wc -l <"$OUT/$name.late") + 1) / 2))p" "$OUT/$name.late")
    echo "compared: $(paste -sd' ' "$OUT/$name.late") ms beyond a deadline"
    [ "${middle:-0}" -le "$promised" ]
}

# A side that was not killed has come to its end, and no call of it was late.
has_done() { # has_done SIDE
    [ "$fault" != "$1" ] || return 0
    if says "$1" end && [ "$(late "$OUT/$name.$1")" -le "$most" ]; then return; fi
    echo "$1: $(cat "$OUT/$name.$1")" >&2
    return 1
}

# How the calls of a side have ended that were no success.
ends_of() {
    ends=$(sed -n 's/^\([a-z]*\): \([A-Z][A-Za-z]*\).*/\1 \2/p' "$OUT/$name.$1" | paste -sd, | sed 's/,/, /g')
    echo "${ends:--}"
}

# Both sides have ended as a row of the list says: one of all kernels, or one of this. Where both wait in vain for an end, equally long, the
# one that is first to leave may end the wait of the other.
is_expected() {
    of_server=$(ends_of server) of_client=$(ends_of client) left='closed TimedOut, disconnect Disconnected'
    row="$kind, $fault at $at: $of_server | $of_client"
    case "$of_server | $of_client" in
    "closed Disconnected | $left"*) of_server=$left ;;
    "$left | closed Disconnected"*) of_client=$left${of_client#closed Disconnected} ;;
    esac
    same="$kind, $fault at $at: $of_server | $of_client" number=$(uname -r | cut -d. -f1,2)
    grep -qxF -e "$row" -e "$number $row" -e "$same" -e "$number $same" "$vm/lib/connection_faults.results" || { echo "no row: $row" >&2; return 1; }
}

# A connection with both sides at a step, at which something goes wrong.
meets() { # meets KIND STEP FAULT
    kind=$1 at=$2 fault=$3 go=$OUT/$name.go
    of_kind "$kind"
    # shellcheck disable=SC2086  # several words
    ${server_place:-} "$UVERBS_PEERS" stop "$at" listen "$address:$port" "$go" >"$OUT/$name.server" 2>&1 &
    server=$!
    until_true 30 says server listens || { cat "$OUT/$name.server" >&2; return 1; }
    "$UVERBS_PEERS" stop "$at" connect "$address:$port" "$go" >"$OUT/$name.client" 2>&1 &
    client=$!
    case $at,$kind in
    address,* | route,*) until_true 30 says client stops ;;
    request,* | accepted,siw) until_true 30 says server stops ;;
    *) until_true 30 both_stop ;;
    esac
    status=$?
    if [ "$status" -eq 0 ]; then "go_wrong_$fault" || status=1; fi
    touch "$go"
    until_true 60 has_ended "$server" && until_true 60 has_ended "$client" || status=1
    wait "$server" "$client"
    "put_right_$fault" && until_true 10 is_ready "$kind" || status=1
    sed 's/^/server: /' "$OUT/$name.server"
    sed 's/^/client: /' "$OUT/$name.client"
    has_done server && has_done client && is_expected || status=1
    return "$status"
}
