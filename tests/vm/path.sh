# shellcheck shell=sh disable=SC2154,SC2317
# What posting and polling cost, through each side and in a table: for the lanes beside and mlx5-path, which source this after
# dropin-common.sh.

in_sid() { chroot "$ROOT_sid" "$@"; }

measure_path() { # measure_path SIDE KIND
    "$1" /tmp/path "$2" "$device"
}

in_rust() { # in_rust KIND
    LD_PRELOAD=$UVERBS_COUNTED "$UVERBS_BESIDE" "$1" "$device"
}

release_of() { # release_of ROOT: of rdma-core
    readlink -f "$1/usr/lib/x86_64-linux-gnu/libibverbs.so.1" | sed 's/.*so\.1\.[0-9]*\.//'
}

compare_path() { # compare_path KIND
    "$UVERBS_BESIDE" figures "$1" "$OUT" && echo "compared: libibverbs of Debian 12 $(release_of /), of sid $(release_of "$ROOT_sid")"
}

path_steps() { # path_steps messages|frames
    # Where the other release finds it too.
    cp "$UVERBS_PATH" /tmp/path
    step library library_is_ours "$UVERBS_PATH"
    step sid enter "$ROOT_sid"
    step path-drop-in measure_path ours "$1"
    step path-debian-12 measure_path theirs "$1"
    step path-sid measure_path in_sid "$1"
    step path-rust in_rust "$1"
    step path-table compare_path "$1"
}
