#!/bin/sh
# Lane export: Debian's Prometheus scrapes `uverbs export`, which runs without rights on the kernel's software RoCE device. Runs in the guest; see lib/guest.sh.
#
# kernels: 6.1 7.x
# by default: 7.x
# due: later src/bin/uverbs src/device tests/vm/rxe/scrapes.sh tests/vm/lib/compare-metrics $RUNNER
# order: 12
# packages: prometheus
# passes: UVERBS_WHOLE
# limit: 1800
# boot: --append=clocksource=hpet
# cargo: UVERBS_BIN build --profile guest --features cli --bin uverbs
# shellcheck disable=SC2317  # `step` calls the functions by name

vm=$(dirname "$0")/..
# shellcheck source=tests/vm/lib/guest.sh
. "$vm/lib/guest.sh"
# shellcheck source=tests/vm/rxe/scrapes.sh
. "$vm/rxe/scrapes.sh"

# Starts it as the systemd unit does: as another user, without any capability.
export_starts() {
    ip link set lo up || return
    setpriv --reuid=65534 --regid=65534 --clear-groups --bounding-set=-all --inh-caps=-all \
        "$UVERBS_BIN" export --listen "$exporter" >"$OUT/exporter.out" 2>"$OUT/exporter.err" &
    echo $! >"$OUT/exporter.pid"
    until_true 10 grep -q '^listening on ' "$OUT/exporter.out" && compare forms "$exporter" "$device"
}

lint() { # promtool knows the classic form
    compare get "$exporter" text/plain >"$OUT/classic" && promtool check metrics <"$OUT/classic"
}

prometheus_starts() {
    printf 'global: {scrape_interval: 5s}\nscrape_configs: [{job_name: rdma, static_configs: [{targets: ["%s"]}]}]\n' "$exporter" >/tmp/prometheus.yml
    prometheus --config.file=/tmp/prometheus.yml --storage.tsdb.path=/tmp/tsdb --web.listen-address="$prometheus" \
        >"$OUT/prometheus.out" 2>&1 &
    echo $! >"$OUT/prometheus.pid"
    until_true 60 compare query "$prometheus" 'up == 1'
}

# The graph rises while there is traffic.
rates() {
    traffic 3000 && until_true 30 compare query "$prometheus" "increase(uverbs_hw_sent_pkts_total{device=\"$device\"}[1m]) > 0"
}

# After traffic stops, Prometheus has exactly the kernel's values.
values() { until_true 90 compare values "$prometheus" "$device"; }

# A device that is added is in the next scrape; one that is removed is in none after that.
devices_come_and_go() {
    ip link add dummy1 type dummy && ip link set dummy1 up && rdma link add rxe1 type rxe netdev dummy1 || return
    until_true 60 compare query "$prometheus" 'uverbs_up{device="rxe1"} == 1' && rdma link delete rxe1 && ip link delete dummy1 || return
    until_true 60 gone && compare query "$prometheus" "uverbs_up{device=\"$device\"} == 1"
}

gone() { ! compare query "$prometheus" 'uverbs_up{device="rxe1"}'; }

# What the collector of Debian's node_exporter reads.
once() {
    "$UVERBS_BIN" export --once /tmp/uverbs.prom && promtool check metrics </tmp/uverbs.prom &&
        grep "^uverbs_up{device=\"$device\"} 1\$" /tmp/uverbs.prom && test "$(find /tmp -name '*uverbs.prom*' | wc -l)" -eq 1
}

# Ten thousand rules of the soft device, scraped every ten seconds for a minute, or for ten minutes ($UVERBS_WHOLE). No scrape is missed,
# each has all rules, and the exporter's memory does not grow once the allocator has its reserve.
many_rules() {
    many=127.0.0.1:9978 seconds=60
    [ -z "${UVERBS_WHOLE:-}" ] || seconds=600
    awk 'BEGIN { for (i = 0; i < 10000; i++)
        printf "[[rule]]\nname = \"r%d\"\ndevice = \"soft0\"\nrule = \"ether dst 02:fd:00:00:%02x:%02x\"\n", i, i / 256, i % 256 }' >/tmp/many.toml
    "$UVERBS_BIN" export --device soft0 --listen "$many" --rules /tmp/many.toml >"$OUT/many.out" 2>"$OUT/many.err" &
    exporting=$!
    until_true 60 grep -q '^listening on ' "$OUT/many.out" || return
    printf 'global: {scrape_interval: 5s}\nscrape_configs: [{job_name: rdma, static_configs: [{targets: ["%s"]}]}, {job_name: many, scrape_interval: 10s, scrape_timeout: 10s, static_configs: [{targets: ["%s"]}]}]\n' \
        "$exporter" "$many" >/tmp/prometheus.yml
    kill -HUP "$(cat "$OUT/prometheus.pid")" && until_true 180 compare query "$prometheus" 'count_over_time(up{job="many"}[5m]) >= 8' || return
    before=$(resident "$exporting") && sleep "$seconds" && after=$(resident "$exporting") || return
    wanted=$((seconds / 10 - 1))
    compare query "$prometheus" "count_over_time(up{job=\"many\"}[${seconds}s]) >= $wanted and min_over_time(up{job=\"many\"}[${seconds}s]) == 1" &&
        compare query "$prometheus" "min_over_time(scrape_samples_scraped{job=\"many\"}[${seconds}s]) > 40000" &&
        compare query "$prometheus" "max_over_time(scrape_duration_seconds{job=\"many\"}[${seconds}s])" &&
        compare query "$prometheus" 'count(uverbs_flow_up == 1) == 10000' || return
    echo "compared: $wanted scrapes of 10000 rules in $seconds s; $before KiB before, $after KiB after"
    [ "$after" -le $((before + before / 20)) ] && kill "$exporting" && wait "$exporting" && test ! -s "$OUT/many.err"
}

resident() { sed -n 's/^VmRSS:[[:space:]]*\([0-9]*\) kB$/\1/p' "/proc/$1/status"; }

export_ends() {
    kill "$(cat "$OUT/exporter.pid")" && wait "$(cat "$OUT/exporter.pid")" && cat "$OUT/exporter.err" && test ! -s "$OUT/exporter.err"
}

begin make_device

step export-starts export_starts
step promtool lint
step prometheus-starts prometheus_starts
step rates rates
step values values
step devices-come-and-go devices_come_and_go
step values-again values
step once once
step promtool-again lint
step many-rules many_rules
step export-ends export_ends
step resources resources_are_as_before
step kernel-log kernel_log_is_clean
finish
