#!/bin/sh
# Lane beside-programs: what whole programs cost with the drop-in and with Debian's libibverbs, on rxe. It boots with -icount, so that the guest's
# clock counts instructions. See lib/guest.sh, beside/README.md.
#
# kernels: 6.1
# order: 7
# only: 6.1
# packages: binutils gcc libc6-dev libibverbs-dev perftest strace valgrind
# boot: "--qemu-opts=-icount shift=0,sleep=off -cpu max"
# boot: "--append=mitigations=off nokaslr norandmaps tsc_early_khz=1000000"
# While the guest waits for the host its clock runs ahead: on a busy machine udev gives up on modules that test themselves, with a warning of the kernel's.
# boot: "--append=module_blacklist=aesni_intel"
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

# shellcheck source=tests/vm/lib/dropin-common.sh
. "$vm/lib/dropin-common.sh"

# shellcheck source=tests/vm/beside/programs.sh
. "$vm/beside/programs.sh"

# This clock jumps ahead as soon as there is nothing to do but wait, so limits in its seconds must be long, or they end things too early.
CLOCK_COUNTS=1 PATIENCE=100
begin make_device
programs_steps programs
step resources resources_are_as_before
step kernel-log kernel_log_is_clean
finish
