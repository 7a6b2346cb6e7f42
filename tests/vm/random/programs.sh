# shellcheck shell=sh
# What the lanes random and random-mlx5 play, which source this after guest.sh: the programs that the runner's environment says.

seed=${UVERBS_RANDOM_SEED:-1} from=${UVERBS_RANDOM_FROM:-0} count=${UVERBS_RANDOM_COUNT:-400}

# shellcheck disable=SC2154  # guest.sh, and who sources this, have $OUT and $device
play_some() { # play_some COUNT OPTION...: so many
    some=$1
    shift
    "$UVERBS_RANDOM" device "$device" --seed "$seed" --from "$from" --count "$some" --seconds "${UVERBS_RANDOM_SECONDS:-400}" \
        --finds "$OUT/finds" "$@"
}

programs() { # programs ABOUT; or one alone
    how=${UVERBS_RANDOM_HOW:-alone}
    if [ -n "${UVERBS_RANDOM_PROGRAM:-}" ]; then
        "$UVERBS_RANDOM" play "$UVERBS_RANDOM_PROGRAM" --device "$device" --how "$how"
        return
    fi
    play_some "$count" --about "$1" --how "$how" --at "$OUT/at"
}
