# shellcheck shell=sh
# The device of the lanes mana-..., which source this after lib/guest.sh: the kernel's mana and mana_ib drivers on virtual MANAs.

# shellcheck disable=SC2034  # who sources this uses it
device=mana_0

# shellcheck disable=SC2120  # who has two devices says so
make_mana() { # make_mana [COUNT]: load the drivers, give the interfaces addresses, and call the devices as the kernel does
    modprobe mana && modprobe mana_ib && until_true 20 has_devices "${1:-1}" || return
    # udev may name the devices by their places on the bus, some time later.
    until_true 20 udevadm settle --timeout=20 || return
    number=0
    for found in $(mana_devices); do
        [ "$found" = "mana_$number" ] || rdma dev set "$found" name "mana_$number" || return
        net=$(net_of "mana_$number")
        ip address add "192.0.2.$((number + 1))/24" dev "$net" && ip link set "$net" up || return
        until_true 20 mana_is_ready "mana_$number" || return
        number=$((number + 1))
    done
    ip link set lo up && resources >"$OUT/resources.before"
}

# The kernel makes a second device of each function, for raw packets, which has no RoCE.
mana_devices() { # the names of the devices, as they lie on the bus
    for found in /sys/bus/pci/drivers/mana/*:*/infiniband/*; do
        ! grep -qs RoCE "$found/ports/1/gid_attrs/types/0" || basename "$found"
    done
}

net_of() { cat "/sys/class/infiniband/$1/ports/1/gid_attrs/ndevs/0"; }

has_devices() { [ "$(mana_devices | wc -l)" -eq "$1" ]; }

mana_is_ready() { grep -q ACTIVE "/sys/class/infiniband/$1/ports/1/state" && v4_of "$1" >/dev/null; }

v4_of() { # the index of the GID that is made of the IPv4 address, which is another one after the interface was down
    for gid in /sys/class/infiniband/"$1"/ports/1/gids/*; do
        ! grep -qs ':ffff:c000:02' "$gid" || { basename "$gid"; return; }
    done
    return 1
}

control() { # control WORD...: ask the device on its control line; prints the answer
    stty -F "$MANA_CONTROL" raw -echo && exec 9<>"$MANA_CONTROL" && printf '%s\n' "$*" >&9 || return
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

up_and_down() { # the network interface comes and goes
    net=$(net_of mana_0)
    for _ in 1 2; do ip link set "$net" down && ip link set "$net" up || return; done
    until_true 20 mana_is_ready mana_0
}

nothing_is_left() { # without the driver there are no objects
    rmmod mana_ib && rmmod mana && control objects >"$OUT/objects" && ! grep -v ' 0$' "$OUT/objects" >&2
}
