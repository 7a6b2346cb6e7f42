# shellcheck shell=sh
# Programs with two sides that judge connected transports, for the lanes mlx5-connected, mlx5-infiniband, mlx5-roce and mlx5-rxe, which source
# this after guest.sh: libibverbs' pingpongs and perftest. The server is on $device, with the address $gid of its table if that is set;
# the client on $client_device and $client_gid, or where the server is. Each runs by the command that $as_server or $as_client names
# (ours or theirs, of dropin-common.sh), if one does, and in the other guest if $server_at or $client_at is `far` (of far.sh). By TCP
# the server is found at $server_host.

both() { # both OPTION_OF_AN_ADDRESS PROGRAM [OPTION...]
    address=$1 program=$2
    shift 2
    # shellcheck disable=SC2154,SC2086  # who sources this has $device; two words or none
    ${server_at:-} ${as_server:-} timeout 60 "$program" -d "$device" ${gid:+$address $gid} "$@" &
    client=${client_gid:-${gid:-}}
    # The program prints nothing when it starts to listen.
    # shellcheck disable=SC2086
    ${server_at:-} until_true 10 listens 18515 &&
        ${client_at:-} ${as_client:-} timeout 60 "$program" -d "${client_device:-$device}" ${client:+$address $client} "$@" "${server_host:-127.0.0.1}" && wait $!
}

listens() { # listens PORT
    grep -qi ":$(printf %04X "$1") .* 0A " /proc/net/tcp /proc/net/tcp6
}

pingpong() { # pingpong KIND [OPTION...]: some programs compare what they receive
    kind=$1
    shift
    both -g "ibv_${kind}_pingpong" "$@"
}

# Fewer iterations than the default, since the processor is emulated.
perftest() { # perftest OPERATION KIND SERVICE [OPTION...]
    test=ib_$1_$2 service=$3
    shift 3
    both -x "$test" -F -n 200 -c "$service" "$@"
}

pingpongs() { # pingpongs SUFFIX: as steps
    for kind in rc uc ud srq xsrq; do
        case $kind in rc | uc) compares=-c ;; *) compares= ;; esac
        # shellcheck disable=SC2086  # it may be nothing
        {
            step "pingpong-$kind$1" pingpong "$kind" $compares
            step "pingpong-$kind-events$1" pingpong "$kind" $compares -e
        }
    done
}

perftests() { # perftests SUFFIX [SERVICE...]: as steps, of latency and bandwidth if $measures does not say which
    suffix=$1
    shift
    [ $# -gt 0 ] || set -- RC UC UD XRC
    for service; do
        case $service in
        RC | XRC) operations='send write read atomic' ;;
        UC) operations='send write' ;;
        UD) operations=send ;;
        esac
        for operation in $operations; do
            for measure in ${measures:-lat bw}; do
                step "$operation-$measure-$service$suffix" perftest "$operation" "$measure" "$service"
            done
        done
    done
}

perftest_options() { # perftest_options SUFFIX: as steps
    step "atomic-swap$1" perftest atomic lat RC -A CMP_AND_SWAP
    step "send-events$1" perftest send lat RC -e
    step "write-inline$1" perftest write lat RC -I 64
    step "write-both-ways$1" perftest write bw RC -b -q 4
}

# How much of a lane is run. Usually all of it. On 6.12 only the combination with the drop-in on both sides. On the newest kernel, which
# is always run, not every combination, unless the runner is told to run them ($UVERBS_WHOLE).
extent() {
    case $(uname -r) in
    7.*) if [ -n "${UVERBS_WHOLE:-}" ]; then echo whole; else echo short; fi ;;
    6.12.*) echo both ;;
    *) echo whole ;;
    esac
}

plays() { # plays SIDES: one of those by its libraries
    [ "$(extent)" != both ] || [ "$1" = 'ours ours' ]
}

with_dropin() { # the drop-in on one side, or on both: as steps
    for sides in 'ours theirs' 'theirs ours' 'ours ours'; do
        plays "$sides" || continue
        as_server=${sides% *} as_client=${sides#* } measures='lat bw'
        for kind in rc uc ud srq xsrq; do
            case $kind in rc | uc) compares=-c ;; *) compares= ;; esac
            # shellcheck disable=SC2086  # it may be nothing
            step "pingpong-$kind-$as_server-$as_client" pingpong "$kind" -n 200 $compares
        done
        step "pingpong-rc-events-$as_server-$as_client" pingpong rc -n 200 -e -c
        case $(extent),$sides in
        short,'ours theirs') measures=lat ;;
        short,'theirs ours') measures=bw ;;
        short,*) continue ;;
        esac
        perftests "-$as_server-$as_client"
        perftest_options "-$as_server-$as_client"
    done
    as_server='' as_client='' measures='lat bw'
}

two_devices() { [ "$(ls /sys/class/infiniband | wc -l)" -eq 2 ]; }

two_cards() { # as mlx5_0 and mlx5_1: udev has named them by their places on the bus
    modprobe mlx5_ib && until_true 30 two_devices && udevadm settle --timeout=20 || return
    number=0
    for found in $(ls /sys/class/infiniband); do
        [ "$found" = "mlx5_$number" ] || rdma dev set "$found" name "mlx5_$number" || return
        number=$((number + 1))
    done
}

# For devices with RoCE.

interface() { # interface DEVICE: its network interface
    ls "/sys/class/infiniband/$1/device/net"
}

gid_of() { # gid_of DEVICE ADDRESS: the index of its RoCE v2 GID
    wanted=$(echo "$2" | awk -F. '{ printf "0000:0000:0000:0000:0000:ffff:%02x%02x:%02x%02x", $1, $2, $3, $4 }')
    for path in "/sys/class/infiniband/$1/ports/1/gid_attrs/types/"*; do
        index=${path##*/}
        grep -qs 'RoCE v2' "$path" && [ "$(cat "/sys/class/infiniband/$1/ports/1/gids/$index")" = "$wanted" ] && echo "$index" && return
    done
    return 1
}

with_address() { # with_address DEVICE ADDRESS: its network interface, $net, has it, and its table
    net=$(interface "$1") && ip addr add "$2/24" dev "$net" && ip link set "$net" up && until_true 10 gid_of "$1" "$2"
}

# Two cards with RoCE and a wire between them, each with an address. The interface of the second, $far, is in a network namespace of its
# own: otherwise the kernel would take the other's address for its own and send nothing. That of the first is $near.
make_hosts() {
    two_cards || return
    near=$(interface mlx5_0) && far=$(interface mlx5_1) || return
    near_mac=$(cat "/sys/class/net/$near/address") far_mac=$(cat "/sys/class/net/$far/address")
    ip netns add far && ip link set "$far" netns far || return
    ip addr add 10.0.0.1/24 dev "$near" && ip link set "$near" up || return
    ip neigh replace 10.0.0.2 lladdr "$far_mac" dev "$near" nud permanent || return
    ip -n far addr add 10.0.0.2/24 dev "$far" && ip -n far link set "$far" up || return
    ip -n far neigh replace 10.0.0.1 lladdr "$near_mac" dev "$far" nud permanent || return
    until_true 10 gid_of mlx5_0 10.0.0.1 && until_true 10 gid_of mlx5_1 10.0.0.2
}
