#!/bin/sh
# The second guest of the lane efa-far, whose commands it carries out; see lib/far.sh.
#
# vefa: --wire far,near --mac 00:11:22:33:44:02
# nic: far-net,near-net
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
make_device() { make_efa && with_network 10.0.0.2 && enter "$ROOT_sid"; }

has_another_address() { # has_another_address GID
    [ "$(cat "/sys/class/infiniband/$device/ports/1/gids/0")" != "$1" ]
}

step make-device make_device || finish
serve
step resources resources_are_as_before
step complaints no_complaints
step nothing-is-left nothing_is_left
step kernel-log kernel_log_is_clean
finish
