#!/bin/sh
# Lane mlx5-beside: the steps of alike/steps.txt through this crate, through Debian's libibverbs, and through the drop-in for
# it, on the virtual ConnectX, and a comparison of results and firmware commands. Runs in the guest; see lib/guest.sh,
# alike/README.md.
#
# kernels: 7.x
# by default: 7.x
# due: later $MLX5 $DROPIN tests/vm/lib/say.h
# order: 7
# packages: gcc libc6-dev libibverbs-dev
# vhca:
# cargo: UVERBS_ALIKE build --profile guest --package uverbs-alike
# cargo: UVERBS_DROPIN build --profile dropin --package uverbs-c
# cargo: UVERBS_MLX5 build --profile dropin --package uverbs-c-mlx5
# compile: UVERBS_ALIKE_THEIRS mlx5/alike/theirs.c -libverbs
# shellcheck disable=SC2317  # `step` calls the functions by name

vm=$(dirname "$0")/../..
# shellcheck source=tests/vm/lib/guest.sh
. "$vm/lib/guest.sh"
# shellcheck source=tests/vm/mlx5/device.sh
. "$vm/mlx5/device.sh"
# shellcheck source=tests/vm/lib/dropin-common.sh
. "$vm/lib/dropin-common.sh"

steps=$vm/mlx5/alike/steps.txt

in_c() { # in_c theirs|ours RECORDING: with libibverbs, or with the drop-in for it
    "$1" timeout 300 "$UVERBS_ALIKE_THEIRS" "$device" "$MLX5_CONTROL" "$steps" >"$OUT/$2"
}
crate() { timeout 300 "$UVERBS_ALIKE" ours "$device" "$MLX5_CONTROL" "${1:-$steps}" >"$OUT/ours.txt"; }

# From 6.12 on the driver makes queues of its own when they are first needed, and keeps them. Making them here keeps them out of both
# sides' counts.
warm() { sed '/^post /q' "$steps" >"$OUT/warm.steps" && crate "$OUT/warm.steps"; }

versions() { echo "compared: Linux $(uname -r), libibverbs $(dpkg-query -W -f '${Version}' libibverbs1)"; }

begin make_device

step control-line control_line || finish
step versions versions
step warm warm
resources >"$OUT/resources.before"
step theirs in_c theirs theirs.txt
step ours crate
step drop-in in_c ours drop-in.txt
step table "$UVERBS_ALIKE" compare "$OUT"
step table-drop-in "$UVERBS_ALIKE" compare "$OUT" drop-in
step resources resources_are_as_before
step unload unload
step kernel-log kernel_log_is_clean
finish
