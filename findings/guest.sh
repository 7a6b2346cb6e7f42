# shellcheck shell=bash
# For findings about a kernel: boots Debian's kernel of trixie-backports in QEMU and runs commands in it, with programs of trixie.
#
#   . "$(dirname "$0")/guest.sh"
#   guest [PACKAGE=VERSION...] <<'END' >"$work/seen"
#   commands, as root, with rxe0 on dummy0 (192.0.2.1)
#   END
#
# Prints what the commands print. Needs root, mmdebstrap and qemu-system-x86_64; the packages come from where this machine has its own. Without
# KVM, a run takes two minutes. With FINDINGS_CACHE=FOLDER the second finding takes what the first has installed.
# shellcheck source=findings/packages.sh
. "$(dirname "$0")/packages.sh"

kernel=7.3.4+deb13-amd64 kernel_version=7.3.4-1~bpo13+1
programs="busybox kmod iproute2=6.15.0-1 rdma-core=56.1-1 ibverbs-providers=56.1-1 ibverbs-utils=56.1-1 rdmacm-utils=56.1-1
    librdmacm1t64=56.1-1 libibverbs1=56.1-1 python3-pyverbs=56.1-1"

install() { # install FOLDER PACKAGE=VERSION...: a system with these programs in FOLDER/root, and the kernel beside it
    local home=$1 root=$1/root archive modules
    shift
    archive=$(debian)
    # shellcheck disable=SC2016  # for another shell
    mmdebstrap --quiet --mode=root --variant=apt --include="$(echo "$@" | tr -s ' \n' ,)" \
        --dpkgopt='path-exclude=/usr/share/doc/*' --dpkgopt='path-exclude=/usr/share/man/*' --dpkgopt='path-exclude=/usr/share/locale/*' \
        --customize-hook="cd \"\$1\" && mkdir kernel && chroot . sh -c 'cd /kernel && apt-get -qq download linux-binary-$kernel=$kernel_version linux-modules-$kernel=$kernel_version'" \
        --customize-hook='for file in "$1"/kernel/*.deb; do dpkg-deb -x "$file" "$1/kernel"; done' \
        trixie "$root" "deb $archive trixie main" "deb $archive trixie-backports main" 2>"$work/log" || { cat "$work/log" >&2; exit 1; }
    # Only the modules that RDMA in software needs, so that the image stays small.
    modules=$(find "$root/kernel" -type d -path '*lib/modules/*-*' -prune)
    cp "$(find "$root/kernel" -name 'vmlinuz*' | head -n 1)" "$home/vmlinuz"
    mkdir -p "$root/lib/modules/$kernel"
    (cd "$modules" && cp -r --parents kernel/{net,lib,crypto,arch,fs/configfs,drivers/infiniband,drivers/nvme} \
        kernel/drivers/net/{dummy,veth}.ko* kernel/drivers/block/brd.ko* kernel/block \
        "$root/lib/modules/$kernel")
    rm -rf "$root/kernel" "$root"/var/{cache,lib}/apt
    chroot "$root" depmod "$kernel" 2>/dev/null
}

guest() {
    local home=$work tool wanted
    for tool in mmdebstrap qemu-system-x86_64; do
        command -v "$tool" >/dev/null || { echo "install $tool first" >&2; exit 77; }
    done
    wanted="$programs $*"
    [ -z "${FINDINGS_CACHE:-}" ] || home=$FINDINGS_CACHE/$(echo "$wanted $kernel" | md5sum | cut -c1-8)
    [ -e "$home/vmlinuz" ] || { rm -rf "${home:?}/root" && mkdir -p "$home" && install "$home" "$wanted"; }
    {
        printf '%s\n' '#!/bin/sh' 'export PATH=/usr/sbin:/usr/bin:/sbin:/bin' 'mount -t proc proc /proc; mount -t sysfs sysfs /sys' \
            'mount -t devtmpfs devtmpfs /dev; ip link set lo up; ip link add dummy0 type dummy' \
            'ip address add 192.0.2.1/24 dev dummy0; ip link set dummy0 up; modprobe rdma_rxe' \
            'rdma link add rxe0 type rxe netdev dummy0; dmesg -n 1; echo; echo "<<<"'
        cat
        printf '%s\n' '' 'echo ">>>"' 'echo o >/proc/sysrq-trigger; sleep 60'
    } >"$home/root/finding"
    chmod +x "$home/root/finding"
    cp "$(dirname "$0")/sides.py" "$home/root/"
    (cd "$home/root" && find . -xdev) | chroot "$home/root" busybox cpio -o -H newc 2>/dev/null >"$work/initrd"
    timeout 600 qemu-system-x86_64 -accel tcg -cpu max -smp 2 -m 2G -nographic -no-reboot -kernel "$home/vmlinuz" -initrd "$work/initrd" \
        -append 'console=ttyS0 quiet panic=-1 rdinit=/finding' </dev/null 2>&1 | tr -d '\r' | sed -n '/^<<<$/,/^>>>$/p' | sed '1d;$d'
}

# expect FILE 'LINE...': FILE has these lines, in this order, among others. Otherwise the finding holds no longer.
expect() {
    local line from=1 at
    cat "$1"
    while read -r line; do
        at=$(tail -n "+$from" "$1" | grep -nE -m 1 "^$line\$" | cut -d: -f1) || true
        [ -n "$at" ] || { echo "changed: no line $line" >&2; return 1; }
        from=$((from + at))
    done <<<"$2"
    echo "as found"
}
