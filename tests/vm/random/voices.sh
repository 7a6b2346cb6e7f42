# shellcheck shell=sh
# The step `voices` of the lanes random and random-mlx5, which source this after lib/guest.sh, random/programs.sh and lib/dropin-common.sh: random
# programs in C with libibverbs and with the drop-in.

# A tenth of all programs, but at least a hundred; none at all with 0.
# shellcheck disable=SC2154  # programs.sh has $count
a_tenth() { if [ "$count" -ge 1000 ]; then echo $((count / 10)); else echo 100; fi; }
voices=${UVERBS_RANDOM_VOICES:-$(a_tenth)}

# shellcheck disable=SC2154  # who sources this has $device, $vm and $name
played() { # played theirs|ours NUMBER PROGRAMS MICROSECONDS [CONTROL]: each play has a number
    "$1" "$RANDOM_VOICE" "$device" "$4" ${5:+"$5"} <"$3" >"$OUT/$name.$1.$2"
}

judged() { # judged: all that was played so far; lists what differs in again
    "$PYTHON" "$vm/random/compare" "$differences" "$OUT/again" "$OUT/$name.theirs."* -- "$OUT/$name.ours."* \
        >"$OUT/judged" 2>"$OUT/judged.err"
}

# A program that differs is played again with both libraries, with more and more time. It is also played with libibverbs and little time,
# which shows what depends on timing.
voices() { # voices ABOUT DIFFERENCES [CONTROL]
    about=$1 differences=$vm/random/$2 control=${3:-}
    print() { "$UVERBS_RANDOM" print --about "$about" --seed "$seed" "$@"; }
    print --from "$from" --count "$voices" >"$OUT/programs" || return
    for side in theirs ours; do
        played "$side" 0 "$OUT/programs" 10000 ${control:+"$control"} || return
    done
    play=0
    for times in "500 10000" "80000 80000" "10000 80000" "160000 160000" "160000 160000"; do
        judged && break
        [ -s "$OUT/again" ] || break
        while read -r number; do
            print --from "$number" --count 1
        done <"$OUT/again" >"$OUT/programs.again"
        play=$((play + 1))
        played theirs "$play" "$OUT/programs.again" "${times% *}" ${control:+"$control"} || return
        played ours "$play" "$OUT/programs.again" "${times#* }" ${control:+"$control"} || return
    done
    status=0
    judged || status=$?
    cat "$OUT/judged"
    cat "$OUT/judged.err" >&2
    return "$status"
}
