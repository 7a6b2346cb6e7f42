#!/bin/sh
# Lane dropin-card: programs of several releases of Debian with the drop-in for libibverbs, end to end, on a virtual ConnectX with RoCE v2. A wire leads to a
# second one, for raw packets. Runs in the guest; see lib/guest.sh.
#
# kernels: 6.1 7.x
# order: 2
# limit: 1800
# vhca: --port roce --wire one,two
# vhca: --port roce --wire two,one --mac 52:54:00:ca:fe:02
# cargo: UVERBS_DROPIN build --profile dropin --package uverbs-c
# cargo: UVERBS_MLX5 build --profile dropin --package uverbs-c-mlx5
# packages: ibverbs-utils ibverbs-providers
# consumers: bookworm trixie sid
# shellcheck disable=SC2317  # `step` calls the functions by name

vm=$(dirname "$0")/..
# shellcheck source=tests/vm/lib/guest.sh
. "$vm/lib/guest.sh"
# shellcheck source=tests/vm/mlx5/device.sh
. "$vm/mlx5/device.sh"
# shellcheck source=tests/vm/lib/both-sides.sh
. "$vm/lib/both-sides.sh"
# shellcheck source=tests/vm/lib/dropin-common.sh
. "$vm/lib/dropin-common.sh"

address=10.0.0.1

make_cards() {
    two_cards && with_address "$device" "$address" && far=$(interface mlx5_1) && ip link set "$far" up &&
        registers "$device" && registers mlx5_1 && resources >"$OUT/resources.before"
}

# From 6.12 on the driver makes queues of its own when memory is first registered, and keeps them.
registers() { # registers DEVICE
    ibv_rc_pingpong -d "$1" -g 0 >/dev/null &
    until_true 20 listens 18515 && kill $! && ! wait $!
}

take_away() { echo 1 >"/sys/class/infiniband/$device/device/remove"; }
# The returned device is again named by its place on the bus. The other one keeps its name.
bring_back() {
    echo 1 >/sys/bus/pci/rescan && until_true 30 two_devices && udevadm settle --timeout=20 || return
    for path in /sys/class/infiniband/*; do
        found=${path##*/}
        case $found in "$device" | mlx5_1) ;; *) rdma dev set "$found" name "$device" || return ;; esac
    done
    with_address "$device" "$address" && gid=$(gid_of "$device" "$address")
}

begin make_cards
gid=$(gid_of "$device" "$address")
values="DEVICE=$device OTHER=mlx5_1 ADDRESS=$address GID=$gid"
values="$values MAC=$(cat "/sys/class/net/$net/address") OTHERMAC=$(cat "/sys/class/net/$far/address")"
in_releases card mpi_programs device_goes
finish
