#!/bin/sh
# Lane random: random programs on the kernel's software device, each held against the soft device; see tests/random/README.md. Runs
# in the guest; see guest.sh.
#
# order: 2
# cargo: UVERBS_RANDOM build --profile guest --package uverbs-random
# passes: UVERBS_RANDOM_SEED UVERBS_RANDOM_FROM UVERBS_RANDOM_COUNT UVERBS_RANDOM_SECONDS UVERBS_RANDOM_HOW UVERBS_RANDOM_PROGRAM
# shellcheck disable=SC2317  # `step` calls the functions by name

here=$(dirname "$0")
# shellcheck source=tests/vm/guest.sh
. "$here/guest.sh"

programs() { # which ones the environment of the runner says; or one alone
    how=${UVERBS_RANDOM_HOW:-alone}
    if [ -n "${UVERBS_RANDOM_PROGRAM:-}" ]; then
        "$UVERBS_RANDOM" play "$UVERBS_RANDOM_PROGRAM" --device "$device" --how "$how"
        return
    fi
    "$UVERBS_RANDOM" device "$device" --about messages --how "$how" --seed "${UVERBS_RANDOM_SEED:-1}" \
        --from "${UVERBS_RANDOM_FROM:-0}" --count "${UVERBS_RANDOM_COUNT:-400}" --seconds "${UVERBS_RANDOM_SECONDS:-400}" \
        --finds "$OUT/finds" --at "$OUT/at"
}

begin make_device

step programs programs
step resources resources_are_as_before
step kernel-log kernel_log_is_clean
finish
