#!/bin/sh
# Lane mlx5-programs: what whole programs cost with the drop-in and with Debian's libibverbs, on an InfiniBand port of a virtual ConnectX. Runs in
# the guest; see lib/guest.sh, beside/README.md.
#
# kernels: 6.1
# order: 8
# only: 6.1
# packages: binutils gcc libc6-dev libibverbs-dev perftest strace valgrind
# vhca: --port infiniband
# cargo: UVERBS_BESIDE build --release --package uverbs-beside
# cargo: UVERBS_DROPIN build --profile dropin --package uverbs-c
# cargo: UVERBS_MLX5 build --profile dropin --package uverbs-c-mlx5
# compile: UVERBS_EMPTY beside/empty.c -Wl,--no-as-needed -libverbs
# compile: UVERBS_PATH beside/path.c -libverbs
# compile: UVERBS_STARTED beside/started.c
# compile: UVERBS_CALLS beside/calls.c -shared -fPIC -libverbs
# shellcheck disable=SC2317  # `step` calls the functions by name

vm=$(dirname "$0")/..
# shellcheck source=tests/vm/lib/guest.sh
. "$vm/lib/guest.sh"
# shellcheck source=tests/vm/mlx5/device.sh
. "$vm/mlx5/device.sh"
# shellcheck source=tests/vm/lib/dropin-common.sh
. "$vm/lib/dropin-common.sh"
# shellcheck source=tests/vm/beside/programs.sh
. "$vm/beside/programs.sh"

begin make_device
# A port of InfiniBand has one address and no network interface.
gid=0 address=127.0.0.1
programs_steps programs-connected
step unload unload
step kernel-log kernel_log_is_clean
finish
