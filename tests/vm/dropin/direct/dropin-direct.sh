#!/bin/sh
# Lane dropin-direct: programs that call libmlx5 itself (mlx5dv_*), with libibverbs and with the drop-in and its own libmlx5, on a
# virtual ConnectX with RoCE v2. Runs in the guest; see lib/guest.sh.
#
# kernels: 6.1 7.x
# order: 4
# packages: ibverbs-utils ibverbs-providers gcc libc6-dev libibverbs-dev
# vhca: --port roce
# cargo: UVERBS_DROPIN build --profile dropin --package uverbs-c
# cargo: UVERBS_MLX5 build --profile dropin --package uverbs-c-mlx5
# consumers: bookworm trixie sid
# compile: MLX5_DIRECT dropin/direct/direct.c -libverbs -lmlx5
# compile: IMPORTS dropin/direct/imports.c -libverbs
# compile: LOOKUPS dropin/direct/lookups.c -libverbs
# compile: COSTS dropin/direct/costs.c -libverbs
# static: STATIC_DIRECT cc UVERBS_DROPIN dropin/direct/direct.c -pthread
# shellcheck disable=SC2317  # `step` calls the functions by name

vm=$(dirname "$0")/../..
# shellcheck source=tests/vm/lib/guest.sh
. "$vm/lib/guest.sh"
# shellcheck source=tests/vm/mlx5/device.sh
. "$vm/mlx5/device.sh"
# shellcheck source=tests/vm/lib/both-sides.sh
. "$vm/lib/both-sides.sh"
# shellcheck source=tests/vm/lib/dropin-common.sh
. "$vm/lib/dropin-common.sh"
# shellcheck source=tests/vm/lib/pyverbs.sh
. "$vm/lib/pyverbs.sh"

# The calls themselves. With libibverbs the device is libmlx5's. With the drop-in and its own libmlx5 every call refuses, except those that
# create queues and give programs their rings, the one that asks what the device has, whose answers must be equal, and those below.
answered='mlx5dv_(is_supported|query_port|get_clock_info|set_context_attr|open_device|query_device|create_cq|create_qp|create_wq|init_obj:(qp|cq|srq|rwq|ah|pd)|dr_action_create_dest_ibv_qp|dr_action_destroy) done'
# Commands to the firmware and flows by matchers go to the kernel, which refuses on this card what needs DEVX: equal with both.
passed='mlx5dv_(devx_(general_cmd|obj_create|umem_reg|umem_reg_ex|alloc_uar|query_eqn|(qp|cq|srq|wq|ind_tbl)_(query|modify)|create_cmd_comp|create_event_channel)|alloc_var|pp_alloc|create_wq:strides|reserved_qpn_(alloc|dealloc)|create_flow_matcher|create_flow_action_(modify_header|packet_reformat)) .*'
calls() {
    for side in theirs ours; do
        "$side" timeout 60 chroot "$root" /tmp/mlx5-direct "$device" "$gid" >"$OUT/$name.$side" || return
    done
    grep -qx 'mlx5dv_is_supported done' "$OUT/$name.theirs" || return
    refuse && grep told "$OUT/$name.theirs" >"$OUT/$name.told" && grep told "$OUT/$name.ours" | diff "$OUT/$name.told" - >&2 &&
        grep -xE "$passed" "$OUT/$name.theirs" >"$OUT/$name.passed" && grep -xE "$passed" "$OUT/$name.ours" | diff "$OUT/$name.passed" - >&2 &&
        [ "$(wc -l <"$OUT/$name.passed")" -ge 20 ] &&
        ! grep -v -e ' refused$' -e told "$OUT/$name.ours" | grep -vxE "$answered|$passed" >&2 &&
        [ "$(grep -cxE "$answered" "$OUT/$name.ours")" -ge 12 ]
}

refuse() {
    echo "compared: $(grep -c " refused\$" "$OUT/$name.ours") calls refuse, of which $(grep -c " refused\$" "$OUT/$name.theirs") also with libibverbs"
    [ "$(wc -l <"$OUT/$name.ours")" -gt 60 ]
}

