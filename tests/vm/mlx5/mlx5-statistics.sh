#!/bin/sh
# Lane mlx5-statistics: what the kernel's tools show of the counters of two virtual ConnectXes, one with a port of InfiniBand and one with
# RoCE v2. Runs in the guest; see lib/guest.sh.
#
# kernels: 6.1 7.x
# by default: 7.x
# due: later tests/vhca/src/queue_counter.rs tests/vhca/src/port_counter.rs tests/vhca/src/ifc/counter.rs
# due: tests/vhca/src/command/queue_counter.rs tests/vhca/src/command/port_counter.rs tests/card/bound.rs
# due: src/device/netlink src/device/statistics src/bin/uverbs/rules src/bin/uverbs/export/flows.rs
# order: 7
# packages: ibverbs-utils perftest ethtool gcc libc6-dev libibverbs-dev
# vhca: --port infiniband
# vhca: --port roce --mac 52:54:00:ca:fe:02 --cap cmd_hca_cap.log_max_uctx=20
# compile: MLX5_CONNECTED mlx5/connected/connected.c -libverbs
# cargo: UVERBS_BIN build --profile guest --features cli --bin uverbs
# tests: card::bound
# shellcheck disable=SC2317  # `step` calls the functions by name

vm=$(dirname "$0")/..
# shellcheck source=tests/vm/lib/guest.sh
. "$vm/lib/guest.sh"
# shellcheck source=tests/vm/mlx5/device.sh
. "$vm/mlx5/device.sh"
# shellcheck source=tests/vm/lib/both-sides.sh
. "$vm/lib/both-sides.sh"

# The counters of queues and of the port that every tested kernel has. Later kernels have more.
QUEUE_COUNTERS='duplicate_request implied_nak_seq_err local_ack_timeout_err np_cnp_sent np_ecn_marked_roce_packets out_of_buffer out_of_sequence
packet_seq_err req_cqe_error req_cqe_flush_error req_remote_access_errors req_remote_invalid_request resp_cqe_error resp_cqe_flush_error
resp_local_length_error resp_remote_access_errors rnr_nak_retry_err rp_cnp_handled rp_cnp_ignored rx_atomic_requests rx_read_requests rx_write_requests'
PORT_COUNTERS='VL15_dropped excessive_buffer_overrun_errors link_downed link_error_recovery local_link_integrity_errors multicast_rcv_packets
multicast_xmit_packets port_rcv_constraint_errors port_rcv_data port_rcv_errors port_rcv_packets port_rcv_remote_physical_errors
port_rcv_switch_relay_errors port_xmit_constraint_errors port_xmit_data port_xmit_discards port_xmit_packets port_xmit_wait symbol_error
unicast_rcv_packets unicast_xmit_packets'

make_cards() {
    two_cards && exec 8<>"$MLX5_CONTROL" 9<>"$MLX5_CONTROL_2" && stty raw -echo <&8 && stty raw -echo <&9 || return
    with_address mlx5_1 10.0.0.1
}

