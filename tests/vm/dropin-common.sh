# shellcheck shell=sh
# For the lanes that run programs with the drop-in library; sourced after guest.sh.

# The library under the name that the loader looks for.
if [ -n "${UVERBS_DROPIN:-}" ]; then
    mkdir -p /tmp/dropin && ln -sf "$UVERBS_DROPIN" /tmp/dropin/libibverbs.so.1
fi

ours() { LD_LIBRARY_PATH=/tmp/dropin "$@"; }
theirs() { "$@"; }

loaded() { # loaded ours|theirs COMMAND...: the libraries that the loader initialises while it runs
    rm -f /tmp/loader.*
    side=$1
    shift
    "$side" env LD_DEBUG=files LD_DEBUG_OUTPUT=/tmp/loader "$@" >/dev/null || return
    cat /tmp/loader.* | grep 'calling init'
}

library_is_ours() { # library_is_ours COMMAND...: in the place of libibverbs, and no driver library beside it, as there is with that
    ours ldd "$(command -v "$1")" | grep 'libibverbs.so.1 => /tmp/dropin/' || return
    loaded ours "$@" >"$OUT/$name.ours" && loaded theirs "$@" >"$OUT/$name.theirs" || return
    if grep -E 'libibverbs/|-rdmav|libmlx5' "$OUT/$name.ours"; then
        echo "a driver library was loaded" >&2
        return 1
    fi
    grep -E 'libibverbs/.*-rdmav' "$OUT/$name.theirs"
}

same_output() { # same_output COMMAND...
    theirs "$@" >"$OUT/$name.theirs" || return
    ours "$@" >"$OUT/$name.ours" || return
    diff "$OUT/$name.theirs" "$OUT/$name.ours" >&2 && cat "$OUT/$name.ours"
}
