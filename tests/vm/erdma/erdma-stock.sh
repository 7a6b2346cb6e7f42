#!/bin/sh
# Lane erdma-stock: a virtual eRDMA under the stock software of Debian sid, which judges it. Runs in the guest; see lib/guest.sh.
#
# kernels: 7.x
# order: 6
# only: 7.x
# packages: mmdebstrap
# verdma: --mac 52:54:00:ca:fe:01
# nic: mac=52:54:00:ca:fe:01
# module: ERDMA_MODULE erdma
# roots: sid
# shellcheck disable=SC2317  # `step` calls the functions by name

vm=$(dirname "$0")/..
# shellcheck source=tests/vm/lib/guest.sh
. "$vm/lib/guest.sh"
# shellcheck source=tests/vm/lib/dropin-common.sh
. "$vm/lib/dropin-common.sh"
# shellcheck source=tests/vm/erdma/device.sh
. "$vm/erdma/device.sh"

# shellcheck disable=SC2119,SC2154  # one device; the variable is the runner's
make_device() { make_erdma && cp "$vm/lib/pyverbs" /tmp/pyverbs && enter "$ROOT_sid"; }

inside() { chroot "$ROOT_sid" "$@"; }

devinfo() { inside ibv_devinfo -v -d "$device" && grep -q 'PORT_ACTIVE' "$OUT/$name.out"; }

pingpong() { # pingpong [OPTION...]: both sides in stock libibverbs
    inside timeout 60 ibv_rc_pingpong -d "$device" -g 1 "$@" >"$OUT/$name.server" 2>&1 &
    server=$!
    until_true 60 listens 18515 && inside timeout 60 ibv_rc_pingpong -d "$device" -g 1 "$@" 127.0.0.1 && wait "$server"
}

listens() { ss -tln | grep -q ":$1 "; }

suite() { # suite LEAST [PATTERN...]: the tests of pyverbs, of which so many pass
    least=$1
    shift
    PYVERBS_GID=1 timeout 1500 chroot "$ROOT_sid" /tmp/pyverbs "$device" lo "$@" || return
    passed=$(grep -c "$(printf '\tok$')" "$OUT/$name.out")
    failed=$(grep -cE "$(printf '\t(ERROR|FAIL)')" "$OUT/$name.out")
    echo "compared: $passed passed, $failed failed"
    [ "$passed" -ge "$least" ] || { echo "$passed tests passed, which is too few" >&2; return 1; }
}

begin make_device

step ibv_devinfo devinfo
step pingpong pingpong -n 200 -c
step pingpong-events pingpong -n 200 -e
step pingpong-large pingpong -n 20 -s 1000000
step lose control lose 50
step pingpong-lossy pingpong -n 200 -c
step lose-nothing control lose 0
step pyverbs suite 32 test_cq test_qp test_mr test_device test_pd test_atomic test_cqex test_odp test_relaxed
step resources resources_are_as_before
step complaints no_complaints
step nothing-is-left nothing_is_left
step kernel-log kernel_log_is_clean
finish
