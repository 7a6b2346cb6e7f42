# shellcheck shell=sh
# The device of the lanes mlx5, mlx5-beside and dropin-mlx5, which source this after lib/guest.sh.

device=mlx5_0

make_device() {
    modprobe mlx5_ib && sh "$vm/mlx5/card.sh" find "$device"
}

control_line() { # raw, and open so that it stays so
    exec 9<>"$MLX5_CONTROL" && stty -F "$MLX5_CONTROL" raw -echo
}

# ask LINE REQUEST: prints what the card answers before `ok`. LINE is the number of an open file.
ask() {
    printf '%s\n' "$2" >&"$1" || return
    while read -r answer <&"$1"; do
        case $answer in
        ok) return 0 ;;
        error*) echo "$2: $answer" >&2 && return 1 ;;
        *) echo "$answer" ;;
        esac
    done
    return 1
}

# Gives the same card other capabilities: the drivers leave it and find it again. In between only its control line can reach it.
other_card() { # other_card STRUCTURE.FIELD=VALUE...
    sh "$vm/mlx5/card.sh" remove "$device" && control_line || return
    for cap; do
        printf 'cap %s\n' "$cap" >&9 && read -r answer <&9 && [ "$answer" = ok ] || return
    done
    exec 9>&- && sh "$vm/mlx5/card.sh" find "$device"
}

# The driver logs a line for each command that a test has made fail. There must be no other message.
unload() { modprobe -r mlx5_ib && modprobe -r mlx5_core; }
