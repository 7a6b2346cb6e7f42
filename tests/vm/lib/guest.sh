# shellcheck shell=sh
# For the scripts that run in the guest; they source this with the output directory as their argument. Their heads say what
# they need, and the runner leaves it, or its path, in the variables that they name; or it leaves UVERBS_VM_COMMAND.
#
# The file `steps` tells the runner how far the guest is: one line for each step, "name<TAB>result<TAB>detail", the
# result being pass, fail, skip, or - for the lines "begin" and "end". What a step prints is in NAME.out and NAME.err.

set -u
OUT=$1
# The runner's variables.
# shellcheck source=/dev/null
. "$OUT/environment"
export TMPDIR=/tmp RUST_BACKTRACE=1

# SPLATS: the kernel's messages when something is wrong, with | between them; no character in them is special in a pattern. KNOWN_SPLATS:
# the messages that are known on some kernels. Both are exported for programs that read the log themselves.
SPLATS='BUG: |kernel BUG at|WARNING: |Oops: |general protection fault|Call Trace:|UBSAN: |ODEBUG: |refcount_t: |INFO: task '
SPLATS="$SPLATS|INFO: trying to register|self-detected stall|detected stalls|blocked for more than|new suspected memory leaks"
SPLATS="$SPLATS|possible circular locking|possible recursive locking|inconsistent lock state|suspicious RCU usage"
SPLATS="$SPLATS|leaked reference|reference already released|unregister_netdevice: waiting|workqueue lockup"
# shellcheck disable=SC2154  # who sources this has $vm
KNOWN_SPLATS=$vm/lib/splats.known
export SPLATS KNOWN_SPLATS
# Kernels that search for leaked memory have this file.
KMEMLEAK=/sys/kernel/debug/kmemleak

record() { # record NAME RESULT [DETAIL]
    printf '%s\t%s\t%s\n' "$1" "$2" "$(printf '%s' "${3:-}" | tr '\t\n' '  ')" >>"$OUT/steps"
}

step() { # step NAME COMMAND...: run it; passes when its exit status is 0
    name=$1
    shift
    status=0
    "$@" >"$OUT/$name.out" 2>"$OUT/$name.err" </dev/null || status=$?
    if [ "$status" -eq 0 ]; then
        record "$name" pass "$(sed -n 's/^test result: //p; s/^compared: //p' "$OUT/$name.out" | tail -n 1)"
    else
        record "$name" fail "exit status $status: $(tail -n 1 "$OUT/$name.err")"
    fi
    return "$status"
}

begin() { # begin COMMAND...: make the device; then a command of the runner's, if there is one, takes the place of the steps
    step make-device "$@" || finish
    if [ -n "${UVERBS_VM_COMMAND:-}" ]; then
        step command sh -c "$UVERBS_VM_COMMAND"
        if [ -e "$KMEMLEAK" ]; then step kernel-log kernel_log_is_clean; fi
        finish
    fi
}

finish() { # the last thing a script does; without it the runner counts the guest as lost
    record end -
    exit 0
}

until_true() { # until_true SECONDS COMMAND...: wait for a command to succeed
    read -r now _ </proc/uptime
    deadline=$((${now%.*} + $1 * ${PATIENCE:-1}))
    shift
    until "$@"; do
        read -r now _ </proc/uptime
        if [ "${now%.*}" -gt "$deadline" ]; then
            echo "in vain: waiting for $*" >&2
            return 1
        fi
        sleep 0.2
    done
}

# How many objects of each kind the kernel has, and who owns them. The index of the device is left out, since it changes when a device
# comes back, and so is what the kernel's own queue pair for connections has counted.
resources() {
    { rdma resource show && rdma resource show pd && rdma resource show cq && rdma resource show qp &&
        rdma resource show mr && rdma resource show ctx; } | sed 's/^[0-9]*: //; s/ local_dma_lkey [^ ]*//; s/ sq-psn [0-9]*//' | sort
}

resources_are_as_before() {
    # A process that has just ended may not be gone completely.
    until_true 5 same_resources || {
        diff -u "$OUT/resources.before" "$OUT/resources.after" >&2
        echo "the kernel's resources are not what they were" >&2
        return 1
    }
}

same_resources() {
    resources >"$OUT/resources.after" && cmp -s "$OUT/resources.before" "$OUT/resources.after"
}

# shellcheck disable=SC2154  # who calls these has $device and $vm
list_devices() {
    "$UVERBS_BIN" devices || return
    if ! grep -qw "$device" "$OUT/$name.out"; then
        echo "$device is not in the list" >&2
        return 1
    fi
}

# shellcheck disable=SC2154
describe_device() { # as ibv_devinfo describes it
    step info "$UVERBS_BIN" info "$device"
    step ibv_devinfo ibv_devinfo -v -d "$device"
    step same-info "$PYTHON" "$vm/lib/compare-devinfo" "$OUT/ibv_devinfo.out" "$OUT/info.out"
}

is_wanted() { # is_wanted TEST: the runner names it in TESTS
    # shellcheck disable=SC2153  # not the variable below
    case " $TESTS " in *" $1 "*) ;; *) return 1 ;; esac
}

