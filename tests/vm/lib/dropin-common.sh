# shellcheck shell=sh
# For the lanes that run programs with the drop-in library; sourced after guest.sh.

# The library under the name that the loader looks for, and under the name of the link, for programs that try both. It is below /tmp,
# which the roots of other releases have too.
if [ -n "${UVERBS_DROPIN:-}" ]; then
    mkdir -p /tmp/dropin && cp "$UVERBS_DROPIN" /tmp/dropin/libibverbs.so.1 && ln -s libibverbs.so.1 /tmp/dropin/libibverbs.so
fi
# The drop-in's own driver libraries, for programs that call libmlx5 or libefa.
if [ -n "${UVERBS_MLX5:-}" ]; then
    cp "$UVERBS_MLX5" /tmp/dropin/libmlx5.so.1
fi
if [ -n "${UVERBS_EFA:-}" ]; then
    cp "$UVERBS_EFA" /tmp/dropin/libefa.so.1
fi

# The loader writes a trace for every process that runs with ours, whether a library is loaded at its start or later.
ours() { LD_LIBRARY_PATH=/tmp/dropin LD_DEBUG=files LD_DEBUG_OUTPUT=/tmp/dropin/loader "$@"; }
theirs() { "$@"; }

verbs_libraries() { # verbs_libraries LOG...: of all that was loaded, libibverbs and the drivers for it
    sed -n 's/.*calling init: //p' "$@" | grep -E '/libibverbs[./]|-rdmav' | sort -u
}

enter() { # enter ROOT: the guest's own directories in the root of another release
    for directory in dev proc sys tmp; do
        mount --rbind "/$directory" "$1/$directory" || return
    done
}

library_is_ours() { # library_is_ours PROGRAM: in the place of libibverbs
    ours ldd "$(command -v "$1")" || return
    ours ldd "$(command -v "$1")" | grep -q 'libibverbs.so.1 => /tmp/dropin/' || return
    # With libibverbs there is one such library, and the loader's trace shows it.
    LD_DEBUG=files ibv_devices 2>"$OUT/loader.theirs" >&2 || return
    if ! verbs_libraries "$OUT/loader.theirs" | grep -e -rdmav; then
        echo "libibverbs is not seen to load a driver library" >&2
        return 1
    fi
}

only_ours_was_loaded() { # by any process of ours in this lane
    cat /tmp/dropin/loader.* >"$OUT/loader.ours" || return
    verbs_libraries "$OUT/loader.ours"
    echo "compared: $(grep -l 'calling init: .*/libibverbs' /tmp/dropin/loader.* | wc -l) processes"
    # It is loaded by its name; one program also loads it by the name of the link.
    [ "$(verbs_libraries "$OUT/loader.ours" | grep -vx /tmp/dropin/libibverbs.so)" = /tmp/dropin/libibverbs.so.1 ] && return
    echo "another libibverbs, or a driver library, was loaded" >&2
    return 1
}

# A description without its lines about completion counters, which libibverbs has on no device here.
without_completion_counters() { sed '/comp_cntr/d; /QP_ATTACH_/d' "$@"; }

same_output() { # same_output COMMAND...
    theirs "$@" >"$OUT/$name.theirs" || return
    ours "$@" >"$OUT/$name.ours" || return
    diff "$OUT/$name.theirs" "$OUT/$name.ours" >&2 && cat "$OUT/$name.ours"
}

# The sizes of queues that are accepted and granted, with libibverbs and with the drop-in. The last lines are the figures.
same_sizes() { # same_sizes PROGRAM [KIND], made of sizes.c
    for library in theirs ours; do
        # shellcheck disable=SC2086  # a word or none
        "$library" timeout 600 "$1" "$device" ${2:-} >"$OUT/$name.$library" || return
    done
    "$vm/dropin/sizes/compare" "$OUT/$name.theirs" "$OUT/$name.ours"
}

address=192.0.2.1

# shellcheck source=tests/vm/lib/listening.sh
. "$vm/lib/listening.sh"

