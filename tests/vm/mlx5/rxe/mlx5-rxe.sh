#!/bin/sh
# Lane mlx5-rxe: queue pairs over RoCE v2 between a virtual ConnectX and the kernel's software device, which is in a second guest. Runs in the
# guest with the card; see lib/guest.sh.
#
# kernels: 7.x
# by default: 7.x
# due: later $DRIVER $CARD $DROPIN tests/vm/lib/both-sides.sh tests/vm/lib/far.sh src/bin/uverbs
# order: 8
# packages: ibverbs-utils perftest
# vhca: --port roce --wire card,nic
# peer: mlx5-rxe-peer.sh
# cargo: UVERBS_BIN build --profile guest --features cli --bin uverbs
# cargo: UVERBS_DROPIN build --profile dropin --package uverbs-c
# cargo: UVERBS_MLX5 build --profile dropin --package uverbs-c-mlx5
# passes: UVERBS_WHOLE
# shellcheck disable=SC2317  # `step` calls the functions by name

vm=$(dirname "$0")/../..
# shellcheck source=tests/vm/lib/guest.sh
. "$vm/lib/guest.sh"
# shellcheck source=tests/vm/mlx5/device.sh
. "$vm/mlx5/device.sh"
# shellcheck source=tests/vm/lib/dropin-common.sh
. "$vm/lib/dropin-common.sh"
# shellcheck source=tests/vm/lib/both-sides.sh
. "$vm/lib/both-sides.sh"
# shellcheck source=tests/vm/lib/far.sh
. "$vm/lib/far.sh"

# All traffic between the guests goes over the card's wire, including the programs' TCP connections and address resolution.
make_devices() { make_device && with_address mlx5_0 10.0.0.1 && far true; }

# Each guest has one processor, which the kernel's device needs too. So programs that wait must sleep, or get long timeouts.
judge() { # judge SUFFIX: as steps
    for kind in rc uc ud srq; do
        case $kind in rc | uc) compares=-c ;; *) compares= ;; esac
        # shellcheck disable=SC2086  # it may be nothing
        step "pingpong-$kind$1" pingpong "$kind" -s 1024 -n 500 -e $compares
    done
    step "pingpong-rc-long$1" pingpong rc -s 9000 -n 100 -e -c
    for operation in send write read atomic; do
        # No more outstanding operations than both sides have room for.
        case $operation in read | atomic) fewer='-o 4' ;; *) fewer= ;; esac
        for measure in ${measures:-lat bw}; do
            # shellcheck disable=SC2086  # two words or none
            step "$operation-$measure-RC$1" perftest "$operation" "$measure" RC -u 18 $fewer
        done
    done
    step "send-lat-UC$1" perftest send lat UC
    step "send-lat-UD$1" perftest send lat UD
}

# Messages each way between `uverbs ping` here and `uverbs ping` or Debian's program in the other guest.
ping() { # ping rc|ud ours|theirs SERVER, the server being near or far
    case $2 in
    ours) set -- "$1" "$3" "$UVERBS_BIN" ping --device rxe0 --transport "$1" --iters 100 --size 1024 ;;
    theirs) set -- "$1" "$3" "ibv_$1_pingpong" -d rxe0 -g "$rxe_gid" -n 100 -s 1024 ;;
    esac
    kind=$1 server=$2
    shift 2
    if [ "$server" = far ]; then
        far timeout 60 "$@" >"$OUT/$name.server" &
        far until_true 10 listens 18515 && near_ping "$kind" 10.0.0.2
    else
        near_ping "$kind" >"$OUT/$name.server" &
        until_true 10 listens 18515 && far timeout 60 "$@" 10.0.0.1
    fi && wait $!
}

near_ping() { # near_ping KIND [HOST]
    timeout 60 "$UVERBS_BIN" ping --device mlx5_0 --transport "$1" --iters 100 --size 1024 ${2:+"$2"}
}

begin make_devices
card_gid=$(gid_of mlx5_0 10.0.0.1) rxe_gid=$(far gid_of rxe0 10.0.0.2)
step library library_is_ours ibv_rc_pingpong
# The libraries of the card's side and of the other side.
for sides in 'theirs theirs' 'ours theirs' 'ours ours'; do
    near=${sides% *} far=${sides#* }
    case $sides in 'theirs theirs') suffix= ;; *) suffix=-$near-$far ;; esac
    case $(extent),$sides in
    short,'ours theirs') measures=lat ;;
    short,'ours ours') measures=bw ;;
    *) measures='lat bw' ;;
    esac
    device=rxe0 gid=$rxe_gid server_at=far as_server=$far server_host=10.0.0.2
    client_device=mlx5_0 client_gid=$card_gid client_at='' as_client=$near
    judge "-to-rxe$suffix"
    device=mlx5_0 gid=$card_gid server_at='' as_server=$near server_host=10.0.0.1
    client_device=rxe0 client_gid=$rxe_gid client_at=far as_client=$far
    judge "-from-rxe$suffix"
done
for kind in rc ud; do
    for other in theirs ours; do
        step "ping-$kind-to-$other" ping "$kind" "$other" far
        step "ping-$kind-from-$other" ping "$kind" "$other" near
    done
done
step only-ours-was-loaded only_ours_was_loaded
step kernel-log kernel_log_is_clean
finish
