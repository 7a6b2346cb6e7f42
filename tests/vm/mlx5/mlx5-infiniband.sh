#!/bin/sh
# Lane mlx5-infiniband: queue pairs of all kinds between two virtual ConnectXes with ports of InfiniBand and a wire between them. Runs in the guest;
# see lib/guest.sh.
#
# kernels: 6.1 6.12 7.x
# by default: 7.x
# due: later $MLX5 $DROPIN tests/vm/lib/both-sides.sh src/bin/uverbs
# order: 7
# packages: ibverbs-utils perftest
# vhca: --port infiniband --lid 7 --wire one,two
# vhca: --port infiniband --lid 9 --wire two,one --mac 52:54:00:ca:fe:02
# cargo: UVERBS_BIN build --profile guest --features cli --bin uverbs
# cargo: UVERBS_DROPIN build --profile dropin --package uverbs-c
# cargo: UVERBS_MLX5 build --profile dropin --package uverbs-c-mlx5
# passes: UVERBS_WHOLE
# shellcheck disable=SC2317  # `step` calls the functions by name

vm=$(dirname "$0")/..
# shellcheck source=tests/vm/lib/guest.sh
. "$vm/lib/guest.sh"
# shellcheck source=tests/vm/mlx5/device.sh
. "$vm/mlx5/device.sh"
# shellcheck source=tests/vm/lib/dropin-common.sh
. "$vm/lib/dropin-common.sh"
# shellcheck source=tests/vm/lib/both-sides.sh
. "$vm/lib/both-sides.sh"

lid_of() { # lid_of DEVICE
    cat "/sys/class/infiniband/$1/ports/1/lid"
}

# Packets go over the wire only if the ports have different LIDs.
lids_differ() {
    lid_of mlx5_0 && lid_of mlx5_1 && [ "$(lid_of mlx5_0)" != "$(lid_of mlx5_1)" ]
}

# Messages each way between `uverbs ping` on one card and `uverbs ping` on the other.
ping() { # ping [OPTION...]
    timeout 60 "$UVERBS_BIN" ping --device mlx5_0 --iters 100 "$@" >"$OUT/$name.server" &
    until_true 10 listens 18515 && timeout 60 "$UVERBS_BIN" ping --device mlx5_1 --iters 100 "$@" 127.0.0.1 && wait $!
}

begin two_cards
step ibv_devinfo ibv_devinfo -v
step lids lids_differ
device=mlx5_0 client_device=mlx5_1
if plays 'theirs theirs'; then
    pingpongs ''
    [ "$(extent)" = whole ] || measures=lat
    perftests ''
    perftest_options ''
    # The other way round.
    device=mlx5_1 client_device=mlx5_0
    pingpongs -back
    device=mlx5_0 client_device=mlx5_1
fi
step library library_is_ours ibv_rc_pingpong
with_dropin
for transport in rc uc ud xrc; do step "ping-$transport" ping --transport "$transport"; done
for op in write read atomic; do step "ping-rc-$op" ping --transport rc --op "$op"; done
step only-ours-was-loaded only_ours_was_loaded
step unload unload
step kernel-log kernel_log_is_clean
finish
