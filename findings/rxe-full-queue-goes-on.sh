#!/usr/bin/env bash
# A completion queue of rxe that overflows loses completions, and everything goes on.
#
# Versions: Linux 7.3.4 (Debian trixie-backports), python3-pyverbs 56.1.
# Expected: an overrun of a completion queue is an error of the queue, and of each queue pair that completes to it, as on a card: the
# program learns that it has lost something.
# Seen: of 20 sends to a queue of one entry, one completion is there and 19 are lost; the queue pair stays ready to send, and the next send
# completes as if nothing had happened.
# shellcheck source=findings/guest.sh
. "$(dirname "$0")/guest.sh"

guest <<'END' >"$work/seen"
ibv_devices >/dev/null
python3 - <<'PYTHON'
import sys
sys.path.insert(0, "/")
from sides import connected
one, other = connected(entries=1)
for number in range(21):
    other.receive(100 + number)
for number in range(20):
    one.post(one.send(number))
print("received:", len(other.completions(2).split()))
print("completed:", one.completions())
print("state:", one.state())
one.post(one.send(20))
print("next:", one.completions())
PYTHON
END
expect "$work/seen" 'received: 20
completed: 0:SUCCESS
state: RTS
next: 20:SUCCESS'
