# shellcheck shell=sh
# The step `voices` of the lanes random and random-mlx5, which source this after guest.sh, random/programs.sh and dropin-common.sh: random programs in C with
# libibverbs and with the drop-in.

# shellcheck disable=SC2154  # who sources this has $device, $here and $name
play() { # play PROGRAMS MICROSECONDS [CONTROL]: with both libraries
    for side in theirs ours; do
        "$side" "$RANDOM_VOICE" "$device" "$2" ${3:+"$3"} <"$1" >"$OUT/$name.$side" || return
    done
    "$PYTHON" "$here/random/compare" "$OUT/$name.theirs" "$OUT/$name.ours" "$here/random/differences" "$OUT/again"
}

# A program that differs is played again with more time, three times at most: it may only have been late, or one of those in which the
# device is as likely to do one thing as another.
voices() { # voices ABOUT [CONTROL]
    some=$((count / 10))
    [ "$some" -ge 100 ] || some=100
    print() { "$UVERBS_RANDOM" print --about "$about" --seed "$seed" "$@"; }
    about=$1
    print --from "$from" --count "$some" >"$OUT/programs" || return
    play "$OUT/programs" 4000 ${2:+"$2"} 2>"$OUT/first.err" && return
    cp "$OUT/$name.theirs" "$OUT/first.theirs" && cp "$OUT/$name.ours" "$OUT/first.ours" || return
    for time in 80000 80000 160000; do
        # What else went wrong left no list.
        [ -s "$OUT/again" ] || break
        while read -r number; do
            print --from "$number" --count 1
        done <"$OUT/again" >"$OUT/programs.again"
        rm "$OUT/again"
        play "$OUT/programs.again" "$time" ${2:+"$2"} 2>"$OUT/again.err" && return
    done
    cat "$OUT/first.err" "$OUT/again.err" >&2
    return 1
}
