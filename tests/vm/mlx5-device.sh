# shellcheck shell=sh
# The device of the lanes mlx5 and mlx5-beside, which source this after guest.sh.

device=mlx5_0

make_device() {
    # udev names the device by its place on the bus; the tests call it as the kernel does.
    modprobe mlx5_ib && until_true 20 device_has_name && rename_device
}

device_has_name() {
    found=$(ls /sys/class/infiniband) && [ -n "$found" ]
}

rename_device() {
    [ "$found" = "$device" ] || rdma dev set "$found" name "$device"
}

# The driver writes a line for each command that a test has made fail; nothing else is to be said.
unload() { modprobe -r mlx5_ib && modprobe -r mlx5_core; }
