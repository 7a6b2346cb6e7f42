#!/bin/sh
# Lane connections-costs: what connections cost through this crate, and through librdmacm 65, with UVERBS_WHOLE also 44, on the kernel's software
# devices. Runs in the guest; see lib/guest.sh.
#
# kernels: 7.x
# by default: 7.x
# due: later src/cm src/kernel/manager tests/vm/peers/src tests/vm/peers/connections.c
# order: 20
# only: 7.x
# limit: 1800
# packages: mmdebstrap gcc libc6-dev libibverbs-dev librdmacm-dev strace valgrind
# module: SIW_MODULE siw
# cargo: UVERBS_COSTS build --release --package uverbs-peers
# compile: CONNECTIONS peers/connections.c -lrdmacm -libverbs -pthread
# passes: UVERBS_WHOLE
# roots: sid
# shellcheck disable=SC2317  # `step` calls the functions by name

vm=$(dirname "$0")/..
# shellcheck source=tests/vm/lib/guest.sh
. "$vm/lib/guest.sh"
# shellcheck source=tests/vm/siw/device.sh
. "$vm/siw/device.sh"
# shellcheck source=tests/vm/lib/dropin-common.sh
. "$vm/lib/dropin-common.sh"

make_both() { # siw on dummy0, rxe on dummy1
    make_siw && modprobe rdma_rxe && ip link add dummy1 address 52:54:00:12:34:57 type dummy &&
        ip address add 198.51.100.1/24 dev dummy1 && ip link set dummy1 up && rdma link add rxe0 type rxe netdev dummy1 &&
        until_true 10 rxe_is_ready && resources >"$OUT/resources.before"
}
# Below /tmp, which the root of sid has too.
# shellcheck disable=SC2154  # the runner has $ROOT_sid
take_programs() {
    enter "$ROOT_sid" && cp "$CONNECTIONS" /tmp/connections && cp /usr/bin/valgrind.bin /usr/libexec/valgrind/callgrind-amd64-linux \
        /usr/libexec/valgrind/vgpreload_core-amd64-linux.so /usr/libexec/valgrind/default.supp /tmp
}
rxe_is_ready() { grep -q ACTIVE /sys/class/infiniband/rxe0/ports/1/state && grep -q 'ffff:c633:6401$' /sys/class/infiniband/rxe0/ports/1/gids/1; }

address_of() { case $1 in siw) echo 192.0.2.1 ;; rxe) echo 198.51.100.1 ;; esac; }

# How a side's program is started, with `$counter` before it.
# shellcheck disable=SC2086,SC2154  # several words, which the caller sets
cycles() { # cycles SIDE KIND COUNT
    case $1 in
    ours) timeout 300 $counter "$UVERBS_COSTS" cycles "$(address_of "$2")" "$3" ;;
    debian-12) timeout 300 $counter /tmp/connections "$(address_of "$2")" "$3" ;;
    sid) timeout 300 chroot "$ROOT_sid" $counter /tmp/connections "$(address_of "$2")" "$3" ;;
    esac
}

# Pauses between two looks at a queue depend on time, and are not counted.
count_calls() { # count_calls SIDE KIND COUNT
    log=$OUT/calls-$1-$2-$3
    case $1 in
    # The root of sid has no strace.
    sid) timeout 300 strace -f -o "$log" chroot "$ROOT_sid" /tmp/connections "$(address_of "$2")" "$3" ;;
    *) counter="strace -f -o $log" cycles "$@" ;;
    esac || return
    grep '^[0-9]* *[a-z0-9_]*(' "$log" | grep -cv 'nanosleep('
}

count_instructions() { # count_instructions SIDE KIND COUNT
    log=$OUT/instructions-$1-$2-$3
    counter="env VALGRIND_LIB=/tmp /tmp/valgrind.bin --tool=callgrind --callgrind-out-file=/dev/null" cycles "$@" 2>"$log" || { cat "$log" >&2; return 1; }
    sed -n 's/.*Collected *: *\([0-9]*\).*/\1/p' "$log"
}

# Of both sides together. siw sometimes leaves a message in a socket, mostly under callgrind: the run is made again. So the runs on siw are
# short ones.
cost() { # cost WHAT SIDE KIND
    for _ in 1 2 3 4 5 6 7 8; do
        if short=$("count_$1" "$2" "$3" "$few") && long=$("count_$1" "$2" "$3" "$many"); then
            echo $(((long - short) / (many - few)))
            return
        fi
    done
    echo "in vain: $*" >&2
    return 1
}

# Ours is at most so many hundredths of librdmacm 65's. The goals are 75 and 65 of the calls on rxe and siw, and 45 and 35 of the
# instructions; the first is reached, and the other limits are what is reached now.
compare() { # compare WHAT KIND MOST
    ours=$(cost "$1" ours "$2") && new=$(cost "$1" sid "$2") || return
    said="$ours, librdmacm 65 $new, $((100 * ours / new)) hundredths of it"
    if [ -n "${UVERBS_WHOLE:-}" ]; then
        old=$(cost "$1" debian-12 "$2") || return
        said="$said, 44 $old"
    fi
    echo "compared: $said"
    [ $((100 * ours)) -le $(($3 * new)) ]
}

many_at_once() { # many_at_once KIND: one manager serves a thousand connections, and each end takes 4 KiB at most
    "$UVERBS_COSTS" many "$(address_of "$1")" 1000 || return
    files=$(sed -n 's/^files: //p' "$OUT/$name.out") bytes=$(sed -n 's/^bytes: //p' "$OUT/$name.out")
    echo "compared: $files more files, $bytes bytes for each end"
    [ "$files" -eq 0 ] && [ "$bytes" -le 4096 ]
}

cancelled() { # cancelled KIND: a caller waits at most 5 ms beyond its deadline
    "$UVERBS_COSTS" cancel "$(address_of "$1"):7174" || return
    late=$(sed -n 's/^cancel: \(.*\) us/\1/p' "$OUT/$name.out")
    echo "compared: $late us"
    [ "$late" -le 5000 ]
}

begin make_both
step take-programs take_programs
for kind in rxe siw; do
    # The limits, and the cycles of a short run and of a long one.
    case $kind in
    rxe) calls=75 instructions=255 few=5 many=25 ;;
    siw) calls=86 instructions=285 few=2 many=10 ;;
    esac
    step "calls-$kind" compare calls "$kind" "$calls"
    step "instructions-$kind" compare instructions "$kind" "$instructions"
    step "many-$kind" many_at_once "$kind"
    step "cancel-$kind" cancelled "$kind"
done
step resources resources_are_as_before
step kernel-log kernel_log_is_clean
finish
