# shellcheck shell=sh
# For the lanes that run programs with the drop-in library; sourced after guest.sh.

# The library under the name that the loader looks for; below /tmp, which roots of other releases have too.
if [ -n "${UVERBS_DROPIN:-}" ]; then
    mkdir -p /tmp/dropin && cp "$UVERBS_DROPIN" /tmp/dropin/libibverbs.so.1
fi

# Every process of ours writes down what the loader does, whether a library comes at its start or later.
ours() { LD_LIBRARY_PATH=/tmp/dropin LD_DEBUG=files LD_DEBUG_OUTPUT=/tmp/dropin/loader "$@"; }
theirs() { "$@"; }

verbs_libraries() { # verbs_libraries LOG...: of all that was loaded, libibverbs and the drivers for it
    sed -n 's/.*calling init: //p' "$@" | grep -E '/libibverbs[./]|-rdmav' | sort -u
}

enter() { # enter ROOT: the guest's own directories in the root of another release
    for directory in dev proc sys tmp; do
        mount --rbind "/$directory" "$1/$directory" || return
    done
}

library_is_ours() { # library_is_ours PROGRAM: in the place of libibverbs
    ours ldd "$(command -v "$1")" || return
    ours ldd "$(command -v "$1")" | grep -q 'libibverbs.so.1 => /tmp/dropin/' || return
    # With libibverbs there is one, and the loader tells.
    LD_DEBUG=files ibv_devices 2>"$OUT/loader.theirs" >&2 || return
    if ! verbs_libraries "$OUT/loader.theirs" | grep -e -rdmav; then
        echo "libibverbs is not seen to load a driver library" >&2
        return 1
    fi
}

only_ours_was_loaded() { # by any process of ours in this lane
    cat /tmp/dropin/loader.* >"$OUT/loader.ours" || return
    verbs_libraries "$OUT/loader.ours"
    echo "compared: $(grep -l 'calling init: .*/libibverbs' /tmp/dropin/loader.* | wc -l) processes"
    [ "$(verbs_libraries "$OUT/loader.ours")" = /tmp/dropin/libibverbs.so.1 ] && return
    echo "another libibverbs, or a driver library, was loaded" >&2
    return 1
}

# What a description says but for completion counters, which libibverbs has on no device here.
without_completion_counters() { sed '/comp_cntr/d; /QP_ATTACH_/d' "$@"; }

same_output() { # same_output COMMAND...
    theirs "$@" >"$OUT/$name.theirs" || return
    ours "$@" >"$OUT/$name.ours" || return
    diff "$OUT/$name.theirs" "$OUT/$name.ours" >&2 && cat "$OUT/$name.ours"
}

address=192.0.2.1

# shellcheck source=tests/vm/listening.sh
. "$here/listening.sh"

# A program with a server and a client, each being ours or theirs.
pair() { # pair SERVER CLIENT PORT PROGRAM ARGUMENTS...
    with_server=$1 with_client=$2 port=$3
    shift 3
    "$with_server" timeout 100 "$@" >"$OUT/$name.server" 2>&1 &
    server=$!
    until_true 30 listening "$port" || { cat "$OUT/$name.server" >&2; return 1; }
    status=0
    "$with_client" timeout 100 "$@" "$address" || status=$?
    wait "$server" || { echo "server: exit status $?: $(cat "$OUT/$name.server")" >&2; return 1; }
    cat "$OUT/$name.server"
    return "$status"
}
