#!/usr/bin/env bash
# rdma_resolve_addr needs one to two seconds for a host whose hardware address is not known yet, although the host answers at once.
#
# Versions: Linux 7.3.4 (Debian trixie-backports), rdmacm-utils and librdmacm 56.1.
# Expected: on a wire without delay an unknown neighbour costs a round trip, as it does for TCP.
# Seen: rping to such a host takes a second or two longer than to a known one, because the kernel looks for the neighbour's answer a second
# later (the answer itself is in the table within a millisecond).
# shellcheck source=findings/guest.sh
. "$(dirname "$0")/guest.sh"

guest <<'END' >"$work/seen"
modprobe rdma_ucm
rdma link delete rxe0
ip netns add a && ip netns add b && ip link add va netns a type veth peer vb netns b
ip -n a address add 198.51.100.1/24 dev va && ip -n b address add 198.51.100.2/24 dev vb && ip -n a link set va up && ip -n b link set vb up
ip netns exec a rdma link add rxea type rxe netdev va && ip netns exec b rdma link add rxeb type rxe netdev vb
ibv_devices >/dev/null
sleep 2
ip netns exec b rping -s -P -a 198.51.100.2 >/dev/null 2>&1 &
sleep 2
ping() { # milliseconds
    begun=$(date +%s%N)
    ip netns exec a timeout 30 rping -c -a 198.51.100.2 -C 1 >/dev/null 2>&1 || echo failed
    echo $((($(date +%s%N) - begun) / 1000000))
}
ping >/dev/null
known=0 unknown=0
for _ in 1 2 3 4 5; do
    known=$((known + $(ping)))
    ip -n a neighbour flush all
    unknown=$((unknown + $(ping)))
done
echo "known: $((known / 5)) ms, unknown: $((unknown / 5)) ms"
[ $((unknown - known)) -gt 3000 ] && echo "much longer" || echo "about as long"
END
expect "$work/seen" 'known: [0-9]* ms, unknown: [0-9]* ms
much longer'
