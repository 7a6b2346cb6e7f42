#!/bin/sh
# Lane dropin-erdma: the programs of Debian sid, with libibverbs and liberdma and with the drop-in, on a virtual eRDMA. Runs in the guest; see
# lib/guest.sh.
#
# kernels: 7.x
# order: 7
# only: 7.x
# packages: ibverbs-utils ibverbs-providers mmdebstrap
# verdma: --mac 52:54:00:ca:fe:01
# nic: mac=52:54:00:ca:fe:01
# module: ERDMA_MODULE erdma
# roots: sid
# cargo: UVERBS_DROPIN build --profile dropin --package uverbs-c
# shellcheck disable=SC2317  # `step` calls the functions by name

vm=$(dirname "$0")/..
# shellcheck source=tests/vm/lib/guest.sh
. "$vm/lib/guest.sh"
# shellcheck source=tests/vm/lib/dropin-common.sh
. "$vm/lib/dropin-common.sh"
# shellcheck source=tests/vm/lib/pyverbs.sh
. "$vm/lib/pyverbs.sh"
# shellcheck source=tests/vm/erdma/device.sh
. "$vm/erdma/device.sh"

# shellcheck disable=SC2154  # the variable is the runner's
root=$ROOT_sid

# shellcheck disable=SC2119  # one device
make_device() { make_erdma && cp "$vm/lib/pyverbs" /tmp/pyverbs && enter "$root"; }

devinfo() { # but for the counters that the drop-in keeps itself
    for side in theirs ours; do
        "$side" chroot "$root" ibv_devinfo -v -d "$device" >"$OUT/$name.$side" || return
        without_completion_counters "$OUT/$name.$side" >"$OUT/$name.$side.less"
    done
    grep -q PORT_ACTIVE "$OUT/$name.ours" && diff "$OUT/$name.theirs.less" "$OUT/$name.ours.less" >&2 && cat "$OUT/$name.ours"
}

pingpong() { # pingpong [OPTION...]: the drop-in on either side and on both
    for sides in "theirs theirs" "ours ours" "ours theirs" "theirs ours"; do
        # shellcheck disable=SC2086  # two words
        pair $sides 18515 chroot "$root" ibv_rc_pingpong -d "$device" -g 1 -n 100 "$@" || return
    done
}

suite() { # suite ours|theirs: the tests of pyverbs, a line for each
    PYVERBS_GID=1 "$1" timeout 300 chroot "$root" /tmp/pyverbs "$device" lo test_cq. test_cq_events test_qp. test_mr. test_device. test_pd. \
        test_atomic. test_addr
}

begin make_device

step devinfo devinfo
step pingpong pingpong -c
step pingpong-events pingpong -e
step pingpong-large pingpong -s 100000
step pyverbs-theirs suite theirs
step pyverbs-ours suite ours
# The kernel creates queue pairs for datagrams, but liberdma has no address handles. The drop-in refuses such a queue pair already.
step pyverbs same_results 'test_cq_events.*_ud'
step only-ours-was-loaded only_ours_was_loaded
step resources resources_are_as_before
step complaints no_complaints
step nothing-is-left nothing_is_left
step kernel-log kernel_log_is_clean
finish
