#!/bin/sh
# Lane mlx5-rxe: queue pairs over RoCE v2 between a virtual ConnectX and the kernel's software device. Runs in the guest; see guest.sh.
#
# order: 8
# packages: ibverbs-utils perftest
# boot: --append=tsc=reliable
# vhca: --port roce --wire card,nic
# nic: nic,card
# shellcheck disable=SC2317  # `step` calls the functions by name

here=$(dirname "$0")
# shellcheck source=tests/vm/guest.sh
. "$here/guest.sh"
# shellcheck source=tests/vm/mlx5-device.sh
. "$here/mlx5-device.sh"
# shellcheck source=tests/vm/both-sides.sh
. "$here/both-sides.sh"

virtio_interface() { ls -d /sys/bus/virtio/drivers/virtio_net/virtio*/net/*; }

# rxe0 is on an interface of virtio, to which the card has a wire. The card's interface is in a network namespace of its own, so
# that the kernel sends what is for it to the wire.
make_devices() {
    make_device && modprobe virtio_pci && modprobe virtio_net && until_true 10 virtio_interface || return
    near=$(virtio_interface) && near=${near##*/} far=$(interface mlx5_0) || return
    near_mac=$(cat "/sys/class/net/$near/address") far_mac=$(cat "/sys/class/net/$far/address")
    ip netns add far && ip link set "$far" netns far || return
    ip addr add 10.0.0.1/24 dev "$near" && ip link set "$near" up || return
    ip neigh replace 10.0.0.2 lladdr "$far_mac" dev "$near" nud permanent || return
    ip -n far addr add 10.0.0.2/24 dev "$far" && ip -n far link set "$far" up || return
    ip -n far neigh replace 10.0.0.1 lladdr "$near_mac" dev "$far" nud permanent || return
    modprobe -q crc32_generic
    modprobe rdma_rxe && rdma link add rxe0 type rxe netdev "$near" || return
    until_true 10 gid_of rxe0 10.0.0.1 && until_true 10 gid_of mlx5_0 10.0.0.2
}

# The kernel's device needs the one processor that there is: who waits sleeps, or has time.
judge() { # judge SUFFIX: as steps
    for kind in rc uc ud srq; do
        case $kind in rc | uc) compares=-c ;; *) compares= ;; esac
        # shellcheck disable=SC2086  # it may be nothing
        step "pingpong-$kind$1" pingpong "$kind" -s 1024 -n 500 -e $compares
    done
    step "pingpong-rc-long$1" pingpong rc -s 9000 -n 100 -e -c
    for operation in send write read atomic; do
        # No more at a time than both have room for.
        case $operation in read | atomic) fewer='-o 4' ;; *) fewer= ;; esac
        for measure in lat bw; do
            # shellcheck disable=SC2086  # two words or none
            step "$operation-$measure-RC$1" perftest "$operation" "$measure" RC -u 18 $fewer
        done
    done
    step "send-lat-UC$1" perftest send lat UC
    step "send-lat-UD$1" perftest send lat UD
}

begin make_devices
device=rxe0 gid=$(gid_of rxe0 10.0.0.1) client_device=mlx5_0 client_gid=$(gid_of mlx5_0 10.0.0.2)
judge -to-rxe
device=mlx5_0 gid=$client_gid client_device=rxe0 client_gid=$(gid_of rxe0 10.0.0.1)
judge -from-rxe
step kernel-log kernel_log_is_clean
finish