program_of() { # program_of PROGRAM[::MODULE]: the runner has its path in TEST_PROGRAM
    eval "printf '%s\\n' \"\$TEST_${1%%::*}\""
}

run_tests() { # run_tests PROGRAM[::MODULE] [SUFFIX [PATTERN]]
    tests=tests-${1##*::}${2:-}
    step "$tests" device_tests "$1" ${3:+"$3"}
    record_skips "$tests"
}

device_tests() { # device_tests PROGRAM[::MODULE] [PATTERN]: on the device, one at a time
    program=$(program_of "$1")
    case $1 in
    *::*)
        # Tests are chosen by their exact names: a part of a name would match other modules too.
        names=$("$program" --list --format terse | sed -n "s/^\(${1#*::}::.*\): test$/\1/p")
        [ -n "$names" ] || { echo "there are no such tests" >&2; return 1; }
        # shellcheck disable=SC2086  # several words
        set -- "$1" --exact $names
        ;;
    esac
    shift
    UVERBS_TEST_DEVICE=$device "$program" --show-output --test-threads=1 "$@" || return
    if grep -q '^test result: ok\. 0 passed' "$OUT/$name.out"; then
        echo "not one test ran" >&2
        return 1
    fi
}

# shellcheck disable=SC3045  # dash and bash have `ulimit -l`
without_privilege() { # the limit of locked memory, which root is exempt from
    (ulimit -l 256 && UVERBS_TEST_DEVICE=$device setpriv --reuid=65534 --regid=65534 --clear-groups --bounding-set=-all \
        "$(program_of faults)" --show-output memory_beyond_the_limit_is_exhausted) || return
    if grep -q "^skipped.* on $device:" "$OUT/$name.out" "$OUT/$name.err"; then
        echo "the test did not run" >&2
        return 1
    fi
}

record_skips() { # record_skips NAME: each test that was ignored or printed why it did not run
    sed -n -e 's/^test \(.* \.\.\. ignored.*\)$/\1/p' -e '/^skip/p' "$OUT/$1.out" "$OUT/$1.err" | while IFS= read -r line; do
        record "$1" skip "$line"
    done
}

# A lane can expect a warning: KNOWN_WARNING has the words before its trace.
kernel_log_is_clean() { # virtme's own warnings, about programs that a small machine does not have, are no concern
    dmesg >"$OUT/dmesg.log" || return
    clean=0
    sed "/${KNOWN_WARNING:-no warning is known}/,/end trace/d" "$OUT/dmesg.log" | grep -v virtme- | unknown_splats log "$SPLATS" || {
        echo "the kernel complains; see dmesg.log" >&2
        clean=1
    }
    if grep -qs '^ *debug_locks: *0' /proc/lockdep_stats; then
        record "$name" skip "locks were not watched to the end: the first report of any kind ends that"
    fi
    if [ -e "$KMEMLEAK" ]; then nothing_is_leaked || clean=1; fi
    return "$clean"
}

nothing_is_leaked() {
    # kmemleak does not report memory that is new or was changed since the last scan, so it scans twice.
    echo scan >"$KMEMLEAK" && sleep 6 && echo scan >"$KMEMLEAK" && cat "$KMEMLEAK" >"$OUT/leaks.log" || return
    unknown_splats leaks "unreferenced object" <"$OUT/leaks.log" || {
        echo "the kernel has lost memory; see leaks.log" >&2
        return 1
    }
}

unknown_splats() { # unknown_splats log|leaks SPLATS: those in the input that splats.known does not have; fails if there are any
    awk -f "$vm/lib/splats.awk" -v what="$1" -v splats="$2" -v release="$(uname -r)" "$KNOWN_SPLATS" - >"$OUT/$name.$1" || return
    sed -n 's/^known: //p' "$OUT/$name.$1" | while IFS= read -r line; do record "$name" skip "known: $line"; done
    ! grep -v '^known: ' "$OUT/$name.$1"
}

# The device of the lanes: the kernel's software RoCE device on a dummy network interface.

device=rxe0

make_device() {
    # For the tests that register large pages.
    echo 4 >/proc/sys/vm/nr_hugepages
    # 6.1 loads this checksum by name when the link is added; later kernels need no module for it.
    modprobe -q crc32_generic
    # The module makes a dummy0 of its own unless it is told not to. The address is fixed, so that GUID and GIDs are the same in every
    # run. 6.1 refuses rxe on `lo`.
    modprobe rdma_rxe && modprobe dummy numdummies=0 &&
        ip link add dummy0 address 52:54:00:12:34:56 type dummy &&
        ip address add 192.0.2.1/24 dev dummy0 &&
        ip link set dummy0 up &&
        rdma link add "$device" type rxe netdev dummy0 &&
        until_true 10 device_is_ready &&
        resources >"$OUT/resources.before"
}

device_is_ready() { # the port is up, and the kernel has filled the GID table, which it does on its own time
    port=/sys/class/infiniband/$device/ports/1
    grep -q ACTIVE "$port/state" && grep -q 'ffff:c000:0201$' "$port/gids/1"
}

record begin - "$(uname -r)"
