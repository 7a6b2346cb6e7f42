#!/bin/sh
# Lane mlx5-verify: `uverbs verify` on a virtual ConnectX with RoCE v2, also on one that is wrong on purpose: each fault is found. Runs in the
# guest; see lib/guest.sh.
#
# kernels: 6.1 7.x
# by default: 7.x
# due: src/bin/uverbs/verify later $CARD tests/vm/lib/verify.sh tests/vm/lib/within
# order: 9
# limit: 900
# vhca: --port roce --cap cmd_hca_cap.log_max_uctx=20
# cargo: UVERBS_BIN build --profile guest --features cli --bin uverbs
# shellcheck disable=SC2317  # `step` calls the functions by name

vm=$(dirname "$0")/..
# shellcheck source=tests/vm/lib/guest.sh
. "$vm/lib/guest.sh"
# shellcheck source=tests/vm/mlx5/device.sh
. "$vm/mlx5/device.sh"
# shellcheck source=tests/vm/lib/verify.sh
. "$vm/lib/verify.sh"

# The driver makes a queue of its own at the first memory region (`mlx5r_umr_resource_init`, umr.c, 7.3). Frames that are sent come back
# from when the interface has its addresses.
make_card() {
    make_device && control_line && near=$(basename "$(echo /sys/class/infiniband/"$device"/device/net/*)") &&
        ip addr add 10.0.0.1/24 dev "$near" && ip link set "$near" up && until_true 20 has_address && sleep 3 &&
        "$UVERBS_BIN" ping --device "$device" --iters 1 --loopback >&2 && ask 9 'loop on' && resources >"$OUT/resources.before"
}

has_address() { cat "/sys/class/infiniband/$device/ports/1/gids/"* | grep -q 'ffff:0a00:0001$'; }

whole() { verified 0 --flows && holds "$most"; }

# As many as in the report of docs/guide/cli.md; on 6.1 at least so many.
case $(uname -r) in 6.*) most=50 ;; *) most=53 ;; esac

# Without --flows no flow is made.
without_flows() { verified 0 && holds 38 && ! grep -q '"flow counters"[^}]*"holds"' "$OUT/$name.json"; }

doctor() { doctor_finds note gid-index; }

# The link of the card is gone, and comes back.
doctor_port() {
    ask 9 'port down' && until_true 10 grep -q DOWN "/sys/class/infiniband/$device/ports/1/state" && doctor_finds problem port-state &&
        ask 9 'port up' && until_true 20 grep -q ACTIVE "/sys/class/infiniband/$device/ports/1/state" && until_true 20 has_address
}

found() { # found LIE EVERY BEHAVIOUR: the card is wrong about every so many, and the behaviour differs
    ask 9 "lie $1 $2" && verified 8 --flows && differs "$3" && ask 9 "lie $1 0"
}

begin make_card
step doctor doctor
step doctor-port doctor_port
step whole whole
step without-flows without_flows
# A counter misses every thousandth packet, a failure has another status, messages another length or other data, an event is lost.
step lie-count found count 1000 'thousands of packets are counted without exception'
step lie-status found status 1 'a wrong key is a remote access error and the rest is flushed'
step lie-length found length 100 'many messages arrive whole and are counted'
step lie-data found data 100 'many messages arrive whole and are counted'
step lie-event found event 7 'completions are announced when it was asked for'
step whole-again whole
step resources resources_are_as_before
step kernel-log kernel_log_is_clean
finish
