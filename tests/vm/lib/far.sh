# shellcheck shell=sh
# Lanes with two guests: what one has the other do. Both source this after guest.sh. The first can write to the directory of the
# second, its peer: a request is a directory there, with a command; what that prints and its exit status come back in it.

far() { # far COMMAND...: in the other guest, where it may be a function of the script's; several may run at a time
    request=$(mktemp -d "$OUT/peer/request.XXXXXX") || return
    for word; do printf "'%s' " "$(printf '%s' "$word" | sed "s/'/'\\\\''/g")"; done >"$request/written"
    mv "$request/written" "$request/command"
    # The other guest may still be booting.
    until_true 200 test -e "$request/status" || return
    cat "$request/out" && cat "$request/err" >&2
    return "$(cat "$request/status")"
}

serve() { # until the runner says that the other guest has come to its end
    until [ -e "$OUT/end" ]; do
        for command in "$OUT"/request.*/command; do
            request=${command%/command}
            # Skip the pattern itself, which the shell leaves when nothing matches.
            mv "$command" "$request/begun" 2>/dev/null || continue
            carry_out "$request" </dev/null &
        done
        sleep 0.1
    done
}

carry_out() { # carry_out REQUEST
    status=0
    # shellcheck source=/dev/null
    (. "$1/begun") >"$1/out" 2>"$1/err" || status=$?
    echo "$status" >"$1/number" && mv "$1/number" "$1/status"
}
