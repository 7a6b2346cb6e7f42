#!/usr/bin/env bash
# A disk over NVMe/RDMA is gone for good when its RDMA device is removed, and its queue pairs belong to another module.
#
# Versions: Linux 7.3.4 (Debian trixie-backports), iproute2 6.15.0.
# Expected: `rdma resource show qp` names nvme_rdma and nvmet_rdma as owners of their queue pairs. When the device is removed, the controller
# tries to connect again, as it does when the wire or the target fails, and finds the device when that is back.
# Seen: the queue pairs of both belong to rdma_cm, which made them (rdma_create_qp, cma.c), and only memory regions, domains and connection
# ids name the modules. One disk has more than a hundred regions before anything is read. With the device the controller and its disk are
# deleted at once (nvme_rdma_remove_one, rdma.c), and nothing connects again.
# shellcheck source=findings/guest.sh
. "$(dirname "$0")/guest.sh"

guest <<'END' >"$work/seen"
modprobe nvmet_rdma; modprobe nvme_rdma; modprobe brd rd_nr=1 rd_size=16384
mkdir -p /sys/kernel/config; mount -t configfs configfs /sys/kernel/config
cd /sys/kernel/config/nvmet || exit
mkdir subsystems/disk subsystems/disk/namespaces/1 ports/1
echo 1 >subsystems/disk/attr_allow_any_host
echo /dev/ram0 >subsystems/disk/namespaces/1/device_path
echo 1 >subsystems/disk/namespaces/1/enable
echo rdma >ports/1/addr_trtype; echo ipv4 >ports/1/addr_adrfam
echo 192.0.2.1 >ports/1/addr_traddr; echo 4420 >ports/1/addr_trsvcid
ln -s /sys/kernel/config/nvmet/subsystems/disk ports/1/subsystems/disk
id=00000000-0000-0000-0000-000000000001
echo "transport=rdma,traddr=192.0.2.1,trsvcid=4420,nqn=disk,hostnqn=nqn.2014-08.org.nvmexpress:uuid:$id,hostid=$id" >/dev/nvme-fabrics
sleep 3
owners() { rdma resource show "$1" | grep "$2" | sed 's/.*comm .\([a-z_]*\).*/\1/' | sort -u | paste -sd' '; }
echo "before: $(ls /sys/class/nvme) $(cat /sys/class/nvme/nvme0/state)"
echo "connected queue pairs: $(owners qp RC)"
echo "connection ids: $(owners cm_id CONNECT)"
[ "$(rdma resource show mr | grep -c nvme_rdma)" -gt 100 ] && echo regions: more than 100
rdma link delete rxe0
sleep 3
echo "without the device: $(ls /sys/class/nvme | grep . || echo gone)"
rdma link add rxe0 type rxe netdev dummy0
sleep 15
echo "with it again: $(ls /sys/class/nvme | grep . || echo gone)"
END
expect "$work/seen" 'before: nvme0 live
connected queue pairs: rdma_cm
connection ids: nvme_rdma nvmet_rdma
regions: more than 100
without the device: gone
with it again: gone'
