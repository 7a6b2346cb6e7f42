#!/bin/sh
# Lane efa-wire: two virtual EFAs with a wire between them, under the libfabric of Debian sid. Runs in the guest; see lib/guest.sh.
#
# kernels: 6.1 7.x
# order: 8
# only: 6.1 7.x
# packages: ibverbs-utils mmdebstrap
# vefa: --wire one,two --mac 00:11:22:33:44:01
# vefa: --wire two,one --mac 00:11:22:33:44:02
# module: EFA_MODULE efa
# roots: sid
# shellcheck disable=SC2317  # `step` calls the functions by name

vm=$(dirname "$0")/..
# shellcheck source=tests/vm/lib/guest.sh
. "$vm/lib/guest.sh"
# shellcheck source=tests/vm/lib/dropin-common.sh
. "$vm/lib/dropin-common.sh"
# shellcheck source=tests/vm/efa/device.sh
. "$vm/efa/device.sh"

make_devices() {
    # shellcheck disable=SC2154  # the runner's
    make_efa 2 && enter "$ROOT_sid"
}

devinfo() { # each has an address of its own
    # shellcheck disable=SC2154
    chroot "$ROOT_sid" ibv_devinfo -v && [ "$(grep 'GID\[' "$OUT/$name.out" | sort -u | wc -l)" -eq 2 ]
}

peer_has_sent() { EFA_CONTROL=$EFA_CONTROL_2 has_sent; }

begin make_devices

step ibv_devinfo devinfo
for type in rdm dgram; do
    step "fi_pingpong-$type" pingpong "$type" efa_0 efa_1
    step "fi_pingpong-$type-back" pingpong "$type" efa_1 efa_0
done
# Neither device has sent only to itself.
step has-sent has_sent
step peer-has-sent peer_has_sent
step resources resources_are_as_before
step complaints no_complaints
step nothing-is-left nothing_is_left
step kernel-log kernel_log_is_clean
finish
