#!/bin/sh
# Lane dropin-mana: programs of Debian sid on a virtual MANA, with libibverbs and libmana and with the drop-in. Runs in the guest; see
# lib/guest.sh.
#
# kernels: 7.x
# order: 7
# only: 7.x
# packages: ibverbs-utils ibverbs-providers libibverbs-dev gcc libc6-dev mmdebstrap
# vmana:
# roots: sid
# cargo: UVERBS_DROPIN build --profile dropin --package uverbs-c
# shellcheck disable=SC2317  # `step` calls the functions by name

vm=$(dirname "$0")/../..
# shellcheck source=tests/vm/lib/guest.sh
. "$vm/lib/guest.sh"
# shellcheck source=tests/vm/lib/dropin-common.sh
. "$vm/lib/dropin-common.sh"
# shellcheck source=tests/vm/lib/pyverbs.sh
. "$vm/lib/pyverbs.sh"
# shellcheck source=tests/vm/mana/device.sh
. "$vm/mana/device.sh"

# shellcheck disable=SC2154  # the variable is the runner's
root=$ROOT_sid

# shellcheck disable=SC2119  # one device
make_device() {
    make_mana && cp "$vm/lib/pyverbs" /tmp/pyverbs && enter "$root"
}

devinfo() { # but for the counters that the drop-in keeps itself
    for side in theirs ours; do
        "$side" chroot "$root" ibv_devinfo -v -d "$device" >"$OUT/$name.$side" || return
        without_completion_counters "$OUT/$name.$side" >"$OUT/$name.$side.less"
    done
    grep -q PORT_ACTIVE "$OUT/$name.ours" && diff "$OUT/$name.theirs.less" "$OUT/$name.ours.less" >&2 && cat "$OUT/$name.ours"
}

# What is left out: the kernel has no windows here, and connections are tried apart.
suite() { # suite ours|theirs: the tests of pyverbs, a line for each
    PYVERBS_GID=$(v4_of "$device") "$1" timeout 1500 chroot "$root" /tmp/pyverbs "$device" "$(net_of "$device")" -test_mlx5 -test_efa -test_rdmacm
}

# The arguments are the server's library and the client's.
pingpong() { # pingpong SERVER CLIENT [OPTION...]
    server=$1 client=$2
    shift 2
    index=$(v4_of "$device") || return
    "$server" chroot "$root" timeout 60 ibv_rc_pingpong -d "$device" -g "$index" -n 100 "$@" >"$OUT/$name.server" 2>&1 &
    server=$!
    until_true 20 listens 18515 && "$client" chroot "$root" timeout 60 ibv_rc_pingpong -d "$device" -g "$index" -n 100 "$@" 127.0.0.1 && wait "$server"
}

listens() { ss -tln | grep -q ":$1 "; }

begin make_device

step ibv_devinfo devinfo
for at_server in theirs ours; do
    for at_client in theirs ours; do
        step "rc_pingpong-$at_server-$at_client" pingpong "$at_server" "$at_client"
        step "rc_pingpong-events-$at_server-$at_client" pingpong "$at_server" "$at_client" -e
    done
done
step pyverbs-theirs suite theirs
step pyverbs-ours suite ours
# The kernel has raw packets and flows on another device, and libmana asks for them on this one.
step pyverbs same_results '\(test_flow\.FlowTest\|test_qp\.QPTest\.test_[a-z_]*raw_qp\|test_rss_traffic\)'
step libraries only_ours_was_loaded
step resources resources_are_as_before
step nothing-is-left nothing_is_left
step kernel-log kernel_log_is_clean
finish
