#!/bin/sh
# Lane efa-verify: `uverbs verify` on a virtual EFA. Runs in the guest; see lib/guest.sh.
#
# kernels: 6.1 7.x
# by default: 7.x
# due: src/bin/uverbs/verify later src/driver/efa tests/vefa tests/vm/efa/device.sh tests/vm/lib/verify.sh tests/vm/lib/within
# order: 9
# only: 6.1 7.x
# vefa:
# module: EFA_MODULE efa
# cargo: UVERBS_BIN build --profile guest --features cli --bin uverbs
# shellcheck disable=SC2317  # `step` calls the functions by name

vm=$(dirname "$0")/..
# shellcheck source=tests/vm/lib/guest.sh
. "$vm/lib/guest.sh"
# shellcheck source=tests/vm/efa/device.sh
. "$vm/efa/device.sh"
# shellcheck source=tests/vm/lib/verify.sh
. "$vm/lib/verify.sh"

whole() { verified 0 --flows && holds "$most"; }

# The speed of a port is since 7.2.
case $(uname -r) in 6.*) most=14 ;; *) most=15 ;; esac

# It has no connection manager.
doctor() { doctor_finds warning no-manager && ! grep -q '"severity":"problem"' "$OUT/$name.json"; }

# shellcheck disable=SC2119  # one device
begin make_efa
step doctor doctor
step whole whole
step resources resources_are_as_before
step complaints no_complaints
step nothing-is-left nothing_is_left
step kernel-log kernel_log_is_clean
finish
