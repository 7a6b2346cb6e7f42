# shellcheck shell=sh
# For the lanes that run programs with the drop-in library; sourced after guest.sh.

# The library under the name that the loader looks for.
if [ -n "${UVERBS_DROPIN:-}" ]; then
    mkdir -p /tmp/dropin && ln -sf "$UVERBS_DROPIN" /tmp/dropin/libibverbs.so.1
fi

ours() { LD_LIBRARY_PATH=/tmp/dropin "$@"; }
theirs() { "$@"; }

library_is_ours() { # library_is_ours PROGRAM: in the place of libibverbs, and no driver library beside it
    ours ldd "$1" || return
    ours ldd "$1" | grep -q 'libibverbs.so.1 => /tmp/dropin/' || return
    LD_LIBRARY_PATH=/tmp/dropin LD_DEBUG=files "$1" 2>&1 >/dev/null | grep 'calling init' >"$OUT/loaded" || return
    if grep -E 'libibverbs/|-rdmav' "$OUT/loaded"; then
        echo "a driver library was loaded" >&2
        return 1
    fi
}

same_output() { # same_output COMMAND...
    theirs "$@" >"$OUT/$name.theirs" || return
    ours "$@" >"$OUT/$name.ours" || return
    diff "$OUT/$name.theirs" "$OUT/$name.ours" >&2 && cat "$OUT/$name.ours"
}
