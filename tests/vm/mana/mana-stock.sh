#!/bin/sh
# Lane mana-stock: a virtual MANA under the stock software of Debian sid, which judges it. Runs in the guest; see lib/guest.sh.
#
# kernels: 7.x
# order: 6
# only: 6.12 7.x
# packages: ibverbs-utils mmdebstrap
# vmana:
# roots: sid
# shellcheck disable=SC2317  # `step` calls the functions by name

vm=$(dirname "$0")/..
# shellcheck source=tests/vm/lib/guest.sh
. "$vm/lib/guest.sh"
# shellcheck source=tests/vm/lib/dropin-common.sh
. "$vm/lib/dropin-common.sh"
# shellcheck source=tests/vm/mana/device.sh
. "$vm/mana/device.sh"

# shellcheck disable=SC2119,SC2154  # one device; the variable is the runner's
make_device() {
    make_mana && cp "$vm/lib/pyverbs" /tmp/pyverbs && enter "$ROOT_sid"
}

# shellcheck disable=SC2154
inside() { chroot "$ROOT_sid" "$@"; }

devinfo() {
    inside ibv_devinfo -v -d "$device" && grep -q 'PORT_ACTIVE' "$OUT/$name.out"
}

pingpong() { # pingpong [OPTION...]: between two queue pairs of the device
    index=$(v4_of "$device") || return
    inside timeout 60 ibv_rc_pingpong -d "$device" -g "$index" "$@" >"$OUT/$name.server" 2>&1 &
    server=$!
    until_true 20 listens 18515 && inside timeout 60 ibv_rc_pingpong -d "$device" -g "$index" "$@" 127.0.0.1 && wait "$server"
}

listens() { ss -tln | grep -q ":$1 "; }

begin make_device

step ibv_devinfo devinfo
step rc_pingpong pingpong -n 200
step rc_pingpong-events pingpong -n 50 -e
step rc_pingpong-large pingpong -n 20 -s 100000 -r 4
step up-and-down up_and_down
step rc_pingpong-again pingpong -n 50
step resources resources_are_as_before
step complaints no_complaints
step nothing-is-left nothing_is_left
step kernel-log kernel_log_is_clean
finish
