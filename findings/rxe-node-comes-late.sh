#!/usr/bin/env bash
# A new rxe device has no device file before somebody asks for it by netlink.
#
# Versions: Linux 7.3.4 (Debian trixie-backports), iproute2 6.15.0, ibverbs-utils 56.1.
# Expected: as on 6.1 and 6.12, `rdma link add` leaves a device with /dev/infiniband/uverbs0, for which a script may wait.
# Seen: there is no /dev/infiniband, also seconds later and after a look into /sys/class/infiniband, because rdma_rxe does not load ib_uverbs
# any more. The first program that lists devices (ibv_devices) has the kernel load it: whoever waits for the file before that waits in vain.
# shellcheck source=findings/guest.sh
. "$(dirname "$0")/guest.sh"

guest <<'END' >"$work/seen"
sleep 5
echo "devices: $(ls /sys/class/infiniband)"
ls /dev/infiniband/uverbs0 >/dev/null 2>&1 && echo before: file || echo before: no file
ibv_devices >/dev/null
sleep 1
ls /dev/infiniband/uverbs0 >/dev/null 2>&1 && echo after: file || echo after: no file
END
expect "$work/seen" 'devices: rxe0
before: no file
after: file'
