#!/bin/sh
# Lane efa-far: virtual EFAs in two guests with a wire between them, under the libfabric of Debian sid. Runs in the first; see lib/guest.sh.
#
# kernels: 6.1 7.x
# order: 8
# only: 6.1 7.x
# packages: mmdebstrap
# vefa: --wire near,far --mac 00:11:22:33:44:01
# nic: near-net,far-net
# peer: efa-far-peer.sh
# module: EFA_MODULE efa
# roots: sid
# shellcheck disable=SC2317  # `step` calls the functions by name

vm=$(dirname "$0")/../..
# shellcheck source=tests/vm/lib/guest.sh
. "$vm/lib/guest.sh"
# shellcheck source=tests/vm/lib/dropin-common.sh
. "$vm/lib/dropin-common.sh"
# shellcheck source=tests/vm/efa/device.sh
. "$vm/efa/device.sh"
# shellcheck source=tests/vm/lib/far.sh
. "$vm/lib/far.sh"

# shellcheck disable=SC2119,SC2154  # one device; the variable is the runner's
make_device() { make_efa && with_network 10.0.0.1 && enter "$ROOT_sid" && far true; }

begin make_device

step peers-gid far has_another_address "$(cat "/sys/class/infiniband/$device/ports/1/gids/0")"
for type in rdm dgram; do
    step "fi_pingpong-$type-to" pingpong_with far 10.0.0.2 "$type"
    step "fi_pingpong-$type-from" pingpong_with near 10.0.0.1 "$type"
done
step has-sent has_sent
step peer-has-sent far has_sent
step resources resources_are_as_before
step complaints no_complaints
step nothing-is-left nothing_is_left
step kernel-log kernel_log_is_clean
finish
