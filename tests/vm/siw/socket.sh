# shellcheck shell=sh
# The TCP sockets below siw's connections, for lanes that source this.

# Whether a message stays in a connection's socket for good. What arrives at the server between its answer to the request and the change
# of its socket's functions is not looked at before more arrives, whichever libraries are used (`siw_accept` and `siw_cm_llp_data_ready`,
# siw_cm.c, Linux 6.1 to 7.3). A kernel that can switch tasks in the middle of this, as 7.x does, gets there now and then.
lies() { awk '$2 ~ /^010200C0:/ && $4 == "01" && $5 !~ /:00000000$/ { print $2, $5; found = 1 } END { exit !found }' /proc/net/tcp; }
lies_for_good() { # while nothing moves
    before=$(lies && cat /sys/class/net/lo/statistics/rx_packets) || return
    for _ in 1 2 3; do
        sleep 1
        [ "$(lies && cat /sys/class/net/lo/statistics/rx_packets)" = "$before" ] || return
    done
}

# The server is shown as listening before its socket listens (`rdma_listen`, cma.c, Linux 6.1). A client that calls between the two is
# refused.
takes_no_calls() { ! takes_calls; }
takes_calls() { grep -q '^ *[0-9]*: [^ ]* [^ ]* 0A ' /proc/net/tcp /proc/net/tcp6; }
