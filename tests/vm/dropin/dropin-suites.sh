#!/bin/sh
# Lane dropin-suites: the drop-in beside the libibverbs of several releases of Debian, on rxe: names, descriptions, and programs compiled with each
# release's headers. The machine's own release, and those in roots made of other releases' packages. Runs in the guest; see lib/guest.sh.
#
# kernels: 6.1
# by default: 6.1
# due: later $DROPIN $LISTING $RUNNER tests/vm/lib/roots.py
# order: 5
# packages: ibverbs-utils ibverbs-providers gcc libc6-dev libibverbs-dev
# cargo: UVERBS_DROPIN build --profile dropin --package uverbs-c
# cargo: UVERBS_MLX5 build --profile dropin --package uverbs-c-mlx5
# roots: trixie sid
# compile-each: CONVENTIONS dropin/answers/conventions.c -pthread
# compile-each: POSTS dropin/answers/posts.c -pthread
# compile-each: SLOTS dropin/answers/slots.c -pthread
# shellcheck disable=SC2317  # `step` calls the functions by name

vm=$(dirname "$0")/..
# shellcheck source=tests/vm/lib/guest.sh
. "$vm/lib/guest.sh"

# shellcheck source=tests/vm/lib/dropin-common.sh
. "$vm/lib/dropin-common.sh"

of_suite() { # of_suite NAME: the value of NAME_suite
    eval "printf '%s\n' \"\$$1_$suite\""
}

# Every program and library of rdma-core and of its users, with the libraries that it is linked to. No name may be missing that is there
# with libibverbs. A plugin lacks the names of the program that loads it, with either library.
complete() {
    grep -rlI --binary-files=text IBVERBS_ "$root/usr/bin" "$root/usr/lib/x86_64-linux-gnu" >"$OUT/$name.files" || return
    [ "$(wc -l <"$OUT/$name.files")" -gt 20 ] || return
    linked "$root/usr/lib/x86_64-linux-gnu" | missing >"$OUT/$name.missing-theirs"
    linked "/tmp/dropin:$root/usr/lib/x86_64-linux-gnu" >"$OUT/$name.linked"
    missing <"$OUT/$name.linked" >"$OUT/$name.missing"
    echo "compared: $(wc -l <"$OUT/$name.files") files, $(wc -l <"$OUT/$name.missing-theirs") names missing with libibverbs"
    diff "$OUT/$name.missing-theirs" "$OUT/$name.missing" >&2 && grep -q '=> /tmp/dropin/libibverbs.so.1' "$OUT/$name.linked"
}

# Does what ldd -r does, with that release's loader.
linked() { # linked LIBRARIES
    while read -r file; do
        LD_TRACE_LOADED_OBJECTS=1 LD_WARN=yes LD_BIND_NOW=yes "$root/lib64/ld-linux-x86-64.so.2" --library-path "$1" "$file" 2>&1
    done <"$OUT/$name.files"
}

missing() { grep -E 'undefined symbol|not found|error' | sort; }

# A program compiled with the release's headers must answer as it does when compiled with those of Debian 12.
same_with_headers() { # same_with_headers PROGRAM
    suite=bookworm
    ours timeout 100 "$(of_suite "$1")" "$device" >"$OUT/$name.bookworm" || return
    suite=${name%%-*}
    ours timeout 100 "$(of_suite "$1")" "$device" >"$OUT/$name.own" || return
    diff "$OUT/$name.bookworm" "$OUT/$name.own" >&2 || return
    echo "compared: $(wc -l <"$OUT/$name.own") answers"
}

same_devinfo() {
    for library in theirs ours; do
        "$library" chroot "$root" ibv_devinfo -v >"$OUT/$name.all" || return
        without_completion_counters "$OUT/$name.all" >"$OUT/$name.$library"
    done
    diff "$OUT/$name.theirs" "$OUT/$name.ours" >&2 && grep -q 'PORT_ACTIVE' "$OUT/$name.ours"
}

begin make_device

for suite in bookworm $ROOTS; do
    root=/
    if [ "$suite" != bookworm ]; then
        root=$(of_suite ROOT)
        step "$suite-root" enter "$root" || continue
        step "$suite-complete" complete
        for program in CONVENTIONS POSTS SLOTS; do
            step "$suite-headers-$program" same_with_headers "$program"
        done
    fi
    step "$suite-devinfo" same_devinfo
done
step libraries only_ours_was_loaded
step resources resources_are_as_before
step kernel-log kernel_log_is_clean
finish
