#!/bin/sh
# Lane dropin-package: the Debian packages of the drop-in and of the program, in installed systems of several releases of Debian, on rxe: the
# drop-in beside libibverbs1, removed, purged, and in its place; the program installed and purged. Runs in the guest; see lib/guest.sh.
#
# kernels: 6.1 7.x
# by default: 6.1
# due: later uverbs-c !uverbs-c/src !uverbs-c/mlx5/src !uverbs-c/efa/src $LISTING $RUNNER
# due: tests/vm/lib/dropin-common.sh tests/vm/lib/listening.sh tests/vm/lib/roots.py
# packages: mmdebstrap binutils
# cargo: UVERBS_DROPIN build --profile dropin --package uverbs-c
# cargo: UVERBS_MLX5 build --profile dropin --package uverbs-c-mlx5
# cargo: UVERBS_EFA build --profile dropin --package uverbs-c-efa
# cargo: UVERBS_BIN build --profile guest --features cli --bin uverbs
# systems: bookworm trixie sid
# shellcheck disable=SC2317  # `step` calls the functions by name

vm=$(dirname "$0")/..
# shellcheck source=tests/vm/lib/guest.sh
. "$vm/lib/guest.sh"

# shellcheck source=tests/vm/lib/dropin-common.sh
. "$vm/lib/dropin-common.sh"

make_package() {
    cd /tmp && package=$("$vm/../../uverbs-c/debian/build" "$UVERBS_DROPIN" "$UVERBS_MLX5" "$UVERBS_EFA") && [ -s "$package" ]
}

make_program_package() {
    cd /tmp && tool=$("$vm/../../uverbs-c/debian/build" --program "$UVERBS_BIN") && [ -s "$tool" ]
}

# For a file that is not a library the build fails and leaves nothing behind.
refused() {
    mkdir /tmp/refused && cd /tmp/refused || return
    for library in /etc/hostname /nowhere; do
        if "$vm/../../uverbs-c/debian/build" "$library" "$UVERBS_MLX5" "$UVERBS_EFA"; then
            echo "a package of $library" >&2
            return 1
        fi
    done
    [ -z "$(ls)" ]
}

# Makes a writable copy of the system. What is written stays in memory.
enter_copy() {
    mkdir -p "/mnt/$suite/upper" "/mnt/$suite/work" "$root" || return
    mount -t overlay -o "lowerdir=$system,upperdir=/mnt/$suite/upper,workdir=/mnt/$suite/work" overlay "$root" || return
    enter "$root"
}

inside() { chroot "$root" env PATH=/usr/sbin:/usr/bin:/sbin:/bin DEBIAN_FRONTEND=noninteractive "$@"; }

# Lists all paths, with their kinds, except those of logs, caches and dpkg's own lists; and what dpkg says is installed.
files() { # files FILE
    inside find / -xdev \( -path /var/lib/dpkg -o -path /var/cache -o -path /var/log \) -prune -o -printf '%p %y %m %l\n' >"$1.all" || return
    # shellcheck disable=SC2016  # dpkg's variables
    { sort "$1.all" && inside dpkg-query -W -f '${Package} ${Version} ${Status}\n'; } >"$1" || return
    [ "$(wc -l <"$1")" -gt 3000 ]
}

loaded() { # loaded PATH: that libibverbs alone, by programs that are linked to it
    for program in ibv_devices ibv_devinfo; do
        inside env LD_DEBUG=files LD_DEBUG_OUTPUT=/tmp/loads "$program" >/dev/null || return
    done
    # It is one directory with two names, and the loader may print either.
    verbs_libraries /tmp/loads.* | sed 's,^/usr,,' >"$OUT/$name.loaded"
    rm /tmp/loads.*
    cat "$OUT/$name.loaded"
    [ "$(grep -v -e -rdmav "$OUT/$name.loaded")" = "$1" ] || { echo "loaded: $(cat "$OUT/$name.loaded")" >&2; return 1; }
}

own=/lib/x86_64-linux-gnu/uverbs/libibverbs.so.1
stock=/lib/x86_64-linux-gnu/libibverbs.so.1

described() { # described WHO: completion counters are there with ours alone
    inside ibv_devinfo -v >"$OUT/$name.$1" || return
    without_completion_counters "$OUT/$name.$1" >"$OUT/$suite.$1"
    grep -q PORT_ACTIVE "$OUT/$suite.$1"
}

before() {
    files "$OUT/$suite.files" || return
    loaded "$stock" && described theirs
}

# The driver libraries that programs which call them will find.
drivers_are() { # drivers_are DIRECTORY
    for driver in libmlx5 libefa; do
        inside ldconfig -p | sed -n "s,.*$driver\.so\.1 .*=> \(/usr\)*,,p" | head -n 1 >"$OUT/$name.$driver"
        [ "$(cat "$OUT/$name.$driver")" = "$1/$driver.so.1" ] || { echo "$driver: $(cat "$OUT/$name.$driver")" >&2; return 1; }
    done
}

is_ours() {
    drivers_are "${own%/*}" && loaded "$own" && ! grep -e -rdmav "$OUT/$name.loaded" >&2 && described ours && diff "$OUT/$suite.theirs" "$OUT/$suite.ours" >&2 && inside apt-get check && inside dpkg --audit
}

is_stock() {
    drivers_are "${stock%/*}" && loaded "$stock" && described theirs-again && diff "$OUT/$suite.theirs" "$OUT/$suite.theirs-again" >&2 && inside apt-get check
}

installed() { inside dpkg -i "$package" && is_ours; }

