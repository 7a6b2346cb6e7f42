#!/usr/bin/env bash
# A send on a reliable connection completes with success, and the message is not there.
#
# Versions: Linux 7.3.4 (Debian trixie-backports), python3-pyverbs 56.1.
# Expected: after one side was reset and connected again with the numbers that it had at first, the other side, which was not, refuses what it
# sends, or the send fails after its retries.
# Seen: the peer takes the packet for one that it has seen (its number is lower than the expected one) and acknowledges it. The sender gets a
# success, the receive stays unused. Only as many messages are lost as were sent before; the next one arrives.
# shellcheck source=findings/guest.sh
. "$(dirname "$0")/guest.sh"

guest <<'END' >"$work/seen"
ibv_devices >/dev/null
python3 - <<'PYTHON'
import sys
sys.path.insert(0, "/")
from sides import *
one, other = connected()
for number in range(4):
    other.receive(100 + number)
one.post(one.send(1))
print("first:", one.completions(), "received:", other.completions())
reset = QPAttr(qp_state=e.IBV_QPS_RESET)
one.pair.modify(reset, e.IBV_QP_STATE)
one.to(other)
one.post(one.send(2))
print("after reset:", one.completions(), "received:", other.completions())
one.post(one.send(3))
print("next:", one.completions(), "received:", other.completions())
PYTHON
END
expect "$work/seen" 'first: 1:SUCCESS received: 100:SUCCESS
after reset: 2:SUCCESS received: none
next: 3:SUCCESS received: 101:SUCCESS'