# With only the drop-in installed over libibverbs, programs still get libmlx5 itself, which does not know the devices. Every call then
# refuses, except those that do not look at the context's owner and have no effect on a device.
made='dr_domain_create|dump_dr_domain|dr_table_create|dr_table_destroy|dr_action_create_dest_ibv_qp|dr_action_destroy'
strangers() {
    mkdir -p /tmp/alone && cp /tmp/dropin/libibverbs.so.1 /tmp/alone/ || return
    LD_LIBRARY_PATH=/tmp/alone timeout 60 chroot "$root" /tmp/mlx5-direct "$device" "$gid" >"$OUT/$name.ours" || return
    cp "$OUT/$name.ours" "$OUT/$name.theirs"
    refuse && ! grep -v -e ' refused$' -e '^told:' -e asked$ "$OUT/$name.ours" | grep -vxE "mlx5dv_($made) done" >&2
}

# UCX has some transports on libmlx5, and others on libibverbs alone.

transports() { # transports ours|theirs: those on the device
    "$1" timeout 120 chroot "$root" ucx_info -d >"$OUT/$name.$1" || return
    sed -n "/Memory domain: $device\$/,/Memory domain: [^m]/s/.*Transport: //p" "$OUT/$name.$1" | sort | tr '\n' ' '
}

ucx_info() {
    [ "$(transports theirs)" = 'rc_mlx5 rc_verbs ud_mlx5 ud_verbs ' ] || { echo "libibverbs: $(transports theirs)" >&2; return 1; }
    [ "$(transports ours)" = 'rc_mlx5 rc_verbs ud_mlx5 ud_verbs ' ] || { echo "drop-in: $(transports ours)" >&2; return 1; }
    export UVERBS_MLX5_DIRECT=0
    without=$(transports ours)
    unset UVERBS_MLX5_DIRECT
    [ "$without" = 'rc_verbs ud_verbs ' ] || { echo "drop-in, switched off: $without" >&2; return 1; }
}

# ucx_perftest takes a run without a terminal for one of MPI's, so it gets a terminal.
ucx_pairs() { # ucx_pairs ARGUMENTS...
    for sides in 'ours theirs' 'theirs ours' 'ours ours'; do
        # shellcheck disable=SC2016,SC2086  # for another shell; two words
        pair $sides 13337 sh -c 'exec chroot "$0" ucx_perftest "$@" </dev/ptmx' "$root" -n 100 -w 10 "$@" || return
    done
}

# What UCX chooses by itself among the transports of InfiniBand. Shared memory and TCP are switched off.
ucx_chooses() { # ucx_chooses ARGUMENTS...
    export UCX_TLS=ib UCX_NET_DEVICES="$device:1"
    ucx_pairs "$@"
    status=$?
    unset UCX_TLS UCX_NET_DEVICES
    return "$status"
}

# Whether DPDK finds a port if it is called without options for its driver, which then steers by software: with libibverbs it does, with ours it
# does not. The lane dropin-dpdk calls it with dv_flow_en=0. One processor stands in for two, and memory is in pages of the usual size.
testpmd() { # testpmd ours|theirs
    printf 'show port summary all\nquit\n' | "$1" timeout 120 chroot "$root" dpdk-testpmd --no-shconf --no-huge -m 100 --no-telemetry \
        --lcores '(0-1)@0' -- -i --total-num-mbufs=2048 >"$OUT/$name.$1" 2>&1 || { tail -n 3 "$OUT/$name.$1" >&2; return 1; }
}

dpdk() {
    testpmd theirs && grep -q '^Number of available ports: 1' "$OUT/$name.theirs" || return
    testpmd ours || return
    grep 'mlx5.*aborted' "$OUT/$name.ours"
    grep -q '^testpmd: No probed ethernet devices' "$OUT/$name.ours"
}

