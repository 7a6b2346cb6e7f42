# shellcheck shell=sh
# The device of the lanes efa-..., which source this after lib/guest.sh: the kernel's efa driver on virtual EFAs.

# shellcheck disable=SC2034  # who sources this uses it
device=efa_0

# shellcheck disable=SC2120  # who has two devices says so
make_efa() { # make_efa [COUNT]: load the driver, and call its devices as the kernel does, efa_0 the first on the bus
    modprobe ib_uverbs && { modprobe -q crc16 || true; } && insmod "$EFA_MODULE" &&
        until_true 20 has_devices "${1:-1}" || return
    # udev may name the devices by their places on the bus, some time later. While udev itself is ending, as it does after the boot, it
    # refuses requests.
    until_true 20 udevadm settle --timeout=20 || return
    number=0
    for found in $(efa_devices); do
        [ "$found" = "efa_$number" ] || rdma dev set "$found" name "efa_$number" || return
        number=$((number + 1))
    done
    ip link set lo up && resources >"$OUT/resources.before"
}

efa_devices() { # the names of the devices, as they lie on the bus
    for found in /sys/bus/pci/drivers/efa/*:*/infiniband/*; do
        [ ! -e "$found" ] || basename "$found"
    done
}

has_devices() { [ "$(efa_devices | wc -l)" -eq "$1" ]; }

control() { # control WORD...: ask the device on its control line; prints the answer
    stty -F "$EFA_CONTROL" raw -echo && exec 9<>"$EFA_CONTROL" && printf '%s\n' "$*" >&9 || return
    while read -r answer <&9; do
        case $answer in
        ok) exec 9>&-; return 0 ;;
        error*) exec 9>&-; echo "$answer" >&2; return 1 ;;
        *) printf '%s\n' "$answer" ;;
        esac
    done
}

no_complaints() { # the programs did nothing that a device would not take
    control complaints >"$OUT/complaints" && ! grep . "$OUT/complaints" >&2
}

nothing_is_left() { # without the driver there are no objects
    rmmod efa && control objects >"$OUT/objects" && ! grep -v ' 0$' "$OUT/objects" >&2
}

# libfabric's programs of sid. Processes share no memory, so everything goes over the devices.
export FI_EFA_ENABLE_SHM_TRANSFER=0

# shellcheck disable=SC2154  # the runner's
fi_pingpong() { # fi_pingpong rdm|dgram [OPTION...]: one side, 20 messages each way of each size
    sizes=all type=$1
    shift
    [ "$type" = rdm ] || sizes=1024
    timeout 200 chroot "$ROOT_sid" fi_pingpong -p efa -e "$type" -I 20 -S "$sizes" "$@"
}

# shellcheck disable=SC2154  # that of the step
pingpong() { # pingpong rdm|dgram SERVER CLIENT: between two devices, or on one
    # The names that the provider uses.
    case $1 in dgram) domain=dgrm ;; *) domain=$1 ;; esac
    fi_pingpong "$1" -d "$2-$domain" >"$OUT/$name.server" 2>&1 &
    server=$!
    # The program does not print when it starts to listen.
    until_true 60 listens 47592 && fi_pingpong "$1" -d "$3-$domain" 127.0.0.1 && wait "$server"
}

listens() { ss -tln | grep -q ":$1 "; }

# What two guests say to each other before they use their devices goes over a virtio network interface.

with_network() { # with_network ADDRESS
    modprobe virtio_pci && modprobe virtio_net && until_true 10 virtio_interface || return
    net=$(virtio_interface) && net=${net##*/}
    ip addr add "$1/24" dev "$net" && ip link set "$net" up
}

virtio_interface() { ls -d /sys/bus/virtio/drivers/virtio_net/virtio*/net/*; }

pingpong_with() { # pingpong_with near|far ADDRESS TYPE: the server being in this guest or in the other
    case $1 in near) there='' other=far ;; far) there=far other='' ;; esac
    $there fi_pingpong "$3" >"$OUT/$name.server" 2>&1 &
    server=$!
    $there until_true 60 listens 47592 && $other fi_pingpong "$3" "$2" && wait "$server"
}

has_sent() { # packets went from the device, and came
    control statistics >"$OUT/statistics" && grep '^[tr]x_' "$OUT/statistics" && ! grep -q '^[tr]x_packets 0$' "$OUT/statistics"
}