files() { # files DEVICE hw_counters|counters: each a line, with its value
    (cd "/sys/class/infiniband/$1/ports/1/$2" && grep '' ./* | sed 's,^\./,,; /^lifespan:/d; s/:/ /' | sort)
}

netlink() { # netlink DEVICE: the same of what `rdma` shows
    rdma statistic show link "$1/1" >"$OUT/statistic" && awk '{ for (i = 3; i < NF; i += 2) print $i, $(i + 1) }' "$OUT/statistic" | sort
}

snapshot() { # snapshot DEVICE NAME: all of it, in files of that name
    files "$1" hw_counters >"$OUT/$2.files" && files "$1" counters >"$OUT/$2.port" && netlink "$1" >"$OUT/$2.netlink"
}

difference() { # difference SOURCE: by how much which counters have grown, as words
    join "$OUT/before.$1" "$OUT/after.$1" | awk '$2 != $3 { printf "%s%s=%d", separator, $1, $3 - $2; separator = " " }'
}

known() { # known DEVICE WORD...: those whose counter this kernel has, in order
    directory=/sys/class/infiniband/$1/ports/1
    shift
    for word; do
        if [ -e "$directory/hw_counters/${word%=*}" ] || [ -e "$directory/counters/${word%=*}" ]; then echo "$word"; fi
    done | sort | paste -sd ' '
}

# While a command runs, the counters of queues grow by exactly this, in netlink's answer and in the files alike. So do those of the port,
# if they are given.
counted() { # counted DEVICE 'NAME=NUMBER...' 'NAME=NUMBER...'|any COMMAND...
    of=$1 queues=$2 port=$3
    shift 3
    snapshot "$of" before && "$@" && snapshot "$of" after || return
    # shellcheck disable=SC2086  # words
    queues=$(known "$of" $queues)
    for source in netlink files port; do
        expected=$queues
        if [ "$source" = port ]; then
            [ "$port" != any ] || continue
            # shellcheck disable=SC2086
            expected=$(known "$of" $port)
        fi
        found=$(difference "$source")
        echo "compared: $source: $found"
        [ "$found" = "$expected" ] || { echo "$source: $found instead of $expected" >&2; return 1; }
    done
}

# The traffic of both sides in one port: PACKETS, all to one receiver, and WORDS of 4 bytes.
traffic() { # traffic PACKETS WORDS
    for direction in rcv xmit; do
        echo "port_${direction}_data=$2 port_${direction}_packets=$1 unicast_${direction}_packets=$1"
    done
}

all_are_there() { # all_are_there DEVICE
    snapshot "$1" now && cmp "$OUT/now.files" "$OUT/now.netlink" || return
    for kind in files port; do
        if [ "$kind" = port ]; then wanted=$PORT_COUNTERS; else wanted=$QUEUE_COUNTERS; fi
        cut -d ' ' -f 1 "$OUT/now.$kind" >"$OUT/now.names"
        # shellcheck disable=SC2086
        missing=$(printf '%s\n' $wanted | LC_ALL=C sort | LC_ALL=C comm -23 - "$OUT/now.names")
        [ -z "$missing" ] || { echo "missing: $missing" >&2; return 1; }
    done
    echo "compared: $(wc -l <"$OUT/now.files") counters of queues, $(wc -l <"$OUT/now.port") of the port"
}

commands() { # commands OPCODE...: how many of each the card on line 8 had, and that there were no others
    total=0
    ask 8 commands >"$OUT/commands" || return
    for opcode; do
        number=$(sed -n "s/^$opcode [^ ]* //p" "$OUT/commands")
        total=$((total + ${number:-0}))
        sed -i "/^$opcode /d" "$OUT/commands"
    done
    if [ -s "$OUT/commands" ]; then
        echo "others: $(cat "$OUT/commands")" >&2
        return 1
    fi
}

# Commands to the card: one answer by netlink brings all counters of queues, while each file makes the kernel ask again.
costs() {
    ask 8 'trace clear' && netlink mlx5_0 >"$OUT/cost" && commands 773 826 || return
    one=$total queues=$(wc -l <"$OUT/cost")
    ask 8 'trace clear' && files mlx5_0 hw_counters >"$OUT/cost" && commands 773 826 || return
    by_queue=$total
    ask 8 'trace clear' && files mlx5_0 counters >"$OUT/cost" && commands 770 805 || return
    by_port=$total port=$(wc -l <"$OUT/cost")
    echo "compared: $one commands for $queues counters by netlink, $by_queue for their files, $by_port for $port files of the port"
    [ "$one" -eq 2 ] && [ "$by_queue" -eq $((2 * queues)) ] && [ "$by_port" -eq "$port" ]
}

# Something happens to the first packet that is sent.
mishap() { # mishap DROP|REPEAT COMMAND...
    ask 8 "wire $1 1" && shift && "$@"
}

connected() { # connected PART: one check
    timeout 60 "$MLX5_CONNECTED" mlx5_0 -1 "$1" && grep -qx 'pass all' "$OUT/$name.out" && [ "$(grep -c '^pass ' "$OUT/$name.out")" -eq 2 ]
}

goes_down() { # the port, once
    ask 8 'port down' && ask 8 'port up'
}

# One second after the port is up, the kernel queries the subnet administration (`ib_sa_event`, core/sa_query.c, Linux 6.1). On a slow
# machine these packets come between the two readings.
port_down() {
    counted mlx5_0 '' any goes_down && found=$(difference port) || return
    case " $found " in *' link_downed=1 '*) echo "compared: $found" ;; *) echo "$found" >&2 && return 1 ;; esac
}

# Broadcast frames that belong to no queue pair: what the driver's network interface reports about its function and about the wire.
ethernet_frames() {
    net=$(interface mlx5_1)
    ethtool -S "$net" | sed 's/^ *//; s/: / /' | sort >"$OUT/before.ethtool" && ask 9 "send ffffffffffff02000000000188b5$(printf '%092d' 0) 5" &&
        ethtool -S "$net" | sed 's/^ *//; s/: / /' | sort >"$OUT/after.ethtool" || return
    found=$(difference ethtool)
    echo "$found"
    for expected in rx_vport_broadcast_packets=5 rx_vport_broadcast_bytes=300 rx_packets_phy=5 rx_bytes_phy=300 rx_broadcast_phy=5; do
        case " $found " in *" $expected "*) ;; *) echo "not $expected: $found" >&2; return 1 ;; esac
    done
}

