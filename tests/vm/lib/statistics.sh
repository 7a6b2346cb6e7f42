# shellcheck shell=sh
# Counters and objects of the device of a lane, as `uverbs stat` tells them, beside sysfs and `rdma`. Sourced behind guest.sh.
# shellcheck disable=SC2154,SC2317  # who sources this has $device, $vm and $name; `step` calls the functions by name

# The device's counters must equal those of sysfs and of rdma.
stat_agrees() { "$PYTHON" "$vm/lib/compare-statistics" "$UVERBS_BIN" "$device" counters; }

# The same for the live objects, while a program waits for a client: stat_objects COMMAND...
stat_objects() {
    "$@" >"$OUT/$name.server" 2>&1 &
    server=$!
    status=0
    until_true 10 has_context "$server" && until_true 10 rests && "$PYTHON" "$vm/lib/compare-statistics" "$UVERBS_BIN" "$device" resources || status=$?
    kill "$server" 2>/dev/null
    wait "$server"
    return "$status"
}

has_context() { rdma resource show ctx | grep -q "pid $1 "; }

# The program has made all its objects.
rests() {
    resources >"$OUT/$name.first" && sleep 1 && resources >"$OUT/$name.second" && cmp -s "$OUT/$name.first" "$OUT/$name.second"
}

# The page for people, of all devices and of this one; and run as a user without any rights, who must see the same.
stat_pages() {
    "$UVERBS_BIN" stat && "$UVERBS_BIN" stat --all "$device/1" && "$UVERBS_BIN" stat --hw --qp --resources "$device" || return
    setpriv --reuid=65534 --regid=65534 --clear-groups --bounding-set=-all "$UVERBS_BIN" stat --all "$device/1" >"$OUT/$name.nobody" &&
        grep -q "^$device " "$OUT/$name.nobody" || return
    code=0
    "$UVERBS_BIN" stat "$device/2" || code=$?
    test "$code" -eq 3 && grep "^uverbs: no port 2 on $device; the last one is 1" "$OUT/$name.err"
}
