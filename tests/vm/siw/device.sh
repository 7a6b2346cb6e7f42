#!/bin/sh
# Makes the kernel's software iWARP device on a dummy network interface, for lanes whose head has `# module: SIW_MODULE siw`. Sourced by
# them, behind lib/guest.sh.
# shellcheck disable=SC2034  # who sources it reads the variables

device=siw0
# Queue pairs are connected over this address.
UVERBS_TEST_ADDRESS=192.0.2.1
export UVERBS_TEST_ADDRESS

make_siw() {
    # rdma_ucm loads ib_core and iw_cm, which connect iWARP's queue pairs. Later kernels have the checksums built in.
    modprobe rdma_ucm && { modprobe libcrc32c 2>/dev/null || true; } && insmod "$SIW_MODULE" &&
        modprobe dummy numdummies=0 &&
        ip link add dummy0 address 52:54:00:12:34:56 type dummy &&
        ip address add "$UVERBS_TEST_ADDRESS/24" dev dummy0 &&
        ip link set dummy0 up &&
        rdma link add "$device" type siw netdev dummy0 &&
        until_true 10 grep -q ACTIVE "/sys/class/infiniband/$device/ports/1/state" &&
        resources >"$OUT/resources.before"
}
