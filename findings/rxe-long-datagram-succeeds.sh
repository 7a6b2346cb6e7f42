#!/usr/bin/env bash
# A datagram that does not fit into a packet completes with success and is not delivered.
#
# Versions: Linux 7.3.4 (Debian trixie-backports), python3-pyverbs 56.1.
# Expected: a send on a UD queue pair that is longer than the path's MTU completes with "local length error", as on cards.
# Seen: on an interface of 1500 bytes the port's MTU is 1024. 1024 bytes arrive; 1025 complete with success too, and nothing arrives, nor is
# the queue pair in an error state.
# shellcheck source=findings/guest.sh
. "$(dirname "$0")/guest.sh"

guest <<'END' >"$work/seen"
ibv_devices >/dev/null
python3 - <<'PYTHON'
import sys
sys.path.insert(0, "/")
from sides import *
one, other = Side(e.IBV_QPT_UD), Side(e.IBV_QPT_UD)
attr = QPAttr(port_num=1)
attr.qkey = 0x1111
one.pair.to_rts(attr)
other.pair.to_rts(attr)
address = AH(domain, attr=route)
print("port:", e.ibv_mtu(context.query_port(1).active_mtu).name)
for length in 1024, 1025:
    other.receive(length, 4096)
    request = one.send(length, length)
    request.set_wr_ud(address, other.pair.qp_num, 0x1111)
    one.post(request)
    print("sent:", one.completions(), "received:", other.completions(), one.state())
PYTHON
END
expect "$work/seen" 'port: IBV_MTU_1024
sent: 1024:SUCCESS received: 1024:SUCCESS RTS
sent: 1025:SUCCESS received: none RTS'
