# shellcheck shell=sh
# What the lanes verify... share, which source this after lib/guest.sh.

verified() { # verified STATUS [OPTION...]: `uverbs verify` ends with this status, in time, and in little memory; its report names nothing
    wanted=$1 ended=0
    shift
    # shellcheck disable=SC2154  # who sources this has $device and $vm; guest.sh has $name
    "$PYTHON" "$vm/lib/within" "${SECONDS_LIMIT:-60}" 64 "$UVERBS_BIN" verify "$device" --report "$OUT/$name.json" "$@" || ended=$?
    [ "$ended" -eq "$wanted" ] || { echo "exit status $ended, and not $wanted" >&2; return 1; }
    sed -n 's/^\([0-9]* hold, .*\)/compared: \1/p' "$OUT/$name.out" >>"$OUT/$name.out" && names_nothing "$OUT/$name.json"
}

names_nothing() { # names_nothing REPORT: it has no name, address or key of this machine
    words >"$OUT/$name.words"
    [ "$(wc -l <"$OUT/$name.words")" -gt 5 ] || { echo "there is nothing to look for" >&2; return 1; }
    ! grep -nwiFf "$OUT/$name.words" "$1" >&2
}

words() { # names, addresses, GUIDs and GIDs, as sysfs and the program have them
    {
        uname -n
        ls /sys/class/net /sys/class/infiniband /sys/class/infiniband_verbs
        cat /sys/class/net/*/address /sys/class/infiniband/*/node_guid /sys/class/infiniband/*/sys_image_guid
        cat /sys/class/infiniband/*/ports/*/gids/* 2>/dev/null
        cat /sys/class/infiniband/*/device/serial_number 2>/dev/null
        ip -o address | sed 's/.* inet6* \([^/ ]*\).*/\1/'
        "$UVERBS_BIN" info "$device" | sed -n 's/.*guid:[[:space:]]*//p; s/.*GID\[[^]]*\]:[[:space:]]*\([^,]*\).*/\1/p'
    } | sed '/^$/d; /^abi_version$/d; /^lo$/d; /^0000:0000:0000:0000:0000:0000:0000:0000$/d; /^00:00:00:00:00:00$/d' | sort -u
}

holds() { # holds NUMBER: at least so many behaviours hold, and none differs
    grep -q '"differs": 0,' "$OUT/$name.json" && [ "$(grep -c '"result": "holds"' "$OUT/$name.json")" -ge "$1" ] || {
        echo "fewer hold than $1, or one differs" >&2
        return 1
    }
}

differs() { # differs BEHAVIOUR: this one does
    tr -d '\n' <"$OUT/$name.json" | grep -q "\"behaviour\": \"$1\", *\"result\": \"differs\"" || {
        echo "it is not said that this differs: $1" >&2
        return 1
    }
}

doctor_finds() { # doctor_finds SEVERITY CHECK: `uverbs doctor` has this finding, and problems only if that is one
    ended=0
    "$UVERBS_BIN" doctor "$device" --watch 10ms --json >"$OUT/$name.json" || ended=$?
    cat "$OUT/$name.json"
    grep -q "\"check\":\"$2\",\"severity\":\"$1\"" "$OUT/$name.json" || { echo "$2 was not found as a $1" >&2; return 1; }
    case $1,$ended in problem,7 | warning,6 | note,0 | note,6) ;; *) echo "exit status $ended" >&2; return 1 ;; esac
}
