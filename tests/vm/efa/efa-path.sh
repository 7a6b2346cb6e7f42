#!/bin/sh
# Lane efa-path: what posting and polling cost on a virtual EFA, over reliable datagrams and over UD, through this crate, through the drop-in and through
# libibverbs with libefa. Runs in the guest; see lib/guest.sh, beside/README.md.
#
# kernels: 7.x
# order: 8
# only: 7.x
# packages: gcc libc6-dev libibverbs-dev libfabric-dev mmdebstrap
# vefa:
# module: EFA_MODULE efa
# cargo: UVERBS_BESIDE build --release --package uverbs-beside
# cargo: UVERBS_DROPIN build --profile dropin --package uverbs-c
# cargo: UVERBS_EFA build --profile dropin --package uverbs-c-efa
# compile: UVERBS_EFA_PATH beside/efa.c -libverbs -lefa
# compile: UVERBS_COUNTERS beside/counters.c -libverbs -lfabric
# compile: UVERBS_COUNTED beside/counted.c -shared -fPIC
# roots: sid
# shellcheck disable=SC2317  # `step` calls the functions by name

vm=$(dirname "$0")/..
# shellcheck source=tests/vm/lib/guest.sh
. "$vm/lib/guest.sh"
# shellcheck source=tests/vm/efa/device.sh
. "$vm/efa/device.sh"
# shellcheck source=tests/vm/lib/dropin-common.sh
. "$vm/lib/dropin-common.sh"
# shellcheck source=tests/vm/beside/path.sh
. "$vm/beside/path.sh"
UVERBS_PATH=$UVERBS_EFA_PATH

# Reading a completion counter that the device writes takes four instructions, plus one that keeps what was read; that is fewer than the
# others need.
counter_reads() {
    in_rust counters && cp "$UVERBS_COUNTERS" /tmp/counters && in_sid timeout 100 /tmp/counters "$device" || return
    # shellcheck disable=SC2046  # several words
    set -- $(of CompletionCounter::read "$name") $(of ibv_read_comp_cntr "$name") $(of fi_cntr_read "$name")
    echo "compared: a read of a completion counter takes $1 instructions and $2 system calls, libibverbs' $4 and $5, libfabric's $7 and $8"
    [ "$1" -le 5 ] && [ "$2" -eq 0 ] && [ "$1" -lt "$4" ] && [ "$1" -lt "$7" ]
}

# shellcheck disable=SC2119  # one device
begin make_efa
path_steps efa
step counter-reads counter_reads
step complaints no_complaints
step nothing-is-left nothing_is_left
step kernel-log kernel_log_is_clean
finish
