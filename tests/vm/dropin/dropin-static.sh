#!/bin/sh
# Lane dropin-static: programs in C with the drop-in's archive for libibverbs in them and no shared library, with glibc and with musl, on rxe. Runs in
# the guest; see lib/guest.sh.
#
# kernels: 6.1
# by default: 6.1
# due: later $DROPIN $LISTING $RUNNER
# only: 6.1
# packages: gcc libc6-dev libibverbs-dev musl-tools
# cargo: UVERBS_DROPIN build --profile dropin --package uverbs-c
# cargo: UVERBS_MUSL build --profile dropin --package uverbs-c --target x86_64-unknown-linux-musl
# compile: DROPIN_PROGRAMS dropin/answers/*.c -libverbs -pthread
# static: STATIC_GLIBC cc UVERBS_DROPIN dropin/answers/*.c -pthread
# static: STATIC_MUSL musl-gcc UVERBS_MUSL dropin/answers/*.c -pthread
# shellcheck disable=SC2317  # `step` calls the functions by name

vm=$(dirname "$0")/..
# shellcheck source=tests/vm/lib/guest.sh
. "$vm/lib/guest.sh"

none_is_dynamic() { # none_is_dynamic PROGRAM...
    for program in "$@"; do
        ldd "$program" && { echo "$program has shared libraries" >&2; return 1; }
    done 2>&1
    echo "compared: $# programs"
}

answers() { # answers PROGRAM: what libibverbs answers it
    timeout 200 "$1" "$device" >"$OUT/$name.stock"
}

same_answers() { # same_answers PROGRAM ANSWERS: as libibverbs answers it, but for the known differences
    timeout 200 "$1" "$device" >"$OUT/$name.ours" || return
    case $1 in
    *-musl-gcc) cat "$vm/dropin/answers/differences" "$vm/dropin/answers/differences-musl" ;;
    *) cat "$vm/dropin/answers/differences" ;;
    esac >"$OUT/differences"
    "$vm/dropin/answers/compare" "$2" "$OUT/$name.ours" "$OUT/differences"
}

refusals() { # refusals PROGRAM: it outlives each question
    timeout 200 "$1" "$device" >"$OUT/$name.ours" && ! grep -E ': (ABRT|BUS|FPE|ILL|SEGV|hangs)$' "$OUT/$name.ours" >&2
}

begin make_device

# shellcheck disable=SC2086  # several words
step static none_is_dynamic $STATIC_GLIBC $STATIC_MUSL
for program in $DROPIN_PROGRAMS; do
    about=${program##*/dropin-answers-}
    [ "$about" = nulls ] || step "stock-$about" answers "$program"
    for built in $STATIC_GLIBC $STATIC_MUSL; do
        case $built in */"dropin-answers-$about-"*) ;; *) continue ;; esac
        case $about in
        # What libibverbs is not asked.
        nulls) step "${built##*/dropin-answers-}" refusals "$built" ;;
        *) step "${built##*/dropin-answers-}" same_answers "$built" "$OUT/stock-$about.stock" ;;
        esac
    done
done
step resources resources_are_as_before
step kernel-log kernel_log_is_clean
finish
