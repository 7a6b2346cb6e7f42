#!/bin/sh
# Lane efa-stock: a virtual EFA under the stock software of Debian sid, which judges it. Runs in the guest; see lib/guest.sh.
#
# kernels: 6.1 7.x
# order: 6
# only: 6.1 7.x
# packages: ibverbs-utils libibverbs-dev gcc libc6-dev mmdebstrap
# vefa:
# module: EFA_MODULE efa
# roots: sid
# compile: EFA_COMP_CNTR efa/comp-cntr.c -libverbs
# shellcheck disable=SC2317  # `step` calls the functions by name

vm=$(dirname "$0")/..
# shellcheck source=tests/vm/lib/guest.sh
. "$vm/lib/guest.sh"
# shellcheck source=tests/vm/lib/dropin-common.sh
. "$vm/lib/dropin-common.sh"
# shellcheck source=tests/vm/efa/device.sh
. "$vm/efa/device.sh"

# shellcheck disable=SC2119,SC2154  # one device; the variable is the runner's
make_device() {
    # Some tests want large pages.
    echo 16 >/proc/sys/vm/nr_hugepages
    make_efa && cp "$vm/lib/pyverbs" /tmp/pyverbs && enter "$ROOT_sid"
}

inside() { chroot "$ROOT_sid" "$@"; }

devinfo() {
    inside ibv_devinfo -v -d "$device" && grep -q 'PORT_ACTIVE' "$OUT/$name.out"
}

suite() { # suite LEAST [PATTERN...]: the tests of pyverbs, of which none fails and so many pass; there are no connections to be managed
    least=$1
    shift
    PYVERBS_GID=0 timeout 1500 chroot "$ROOT_sid" /tmp/pyverbs "$device" lo -test_mlx5 -test_rdmacm "$@" || return
    passed=$(grep -c "$(printf '\tok$')" "$OUT/$name.out")
    echo "compared: $passed passed"
    if grep -E "$(printf '\t(ERROR|FAIL)')" "$OUT/$name.out" >&2; then
        return 1
    fi
    [ "$passed" -ge "$least" ] || { echo "$passed tests passed, which is too few" >&2; return 1; }
}

comp_cntr() { cp "$EFA_COMP_CNTR" /tmp/efa-comp-cntr && inside timeout 60 /tmp/efa-comp-cntr "$device"; }

fabric_info() { inside fi_info -p efa && grep -q 'FI_EP_RDM' "$OUT/$name.out" && grep -q 'FI_EP_DGRAM' "$OUT/$name.out"; }

# shellcheck disable=SC2119
poor_device() {
    for limit in device_caps=0 sub_cqs_per_cq=1 max_tx_batch=0 min_sq_depth=0 supported_features=0x7e; do
        control limit "$limit" || return
    done
    make_efa
}

begin make_device

step ibv_devinfo devinfo
# From 7.2 on the driver has writes, and also what libefa needs for them.
step pyverbs suite "$(case $(uname -r) in 6.1.*) echo 73 ;; *) echo 78 ;; esac)"
step comp-cntr comp_cntr
record_skips comp-cntr
step fi_info fabric_info
step fi_pingpong-rdm pingpong rdm efa_0 efa_0
step fi_pingpong-dgram pingpong dgram efa_0 efa_0
step resources resources_are_as_before
step complaints no_complaints
step nothing-is-left nothing_is_left
# The driver that is loaded next finds a device with the fewest features.
step poor-device poor_device
step pyverbs-poor suite 35 efa test_qp test_cq
step complaints-poor no_complaints
step nothing-is-left-poor nothing_is_left
step kernel-log kernel_log_is_clean
finish
