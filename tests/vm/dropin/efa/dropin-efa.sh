#!/bin/sh
# Lane dropin-efa: the programs of Debian sid that use an EFA, with libibverbs and libefa and with the drop-in and its own libefa, on a virtual EFA. Runs in
# the guest; see lib/guest.sh.
#
# kernels: 6.1 7.x
# order: 7
# only: 6.1 7.x
# packages: ibverbs-utils ibverbs-providers libibverbs-dev gcc libc6-dev mmdebstrap
# vefa:
# module: EFA_MODULE efa
# roots: sid
# cargo: UVERBS_DROPIN build --profile dropin --package uverbs-c
# cargo: UVERBS_MLX5 build --profile dropin --package uverbs-c-mlx5
# cargo: UVERBS_EFA build --profile dropin --package uverbs-c-efa
# compile: EFA_COMP_CNTR efa/comp-cntr.c -libverbs
# compile: EFA_DIRECT dropin/efa/direct.c -libverbs
# shellcheck disable=SC2317  # `step` calls the functions by name

vm=$(dirname "$0")/../..
# shellcheck source=tests/vm/lib/guest.sh
. "$vm/lib/guest.sh"
# shellcheck source=tests/vm/lib/dropin-common.sh
. "$vm/lib/dropin-common.sh"
# shellcheck source=tests/vm/lib/pyverbs.sh
. "$vm/lib/pyverbs.sh"
# shellcheck source=tests/vm/efa/device.sh
. "$vm/efa/device.sh"

# shellcheck disable=SC2154  # the variable is the runner's
root=$ROOT_sid
inside() { chroot "$root" "$@"; }

# shellcheck disable=SC2119  # one device
make_device() {
    # Some tests want large pages.
    echo 16 >/proc/sys/vm/nr_hugepages
    make_efa && cp "$vm/lib/pyverbs" /tmp/pyverbs && cp "$EFA_COMP_CNTR" /tmp/efa-comp-cntr && cp "$EFA_DIRECT" /tmp/efa-direct && enter "$root"
}

devinfo() { # but for the counters that the drop-in keeps itself
    for side in theirs ours; do
        "$side" chroot "$root" ibv_devinfo -v -d "$device" >"$OUT/$name.$side" || return
        without_completion_counters "$OUT/$name.$side" >"$OUT/$name.$side.less"
    done
    grep -q PORT_ACTIVE "$OUT/$name.ours" && diff "$OUT/$name.theirs.less" "$OUT/$name.ours.less" >&2 && cat "$OUT/$name.ours"
}

suite() { # suite ours|theirs: the tests of pyverbs, a line for each; there are no connections to be managed
    PYVERBS_GID=0 "$1" timeout 1500 chroot "$root" /tmp/pyverbs "$device" lo -test_mlx5 -test_rdmacm
}

enough() { # of those with which libefa has something to do
    echo "compared: $(grep -c 'test_efa.* ok$' "$OUT/results") tests of libefa"
    [ "$(grep -c 'test_efa.* ok$' "$OUT/results")" -ge "$(case $(uname -r) in 6.1.*) echo 15 ;; *) echo 20 ;; esac)" ]
}

# Runs each call and each kind of request and compares answers and completions. Each known difference has a row.
calls() {
    for side in theirs ours; do
        "$side" timeout 100 chroot "$root" /tmp/efa-direct "$device" >"$OUT/$name.$side" || { tail -n 3 "$OUT/$name.$side" >&2; return 1; }
    done
    echo "compared: $(wc -l <"$OUT/$name.ours") lines"
    "$PYTHON" "$vm/dropin/answers/compare" "$OUT/$name.theirs" "$OUT/$name.ours" "$vm/dropin/efa/differences"
}

# Compares the admin commands that the device gets from that program, byte by byte, except for values that each process has of its own.
requests() {
    for side in theirs ours; do
        control trace clear && "$side" timeout 100 chroot "$root" /tmp/efa-direct "$device" >"$OUT/$name.out" && control trace >"$OUT/$name.$side" || return
    done
    "$PYTHON" "$vm/dropin/efa/admin" "$OUT/$name.theirs" "$OUT/$name.ours"
}

child_in_a_batch() { ours timeout 100 chroot "$root" /tmp/efa-direct "$device" fork; }

comp_cntr() { "$1" timeout 60 chroot "$root" /tmp/efa-comp-cntr "$device" efadv; }

fabric_info() {
    for side in theirs ours; do
        "$side" chroot "$root" fi_info -p efa -v >"$OUT/$name.$side" || return
        sed 's/0x[0-9a-f]*/N/g' "$OUT/$name.$side" >"$OUT/$name.$side.less"
    done
    grep -q 'FI_EP_RDM' "$OUT/$name.ours" && diff "$OUT/$name.theirs.less" "$OUT/$name.ours.less" >&2 && cat "$OUT/$name.ours"
}

# The arguments are the server's library and the client's.
mixed_pingpong() { # mixed_pingpong SERVER CLIENT rdm|dgram
    case $3 in dgram) domain=dgrm ;; *) domain=$3 ;; esac
    "$1" fi_pingpong "$3" -d "$device-$domain" >"$OUT/$name.server" 2>&1 &
    server=$!
    # The program does not print when it starts to listen.
    until_true 60 listens 47592 && "$2" fi_pingpong "$3" -d "$device-$domain" 127.0.0.1 && wait "$server"
}

begin make_device

step ibv_devinfo devinfo
step calls calls
step requests requests
step child-in-a-batch child_in_a_batch
step pyverbs-theirs suite theirs
step pyverbs-ours suite ours
step pyverbs same_results
step pyverbs-enough enough
step comp-cntr-theirs comp_cntr theirs
step comp-cntr-ours comp_cntr ours
record_skips comp-cntr-ours
step fi_info fabric_info
for type in rdm dgram; do
    for at_server in theirs ours; do
        for at_client in theirs ours; do
            step "fi_pingpong-$type-$at_server-$at_client" mixed_pingpong "$at_server" "$at_client" "$type"
        done
    done
done
step libraries only_ours_was_loaded
step resources resources_are_as_before
step complaints no_complaints
step nothing-is-left nothing_is_left
step kernel-log kernel_log_is_clean
finish
