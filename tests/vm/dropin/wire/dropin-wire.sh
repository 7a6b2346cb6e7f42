#!/bin/sh
# Lane dropin-wire: programs of Debian 12 and 13 with the drop-in, on its soft devices on a wire (UVERBS_SOFT): as user nobody, on a kernel without any RDMA module.
# Runs in the guest; see lib/guest.sh.
#
# kernels: 6.1 7.x
# by default: 7.x
# due: later $DROPIN src/soft src/roce src/raw.rs tests/vm/lib/pyverbs
# order: 4
# limit: 1800
# cargo: UVERBS_DROPIN build --profile dropin --package uverbs-c
# packages: ibverbs-utils perftest python3-pyverbs ucx-utils libfabric-bin
# roots: trixie
# compile: DROPIN_WIRE dropin/wire/children.c -libverbs -pthread
# shellcheck disable=SC2317  # `step` calls the functions by name

vm=$(dirname "$0")/../..
# shellcheck source=tests/vm/lib/guest.sh
. "$vm/lib/guest.sh"
# shellcheck source=tests/vm/lib/dropin-common.sh
. "$vm/lib/dropin-common.sh"

addresses=127.0.0.2,127.0.0.3

no_modules() {
    ip link set lo up && chmod 1777 /tmp/dropin && cp "$vm/lib/pyverbs" /tmp/pyverbs || return
    for there in /dev/infiniband /sys/class/infiniband /sys/class/infiniband_verbs; do
        [ ! -e "$there" ] || { echo "there is $there" >&2; return 1; }
    done
}

nobody() { # nobody COMMAND...: with the drop-in, in the root of the release. The loader's traces are that user's too.
    timeout "${limit:-120}" chroot --userspec=65534:65534 --groups= "${root:-/}" \
        env UVERBS_SOFT="$addresses" HOME=/tmp LD_LIBRARY_PATH=/tmp/dropin LD_DEBUG=files \
        LD_DEBUG_OUTPUT=/tmp/dropin/loader "$@"
}

both() { # both PORT PROGRAM ARGUMENTS...: a server on the first device, and a client on the second
    port=$1
    shift
    nobody "$@" -d soft0 >"$OUT/$name.server" 2>&1 &
    server=$!
    until_true 90 listening "$port" || { cat "$OUT/$name.server" >&2; kill "$server"; return 1; }
    status=0
    nobody "$@" -d soft1 127.0.0.1 || status=$?
    wait "$server" || { echo "server: exit status $?: $(cat "$OUT/$name.server")" >&2; return 1; }
    return "$status"
}

devinfo() { # both devices, with their addresses
    nobody ibv_devinfo -v >"$OUT/$name.out" || return
    grep -c 'GID\[ *0\]:.*::ffff:127\.0\.0\.[23]\(, RoCE v2\)\?$' "$OUT/$name.out" >&2 || :
    [ "$(sed -n 's/^hca_id:[ \t]*//p' "$OUT/$name.out" | paste -sd ' ')" = 'soft0 soft1' ] &&
        [ "$(grep -c 'GID.*7f00:000[23]\|GID.*::ffff:127\.0\.0\.[23]' "$OUT/$name.out")" -eq 2 ]
}

said() { # said WORDS COMMAND...: it fails, and says so
    words=$1
    shift
    if "$@" >"$OUT/$name.said" 2>&1; then
        echo "it did not fail" >&2
        return 1
    fi
    cat "$OUT/$name.said"
    grep -q "$words" "$OUT/$name.said"
}

taken() { # a second program opens the device of another
    # It goes on until its time is over.
    limit=20 nobody ibv_asyncwatch -d soft0 >"$OUT/$name.watch" 2>&1 &
    watch=$!
    until_true 15 grep -q 'async event FD' "$OUT/$name.watch" || return
    said 'Failed to open device' nobody ibv_devinfo -d soft0 && nobody ibv_devinfo -d soft1
    status=$?
    # Then its address is free again.
    wait "$watch"
    nobody ibv_devinfo -d soft0 && return "$status"
}

nonsense() { # an entry that is no address, and one of another host
    addresses='nonsense,192.0.2.77,127.0.0.2' nobody ibv_devices >"$OUT/$name.list" 2>"$OUT/$name.warned" || return
    cat "$OUT/$name.list" "$OUT/$name.warned"
    grep -q 'UVERBS_SOFT: `nonsense` is not an IP address' "$OUT/$name.warned" &&
        ! grep -q soft0 "$OUT/$name.list" && grep -q soft1 "$OUT/$name.list" && grep -q soft2 "$OUT/$name.list" &&
        addresses='nonsense,192.0.2.77,127.0.0.2' said 'Failed to open device' nobody ibv_devinfo -d soft1
}

