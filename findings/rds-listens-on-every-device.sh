#!/usr/bin/env bash
# Loading rds_rdma makes every RDMA device listen, on two ports, though nobody has an RDS socket.
#
# Versions: Linux 7.3.4 (Debian trixie-backports), iproute2 6.15.0.
# Expected: nothing listens before a program binds a socket of RDS; IPv4 and IPv6 have one port.
# Seen: two connection ids for each device, from the moment at which the module is there, on all addresses: 18634 of IPv4 and 16385 of IPv6
# (rds_rdma_init, rdma_transport.c). `ss -l` shows neither, because they are ports of the connection manager.
# shellcheck source=findings/guest.sh
. "$(dirname "$0")/guest.sh"

guest <<'END' >"$work/seen"
echo "before: $(rdma resource show cm_id | grep -c LISTEN)"
modprobe rds_rdma
sleep 2
rdma resource show cm_id | sed -n 's/.*\(LISTEN\).*comm .\([a-z_]*\). src-addr \([^ ]*\).*/\1 \2 \3/p' | sort
echo "for ss: $(ss -Hltn | grep -c -e :18634 -e :16385)"
END
expect "$work/seen" 'before: 0
LISTEN rds_rdma 0.0.0.0:18634
LISTEN rds_rdma :::16385
for ss: 0'
