# shellcheck shell=sh
# An exporter and a Prometheus that scrapes it, and traffic to count, for the lanes export and monitoring, which source this after lib/guest.sh.
# shellcheck disable=SC2034,SC2154,SC2317  # who sources this uses the addresses and has $vm, $device and $name; `step` calls the functions by name

exporter=127.0.0.1:9979
prometheus=127.0.0.1:9090

compare() { "$PYTHON" "$vm/lib/compare-metrics" "$@"; }

traffic() { # traffic NUMBER: messages there and back
    ibv_rc_pingpong -d "$device" -g 1 -n "$1" -s 1024 >"$OUT/$name.server" 2>&1 &
    server=$!
    until_true 10 server_listens && ibv_rc_pingpong -d "$device" -g 1 -n "$1" -s 1024 192.0.2.1 && wait "$server"
}

server_listens() { ss -Hltn 'sport = :18515' | grep -q .; }