pyverbs() { # the suite of the release without librdmacm: nothing fails but what the list says
    limit=900 nobody env PYVERBS_GID=0 /tmp/pyverbs soft0 lo -test_rdmacm >"$OUT/$name.all" || :
    sed -n 's/^\(tests\.[^\t]*\)\t\([^ ]*\).*/\1 \2/p' "$OUT/$name.all" | grep -v ' skipped$' >"$OUT/$name.results"
    diff "$vm/dropin/wire/pyverbs-$release.list" "$OUT/$name.results" >&2 &&
        echo "compared: $(grep -c ' ok$' "$OUT/$name.results") pass"
}

# UCX uses a device only if `/dev/infiniband` has a character device of its name. It takes RoCE for version 1 where sysfs does not say more, and
# then finds the address in the header of IPv6 packets only. It opens all devices, so each side has its own.
files_for_ucx() {
    mkdir -p /dev/infiniband && { [ -e /dev/infiniband/soft0 ] || mknod -m 666 /dev/infiniband/soft0 c 1 3; } &&
        ip address replace fd00::2/128 dev lo nodad && ip address replace fd00::3/128 dev lo nodad
}

ucx_side() { # ucx_side ADDRESS TRANSPORTS TEST [HOST]
    addresses=$1 nobody env UCX_TLS="$2,self" UCX_IB_GID_INDEX=0 UCX_NET_DEVICES=soft0:1 UCX_WARN_UNUSED_ENV_VARS=n \
        ucx_perftest -n 1000 -t "$3" ${4:+"$4"} <"$terminal"
}

ucx() { # ucx TRANSPORTS TEST
    # Without a terminal it takes itself for a part of an MPI program.
    terminal=/dev/ptmx
    ucx_side fd00::2 "$@" >"$OUT/$name.server" 2>&1 &
    server=$!
    until_true 90 listening 13337 || { cat "$OUT/$name.server" >&2; kill "$server"; return 1; }
    ucx_side fd00::3 "$@" 127.0.0.1
    status=$?
    wait "$server" || { echo "server: $(cat "$OUT/$name.server")" >&2; return 1; }
    return "$status"
}

of_release() { # of_release RELEASE
    release=$1
    step "$release-devinfo" devinfo
    for kind in rc uc ud srq; do
        step "$release-pingpong-$kind" both 18515 "ibv_${kind}_pingpong" -g 0 -n 1000
        step "$release-pingpong-$kind-events" both 18515 "ibv_${kind}_pingpong" -g 0 -n 1000 -e
    done
    step "$release-pingpong-xsrq" both 18515 ibv_xsrq_pingpong -g 0 -n 1000
    for program in send_lat send_bw write_lat write_bw read_lat read_bw atomic_lat atomic_bw; do
        step "$release-ib_$program" both 18515 "ib_$program" -x 0 -F -n 1000
    done
    step "$release-ib_send_lat-ud" both 18515 ib_send_lat -x 0 -F -n 1000 -c UD -s 1024
    step "$release-ib_send_bw-events" both 18515 ib_send_bw -x 0 -F -n 1000 -e
    step "$release-ib_write_bw-all" both 18515 ib_write_bw -x 0 -F -n 20 -a
    step "$release-ib_read_bw-pairs" both 18515 ib_read_bw -x 0 -F -n 1000 -q 4
    step "$release-pyverbs" pyverbs
    step "$release-files-for-ucx" files_for_ucx
    for transports in rc_verbs,ud_verbs ud_verbs; do
        step "$release-ucx-${transports%%,*}" ucx "$transports" tag_lat
        step "$release-ucx-${transports%%,*}-put" ucx "$transports" ucp_put_bw
    done
    step "$release-librdmacm" said 'fi_getinfo: -61' nobody fi_info -p verbs -t FI_EP_MSG
}

begin no_modules
root=
of_release bookworm
step taken taken
step nonsense nonsense
step children nobody "$DROPIN_WIRE"
step bad-wire both 18515 env UVERBS_SOFT_FAULTS=loss=1%,duplicates=1%,reordering=1%,seed=5 ibv_rc_pingpong -g 0 -n 2000 -c
root=$ROOT_trixie
step trixie-root enter "$root" && of_release trixie
step libraries only_ours_was_loaded
step kernel-log kernel_log_is_clean
finish