# Runs a program with a server and a client. Each side uses either ours or theirs.
pair() { # pair SERVER CLIENT PORT PROGRAM ARGUMENTS...
    with_server=$1 with_client=$2 port=$3
    shift 3
    "$with_server" timeout 300 "$@" >"$OUT/$name.server" 2>&1 &
    server=$!
    # Under valgrind, and beside other guests, a start takes long. A server that came too late is no server of the next step.
    until_true 90 listening "$port" || { cat "$OUT/$name.server" >&2; kill "$server"; return 1; }
    status=0
    "$with_client" timeout 300 "$@" "$address" || status=$?
    wait "$server" || { echo "server: exit status $?: $(cat "$OUT/$name.server")" >&2; return 1; }
    cat "$OUT/$name.server"
    return "$status"
}

# libibverbs' pingpongs, with the drop-in on either side and on both.
paired_pingpong() { # paired_pingpong KIND [-e]
    program=ibv_$1_pingpong
    shift
    for sides in "ours ours" "ours theirs" "theirs ours"; do
        # shellcheck disable=SC2086  # two words
        pair $sides 18515 "$program" -d "$device" -g 1 -n 100 "$@" || return
    done
}

paired_pingpongs() { # as steps
    for kind in rc uc ud srq; do
        step "pingpong-$kind" paired_pingpong "$kind"
        step "pingpong-$kind-events" paired_pingpong "$kind" -e
    done
}

both_send() { [ "$(rdma resource show qp | grep -c 'state RTS.*ibv_rc_pingpong')" -eq 2 ]; }

# Takes the device away (take_away, bring_back) while two programs send to each other and wait for events. All must end, and in the same
# way with both libraries.
device_goes() {
    for library in theirs ours; do
        "$library" timeout 60 chroot "$root" ibv_asyncwatch -d "$device" >"$OUT/$name.watch.$library" 2>&1 &
        watch=$!
        "$library" timeout 60 chroot "$root" ibv_rc_pingpong -d "$device" -g "$gid" -e -n 10000000 >"$OUT/$name.server.$library" 2>&1 &
        server=$!
        until_true 20 listening 18515 || return
        "$library" timeout 60 chroot "$root" ibv_rc_pingpong -d "$device" -g "$gid" -e -n 10000000 "$address" >"$OUT/$name.client.$library" 2>&1 &
        client=$!
        until_true 20 both_send && until_true 20 grep -q 'async event FD' "$OUT/$name.watch.$library" && take_away || return
        # The watch does not end by itself.
        until_true 20 grep -q DEVICE_FATAL "$OUT/$name.watch.$library" && kill "$watch" || return
        for side in watch server client; do
            eval "wait \$$side"
            echo "$side: exit status $?: $(tail -n 1 "$OUT/$name.$side.$library" | sed 's/[0-9a-f]\{6,\}/N/g')"
        done >"$OUT/$name.$library"
        bring_back || return
    done
    diff "$OUT/$name.theirs" "$OUT/$name.ours" >&2 && cat "$OUT/$name.ours"
}

# The programs that MPIs are tried with, compiled for that release.
mpi_programs() {
    cp "$vm/dropin/releases/lists/mpi.c" /tmp/mpi.c
    chroot "$root" mpicc.openmpi -O1 -o /tmp/openmpi /tmp/mpi.c &&
        chroot "$root" gcc -O1 -o /tmp/mpich /tmp/mpi.c -I/usr/include/x86_64-linux-gnu/mpich -lmpich
}

# In each release, runs these steps and then the rows of dropin/releases/lists/LIST.list, which may use the names of $values.
in_releases() { # in_releases LIST [STEP...]
    list=$1
    shift
    : "${gid:=1}" "${values:=DEVICE=$device ADDRESS=$address GID=${gid:-1}}"
    # The roots do not change, so they can be cached.
    step roots mount -t 9p -o ro,trans=virtio,version=9p2000.L,msize=524288,cache=loose roots /mnt || return
    modprobe rdma_ucm
    for suite in ${CONSUMERS:-$ROOTS}; do
        eval "root=/mnt/\$(basename \"\${CONSUMERS_$suite:-\${ROOT_$suite:-}}\")"
        step "$suite-root" enter "$root" || continue
        for first; do
            step "$suite-$first" "$first"
        done
        # shellcheck disable=SC2086  # several words
        step "$suite-programs" "$PYTHON" "$vm/dropin/releases/programs" "$vm/dropin/releases/lists/$list.list" "$suite" "$root" $values
    done
    # The runner prints this table.
    step table "$PYTHON" "$vm/dropin/releases/programs" --table "$OUT"/*-programs.out
    step libraries only_ours_was_loaded
    step resources resources_are_as_before
    step kernel-log kernel_log_is_clean
}
