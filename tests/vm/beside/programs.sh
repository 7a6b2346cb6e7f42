# shellcheck shell=sh disable=SC2154,SC2317
# What whole programs cost with the drop-in and with Debian's libibverbs, and in a table: for the lanes beside-programs and mlx5-programs, which source
# this after lib/dropin-common.sh. See beside/README.md.

# The index of the address that programs are told to use.
gid=1

# Two roots in memory, with the programs and everything they load. They differ only in the library. If the files came from the host, the
# guest would look up each path anew, and the cost would vary.
programs_root() { # programs_root SIDE
    root=/tmp/programs/$1
    libraries=/usr/lib/x86_64-linux-gnu
    mkdir -p "$root/usr/lib" "$root/usr/lib64" "$root/usr/bin" "$root/dev" "$root/proc" "$root/sys" "$root/tmp"
    ln -s usr/lib usr/lib64 usr/bin "$root" || return
    programs="/usr/bin/ibv_devices /usr/bin/ibv_devinfo /usr/bin/ibv_rc_pingpong /usr/bin/ib_write_lat /usr/bin/ib_send_bw"
    tools="/usr/bin/strace /usr/bin/valgrind.bin /usr/bin/env"
    # shellcheck disable=SC2086  # several words
    needed=$(ldd $programs $tools "$libraries"/libibverbs/*.so | sed -n 's/.* => \(.*\) (.*/\1/p' | sort -u)
    # shellcheck disable=SC2086
    cp -L --parents $programs $tools $needed /lib64/ld-linux-x86-64.so.2 /etc/ld.so.cache "$libraries"/libibverbs/*.so \
        "$root" && cp -r --parents /etc/libibverbs.d /usr/libexec/valgrind/*callgrind-amd64-linux /usr/libexec/valgrind/*core-amd64-linux.so \
        /usr/libexec/valgrind/default.supp "$root" &&
        cp "$UVERBS_STARTED" "$root/usr/bin/started" && cp "$UVERBS_EMPTY" "$root/usr/bin/empty" &&
        cp "$UVERBS_PATH" "$root/usr/bin/path" && cp "$UVERBS_CALLS" "$root/usr/bin/calls" || return
    [ "$1" = debian-12 ] || strip -o "$root$libraries/libibverbs.so.1" "$UVERBS_DROPIN" || return
    for directory in dev proc sys; do
        mount --rbind "/$directory" "$root/$directory" || return
    done
}

within() { # within PROGRAM ARGUMENTS...: in the root of the side that is measured
    chroot "/tmp/programs/$side" "$@"
}

value() { # value KEY FILE...: the number that stands after these words
    sed -n "s/.*$1 *: *\([0-9,]*\).*/\1/p" "$2" | tr -d , | grep . || { echo "no \`$1\` in $2" >&2; return 1; }
}

# Only of libraries that the trace shows to be loaded: libibverbs, its drivers and what they need.
bytes_of_libraries() {
    sed -n 's/.*openat(.*"\([^"]*\.so[^"]*\)".*) = [0-9].*/\1/p' "/tmp/programs/$side/tmp/trace" | grep -v '/libc\.so\|/ld\.so' | sort -u |
        while read -r library; do stat -L -c %s "/tmp/programs/$side$library"; done | awk '{ sum += $1 } END { print sum }'
}

started() { # started NAME PROGRAM ARGUMENTS...: what a program costs from its start to its end
    what=$1 log=$OUT/programs-$side.log
    shift
    within strace -f -o /tmp/trace "$@" >/dev/null 2>"$log" && echo "$what: system calls: $(grep -c '(' "/tmp/programs/$side/tmp/trace")" &&
        echo "$what: bytes of libraries: $(bytes_of_libraries)" &&
        within started 5 "$@" >/dev/null 2>"$log" && echo "$what: page faults: $(value faults "$log")" || return
    [ -z "${CLOCK_COUNTS:-}" ] || echo "$what: instructions: $(value instructions "$log")"
    within valgrind.bin --tool=callgrind --callgrind-out-file=/dev/null "$@" >/dev/null 2>"$log" &&
        echo "$what: instructions in user space: $(value Collected "$log")"
}

# The libraries have been stripped of symbols that nobody looks up, as in packages.
loaded() { # what the loader does for a program that is linked to libibverbs and does nothing
    log=$OUT/programs-$side.log
    echo "libibverbs: bytes: $(stat -L -c %s "/tmp/programs/$side$libraries/libibverbs.so.1")"
    within env LD_DEBUG=statistics empty 2>"$log" || return
    echo "load: relocations: $(($(value ':[^a-z]*number of relocations' "$log") + $(value 'number of relative relocations' "$log")))"
}

# Runs a pair of programs and counts both sides.
looped() { # looped NAME PROGRAM ARGUMENTS...
    what=$1
    shift
    within env LD_PRELOAD=/usr/bin/calls CALLS_OUTPUT=/tmp/server "$@" >"$OUT/$what-$side.server" 2>&1 &
    server=$!
    until_true 30 listening 18515 || { cat "$OUT/$what-$side.server" >&2; return 1; }
    within env LD_PRELOAD=/usr/bin/calls CALLS_OUTPUT=/tmp/client "$@" "$address" >"$OUT/$what-$side.client" 2>&1 || return
    wait "$server" || return
    sed "s/^/$what: /" "/tmp/programs/$side/tmp/client"
    sed "s/^/$what, server: /" "/tmp/programs/$side/tmp/server"
}

measure_programs() { # measure_programs SIDE
    side=$1
    programs_root "$side" && loaded && started load /usr/bin/empty && started ibv_devices /usr/bin/ibv_devices &&
        started open /usr/bin/path open "$device" && started "ibv_devinfo -v" /usr/bin/ibv_devinfo -v -d "$device" &&
        looped ibv_rc_pingpong ibv_rc_pingpong -d "$device" -g "$gid" -n 200 &&
        looped "ibv_rc_pingpong -e" ibv_rc_pingpong -d "$device" -g "$gid" -n 200 -e || return
    # With libmlx5's own calls perftest posts in another way, so its loop is not comparable.
    case $device in mlx5*) return ;; esac
    looped ib_write_lat ib_write_lat -d "$device" -x "$gid" -n 200 -F -p 18515 &&
        looped ib_send_bw ib_send_bw -d "$device" -x "$gid" -n 200 -F -p 18515
}

compare_programs() { # compare_programs KIND
    "$UVERBS_BESIDE" programs "$1" "$OUT" && echo "compared: libibverbs $(dpkg-query -W -f '${Version}' libibverbs1)"
}

programs_steps() { # programs_steps KIND
    step programs-drop-in measure_programs drop-in
    step programs-debian-12 measure_programs debian-12
    step programs-table compare_programs "$1"
}