# One process keeps reading from another. Their queue pairs are in $qpns, and $load is the process to wait for.
READS=${READS:-100000}
begin_reads() {
    { device=mlx5_0 both -x ib_read_lat -F -n "$READS" >"$OUT/$name.load" 2>&1; } &
    load=$!
    until_true 20 reads_go_on
}

reads_go_on() { # both queue pairs are there and know each other
    qpns=$(rdma resource show qp link mlx5_0/1 | sed -n 's/.* lqpn \([0-9]*\) .*type RC state RTS .*/\1/p' | paste -sd ' ')
    [ "$(echo "$qpns" | wc -w)" -eq 2 ]
}

# The counters of queue pairs: number and reads, one per line.
bound() {
    rdma statistic qp show link mlx5_0/1 >"$OUT/bound" || return
    awk '/^link/ { id = ""; reads = ""
        for (i = 1; i <= NF; i++) { if ($i == "cntn") id = $(i + 1); if ($i == "rx_read_requests") reads = $(i + 1) } print id, reads }' "$OUT/bound"
}

bind_and_unbind() { # one of the two after the other into a set of their own, and out again, over and over
    begin_reads || return
    first=${qpns% *} second=${qpns#* } rounds=0 grown=0
    while reads_go_on; do
        # The reads may end in the middle of a round.
        one_round || { reads_go_on && return 1; }
    done
    wait "$load" && echo "compared: bound $rounds times during $READS reads, of which $grown were counted then" && [ "$rounds" -ge 1 ] && [ "$grown" -gt 0 ]
}

one_round() {
    qp='rdma statistic qp'
    $qp bind link mlx5_0/1 lqpn "$first" || return
    counter=$(bound | cut -d ' ' -f 1) && [ -n "$counter" ] && $qp bind link mlx5_0/1 lqpn "$second" cntn "$counter" || return
    reads=$(bound | cut -d ' ' -f 2) && $qp unbind link mlx5_0/1 cntn "$counter" lqpn "$first" || return
    $qp unbind link mlx5_0/1 cntn "$counter" lqpn "$second" && [ -z "$(bound)" ] || return
    rounds=$((rounds + 1)) grown=$((grown + reads))
}

bound_by_type() { # as they are made, those of two processes into two sets. While they are, that is not changed; when it is switched off they stay
    qp='rdma statistic qp'
    $qp set link mlx5_0/1 auto type on && $qp mode link mlx5_0/1 && begin_reads || return
    bound >"$OUT/$name.reads" && cat "$OUT/bound" || return
    # Each queue pair with the set it is in; they are unbound by hand.
    awk '/^link/ { for (i = 1; i <= NF; i++) if ($i == "cntn") id = $(i + 1) }
        /LQPN:/ { gsub(/[<>]/, ""); for (i = split($2, numbers, ","); i > 0; i--) print id, numbers[i] }' "$OUT/bound" >"$OUT/$name.pairs"
    [ "$(wc -l <"$OUT/$name.pairs")" -eq 2 ] && ! $qp set link mlx5_0/1 auto pid on && $qp set link mlx5_0/1 auto off || return
    while read -r counter number; do
        $qp unbind link mlx5_0/1 cntn "$counter" lqpn "$number" </dev/null || return
    done <"$OUT/$name.pairs"
    wait "$load" && [ -z "$(bound)" ] && echo "compared: $(awk '{ sum += $2 } END { print sum }' "$OUT/$name.reads") reads were counted while both were bound"
}

refused() { # what the kernel or the card refuses changes nothing, and reads go on
    begin_reads || return
    qp='rdma statistic qp' first=${qpns% *}
    ! $qp bind link mlx5_0/1 lqpn 1048575 || return
    ask 8 'fail ALLOC_Q_COUNTER 8' && ! $qp bind link mlx5_0/1 lqpn "$first" && [ -z "$(bound)" ] || return
    ask 8 'fail RTS2RTS_QP 16' && ! $qp bind link mlx5_0/1 lqpn "$first" && [ -z "$(bound)" ] || return
    $qp bind link mlx5_0/1 lqpn "$first" && [ -n "$(bound)" ] && wait "$load"
}

# `uverbs stat --qp` shows the same counters as `rdma`, for both queue pairs of a running command.
stat_qp() {
    begin_reads || return
    qp='rdma statistic qp' first=${qpns% *} second=${qpns#* }
    $qp bind link mlx5_0/1 lqpn "$first" && $qp bind link mlx5_0/1 lqpn "$second" && until_true 20 stat_qp_counts || return
    "$UVERBS_BIN" stat --qp mlx5_0/1 --json >"$OUT/$name.json" && bound && reads_go_on || return
    awk '/^link/ { for (i = 1; i <= NF; i++) if ($i == "cntn") id = $(i + 1) } /LQPN:/ { gsub(/[<>]/, ""); print id, $2 }' "$OUT/bound" >"$OUT/$name.pairs"
    "$UVERBS_BIN" stat --qp mlx5_0 && wait "$load" && "$UVERBS_BIN" stat --qp mlx5_0 | grep 'queue pairs: not counted one by one' || return
    "$PYTHON" -c 'import json, sys
ports = json.load(open(sys.argv[1]))["devices"][0]["queue_pair_counters"]
assert [port["port"] for port in ports] == [1] and ports[0]["mode"] == "some are counted one by one", ports
ours = sorted((counter["id"], *counter["queue_pairs"]) for counter in ports[0]["counters"])
theirs = sorted(tuple(int(word) for word in line.split()) for line in open(sys.argv[2]))
assert len(ours) == 2 and ours == theirs, (ours, theirs)
rows = [{row["name"]: row["value"] for row in counter["counters"]} for counter in ports[0]["counters"]]
assert all(len(some) > 15 for some in rows) and 0 < max(some["rx_read_requests"] for some in rows) <= int(sys.argv[3]), rows
print("compared:", ours, [some["rx_read_requests"] for some in rows])' "$OUT/$name.json" "$OUT/$name.pairs" "$READS"
}

stat_qp_counts() { "$UVERBS_BIN" stat --qp --all mlx5_0 | grep -q 'rx_read_requests *[1-9]'; }

# Flow rules of the card with Ethernet, each for its own address; with WORD, rules that also have that word.
rules() { # rules NUMBER [WORD]
    awk -v count="$1" -v word="${2:-}" 'BEGIN { for (i = 0; i < count; i++)
        printf "[[rule]]\nname = \"r%d\"\ndevice = \"mlx5_1\"\nrule = \"ether dst 02:fd:00:00:%02x:%02x%s\"\n", i, i / 256, i % 256, i ? "" : word }' >/tmp/rules.toml
}

queries() { # of flow counters, that the card has had since `trace clear`
    ask 9 commands >"$OUT/$name.commands" && sed -n 's/^93b [^ ]* //p' "$OUT/$name.commands"
}

exporter=127.0.0.1:9979
scrape() { "$PYTHON" "$vm/lib/compare-metrics" get "$exporter" text/plain >"$OUT/$name.scrape"; }

# A scrape reads a thousand rules with one command, and what arrived for one rule is counted for that rule.
flows_exported() {
    rules 1000 && ip link set lo up || return
    "$UVERBS_BIN" export --device mlx5_1 --listen "$exporter" --rules /tmp/rules.toml --max-age 1ms >"$OUT/exporter.out" 2>"$OUT/exporter.err" &
    exporting=$!
    until_true 120 grep -q '^listening on ' "$OUT/exporter.out" && scrape && ask 9 'trace clear' && scrape && found=$(queries) || return
    [ "$found" -eq 1 ] && [ "$(grep -c '^uverbs_flow_up{.*} 1$' "$OUT/$name.scrape")" -eq 1000 ] || return
    echo "compared: $found command for a scrape of 1000 rules"
    ask 9 "send 02fd000003e702000000000188b5$(printf '%092d' 0) 5" && scrape || return
    grep -x 'uverbs_flow_packets_total{device="mlx5_1",port="1",flow="r999"} 5' "$OUT/$name.scrape" &&
        grep -x 'uverbs_flow_bytes_total{device="mlx5_1",port="1",flow="r999"} 300' "$OUT/$name.scrape" &&
        [ "$(grep -c '^uverbs_flow_packets_total{.*} 0$' "$OUT/$name.scrape")" -eq 999 ]
}

# A rule that lets packets pass on cannot be read with the others. The other 999 still count.
flows_mixed() {
    rules 1000 ' dont-trap' && kill -HUP "$exporting" && until_true 60 grep -q 'rules are in force' "$OUT/exporter.err" || return
    ask 9 'trace clear' && scrape && found=$(queries) || return
    [ "$found" -eq 2 ] && [ "$(grep -c '^uverbs_flow_up{.*} 1$' "$OUT/$name.scrape")" -eq 1000 ] &&
        grep -x 'uverbs_flow_packets_total{device="mlx5_1",port="1",flow="r999"} 5' "$OUT/$name.scrape"
}

flows_end() { kill "$exporting" && wait "$exporting" && cat "$OUT/exporter.err" && [ "$(wc -l <"$OUT/exporter.err")" -eq 1 ]; }

# Each counter is read once when it is added, and then all of them with one command per reading.
flows_watched() {
    for count in 1 4; do
        ask 9 'trace clear' && "$UVERBS_BIN" watch --rules /tmp/rules.toml --interval 10ms --count "$count" --json >"$OUT/$name.json" && queries >"$OUT/$name.$count" || return
    done
    one=$(cat "$OUT/$name.1") four=$(cat "$OUT/$name.4")
    echo "compared: $one commands for one reading of 1000 rules, $four for four"
    [ $((four - one)) -eq 3 ] && [ "$(wc -l <"$OUT/$name.json")" -eq 4 ]
}

sets() { # how many sets of counters there are in the card
    ask 8 objects | grep -c ^CounterSet
}

no_set_is_left() { # but those of the driver
    [ "$(sets)" -eq "$own_sets" ] || { ask 8 objects | grep ^CounterSet >&2; return 1; }
}

begin make_cards
own_sets=$(sets)
device=mlx5_0
for card in mlx5_0 mlx5_1; do step "names-$card" all_are_there "$card"; done
step costs costs
# Messages of 1024 bytes with headers of 20 and a checksum of 4, and acknowledgements of 24 and 4. UC has no acknowledgements, and a
# datagram has another header of 8.
step messages-rc counted mlx5_0 '' "$(traffic 400 53800)" pingpong rc -n 100 -s 1024
step messages-uc counted mlx5_0 '' "$(traffic 200 52400)" pingpong uc -n 100 -s 1024
step messages-ud counted mlx5_0 '' "$(traffic 200 52800)" pingpong ud -n 100 -s 1024
step idle counted mlx5_0 '' '' sleep 1
# With headers of Ethernet, IPv4 and UDP, which are 34 bytes longer than the InfiniBand link header.
device=mlx5_1 gid=$(gid_of mlx5_1 10.0.0.1)
step messages-roce counted mlx5_1 '' "$(traffic 400 57200)" pingpong rc -n 100 -s 1024
step reads-roce counted mlx5_1 rx_read_requests=200 any perftest read lat RC
step ethernet ethernet_frames
device=mlx5_0 gid=''
# The client reads, adds and writes 200 times, and the server writes as often.
step reads counted mlx5_0 rx_read_requests=200 any perftest read lat RC
step writes counted mlx5_0 rx_write_requests=400 any perftest write lat RC
step writes-uc counted mlx5_0 rx_write_requests=400 any perftest write lat UC
step adds counted mlx5_0 rx_atomic_requests=200 any perftest atomic lat RC
step reads-xrc counted mlx5_0 rx_read_requests=200 any perftest read lat XRC
# A loss is noticed by the timeout, or by the packets that follow it in a message of four packets.
step lost counted mlx5_0 local_ack_timeout_err=1 any mishap drop pingpong rc -n 10 -s 1024
step lost-first counted mlx5_0 'out_of_sequence=3 packet_seq_err=1' any mishap drop pingpong rc -n 10 -s 4096
step twice counted mlx5_0 duplicate_request=1 any mishap repeat pingpong rc -n 10 -s 1024
# Errors: as many requests and receives end with an error as the checks of mlx5-connected.c expect.
step wrong-key counted mlx5_0 'req_cqe_error=2 req_cqe_flush_error=1 req_remote_access_errors=1 resp_cqe_error=2 resp_cqe_flush_error=2 resp_remote_access_errors=1' any \
    connected 'write with a wrong key'
step nobody-answers counted mlx5_0 'local_ack_timeout_err=2 req_cqe_error=2 req_cqe_flush_error=1 req_transport_retries_exceeded=1' any connected 'nobody answers'
step datagram-loss counted mlx5_0 'out_of_buffer=1' any connected 'ud loss'
step port-down port_down
step bind counted mlx5_0 "rx_read_requests=$READS" any bind_and_unbind
step bind-auto counted mlx5_0 "rx_read_requests=$READS" any bound_by_type
step bind-refused counted mlx5_0 "rx_read_requests=$READS" any refused
step stat-qp counted mlx5_0 "rx_read_requests=$READS" any stat_qp
step sets no_set_is_left
step flows-exported flows_exported
step flows-mixed flows_mixed
step flows-end flows_end
rules 1000
step flows-watched flows_watched
export UVERBS_TEST_CONTROL="$MLX5_CONTROL"
for test in $TESTS; do run_tests "$test"; done
step sets-again no_set_is_left
exec 8>&- 9>&-
step unload unload
step kernel-log kernel_log_is_clean
finish
