#!/bin/sh
# Lane monitoring: what docs/guide/prometheus.md tells to type, in an installed system of Debian that has nothing else: from the program to a graph in Debian's
# Prometheus, and as a service under systemd. On rxe. Runs in the guest; see lib/guest.sh.
#
# kernels: 6.1
# order: 14
# packages: mmdebstrap
# cargo: UVERBS_BIN build --profile guest --features cli --bin uverbs
# monitors: bookworm
# shellcheck disable=SC2317  # `step` calls the functions by name

vm=$(dirname "$0")/..
# shellcheck source=tests/vm/lib/guest.sh
. "$vm/lib/guest.sh"
# shellcheck source=tests/vm/rxe/scrapes.sh
. "$vm/rxe/scrapes.sh"

repository=$vm/../..
guide=$repository/docs/guide/prometheus.md
root=/tmp/system
# Makes a writable copy of the system in memory, with the files of a built clone.
make_system() {
    mkdir -p /tmp/parts && mount -t tmpfs tmpfs /tmp/parts && mkdir -p /tmp/parts/upper /tmp/parts/work "$root" || return
    mount -t overlay -o "lowerdir=$MONITORS_bookworm,upperdir=/tmp/parts/upper,workdir=/tmp/parts/work" overlay "$root" || return
    for directory in dev sys; do mount --rbind "/$directory" "$root/$directory" || return; done
    mount -t tmpfs tmpfs "$root/run" && mount -t tmpfs tmpfs "$root/tmp" && mount -t proc proc "$root/proc" || return
    mkdir -p "$root/root/uverbs/docs" "$root/root/uverbs/target/release" && cp -r "$repository/docs/monitoring" "$root/root/uverbs/docs/" || return
    cp "$UVERBS_BIN" "$root/root/uverbs/target/release/uverbs" && ip link set lo up && ! chroot "$root" sh -c 'command -v cargo ibv_devinfo rdma'
}

typed() { # typed HEADING: the lines of the first block behind it, without what an answer is
    sed -n "/^## $1\$/,/^## /p" "$guide" | sed -n '/^```/,/^```/p' | sed '/^```/d; s/^\$ //' | sed -n "${2:-1,\$}p"
}

# The three commands of the guide. The runner has already done the first. After them Prometheus has the device's counters, and they rise
# with traffic.
three_commands() {
    typed 'From a clone to a graph' >"$OUT/$name.typed" && cat "$OUT/$name.typed" && [ "$(wc -l <"$OUT/$name.typed")" -eq 3 ] || return
    [ "$(sed -n 1p "$OUT/$name.typed")" = 'cargo build --release --features cli' ] || return
    { echo 'cd /root/uverbs'; sed -n '2,3p' "$OUT/$name.typed"; } >"$root/tmp/commands"
    env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/root chroot "$root" sh /tmp/commands >"$OUT/commands.out" 2>"$OUT/commands.err" &
    commands=$!
    until_true 120 compare query "$prometheus" 'count_over_time(uverbs_hw_rcvd_pkts_total[5m]) >= 2'
}

# The query that the guide suggests, asked as the graph's page asks it.
graph() {
    # shellcheck disable=SC2016  # backticks of the guide
    grep -q '^`rate(uverbs_hw_rcvd_pkts_total\[1m\])`' "$guide" && traffic 3000 || return
    until_true 60 compare query "$prometheus" 'rate(uverbs_hw_rcvd_pkts_total[1m]) > 0' && compare graph "$prometheus" 'rate(uverbs_hw_rcvd_pkts_total[1m])'
}

commands_end() {
    pkill -x prometheus && pkill -x uverbs && wait "$commands"
    until_true 20 free_ports && cat "$OUT/commands.err" >"$OUT/$name.said" && ! grep '^uverbs: ' "$OUT/$name.said"
}

free_ports() { ! ss -Hltn "sport = :9979 or sport = :9090" | grep -q .; }

# The rules of alerts.yml, and the configuration that loads them.
alerts_are_right() { chroot "$root" promtool check config /root/uverbs/docs/monitoring/prometheus.yml && [ "$(grep -c 'alert:' "$repository/docs/monitoring/alerts.yml")" -eq 4 ]; }

# Checks the unit's text: what systemd finds wrong with it, and how exposed it is.
unit_is_right() {
    install -m 755 "$UVERBS_BIN" "$root/usr/local/bin/uverbs" || return
    chroot "$root" systemd-analyze verify /root/uverbs/docs/monitoring/uverbs-export.service && [ ! -s "$OUT/$name.err" ] || return
    chroot "$root" systemd-analyze security --offline=true --threshold=20 /root/uverbs/docs/monitoring/uverbs-export.service && rm "$root/usr/local/bin/uverbs"
}