# The errors that Python gets, and that the program reaches its end.
providers() {
    for side in theirs ours; do
        "$side" timeout 60 chroot "$root" /usr/bin/python3 /tmp/mlx5-direct.py "$device" >"$OUT/$name.$side" || return
        tail -n 1 "$OUT/$name.$side" | grep -qx end || return
    done
    grep -qx 'open: made' "$OUT/$name.theirs" && [ "$(grep 'made$' "$OUT/$name.ours")" = 'open: made' ]
}

# What NCCL looks up. Ours also has the names of later releases.
lookups() {
    for side in theirs ours; do
        "$side" timeout 60 chroot "$root" /tmp/lookups "$device" >"$OUT/$name.$side" && grep -qx 'a device of mlx5' "$OUT/$name.$side" || return
    done
    [ "$(grep -c ' found$' "$OUT/$name.ours")" = 2 ]
}

# Instructions in user space of a rule of DPDK's Verbs mode, in percent of those with libibverbs. The goals are 95 for a query and 100 for the
# rest; until they are reached, the limits are what was seen, and a little.
costs() {
    for side in theirs ours; do
        "$side" timeout 60 chroot "$root" /tmp/costs "$device" >"$OUT/$name.$side" || return
    done
    paste -d ' ' "$OUT/$name.theirs" "$OUT/$name.ours" | while read -r what theirs _ _ _ ours _; do
        case $what in query) most=103 ;; create) most=220 ;; destroy) most=205 ;; *) most=0 ;; esac
        echo "compared: $what $ours instructions, with libibverbs $theirs"
        [ $((ours * 100)) -le $((theirs * most)) ] || { echo "$what: more than $most %" >&2; exit 1; }
    done
}

# The same program with the archive of libibverbs in it, which also has the names of libmlx5.
archive() {
    timeout 60 "$STATIC_DIRECT" "$device" "$gid" >"$OUT/$name.ours" && diff "$OUT/$suite-calls.ours" "$OUT/$name.ours" >&2
}

# What another context, or another process, has created.
imports() {
    for side in theirs ours; do
        "$side" timeout 60 chroot "$root" /tmp/imports "$device" "$gid" >"$OUT/$name.$side" || return
    done
    diff "$OUT/$name.theirs" "$OUT/$name.ours" >&2 && tail -n 1 "$OUT/$name.ours" | grep -qx 'pass all'
}

root=
begin make_card
gid=$(gid_of "$device" 10.0.0.1)
cp "$MLX5_DIRECT" /tmp/mlx5-direct && cp "$IMPORTS" /tmp/imports && cp "$LOOKUPS" /tmp/lookups && cp "$COSTS" /tmp/costs && cp "$vm/dropin/direct/direct.py" /tmp/mlx5-direct.py
address=127.0.0.1
for suite in $CONSUMERS; do
    eval "root=\$CONSUMERS_$suite"
    step "$suite-root" enter "$root" || continue
    step "$suite-calls" calls
    step "$suite-lookups" lookups
    step "$suite-imports" imports
    step "$suite-costs" costs
    step "$suite-strangers" strangers
    step "$suite-pyverbs" providers
    step "$suite-dpdk" dpdk
    # sid packages UCX without its part for InfiniBand.
    if [ ! -e "$root/usr/lib/x86_64-linux-gnu/ucx/libuct_ib.so" ]; then
        record "$suite-ucx" skip 'this UCX has no transports of InfiniBand'
        continue
    fi
    step "$suite-ucx_info" ucx_info
    for transport in rc_verbs ud_verbs; do
        step "$suite-ucx-$transport" ucx_pairs -d "$device:1" -x "$transport" -t am_lat
    done
    step "$suite-ucx-get" ucx_pairs -d "$device:1" -x rc_verbs -t get -D zcopy -s 4096
    step "$suite-ucx-fadd" ucx_pairs -d "$device:1" -x rc_verbs -t fadd
    step "$suite-ucx-chosen" ucx_chooses -t tag_bw -s 100000
done
step archive archive
step only-ours-was-loaded only_ours_was_loaded
step kernel-log kernel_log_is_clean
finish
