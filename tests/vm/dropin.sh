#!/bin/sh
# Lane dropin: Debian's own programs, with libibverbs and with this repository's drop-in for it, on rxe. Runs in the
# guest; see guest.sh.
#
# usage: dropin.sh OUTPUT-DIRECTORY    with UVERBS_DROPIN, the library, COMP_CNTR and REGIONS, or UVERBS_VM_COMMAND,
#        in the environment
# shellcheck disable=SC2317  # `step` calls the functions by name

here=$(dirname "$0")
# shellcheck source=tests/vm/guest.sh
. "$here/guest.sh"

# shellcheck source=tests/vm/dropin-common.sh
. "$here/dropin-common.sh"

address=192.0.2.1

listening() { # listening PORT, or listening manager: a server waits on TCP, or for the connection manager's next event
    case $1 in
    manager) grep -qs ucma_get_event /proc/[0-9]*/wchan ;;
    *) ss -Hltn "sport = :$1" | grep -q . ;;
    esac
}

# A program with a server and a client, each being ours or theirs.
pair() { # pair SERVER CLIENT PORT PROGRAM ARGUMENTS...
    with_server=$1 with_client=$2 port=$3
    shift 3
    "$with_server" timeout 100 "$@" >"$OUT/$name.server" 2>&1 &
    server=$!
    until_true 30 listening "$port" || { cat "$OUT/$name.server" >&2; return 1; }
    status=0
    "$with_client" timeout 100 "$@" "$address" || status=$?
    wait "$server" || { echo "server: exit status $?: $(cat "$OUT/$name.server")" >&2; return 1; }
    cat "$OUT/$name.server"
    return "$status"
}

pingpong() { # pingpong TRANSPORT [-e]
    program=ibv_$1_pingpong
    shift
    for sides in "ours ours" "ours theirs" "theirs ours"; do
        # shellcheck disable=SC2086  # two words
        pair $sides 18515 "$program" -d "$device" -g 1 -n 100 "$@" || return
    done
}

perftest() { # perftest PROGRAM ARGUMENTS...
    program=$1
    shift
    # One of each side, so that what goes over the wire is judged by the other library; then both by ours.
    for sides in "ours theirs" "theirs ours" "ours ours"; do
        # shellcheck disable=SC2086  # two words
        pair $sides 18515 "$program" -d "$device" -x 1 -n 50 -F "$@" || return
    done
}

perftest_by_manager() { # with connections made by librdmacm, Debian's own
    pair ours ours manager ib_send_lat -d "$device" -x 1 -n 50 -F -R
}

suite() { # suite ours|theirs: the tests of pyverbs, a line for each
    "$1" timeout 600 "$here/pyverbs" "$device" dummy0
}

# Which tests pass and which are skipped, without the reasons, which have numbers in them.
results() {
    sed 's/^\([^\t]*\)\t\([^ ]*\).*/\1 \2/' "$1"
}

same_results() { # what passes with libibverbs passes with the drop-in; what is skipped is skipped, or passes
    results "$OUT/pyverbs-theirs.out" | grep -v ' \(ERROR\|FAIL\)$' >"$OUT/results.theirs"
    results "$OUT/pyverbs-ours.out" >"$OUT/results.ours"
    sed -n 's/ ok$/ skipped/p' "$OUT/results.ours" | cat "$OUT/results.ours" - >"$OUT/results.good"
    if grep -vxFf "$OUT/results.good" "$OUT/results.theirs"; then
        echo "the tests above have another result with the drop-in" >&2
        return 1
    fi
    echo "compared: $(grep -c ' ok$' "$OUT/results.ours") of $(grep -c ' ok$' "$OUT/results.theirs") passed"
    # And what the repository says of this kernel.
    list=$here/pyverbs-$(uname -r | cut -d. -f1,2).list
    [ ! -e "$list" ] || diff "$list" "$OUT/results.ours" >&2
}

# What rdma-core 65 answers on rxe, which Debian 12 does not have. What comes of advice depends on the kernel.
same_regions() {
    ours "$REGIONS" "$device" >"$OUT/$name.ours" || return
    cat "$OUT/$name.ours"
    grep -v '^on demand\|^advice' "$OUT/$name.ours" | diff "$here/regions-rxe.list" - >&2
}

step make-device make_device || finish

if [ -n "${UVERBS_VM_COMMAND:-}" ]; then
    step command sh -c "$UVERBS_VM_COMMAND"
    finish
fi

step library library_is_ours /usr/bin/ibv_devinfo
step devices same_output ibv_devices
step devinfo same_output ibv_devinfo -v
for transport in rc uc ud srq; do
    step "pingpong-$transport" pingpong "$transport"
    step "pingpong-$transport-events" pingpong "$transport" -e
done
for program in ib_send_lat ib_send_bw ib_write_lat ib_write_bw ib_read_lat ib_read_bw ib_atomic_lat ib_atomic_bw; do
    step "$program" perftest "$program"
done
step ib_send_lat-ud perftest ib_send_lat -c UD
step ib_send_bw-events perftest ib_send_bw -e
step ib_send_lat-manager perftest_by_manager
step regions same_regions
step comp-cntr ours "$COMP_CNTR" "$device" 1
step pyverbs-theirs suite theirs
step pyverbs-ours suite ours
step pyverbs same_results
step resources resources_are_as_before
step kernel-log kernel_log_is_clean
finish
