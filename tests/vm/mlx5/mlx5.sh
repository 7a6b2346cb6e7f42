#!/bin/sh
# Lane mlx5: the kernel's mlx5 drivers on a virtual ConnectX (tests/vhca). Runs in the guest; see lib/guest.sh.
#
# kernels: 6.1 6.12 7.x
# by default: 7.x
# due: $MLX5 $TESTS tests/vm/mlx5/peer.c $EXAMPLES
# order: 3
# limit: 1800
# packages: gcc libc6-dev libibverbs-dev
# DEVX, for counters in bulk. Without it, as in mlx5-beside, drivers and libraries send what they send to most cards.
# vhca: --cap cmd_hca_cap.log_max_uctx=20 --cap cmd_hca_cap.qos=1 --cap cmd_hca_cap.hca_cap_2=1 --cap cmd_hca_cap.general_obj_types=0x100000000000
# cargo: UVERBS_BIN build --profile guest --features cli --bin uverbs
# cargo: EXAMPLE_COMPLETION_COUNTERS build --profile guest --example completion_counters
# cargo: EXAMPLE_COUNTER_WATCH build --profile guest --example counter_watch
# cargo: EXAMPLE_DATAGRAMS build --profile guest --example datagrams
# cargo: EXAMPLE_RC_PINGPONG build --profile guest --example rc_pingpong
# cargo: EXAMPLE_READ_LATENCY build --profile guest --example read_latency
# cargo: EXAMPLE_SHARED_RECEIVES build --profile guest --example shared_receives
# cargo: EXAMPLE_STATISTICS build --profile guest --example statistics
# compile: MLX5_PEER mlx5/peer.c -libverbs
# tests: card_faults any::device any::queues asynchronous fork any::counters any::too_large allocations any::snapshots
# tests: any::sampler card::bulk card::bulk_queries card::devx card::numbers card::rings any::packets any::counted_packets any::flow_errno any::rules card::rss
# tests: card::offloads any::drain any::errno any::errno_objects any::lives cycles faults any::sweep any::threads
# tests: firmware
# shellcheck disable=SC2317  # `step` calls the functions by name

vm=$(dirname "$0")/..
# shellcheck source=tests/vm/lib/guest.sh
. "$vm/lib/guest.sh"

# shellcheck source=tests/vm/mlx5/device.sh
. "$vm/mlx5/device.sh"
# shellcheck source=tests/vm/lib/examples.sh
. "$vm/lib/examples.sh"

# How the tests make packets arrive and firmware commands fail, and how they take the device away.
export UVERBS_TEST_CONTROL="$MLX5_CONTROL"
export UVERBS_TEST_REMOVE="sh $vm/mlx5/card.sh remove $device"
export UVERBS_TEST_RESTORE="sh $vm/mlx5/card.sh find $device"

peer() { # peer [VARIABLE=VALUE...]: every line it prints is a part that passed, or one this kernel does not have
    env "$@" timeout 120 "$MLX5_PEER" "$device" "$MLX5_CONTROL" || return
    grep -qx 'pass all' "$OUT/$name.out"
}

memory_limit() { # the control line is root's
    (unset UVERBS_TEST_CONTROL && without_privilege)
}

kernel_goes_on() { # it may have warned of what it cannot destroy when a device file is closed, and of nothing else
    dmesg >"$OUT/dmesg-last.log" || return
    if grep -E "$SPLATS" "$OUT/dmesg-last.log" | grep -vE 'virtme-|Call Trace|WARNING: .* uverbs_destroy_ufile_hw'; then
        echo "the kernel complains; see dmesg-last.log" >&2
        return 1
    fi
}

begin make_device

step devices list_devices
describe_device

# The port has no network interface, but carries frames.
play_examples completion_counters='!not active' counter_watch='packets, .* at the end' datagrams='!not active' rc_pingpong='!not active' \
    read_latency='snapshot.read_cached' shared_receives='!not active' statistics='of kind'

# This test takes the device away and finds it again.
if is_wanted card_faults; then run_tests card_faults; fi
step peer peer
record_skips peer
# From 6.12 on the driver makes queues of its own when they are first needed, and keeps them. They exist by now.
resources >"$OUT/resources.before"
# The stock library again, with completions of the other size.
step peer-again peer MLX5_CQE_SIZE=128
for test in $TESTS; do
    case $test in card_faults) ;; *) run_tests "$test" ;; esac
    case $test in faults) step memory-limit memory_limit ;; esac
done
step resources resources_are_as_before

# This card needs headers in the request, and cuts large sends into packets.
offload_caps=per_protocol_networking_offload_caps
step other-card other_card "$offload_caps.wqe_inline_mode=0" "$offload_caps.max_lso_cap=16"
step peer-other-card peer
record_skips peer-other-card
for test in any::packets card::offloads; do
    if is_wanted "$test"; then run_tests "$test" -other-card; fi
done
# With large sends there is a network interface, which has its own flow counters.
step first-card other_card "$offload_caps.wqe_inline_mode=1" "$offload_caps.max_lso_cap=0"
step unload unload
step kernel-log kernel_log_is_clean
# The messages so far have been judged; they are not judged again.
dmesg --clear

# From here on the kernel has objects that it cannot get rid of, so the machine is switched off without a shutdown.
step make-again make_device || finish
export UVERBS_TEST_SWITCHED_OFF=yes
# Near the end, since the card keeps counters after it.
if is_wanted firmware; then run_tests firmware -last what_the_firmware_holds_on_to; fi
step kernel-goes-on kernel_goes_on
record end -
sync
echo b >/proc/sysrq-trigger