# Starts the system with systemd as its first process, in its own namespaces of processes, mounts and control groups.
system_starts() {
    cat >"$root/tmp/start" <<'END'
mount --make-rprivate / && cd "$1" && mount -t proc proc proc && mkdir -p mnt && pivot_root . mnt || exit
exec chroot . sh -c 'umount -l /mnt && mount -o remount,rw /sys; mount -t cgroup2 cgroup2 /sys/fs/cgroup; exec env -i container=lxc /lib/systemd/systemd multi-user.target'
END
    rm -f "$root/etc/systemd/system/multi-user.target.wants/prometheus"*
    # systemd takes over all processes of its control group, so it gets its own group.
    mkdir -p /tmp/parts/cgroup && mount -t cgroup2 cgroup2 /tmp/parts/cgroup && mkdir -p /tmp/parts/cgroup/system || return
    sh -c 'echo $$ >/tmp/parts/cgroup/system/cgroup.procs && exec unshare --mount --pid --fork --cgroup sh "$1/tmp/start" "$1"' sh "$root" >"$OUT/systemd.out" 2>&1 &
    until_true 30 first_process && until_true 120 is_up
}

first_process() { init=$(pgrep -x systemd | head -n 1) && [ -n "$init" ]; }

within() { nsenter --target "$init" --mount --pid --cgroup --root --wd=/ env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/root "$@"; }

is_up() { within systemctl is-system-running 2>/dev/null | grep -q -e running -e degraded; }

# The guide's commands, word for word.
service_runs() {
    typed 'As a service' >"$OUT/$name.typed" && cat "$OUT/$name.typed" && grep -c 'systemctl enable' "$OUT/$name.typed" || return
    within sh -ec "cd /root/uverbs; $(sed -n '1,3p' "$OUT/$name.typed")" || return
    until_true 30 scraped && within systemctl status --no-pager uverbs-export && without_rights
}

scraped() { compare get "$exporter" text/plain >"$OUT/$name.scrape" && grep "^uverbs_up{device=\"$device\"} 1\$" "$OUT/$name.scrape"; }

without_rights() {
    process=$(within systemctl show --value --property MainPID uverbs-export) && within cat "/proc/$process/status" >"$OUT/$name.status" || return
    grep -e '^Uid' -e '^Cap' -e '^NoNewPrivs' -e '^Seccomp:' "$OUT/$name.status"
    grep -q '^CapEff:[[:space:]]*0*$' "$OUT/$name.status" && grep -q '^Seccomp:[[:space:]]*2$' "$OUT/$name.status" && ! grep -q '^Uid:[[:space:]]*0' "$OUT/$name.status"
}

# When asked for its rules it says that it has none and goes on. When killed it is started again.
service_comes_back() {
    within systemctl reload uverbs-export && scraped || return
    before=$(within systemctl show --value --property MainPID uverbs-export) && within kill -9 "$before" && until_true 30 scraped_by_another "$before"
    within journalctl --no-pager -u uverbs-export >"$OUT/$name.journal"
    cat "$OUT/$name.journal" && grep -q 'there is no --rules' "$OUT/$name.journal"
}

scraped_by_another() { [ "$(within systemctl show --value --property MainPID uverbs-export)" != "$1" ] && scraped; }

service_security() {
    within systemd-analyze --no-pager security --threshold=20 uverbs-export | tail -n 3
}

# With the drop-in file for flow rules: the rules of the file are in force, and after a reload the new ones.
service_has_rules() {
    within mkdir -p /etc/uverbs && rule first && typed 'As a service' >"$OUT/$name.typed" || return
    within sh -ec "cd /root/uverbs; $(sed -n '4,5p' "$OUT/$name.typed")" && until_true 30 scraped && counts first || return
    rule second && within systemctl reload uverbs-export && until_true 10 counts second && ! counts first
}

rule() { # rule NAME: of the embedded device, which needs no rights
    printf '[[rule]]\nname = "%s"\ndevice = "soft0"\nrule = "udp"\n' "$1" | within tee /etc/uverbs/rules.toml
}

counts() { # counts NAME
    scraped && grep "^uverbs_flow_up{device=\"soft0\",port=\"1\",flow=\"$1\"} 1\$" "$OUT/$name.scrape"
}

system_ends() { within systemctl stop uverbs-export && until_true 20 free_ports && kill -9 "$init"; }

begin make_device
step make-system make_system
step alerts alerts_are_right
step three-commands three_commands
step graph graph
step commands-end commands_end
step unit-is-right unit_is_right
step system-starts system_starts
step service-runs service_runs
step service-comes-back service_comes_back
step service-security service_security
step service-has-rules service_has_rules
step system-ends system_ends
step resources resources_are_as_before
step kernel-log kernel_log_is_clean
finish
