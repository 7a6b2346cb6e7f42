#!/bin/sh
# Lane mlx5-roce: queue pairs of all kinds over RoCE v2, on two virtual ConnectXes with a wire between them. Runs in the guest; see guest.sh.
#
# order: 7
# packages: ibverbs-utils perftest
# boot: --append=tsc=reliable
# vhca: --port roce --wire one,two
# vhca: --port roce --wire two,one --mac 52:54:00:ca:fe:02
# shellcheck disable=SC2317  # `step` calls the functions by name

here=$(dirname "$0")
# shellcheck source=tests/vm/guest.sh
. "$here/guest.sh"
# shellcheck source=tests/vm/mlx5-device.sh
. "$here/mlx5-device.sh"
# shellcheck source=tests/vm/both-sides.sh
. "$here/both-sides.sh"

interface() { # interface DEVICE: its network interface
    ls "/sys/class/infiniband/$1/device/net"
}

gid_of() { # gid_of DEVICE ADDRESS: the index of its RoCE v2 GID
    wanted=$(echo "$2" | awk -F. '{ printf "0000:0000:0000:0000:0000:ffff:%02x%02x:%02x%02x", $1, $2, $3, $4 }')
    for path in "/sys/class/infiniband/$1/ports/1/gid_attrs/types/"*; do
        index=${path##*/}
        grep -qs 'RoCE v2' "$path" && [ "$(cat "/sys/class/infiniband/$1/ports/1/gids/$index")" = "$wanted" ] && echo "$index" && return
    done
    return 1
}

two_devices() { [ "$(ls /sys/class/infiniband | wc -l)" -eq 2 ]; }

# Each card has an address. The second's interface is in a network namespace of its own: the kernel would take the address of the
# other for its own otherwise, and send nothing.
make_cards() {
    modprobe mlx5_ib && until_true 30 two_devices && udevadm settle --timeout=20 || return
    # udev has named them by their places on the bus.
    number=0
    for found in $(ls /sys/class/infiniband); do
        [ "$found" = "mlx5_$number" ] || rdma dev set "$found" name "mlx5_$number" || return
        number=$((number + 1))
    done
    near=$(interface mlx5_0) && far=$(interface mlx5_1) || return
    near_mac=$(cat "/sys/class/net/$near/address") far_mac=$(cat "/sys/class/net/$far/address")
    ip netns add far && ip link set "$far" netns far || return
    ip addr add 10.0.0.1/24 dev "$near" && ip link set "$near" up || return
    ip neigh replace 10.0.0.2 lladdr "$far_mac" dev "$near" nud permanent || return
    ip -n far addr add 10.0.0.2/24 dev "$far" && ip -n far link set "$far" up || return
    ip -n far neigh replace 10.0.0.1 lladdr "$near_mac" dev "$far" nud permanent || return
    until_true 10 gid_of mlx5_0 10.0.0.1 && until_true 10 gid_of mlx5_1 10.0.0.2
}

begin make_cards
gid=$(gid_of mlx5_0 10.0.0.1)
step ibv_devinfo ibv_devinfo -v
# Back to the same card, and then over the wire.
client_device='' client_gid=''
pingpongs -loopback
client_device=mlx5_1 client_gid=$(gid_of mlx5_1 10.0.0.2)
pingpongs ''
ask() { # ask REQUEST: of the first card
    printf '%s\n' "$1" >&9 && read -r answer <&9 && [ "$answer" = ok ]
}

# One packet in a hundred is lost, in each direction that the first card sees.
lossy() {
    control_line && ask 'wire lose 1 7' && pingpong rc -c -n 500
    status=$?
    ask 'wire lose 0' && exec 9>&- && return "$status"
}
step lossy lossy
step kernel-log kernel_log_is_clean
finish
