# shellcheck shell=sh
# Programs with two sides that judge connected transports, for the lanes mlx5-connected and mlx5-roce, which source this after
# guest.sh: libibverbs' pingpongs and perftest. The server is on $device, with the address $gid of its table if that is set;
# the client on $client_device and $client_gid, or where the server is.

both() { # both OPTION_OF_AN_ADDRESS PROGRAM [OPTION...]
    address=$1 program=$2
    shift 2
    # shellcheck disable=SC2154,SC2086  # who sources this has $device; two words or none
    timeout 60 "$program" -d "$device" ${gid:+$address $gid} "$@" &
    client=${client_gid:-${gid:-}}
    # It listens as soon as it can, and says nothing about that.
    # shellcheck disable=SC2086
    until_true 10 listens 18515 &&
        timeout 60 "$program" -d "${client_device:-$device}" ${client:+$address $client} "$@" 127.0.0.1 && wait $!
}

listens() { # listens PORT
    grep -qi ":$(printf %04X "$1") .* 0A " /proc/net/tcp /proc/net/tcp6
}

pingpong() { # pingpong KIND [OPTION...]: some programs compare what they receive
    kind=$1
    shift
    both -g "ibv_${kind}_pingpong" "$@"
}

# Fewer iterations than it would make, since the processor is emulated.
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

perftests() { # perftests SUFFIX: as steps
    for service in RC UC UD XRC; do
        case $service in
        RC | XRC) operations='send write read atomic' ;;
        UC) operations='send write' ;;
        UD) operations=send ;;
        esac
        for operation in $operations; do
            step "$operation-lat-$service$1" perftest "$operation" lat "$service"
            step "$operation-bw-$service$1" perftest "$operation" bw "$service"
        done
    done
    step "atomic-swap$1" perftest atomic lat RC -A CMP_AND_SWAP
    step "send-events$1" perftest send lat RC -e
    step "write-inline$1" perftest write lat RC -I 64
    step "write-both-ways$1" perftest write bw RC -b -q 4
}
