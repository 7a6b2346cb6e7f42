#!/bin/sh
# Lane dropin-package: the Debian package of the drop-in, in installed systems of several releases of Debian, on rxe: beside
# libibverbs1, removed, purged, and in its place. Runs in the guest; see guest.sh.
#
# packages: mmdebstrap binutils
# cargo: UVERBS_DROPIN build --profile dropin --package uverbs-c
# systems: bookworm trixie sid
# shellcheck disable=SC2317  # `step` calls the functions by name

here=$(dirname "$0")
# shellcheck source=tests/vm/guest.sh
. "$here/guest.sh"

# shellcheck source=tests/vm/dropin-common.sh
. "$here/dropin-common.sh"

make_package() {
    cd /tmp && package=$("$here/../../uverbs-c/debian/build" "$UVERBS_DROPIN") && [ -s "$package" ]
}

# What is no library leaves nothing.
refused() {
    mkdir /tmp/refused && cd /tmp/refused || return
    for library in /etc/hostname /nowhere; do
        if "$here/../../uverbs-c/debian/build" "$library"; then
            echo "a package of $library" >&2
            return 1
        fi
    done
    [ -z "$(ls)" ]
}

# A copy of the system that can be written to; what is written stays in memory.
enter_copy() {
    mkdir -p "/mnt/$suite/upper" "/mnt/$suite/work" "$root" || return
    mount -t overlay -o "lowerdir=$system,upperdir=/mnt/$suite/upper,workdir=/mnt/$suite/work" overlay "$root" || return
    for directory in dev proc sys; do
        mount --rbind "/$directory" "$root/$directory" || return
    done
    cp "$package" "$root/root/package.deb"
}

inside() { chroot "$root" env PATH=/usr/sbin:/usr/bin:/sbin:/bin DEBIAN_FRONTEND=noninteractive "$@"; }

# All paths but those of logs, caches and dpkg's own lists, with what they are; and what dpkg says is installed.
files() {
    inside find / -xdev \( -path /var/lib/dpkg -o -path /var/cache -o -path /var/log -o -path /root -o -path /tmp \) -prune \
        -o ! -type d -printf '%p %y %m %l\n' -o -printf '%p %y %m\n' | sort
    # shellcheck disable=SC2016  # dpkg's variables
    inside dpkg-query -W -f '${Package} ${Version} ${Status}\n'
}

loaded() { # loaded PATH: it alone, by programs that are linked to libibverbs
    for program in ibv_devices ibv_devinfo; do
        inside env LD_DEBUG=files LD_DEBUG_OUTPUT=/root/loader "$program" >/dev/null || return
    done
    # One directory; which of its names the loader says differs.
    sed -n 's/.*calling init: //p' "$root"/root/loader.* | grep '/libibverbs\.' | sed 's,^/usr,,' | sort -u >"$OUT/$name.loaded"
    rm "$root"/root/loader.*
    cat "$OUT/$name.loaded"
    [ "$(cat "$OUT/$name.loaded")" = "$1" ] || { echo "loaded: $(cat "$OUT/$name.loaded")" >&2; return 1; }
}

own=/lib/x86_64-linux-gnu/uverbs/libibverbs.so.1
stock=/lib/x86_64-linux-gnu/libibverbs.so.1

described() { # described WHO: completion counters are there with ours alone
    inside ibv_devinfo -v | sed '/comp_cntr/d; /QP_ATTACH_/d' >"$OUT/$suite.$1" || return
    grep -q PORT_ACTIVE "$OUT/$suite.$1"
}

before() {
    files >"$OUT/$suite.files"
    loaded "$stock" && described theirs
}

is_ours() {
    loaded "$own" && described ours && diff "$OUT/$suite.theirs" "$OUT/$suite.ours" >&2 && inside apt-get check && inside dpkg --audit
}

is_stock() {
    loaded "$stock" && described theirs-again && diff "$OUT/$suite.theirs" "$OUT/$suite.theirs-again" >&2 && inside apt-get check
}

installed() { inside dpkg -i /root/package.deb && is_ours; }

talks() {
    inside ibv_rc_pingpong -d "$device" -g 1 -n 100 >"$OUT/$name.server" 2>&1 &
    until_true 30 listening 18515 || return
    inside ibv_rc_pingpong -d "$device" -g 1 -n 100 127.0.0.1 && wait "$!"
}

# Again over itself, as an upgrade is.
reinstalled() { inside dpkg -i /root/package.deb && is_ours; }

removed() { inside dpkg --remove libibverbs1-uverbs && is_stock; }

purged() {
    inside dpkg -i /root/package.deb && is_ours || return
    inside dpkg --purge libibverbs1-uverbs && is_stock || return
    files >"$OUT/$suite.files-again"
    diff "$OUT/$suite.files" "$OUT/$suite.files-again" >&2 && echo "compared: $(wc -l <"$OUT/$suite.files") files and packages"
}

# With no libibverbs1, what depends on it is content; and this cannot go while that is so.
in_its_place() {
    inside dpkg -i /root/package.deb && inside dpkg --purge libibverbs1 && is_ours || return
    [ -z "$(inside find /usr/lib/x86_64-linux-gnu -maxdepth 1 -name 'libibverbs.so*')" ] || return
    if inside dpkg --purge libibverbs1-uverbs; then
        echo "it went, although ibverbs-utils needs it" >&2
        return 1
    fi
    loaded "$own"
}

begin make_device
modprobe overlay
mount -t tmpfs tmpfs /mnt

step package make_package
step package-refused refused
for suite in $SYSTEMS; do
    eval "system=\$SYSTEM_$suite"
    root=/mnt/$suite/root
    step "$suite-system" enter_copy || continue
    step "$suite-before" before
    step "$suite-installed" installed
    step "$suite-pingpong" talks
    step "$suite-reinstalled" reinstalled
    step "$suite-removed" removed
    step "$suite-purged" purged
    step "$suite-in-its-place" in_its_place
done
step resources resources_are_as_before
step kernel-log kernel_log_is_clean
finish
