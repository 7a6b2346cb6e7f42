#!/bin/sh
# Lane mlx5: the kernel's mlx5 drivers on a virtual ConnectX (tests/vhca). Runs in the guest; see guest.sh.
#
# usage: mlx5.sh OUTPUT-DIRECTORY    with UVERBS_BIN, UVERBS_TEST_BINS, MLX5_PEER, MLX5_CONTROL and PYTHON,
#                                    or UVERBS_VM_COMMAND, in the environment
# shellcheck disable=SC2317  # `step` calls the functions by name

here=$(dirname "$0")
# shellcheck source=tests/vm/guest.sh
. "$here/guest.sh"

device=mlx5_0

make_device() {
    # udev names the device by its place on the bus; the tests call it as the kernel does.
    modprobe mlx5_ib && until_true 20 device_has_name && rename_device
}

device_has_name() {
    found=$(ls /sys/class/infiniband) && [ -n "$found" ]
}

rename_device() {
    [ "$found" = "$device" ] || rdma dev set "$found" name "$device"
}

list_devices() {
    "$UVERBS_BIN" devices || return
    if ! grep -qw "$device" "$OUT/$name.out"; then
        echo "$device is not in the list" >&2
        return 1
    fi
}

peer() { # peer [VARIABLE=VALUE...]: every line it prints is a part that passed, or one this kernel does not have
    env "$@" timeout 120 "$MLX5_PEER" "$device" "$MLX5_CONTROL" || return
    grep -qx 'pass all' "$OUT/$name.out"
}

# The driver writes a line for each command that a test has made fail; nothing else is to be said.
unload() { modprobe -r mlx5_ib && modprobe -r mlx5_core; }

step make-device make_device || finish

if [ -n "${UVERBS_VM_COMMAND:-}" ]; then
    step command sh -c "$UVERBS_VM_COMMAND"
    finish
fi

step devices list_devices
step info "$UVERBS_BIN" info "$device"
step ibv_devinfo ibv_devinfo -v -d "$device"
step same-info "$PYTHON" "$here/compare-devinfo" "$OUT/ibv_devinfo.out" "$OUT/info.out"
step peer peer
record_skips peer
# From 6.12 on the driver makes queues of its own when they are first needed, and keeps them: these are there by now.
resources >"$OUT/resources.before"
# The stock library again, with completions of the other size.
step peer-again peer MLX5_CQE_SIZE=128
step resources resources_are_as_before
for binary in ${UVERBS_TEST_BINS:-}; do
    tests=tests-$(basename "${binary%-*}") # cargo ends the name with a hash
    step "$tests" device_tests "$device" "$binary"
    record_skips "$tests"
done
step unload unload
step kernel-log kernel_log_is_clean
finish
