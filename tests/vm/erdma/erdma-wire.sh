#!/bin/sh
# Lane erdma-wire: two virtual eRDMAs with a wire between them, with stock libibverbs and with this crate on either side. Runs in the guest; see
# lib/guest.sh.
#
# kernels: 7.x
# order: 8
# only: 7.x
# packages: mmdebstrap
# verdma: --mac 52:54:00:ca:fe:01 --wire one,two
# verdma: --mac 52:54:00:ca:fe:02 --wire two,one
# nic: near,far mac=52:54:00:ca:fe:01
# nic: far,near mac=52:54:00:ca:fe:02
# module: ERDMA_MODULE erdma
# cargo: UVERBS_BIN build --profile guest --features cli --bin uverbs
# roots: sid
# shellcheck disable=SC2317  # `step` calls the functions by name

vm=$(dirname "$0")/..
# shellcheck source=tests/vm/lib/guest.sh
. "$vm/lib/guest.sh"
# shellcheck source=tests/vm/lib/dropin-common.sh
. "$vm/lib/dropin-common.sh"
# shellcheck source=tests/vm/erdma/device.sh
. "$vm/erdma/device.sh"

make_devices() {
    # shellcheck disable=SC2154  # the runner's
    make_erdma 2 && enter "$ROOT_sid" && neighbours
}

# Both interfaces are in one network namespace, where a request for an address of its own is not answered.
neighbours() {
    # shellcheck disable=SC2046  # two words
    set -- $(interfaces)
    ip neigh replace 192.0.2.2 lladdr 52:54:00:ca:fe:02 dev "$1" nud permanent &&
        ip neigh replace 192.0.2.1 lladdr 52:54:00:ca:fe:01 dev "$2" nud permanent
}

their_side() { # their_side DEVICE [HOST]
    own=$1
    shift
    timeout 100 chroot "$ROOT_sid" ibv_rc_pingpong -d "$own" -g 1 -n 100 -c "$@"
}

our_side() { # our_side DEVICE [HOST]
    own=$1
    shift
    timeout 100 "$UVERBS_BIN" ping --device "$own" --gid-index 1 --iters 100 "$@"
}

over_the_wire() { # over_the_wire SERVER CLIENT
    "$1" erdma_0 >"$OUT/$name.server" 2>&1 &
    server=$!
    until_true 60 listening 18515 && "$2" erdma_1 127.0.0.1 && wait "$server"
}

# Neither device has sent only to itself.
has_sent() {
    for line in "$ERDMA_CONTROL" "$ERDMA_CONTROL_2"; do
        ERDMA_CONTROL=$line control statistics >"$OUT/statistics" && grep -E '^[tr]x_packets' "$OUT/statistics" || return
        ! grep -q '^[tr]x_packets 0$' "$OUT/statistics" || return
    done
}

begin make_devices

step pingpong over_the_wire their_side their_side
step ping over_the_wire our_side our_side
step ping-server over_the_wire our_side their_side
step ping-client over_the_wire their_side our_side
step lose control lose 40
step ping-lossy over_the_wire our_side our_side
step has-sent has_sent
step resources resources_are_as_before
step complaints no_complaints
step nothing-is-left nothing_is_left
step kernel-log kernel_log_is_clean
finish
