#!/bin/sh
# Lane dropin: Debian's own programs, with libibverbs and with this repository's drop-in for it, on rxe. Runs in the
# guest; see lib/guest.sh.
#
# kernels: 6.1 7.x
# by default: 7.x
# due: $RXE $DROPIN tests/vm/lib/pyverbs tests/vm/lib/pyverbs.sh
# order: 1
# limit: 1800
# packages: perftest python3-pyverbs gcc libc6-dev libibverbs-dev valgrind
# cargo: UVERBS_DROPIN build --profile dropin --package uverbs-c
# cargo: UVERBS_MLX5 build --profile dropin --package uverbs-c-mlx5
# compile: COMP_CNTR dropin/rxe/comp-cntr.c -libverbs
# compile: REGIONS dropin/rxe/regions.c -libverbs
# compile: DROPIN_PROGRAMS dropin/answers/*.c -libverbs -pthread
# compile: VERSIONED dropin/rxe/versioned.c -pthread
# compile: SIZES dropin/sizes/sizes.c -libverbs
# shellcheck disable=SC2317  # `step` calls the functions by name

vm=$(dirname "$0")/../..
# shellcheck source=tests/vm/lib/guest.sh
. "$vm/lib/guest.sh"

# shellcheck source=tests/vm/lib/dropin-common.sh
. "$vm/lib/dropin-common.sh"
# shellcheck source=tests/vm/lib/pyverbs.sh
. "$vm/lib/pyverbs.sh"

# memcheck looks at every load and store of both sides, and at what the kernel is given.
memcheck() { # memcheck PROGRAM ARGUMENTS...
    pair ours ours 18515 valgrind --quiet --error-exitcode=99 "$@"
}

perftest() { # perftest PROGRAM ARGUMENTS...
    program=$1
    shift
    # First one side of each, so that the other library judges what goes over the wire; then ours on both sides.
    for sides in "ours theirs" "theirs ours" "ours ours"; do
        # shellcheck disable=SC2086  # two words
        pair $sides 18515 "$program" -d "$device" -x 1 -n 50 -F "$@" || return
    done
}

perftest_by_manager() { # with connections made by librdmacm, Debian's own
    pair ours ours manager ib_send_lat -d "$device" -x 1 -n 50 -F -R
}

same_answer() { # whatever it says, and its exit status; before there is any device, or a module for one
    for library in theirs ours; do
        status=0
        "$library" "$@" >"$OUT/$name.$library" 2>&1 || status=$?
        echo "exit status $status" >>"$OUT/$name.$library"
    done
    diff "$OUT/$name.theirs" "$OUT/$name.ours" >&2 && cat "$OUT/$name.ours"
}

answers() { # answers PROGRAM: what it says with both libraries is the same, but for the known differences
    theirs timeout 200 "$1" "$device" >"$OUT/$name.theirs" || { echo "with libibverbs: exit status $?" >&2; return 1; }
    ours timeout 200 "$1" "$device" >"$OUT/$name.ours" || return
    "$vm/dropin/answers/compare" "$OUT/$name.theirs" "$OUT/$name.ours" "$vm/dropin/answers/differences"
}

refusals() { # refusals PROGRAM [ours]: what the drop-in alone is asked, and that it outlives each question
    asked=$1
    shift
    ours timeout 200 "$asked" "$device" "$@" >"$OUT/$name.ours" || return
    ! grep -E ': (ABRT|BUS|FPE|ILL|SEGV|hangs)$' "$OUT/$name.ours" >&2 && echo "refused: $(grep -c . "$OUT/$name.ours") questions"
}

# test_resize_cq takes what it has posted for sent, with either library. On 6.12 and later a worker of rxe does the sending, so that
# worker goes first, on the same processor.
suite() { # suite ours|theirs: the tests of pyverbs, a line for each
    echo 1 >/sys/devices/virtual/workqueue/cpumask || return
    "$1" timeout 600 taskset -c 0 chrt --idle 0 "$vm/lib/pyverbs" "$device" dummy0
}

# Compares the results with the repository's list for this kernel: when the list changes, something works differently. The newest kernel
# changes by itself, so for a kernel without a list, a difference from the list of the kernel before it is only reported and does not
# fail.
as_listed() {
    version=$(uname -r | cut -d. -f1,2)
    own=pyverbs-$version.list lists=$vm/dropin/rxe
    list=$(cd "$lists" && printf '%s\n' "$own" pyverbs-*.list | sort -uV | sed "/^$own\$/q" | tail -n 2 | head -n 1)
    [ ! -e "$lists/$own" ] || list=$own
    if [ "$list" = "$own" ]; then
        diff "$lists/$list" "$OUT/results" >&2
        return
    fi
    echo "skip: there is no $own; what follows differs from $list"
    diff "$lists/$list" "$OUT/results" | sed -n 's/^</skip: no longer:/p; s/^>/skip: news:/p'
}

# What rdma-core 65, which Debian 12 does not have, answers on rxe. The results of advice depend on the kernel.
same_regions() {
    ours "$REGIONS" "$device" >"$OUT/$name.ours" || return
    cat "$OUT/$name.ours"
    grep -v '^on demand\|^advice' "$OUT/$name.ours" | diff "$vm/dropin/rxe/regions-rxe.list" - >&2
}

step no-device same_answer ibv_devices
begin make_device

step library library_is_ours /usr/bin/ibv_devinfo
step devices same_output ibv_devices
step devinfo same_output ibv_devinfo -v
step without-netlink same_output "$vm/lib/without-netlink" EPERM ibv_devinfo -v
paired_pingpongs
step memcheck memcheck ibv_rc_pingpong -d "$device" -g 1 -n 20
step memcheck-events memcheck ibv_ud_pingpong -d "$device" -g 1 -n 20 -e
for program in ib_send_lat ib_send_bw ib_write_lat ib_write_bw ib_read_lat ib_read_bw ib_atomic_lat ib_atomic_bw; do
    step "$program" perftest "$program"
done
step ib_send_lat-ud perftest ib_send_lat -c UD
step ib_send_bw-events perftest ib_send_bw -e
step ib_send_lat-manager perftest_by_manager
for program in $DROPIN_PROGRAMS; do
    case $program in
    */dropin-answers-nulls) step answers-nulls refusals "$program" ;;
    *) step "answers-${program##*/dropin-answers-}" answers "$program" ;;
    esac
    case $program in */dropin-answers-forks) step answers-forks-ours refusals "$program" ours ;; esac
done
step answers-versioned answers "$VERSIONED"
step sizes same_sizes "$SIZES"
step regions same_regions
step comp-cntr ours "$COMP_CNTR" "$device" 1
step pyverbs-theirs suite theirs
step pyverbs-ours suite ours
step pyverbs same_results
step pyverbs-list as_listed && record_skips pyverbs-list
step libraries only_ours_was_loaded
step resources resources_are_as_before
step kernel-log kernel_log_is_clean
finish
