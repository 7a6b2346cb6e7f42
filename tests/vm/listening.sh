# shellcheck shell=sh
# For dropin-common.sh and dropin/programs, which source this: whether a server can be called.

# listening PORT, or listening manager: a server waits on TCP, or for the connection manager's next event (librdmacm 65 polls for it,
# when it listens). Looked at while the server starts, so as few programs are started as can be.
listening() {
    case $1 in
    manager)
        grep -qs ucma_get_event /proc/[0-9]*/task/*/wchan || rdma resource show cm_id | grep -q LISTEN
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
