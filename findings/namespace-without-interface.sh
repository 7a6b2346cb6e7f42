#!/usr/bin/env bash
# RDMA works in a network namespace that has no interface, with the address of another namespace.
#
# Versions: Linux 7.3.4 (Debian trixie-backports), ibverbs-utils 56.1, iproute2 6.15.0.
# Expected: RoCE follows the network: in a namespace that has only its loopback, the device's addresses are not usable, and its table names no
# interface there (on 6.12 the name cannot be read, EINVAL).
# Seen: with RDMA namespaces in their default mode (shared), the table names dummy0, which is not in the namespace, and ibv_rc_pingpong
# runs between two processes there on the address of dummy0.
# shellcheck source=findings/guest.sh
. "$(dirname "$0")/guest.sh"

guest <<'END' >"$work/seen"
ibv_devices >/dev/null
sleep 2
rdma system show | cut -d' ' -f1,2
ip netns add empty && ip netns exec empty ip link set lo up
ip netns exec empty sh -c '
    mount -t sysfs sysfs /sys
    echo "interfaces: $(ls /sys/class/net | xargs)"
    echo "of the address: $(cat /sys/class/infiniband/rxe0/ports/1/gid_attrs/ndevs/1)"
    ibv_rc_pingpong -d rxe0 -g 1 -n 10 >/dev/null &
    sleep 3
    ibv_rc_pingpong -d rxe0 -g 1 -n 10 127.0.0.1 >/dev/null && echo "pingpong: done" || echo "pingpong: failed"
    wait'
END
expect "$work/seen" 'netns shared
interfaces: lo
of the address: dummy0
pingpong: done'
