# shellcheck shell=sh
# Two virtual ConnectXes with RoCE v2 and a wire between them, for lanes whose heads have two lines `# vhca: --port roce --wire ...`. Sourced
# by them, behind lib/both-sides.sh.

# Each card has an address. The second card's interface is in its own network namespace: otherwise the kernel would take the other's
# address for its own and send nothing.
make_cards() {
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
