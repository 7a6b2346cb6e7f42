#!/bin/sh
# Takes the virtual ConnectX out of the guest's PCI bus, and finds it again. The tests call this; so do the lanes.
#
# usage: card.sh remove|find NAME

set -u
name=$2

has_name() {
    found=$(ls /sys/class/infiniband 2>/dev/null) && [ -n "$found" ]
}

case $1 in
remove) echo 1 >"$(readlink -f "/sys/class/infiniband/$name/device")/remove" ;;
find)
    echo 1 >/sys/bus/pci/rescan
    tries=100
    until has_name; do
        tries=$((tries - 1))
        [ "$tries" -gt 0 ] || { echo "in vain: waiting for a device" >&2; exit 1; }
        sleep 0.2
    done
    # udev names the device by its place on the bus, some time later. The tests use the kernel's name.
    udevadm settle --timeout=20 && has_name
    [ "$found" = "$name" ] || rdma dev set "$found" name "$name"
    ;;
esac
