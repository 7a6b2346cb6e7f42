# shellcheck shell=sh
# The device of the lanes mlx5 and mlx5-beside, which source this after guest.sh.

device=mlx5_0

make_device() {
    modprobe mlx5_ib && sh "$here/mlx5-card.sh" find "$device"
}

control_line() { # raw, and open so that it stays so
    exec 9<>"$MLX5_CONTROL" && stty -F "$MLX5_CONTROL" raw -echo
}

# The driver writes a line for each command that a test has made fail; nothing else is to be said.
unload() { modprobe -r mlx5_ib && modprobe -r mlx5_core; }
