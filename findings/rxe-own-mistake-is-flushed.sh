#!/usr/bin/env bash
# A request with a local key that nobody has is reported as flushed, although nothing was flushed before it.
#
# Versions: Linux 7.3.4 (Debian trixie-backports), python3-pyverbs 56.1.
# Expected: "local protection error" or, as on Linux 6.1, "local QP operation error" for the request that is wrong, and "flushed" for those
# after it. Programs look for the first status that is not "flushed", since that is the cause.
# Seen: the queue pair moves to the error state first, and the wrong request is flushed with the others: no status says what was wrong.
# shellcheck source=findings/guest.sh
. "$(dirname "$0")/guest.sh"

guest <<'END' >"$work/seen"
ibv_devices >/dev/null
python3 - <<'PYTHON'
import sys
sys.path.insert(0, "/")
from sides import connected
one, other = connected()
other.receive(100)
one.post(one.send(1, key=0x1234567))
one.post(one.send(2))
print("sender:", one.completions(), one.state())
print("peer:", other.completions(), other.state())
PYTHON
END
expect "$work/seen" 'sender: 1:WR_FLUSH_ERR 2:WR_FLUSH_ERR ERR
peer: none RTS'
