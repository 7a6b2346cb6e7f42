#!/bin/sh
# What `benches/compare` runs in the guest. Each line of output is for it: what was measured, and a JSON object.
#
# usage: guest.sh times ROUNDS SAMPLES | guest.sh counts READS | guest.sh callgrind READS    with MLX5_CONTROL, UVERBS_BIN, UVERBS_PATH and UVERBS_PEER

set -eu
device=mlx5_0

exec 9<>"$MLX5_CONTROL"
stty -F "$MLX5_CONTROL" raw -echo

ask() { # ask REQUEST: of the virtual device; `ok` is the last line of its answer
    printf '%s\n' "$1" >&9
    while read -r answer <&9; do
        case $answer in
        ok) return ;;
        error*) echo "$1: $answer" >&2 && return 1 ;;
        esac
    done
}

ours() { # ours WHAT MODES [OPTION...]
    what=$1 modes=$2
    shift 2
    "$UVERBS_BIN" bench read --device $device --mode "$modes" --json "$@" >/tmp/figures
    sed "s/^/$where ours $what /" /tmp/figures
}

theirs() { # theirs WHAT MODE COUNTERS SAMPLES BATCH
    what=$1
    shift
    "$UVERBS_PEER" bench $device "$@" >/tmp/figures
    sed "s/^/$where theirs $what /" /tmp/figures
}

# The figures of one round: single reads, cached reads, and many counters.
our_reads() { ours one volatile,prepared,driver-cached --samples "$samples"; }
their_reads() { theirs one volatile 1 "$samples" 1; theirs one driver-cached 1 "$samples" 1; }
our_cached() { ours cached snapshot --max-age 1s --batch 1000 --samples 200; }
our_many() { ours many prepared,bulk --counters 1000 --samples 10 --warmup 1; }
their_many() { theirs many volatile 1000 10 1; }

measure_times() {
    rounds=$1 samples=$2
    for delay in 0us 10us 50us; do
        ask heal
        ask "delay $delay QUERY_FLOW_COUNTER"
        for round in $(seq "$rounds"); do
            where="$delay $round"
            if [ $((round % 2)) -eq 1 ]; then
                our_reads; their_reads; our_cached; our_many; their_many
            else
                their_reads; our_reads; their_many; our_many; our_cached
            fi
        done
    done
}

measure_counts() {
    # Longer than it takes the guest to find that there is nothing else to do.
    ask 'delay 200us QUERY_FLOW_COUNTER'
    for _ in 1 2 3 4 5; do
        "$UVERBS_PATH" first $device
        "$UVERBS_PEER" first $device
    done
    for mode in volatile prepared driver-cached; do "$UVERBS_PATH" marks $device $mode "$1"; done
    for mode in volatile driver-cached; do "$UVERBS_PEER" marks $device $mode "$1"; done
}

measure_callgrind() {
    valgrind --tool=callgrind --callgrind-out-file=/dev/null --toggle-collect=read_one "$UVERBS_PEER" reads $device volatile "$1" 2>&1 |
        sed -n 's/.*Collected : //p'
}

what=measure_$1
shift
"$what" "$@"
