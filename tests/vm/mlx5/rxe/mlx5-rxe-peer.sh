#!/bin/sh
# The second guest of the lane mlx5-rxe: the kernel's software RoCE device on a network interface of virtio, from which a wire leads to the card
# of the first, whose commands it carries out; see lib/far.sh.
#
# nic: nic,card
# shellcheck disable=SC2317  # `step` calls the functions by name

vm=$(dirname "$0")/../..
# shellcheck source=tests/vm/lib/guest.sh
. "$vm/lib/guest.sh"
# shellcheck source=tests/vm/lib/dropin-common.sh
. "$vm/lib/dropin-common.sh"
# shellcheck source=tests/vm/lib/both-sides.sh
. "$vm/lib/both-sides.sh"
# shellcheck source=tests/vm/lib/far.sh
. "$vm/lib/far.sh"

virtio_interface() { ls -d /sys/bus/virtio/drivers/virtio_net/virtio*/net/*; }

make_rxe() {
    modprobe virtio_pci && modprobe virtio_net && until_true 10 virtio_interface || return
    net=$(virtio_interface) && net=${net##*/}
    ip addr add 10.0.0.2/24 dev "$net" && ip link set "$net" up && ip link set lo up || return
    # 6.1 loads this checksum by name when the link is added.
    modprobe -q crc32_generic
    modprobe rdma_rxe && rdma link add rxe0 type rxe netdev "$net" && until_true 10 gid_of rxe0 10.0.0.2
}

step make-device make_rxe || finish
serve
step only-ours-was-loaded only_ours_was_loaded
step kernel-log kernel_log_is_clean
finish
