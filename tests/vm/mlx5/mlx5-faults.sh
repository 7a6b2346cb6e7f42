#!/bin/sh
# Lane mlx5-faults: what goes wrong around connections on an InfiniBand port of a virtual ConnectX. Runs in the guest; see lib/guest.sh.
#
# kernels: 6.1 7.x
# by default: 7.x
# due: later $MLX5 $DROPIN $TESTS tests/vm/mlx5/connected
# order: 5
# packages: gcc libc6-dev libibverbs-dev
# vhca: --port infiniband
# cargo: UVERBS_DROPIN build --profile dropin --package uverbs-c
# cargo: UVERBS_MLX5 build --profile dropin --package uverbs-c-mlx5
# compile: MLX5_CONNECTED mlx5/connected/connected.c -libverbs
# tests: card_messages firmware_messages cycles
# shellcheck disable=SC2317  # `step` calls the functions by name

vm=$(dirname "$0")/..
# shellcheck source=tests/vm/lib/guest.sh
. "$vm/lib/guest.sh"
# shellcheck source=tests/vm/mlx5/device.sh
. "$vm/mlx5/device.sh"
# shellcheck source=tests/vm/lib/dropin-common.sh
. "$vm/lib/dropin-common.sh"

export UVERBS_TEST_CONTROL="$MLX5_CONTROL"
export UVERBS_TEST_REMOVE="sh $vm/mlx5/card.sh remove $device"
export UVERBS_TEST_RESTORE="sh $vm/mlx5/card.sh find $device"

kernel_goes_on() { # it may have warned of what it cannot destroy when a device file is closed, and of nothing else
    dmesg >"$OUT/dmesg-last.log" || return
    if grep -E "$SPLATS" "$OUT/dmesg-last.log" | grep -vE 'virtme-|Call Trace|WARNING: .* uverbs_destroy_ufile_hw'; then
        echo "the kernel complains; see dmesg-last.log" >&2
        return 1
    fi
}

connected() { # 150 checks, of which more than half are of what goes wrong
    timeout 300 "$MLX5_CONNECTED" "$device" -1 || return
    grep -qx 'pass all' "$OUT/$name.out"
}

connected_ours() { # the drop-in refuses that operation when it is posted (docs/guide/drop-in.md); it has everything else
    ours timeout 300 "$MLX5_CONNECTED" "$device" -1
    grep -v '^pass ' "$OUT/$name.out" | cut -d / -f 1 >"$OUT/$name.failed"
    [ "$(cat "$OUT/$name.failed")" = 'FAIL add at an odd place ' ] && [ "$(grep -c '^pass ' "$OUT/$name.out")" -gt 100 ]
}

begin make_device

step connected connected
step connected-ours connected_ours
step only-ours-was-loaded only_ours_was_loaded
# This test takes the device away and finds it again.
if is_wanted card_messages; then run_tests card_messages; fi
resources >"$OUT/resources.before"
for test in $TESTS; do
    case $test in card_messages) ;; *) run_tests "$test" ;; esac
done
step resources resources_are_as_before
step unload unload
step kernel-log kernel_log_is_clean
# The messages so far have been judged; they are not judged again.
dmesg --clear

# From here on the kernel has objects that it cannot get rid of. The machine is switched off without a shutdown.
step make-again make_device || finish
export UVERBS_TEST_SWITCHED_OFF=yes
if is_wanted firmware_messages; then run_tests firmware_messages -last what_the_firmware_holds_on_to; fi
step kernel-goes-on kernel_goes_on
record end -
sync
echo b >/proc/sysrq-trigger
