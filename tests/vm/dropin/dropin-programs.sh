#!/bin/sh
# Lane dropin-programs: the programs of rdma-core in several releases of Debian, with the drop-in for libibverbs, end to end, on rxe. They are in roots
# made of those releases' packages. Runs in the guest; see lib/guest.sh.
#
# kernels: 6.1 7.x
# order: 2
# limit: 1800
# cargo: UVERBS_DROPIN build --profile dropin --package uverbs-c
# cargo: UVERBS_MLX5 build --profile dropin --package uverbs-c-mlx5
# consumers: bookworm trixie sid
# shellcheck disable=SC2317  # `step` calls the functions by name

vm=$(dirname "$0")/..
# shellcheck source=tests/vm/lib/guest.sh
. "$vm/lib/guest.sh"

# shellcheck source=tests/vm/lib/dropin-common.sh
. "$vm/lib/dropin-common.sh"

# The events of a port that goes down and comes back, as ibv_asyncwatch prints them. Both libraries watch at once, since the port goes
# down only once.
asyncwatch() {
    for library in theirs ours; do
        "$library" chroot "$root" ibv_asyncwatch -d "$device" >"$OUT/$name.$library" 2>&1 &
    done
    until_true 20 both_say 'async event FD' && ip link set dummy0 down && ip link set dummy0 up && until_true 20 both_say PORT_ACTIVE || return
    # The process that was started is a shell, which started the program.
    pkill -x ibv_asyncwatch
    until_true 20 device_is_ready
    sed -i 's/FD [0-9]*/FD N/' "$OUT/$name.theirs" "$OUT/$name.ours"
    diff "$OUT/$name.theirs" "$OUT/$name.ours" >&2 && cat "$OUT/$name.ours"
}

both_say() { grep -q "$1" "$OUT/$name.theirs" && grep -q "$1" "$OUT/$name.ours"; }

take_away() { rdma link delete "$device"; }
bring_back() { rdma link add "$device" type rxe netdev dummy0 && until_true 20 device_is_ready; }

begin make_device
# On older kernels the device stays until everyone has closed it.
case $(uname -r) in
[0-6].* | 7.[012].*) in_releases rdma-core asyncwatch ;;
*) in_releases rdma-core asyncwatch device_goes ;;
esac
finish
