#!/bin/sh
# Lane verify: `uverbs verify` on the kernel's software RoCE device and on its software iWARP device. Runs in the guest; see lib/guest.sh.
#
# kernels: 6.1 7.x
# by default: 7.x
# due: src/bin/uverbs/verify src/device src/verbs src/completion_counter tests/vm/lib/verify.sh tests/vm/lib/within tests/vm/lib/guest.sh
# order: 9
# limit: 600
# only: 6.1 7.x
# packages: mmdebstrap
# module: SIW_MODULE siw
# cargo: UVERBS_BIN build --profile guest --features cli --bin uverbs
# shellcheck disable=SC2317  # `step` calls the functions by name

vm=$(dirname "$0")/..
# shellcheck source=tests/vm/lib/guest.sh
. "$vm/lib/guest.sh"
# shellcheck source=tests/vm/lib/verify.sh
. "$vm/lib/verify.sh"

rxe() { verified 0 --flows && holds "$most"; }

# As many as in the reports of docs/guide/cli.md.
case $(uname -r) in 6.*) most=37 ;; *) most=38 ;; esac

siw() { verified 0 && holds 17; }

# Its addresses are of no matter, and it is in order.
doctor_siw() {
    ended=0
    "$UVERBS_BIN" doctor siw0 --watch 10ms --json >"$OUT/$name.json" || ended=$?
    cat "$OUT/$name.json"
    [ "$ended" -eq 0 ] && ! grep -q gid-index "$OUT/$name.json"
}

doctor_siw_down() {
    ip link set dummy1 down && until_true 10 grep -q DOWN /sys/class/infiniband/siw0/ports/1/state && doctor_finds problem port-state &&
        ip link set dummy1 up && until_true 10 grep -q ACTIVE /sys/class/infiniband/siw0/ports/1/state
}

# What a user who is not root may do is enough.
nobody() {
    device=rxe0
    setpriv --reuid=65534 --regid=65534 --clear-groups --bounding-set=-all --inh-caps=-all "$UVERBS_BIN" verify "$device"
}

# SIGINT ends a run after the behaviour that is tried; the page has those before.
interrupted() {
    "$UVERBS_BIN" verify rxe0 --report "$OUT/$name.json" &
    program=$!
    # Before the program handles the signal, a background process of this shell ignores it.
    until_true 20 test -e "$OUT/$name.json" && sleep 1
    kill -INT "$program" && wait "$program" && grep -q 'the run was ended' "$OUT/$name.out" && grep -q '"interrupted": true' "$OUT/$name.json"
}

row() {
    "$UVERBS_BIN" verify --row "$OUT/rxe.json" >"$OUT/$name.row" && cat "$OUT/$name.row" && grep -qE '^\| rxe \(software\) \| Ethernet \|' "$OUT/$name.row"
}

make_siw() {
    modprobe rdma_ucm && { modprobe libcrc32c 2>/dev/null || true; } && insmod "$SIW_MODULE" &&
        ip link add dummy1 address 52:54:00:12:34:57 type dummy && ip address add 198.51.100.1/24 dev dummy1 && ip link set dummy1 up &&
        rdma link add siw0 type siw netdev dummy1 && until_true 10 grep -q ACTIVE /sys/class/infiniband/siw0/ports/1/state &&
        resources >"$OUT/resources.before"
}

begin make_device
step rxe rxe
step nobody nobody
step interrupted interrupted
step row row
step resources resources_are_as_before
step make-siw make_siw
# shellcheck disable=SC2034  # verify.sh reads it
device=siw0
step doctor-siw doctor_siw
step doctor-siw-down doctor_siw_down
step siw siw
step resources-siw resources_are_as_before
step kernel-log kernel_log_is_clean
finish
