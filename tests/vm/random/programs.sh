# shellcheck shell=sh
# What the lanes random and random-mlx5 play, which source this after lib/guest.sh: the programs that the runner's environment says.

seed=${UVERBS_RANDOM_SEED:-1} from=${UVERBS_RANDOM_FROM:-0} count=${UVERBS_RANDOM_COUNT:-400}

# shellcheck disable=SC2154  # lib/guest.sh, and who sources this, have $OUT and $device
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

faults() { # faults ABOUT: a sixteenth as many, in which commands are refused, the kernel has no memory, and the device is taken away
    starve
    play_some "$((count / 16))" --about "$1" --how "${UVERBS_RANDOM_HOW:-alone}" --faults
}

starve() { # on a kernel that can be told, each allocation may fail, and says nothing
    for attribute in failslab fail_page_alloc fail_usercopy; do
        there=/sys/kernel/debug/$attribute
        [ -d "$there" ] || continue
        echo 0 >"$there/verbose"
        [ ! -e "$there/ignore-gfp-wait" ] || echo N >"$there/ignore-gfp-wait"
        [ ! -e "$there/min-order" ] || echo 0 >"$there/min-order"
    done
}