talks() { pair inside inside 18515 ibv_rc_pingpong -d "$device" -g 1 -n 100; }

watches() { grep -qs '/libibverbs\.so' "/proc/$(pgrep -x asyncwatch)/maps"; }

# A program that changes its user ignores LD_LIBRARY_PATH. The process's maps show which library it has loaded.
changes_user() {
    inside install -m 4755 /usr/bin/ibv_asyncwatch /usr/local/bin/asyncwatch || return
    inside setpriv --reuid=65534 --clear-groups env LD_LIBRARY_PATH=/nowhere /usr/local/bin/asyncwatch -d "$device" >/dev/null 2>&1 &
    until_true 30 watches && watcher=$(pgrep -x asyncwatch) && grep '/libibverbs\.so' "/proc/$watcher/maps" >"$OUT/$name.maps"
    ids=$(sed -n 's/^Uid:[[:space:]]*\([0-9]*\)[[:space:]]*\([0-9]*\).*/\1 \2/p' "/proc/$watcher/status")
    pkill -x asyncwatch
    rm "$root/usr/local/bin/asyncwatch"
    cat "$OUT/$name.maps"
    [ "$ids" = "65534 0" ] || { echo "users: $ids" >&2; return 1; }
    grep -q "$own" "$OUT/$name.maps" && ! grep -qv "$own" "$OUT/$name.maps"
}

# What the guide describes for a container, without the package; and then back.
layer() {
    mkdir "$root/usr$(dirname "$own")" && cp "$UVERBS_DROPIN" "$root/usr$own" && ln -s libibverbs.so.1 "$root/usr${own%.1}" &&
        cp "$UVERBS_MLX5" "$root/usr$(dirname "$own")/libmlx5.so.1" && cp "$UVERBS_EFA" "$root/usr$(dirname "$own")/libefa.so.1" || return
    echo "/usr$(dirname "$own")" >"$root/etc/ld.so.conf.d/00-uverbs.conf" && inside ldconfig && is_ours || return
    rm -r "$root/usr$(dirname "$own")" "$root/etc/ld.so.conf.d/00-uverbs.conf" && inside ldconfig && is_stock
}

# A program that loads the library by the name of the link in libibverbs-dev also gets ours.
by_link() {
    inside ln -s libibverbs.so.1 /usr/lib/x86_64-linux-gnu/libibverbs.so && inside ldconfig || return
    inside env LD_PRELOAD=libibverbs.so LD_DEBUG=files LD_DEBUG_OUTPUT=/tmp/loads ibv_devices >/dev/null || return
    verbs_libraries /tmp/loads.* | sed 's,^/usr,,' >"$OUT/$name.loaded"
    rm /tmp/loads.* "$root/usr/lib/x86_64-linux-gnu/libibverbs.so"
    cat "$OUT/$name.loaded"
    inside ldconfig && [ "$(cat "$OUT/$name.loaded")" = "${own%.1}" ]
}

# Installs it again over itself, as an upgrade does.
reinstalled() { inside dpkg -i "$package" && is_ours; }

removed() { inside dpkg --remove libibverbs1-uverbs && is_stock; }

purged() {
    inside dpkg -i "$package" && is_ours || return
    inside dpkg --purge libibverbs1-uverbs && is_stock || return
    files "$OUT/$suite.files-again" || return
    diff "$OUT/$suite.files" "$OUT/$suite.files-again" >&2 && echo "compared: $(wc -l <"$OUT/$suite.files") files and packages"
}

# Without libibverbs1, the packages that depend on it are still satisfied, and ours cannot be removed while that is so.
in_its_place() {
    inside dpkg -i "$package" && inside dpkg --purge libibverbs1 && is_ours || return
    [ -z "$(inside find /usr/lib/x86_64-linux-gnu -maxdepth 1 -name 'libibverbs.so*')" ] || return
    if inside dpkg --purge libibverbs1-uverbs; then
        echo "it went, although ibverbs-utils needs it" >&2
        return 1
    fi
    loaded "$own"
}

# After installing it the program finds the device, and has its manual pages, its completions and its service. Removing it leaves nothing.
program_comes_and_goes() {
    files "$OUT/$suite.files" && inside dpkg -i "$tool" && inside dpkg --audit || return
    inside uverbs devices | tee "$OUT/$name.devices" | grep "^$device " && inside gzip -dc /usr/share/man/man1/uverbs-stat.1.gz | grep '^\.TH' || return
    inside bash -c '. /usr/share/bash-completion/completions/uverbs && complete -p uverbs' && inside grep 'ExecStart=/usr/bin/uverbs export' /usr/lib/systemd/system/uverbs-export.service || return
    inside dpkg --purge uverbs && files "$OUT/$suite.files-again" && diff "$OUT/$suite.files" "$OUT/$suite.files-again" >&2
}

begin make_device
modprobe overlay
mount -t tmpfs tmpfs /mnt

step package make_package
step program-package make_program_package
step package-refused refused
for suite in $SYSTEMS; do
    eval "system=\$SYSTEM_$suite"
    root=/mnt/$suite/root
    step "$suite-system" enter_copy || continue
    step "$suite-before" before
    step "$suite-layer" layer
    step "$suite-installed" installed
    step "$suite-changes-user" changes_user
    step "$suite-by-link" by_link
    step "$suite-pingpong" talks
    step "$suite-reinstalled" reinstalled
    step "$suite-removed" removed
    step "$suite-purged" purged
    step "$suite-program" program_comes_and_goes
    step "$suite-in-its-place" in_its_place
done
step resources resources_are_as_before
step kernel-log kernel_log_is_clean
finish
