# shellcheck shell=sh
# For dropin-common.sh and dropin/releases/programs, which source this: whether a server can be called.

# listening PORT, or listening manager: whether a server waits on TCP, or for the connection manager's next event. This is called again
# and again while the server starts, so it starts as few programs as possible. librdmacm 65 polls for events. Its server is shown as
# listening before it can be called (`rdma_listen`, cma.c, Linux 6.1), so the server must also have gone to sleep after that.
listening() {
    case $1 in
    manager)
        ! grep -qs ucma_get_event /proc/[0-9]*/task/*/wchan || return 0
        for listener in $(rdma resource show cm_id | sed -n 's/.* LISTEN .* pid \([0-9]*\) .*/\1/p'); do
            ! grep -qs '[^0]' "/proc/$listener/wchan" || return 0
        done
        return 1
        ;;
    *)
        wanted=$(printf '%04X 0A' "$1")
        for table in /proc/net/tcp /proc/net/tcp6; do
            while read -r _ local _ state _; do
                [ "${local##*:} $state" != "$wanted" ] || return 0
            done <"$table"
        done
        return 1
        ;;
    esac
}
