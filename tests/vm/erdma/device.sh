# shellcheck shell=sh
# The device of the lanes erdma..., which source this after lib/guest.sh: the kernel's erdma driver on virtual eRDMAs.

# shellcheck disable=SC2034  # who sources this uses it
device=erdma_0

# shellcheck disable=SC2120  # who has two devices says so
make_erdma() { # make_erdma [COUNT]: load the driver, beside network interfaces with the devices' hardware addresses
    modprobe ib_uverbs && modprobe iw_cm && modprobe ib_cm && modprobe virtio_pci && modprobe virtio_net || return
    until_true 10 has_interfaces "${1:-1}" && ip link set lo up || return
    number=0
    for net in $(interfaces); do
        ip addr add "192.0.2.$((number + 1))/24" dev "$net" && ip link set "$net" up || return
        number=$((number + 1))
    done
    # shellcheck disable=SC2154  # the runner's
    insmod "$ERDMA_MODULE" && until_true 20 has_devices "${1:-1}" || return
    # udev may name the devices by their places on the bus, some time later. While udev itself is ending, as it does after the boot, it
    # refuses requests.
    until_true 20 udevadm settle --timeout=20 || return
    number=0
    for found in $(erdma_devices); do
        [ "$found" = "erdma_$number" ] || rdma dev set "$found" name "erdma_$number" || return
        number=$((number + 1))
    done
    resources >"$OUT/resources.before"
}

erdma_devices() { # the names of the devices, as they lie on the bus
    for found in /sys/bus/pci/drivers/erdma/*:*/infiniband/*; do
        [ ! -e "$found" ] || basename "$found"
    done
}

interfaces() { for found in /sys/bus/virtio/drivers/virtio_net/virtio*/net/*; do basename "$found"; done; }

has_interfaces() { [ "$(interfaces | grep -vc '^\*$')" -eq "$1" ]; }

has_devices() { [ "$(erdma_devices | wc -l)" -eq "$1" ]; }

control() { # control WORD...: ask the device on its control line; prints the answer
    stty -F "$ERDMA_CONTROL" raw -echo && exec 9<>"$ERDMA_CONTROL" && printf '%s\n' "$*" >&9 || return
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
    rmmod erdma && control objects >"$OUT/objects" && ! grep -v ' 0$' "$OUT/objects" >&2
}
