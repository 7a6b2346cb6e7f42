# shellcheck shell=sh disable=SC2154,SC2317
# What posting and polling cost, and reads of counters, through each side and in a table: for the lanes beside, mlx5-path and mlx5-messages,
# which source this after lib/dropin-common.sh.

in_sid() { chroot "$ROOT_sid" "$@"; }

measure_side() { # measure_side SIDE PROGRAM ARGUMENT
    "$1" "/tmp/$2" "$3" "$device"
}

in_rust() { # in_rust KIND
    LD_PRELOAD=$UVERBS_COUNTED "$UVERBS_BESIDE" "$1" "$device"
}

release_of() { # release_of ROOT: of rdma-core
    readlink -f "$1/usr/lib/x86_64-linux-gnu/libibverbs.so.1" | sed 's/.*so\.1\.[0-9]*\.//'
}

compare_path() { # compare_path TABLE
    "$UVERBS_BESIDE" figures "$1" "$OUT" && echo "compared: libibverbs of Debian 12 $(release_of /), of sid $(release_of "$ROOT_sid")"
}

path_steps() { # path_steps messages|frames [TABLE]: of another name than that
    # Copied to a path that exists in the other release's root too.
    cp "$UVERBS_PATH" /tmp/path
    step library library_is_ours "$UVERBS_PATH"
    step sid enter "$ROOT_sid"
    step path-drop-in measure_side ours path "$1"
    step path-debian-12 measure_side theirs path "$1"
    step path-sid measure_side in_sid path "$1"
    step path-rust in_rust "$1"
    step path-table compare_path "${2:-$1}"
}

of() { sed -n "s/^$1: //p" "$OUT/$2.out"; } # of WHAT STEP

first_read() { # first_read: both end in the same place
    # shellcheck disable=SC2046  # several words
    set -- $(of "open to first read" first-rust) $(of "open to first read" first-debian-12)
    echo "compared: instructions $1, theirs $4; system calls $2, theirs $5"
    [ "$2" -le 22 ]
}

cached_read() {
    set -- "$(of "read counters, cached" times-rust)" "$(of "read counters, cached" times-debian-12)"
    echo "compared: a cached read takes $1 ns, theirs $2 ns: 1/$(($2 / $1))"
}

read_steps() {
    cp "$UVERBS_READS" /tmp/reads
    step reads-drop-in measure_side ours reads counts
    step reads-debian-12 measure_side theirs reads counts
    step reads-sid measure_side in_sid reads counts
    step reads-rust in_rust reads
    step reads-table compare_path reads
    step first-debian-12 measure_side theirs reads first
    step first-rust in_rust first
    step first first_read
    step times-debian-12 measure_side theirs reads times
    step times-rust in_rust times
    step times cached_read
}
