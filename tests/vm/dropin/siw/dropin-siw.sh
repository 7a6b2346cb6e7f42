#!/bin/sh
# Lane dropin-siw: Debian's programs over librdmacm on the kernel's software iWARP device, with libibverbs and libsiw, with the drop-in, and with one on
# each side. Runs in the guest; see lib/guest.sh.
#
# kernels: 6.1 7.x
# order: 8
# only: 6.1 7.x
# packages: mmdebstrap ibverbs-utils perftest rdmacm-utils gcc libc6-dev libibverbs-dev
# module: SIW_MODULE siw
# cargo: UVERBS_DROPIN build --profile dropin --package uverbs-c
# compile: SIW_ANSWERS dropin/siw/answers.c -libverbs
# compile: SIZES dropin/sizes/sizes.c -libverbs
# shellcheck disable=SC2317  # `step` calls the functions by name

vm=$(dirname "$0")/../..
# shellcheck source=tests/vm/lib/guest.sh
. "$vm/lib/guest.sh"
# shellcheck source=tests/vm/siw/device.sh
. "$vm/siw/device.sh"
# shellcheck source=tests/vm/siw/socket.sh
. "$vm/siw/socket.sh"
# shellcheck source=tests/vm/lib/dropin-common.sh
. "$vm/lib/dropin-common.sh"

# librdmacm's programs and perftest find each other by the address of the device's interface. A try whose message the kernel leaves in the
# socket is made again.
managed() { # managed SERVER CLIENT PATTERN: two commands for a shell; each prints a line with the pattern, if it is not empty
    tries=1
    until try_managed "$@"; do
        [ -n "$is_left" ] && [ "$tries" -lt 5 ] || return 1
        echo "the kernel does not look at a message of try $tries, which is made again" >&2
        tries=$((tries + 1))
    done
}

try_managed() {
    is_left=
    # The kernel closes the socket of the previous server in its own time; it must not be taken for this server's.
    until_true 30 takes_no_calls || return 1
    ${as_server:-} timeout 100 sh -c "exec $1" >"$OUT/$name.server" 2>&1 &
    server=$!
    if until_true 30 listening "${port:-manager}" && until_true 30 takes_calls; then
        ${as_client:-} timeout 100 sh -c "exec $2" &
        client=$!
        while kill -0 "$client" 2>/dev/null && [ -z "$is_left" ]; do
            sleep 1
            if lies_for_good && kill -0 "$client" 2>/dev/null; then
                is_left=yes
                pkill -P "$client"
                pkill -P "$server"
            fi
        done
        status=0
        wait "$client" || status=$?
    else
        status=1
    fi
    wait "$server" || { echo "server: exit status $?: $(cat "$OUT/$name.server")" >&2; return 1; }
    cat "$OUT/$name.server"
    [ "$status" -eq 0 ] || return
    [ -z "$3" ] || { grep -q "$3" "$OUT/$name.server" && grep -q "$3" "$OUT/$name.out"; }
}

perftest() { # perftest PROGRAM [OPTION...]: with connections by librdmacm
    program=$1
    shift
    managed "$program -R -F -n 300 -d $device $*" "$program -R -F -n 300 -d $device $* $address" ''
}

# Answers without a connection, and the list of how libibverbs' answers differ.
answers() {
    theirs "$SIW_ANSWERS" "$device" >"$OUT/$name.theirs" || return
    ours "$SIW_ANSWERS" "$device" >"$OUT/$name.ours" || return
    "$vm/dropin/answers/compare" "$OUT/$name.theirs" "$OUT/$name.ours" "$vm/dropin/siw/differences"
}

begin make_siw

step library library_is_ours rping
step ibv_devinfo same_output ibv_devinfo -v -d "$device"
step answers answers
step sizes same_sizes "$SIZES"
for sides in 'theirs theirs' 'ours theirs' 'theirs ours' 'ours ours'; do
    as_server=${sides% *} as_client=${sides#* }
    suffix=$as_server-$as_client
    step "rping-$suffix" managed "rping -s -a $address -C 20 -v -V" "rping -c -a $address -C 20 -v -V" 'ping data: rdma-ping-9'
    step "rdma_client-$suffix" managed rdma_server "rdma_client -s $address" 'end 0'
    # With libibverbs on both sides, perftest of Debian 12 sometimes crashes in librdmacm.
    [ "$sides" != 'theirs theirs' ] || continue
    for test in ib_send_bw ib_send_lat ib_write_bw ib_write_lat ib_read_bw ib_read_lat; do
        step "$test-$suffix" perftest "$test"
    done
    step "ib_send_bw-events-$suffix" perftest ib_send_bw -e
    step "ib_send_bw-inline-$suffix" perftest ib_send_bw -s 64 -I 64
    # Over one queue pair only: over several, Debian's own libraries sometimes hang as well.
    step "ib_send_bw-srq-$suffix" perftest ib_send_bw --use-srq
done
step only-ours-was-loaded only_ours_was_loaded
step resources resources_are_as_before
step kernel-log kernel_log_is_clean
finish
