#!/bin/sh
# Lane beside: what operations cost through this crate and through Debian's libibverbs, in the same guest. It boots with
# -icount, so that the guest's clock counts instructions. See lib/guest.sh, beside/README.md.
#
# kernels: 6.1
# order: 4
# packages: gcc libc6-dev libibverbs-dev strace
# The guest's time goes on by one nanosecond with each instruction, and stands still for nothing else.
# boot: "--qemu-opts=-icount shift=0,sleep=off -cpu max"
# boot: "--append=mitigations=off nokaslr norandmaps tsc_early_khz=1000000"
# While the guest waits for the host its clock runs ahead: on a busy machine udev gives up on modules that test themselves, with a warning of the kernel's.
# boot: "--append=module_blacklist=aesni_intel"
# cargo: UVERBS_BESIDE build --release --package uverbs-beside
# cargo: UVERBS_DROPIN build --profile dropin --package uverbs-c
# cargo: UVERBS_MLX5 build --profile dropin --package uverbs-c-mlx5
# compile: UVERBS_THEIRS beside/theirs.c -libverbs
# compile: UVERBS_PATH beside/path.c -libverbs
# compile: UVERBS_COUNTED beside/counted.c -shared -fPIC
# roots: sid
# shellcheck disable=SC2317  # `step` calls the functions by name

vm=$(dirname "$0")/..
# shellcheck source=tests/vm/lib/guest.sh
. "$vm/lib/guest.sh"

# shellcheck source=tests/vm/lib/dropin-common.sh
. "$vm/lib/dropin-common.sh"

# shellcheck source=tests/vm/beside/path.sh
. "$vm/beside/path.sh"

clock_counts_instructions() {
    cat /sys/devices/system/clocksource/clocksource0/current_clocksource &&
        "$UVERBS_THEIRS" clock
}

measure() { # measure PROGRAM OUTPUT
    "$1" instructions "$device" 300 >"$OUT/$2"
}

trace() { # trace PROGRAM OUTPUT
    strace -f -o "$OUT/$2" "$1" calls "$device"
}

# The other lines are about signals and the exit.
opened() { echo "compared: system calls until the device is open: $(grep -c '(' "$OUT/opened-ours.strace"), theirs $(grep -c '(' "$OUT/opened-theirs.strace")"; }

versions() {
    echo "compared: Linux $(uname -r), libibverbs $(dpkg-query -W -f '${Version}' libibverbs1)"
}

begin make_device

# On 7.x this loads ib_uverbs, which both sides need.
step versions versions
step theirs-is-there ibv_devinfo -d "$device"
step clock clock_counts_instructions || finish
step ours measure "$UVERBS_BESIDE" ours.txt
step theirs measure "$UVERBS_THEIRS" theirs.txt
step calls-ours trace "$UVERBS_BESIDE" ours.strace
step calls-theirs trace "$UVERBS_THEIRS" theirs.strace
step table "$UVERBS_BESIDE" table "$OUT"
path_steps messages
# Run without the loader's trace that `ours` asks for: its lines would be counted.
step opened-ours strace -f -E LD_LIBRARY_PATH=/tmp/dropin -o "$OUT/opened-ours.strace" "$UVERBS_PATH" open "$device"
step opened-theirs strace -f -o "$OUT/opened-theirs.strace" "$UVERBS_PATH" open "$device"
step opened opened
step resources resources_are_as_before
step kernel-log kernel_log_is_clean
finish
