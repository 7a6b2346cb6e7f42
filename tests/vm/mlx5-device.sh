# shellcheck shell=sh
# The device of the lanes mlx5, dropin-mlx5 and mlx5-beside, which source this after guest.sh.

device=mlx5_0

make_device() {
    modprobe mlx5_ib && sh "$here/mlx5-card.sh" find "$device"
}

control_line() { # raw, and open so that it stays so
    exec 9<>"$MLX5_CONTROL" && stty -F "$MLX5_CONTROL" raw -echo
}

# The same card with other capabilities: the drivers leave it and find it again. Only its control line knows it meanwhile.
other_card() { # other_card STRUCTURE.FIELD=VALUE...
    sh "$here/mlx5-card.sh" remove "$device" && control_line || return
    for cap; do
        printf 'cap %s\n' "$cap" >&9 && read -r answer <&9 && [ "$answer" = ok ] || return
    done
    exec 9>&- && sh "$here/mlx5-card.sh" find "$device"
}

peer() { # peer [VARIABLE=VALUE...]: every line it prints is a part that passed, or one this kernel does not have
    env "$@" timeout 120 "$MLX5_PEER" "$device" "$MLX5_CONTROL" || return
    grep -qx 'pass all' "$OUT/$name.out"
}

# The driver writes a line for each command that a test has made fail; nothing else is to be said.
unload() { modprobe -r mlx5_ib && modprobe -r mlx5_core; }
