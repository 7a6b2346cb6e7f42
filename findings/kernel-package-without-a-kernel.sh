#!/usr/bin/env bash
# Debian's package linux-image of 7.3 contains neither a kernel nor modules.
#
# Versions: linux-image-7.3.4+deb13-amd64 7.3.4-1~bpo13+1 (trixie-backports) beside linux-image-6.12.*+deb13-amd64 (trixie).
# Expected: boot/vmlinuz-* and lib/modules in linux-image, as for many years: tools that build images download and unpack this one package.
# Seen: it has documentation only. The kernel is in linux-binary-* at /usr/lib/modules/VERSION/vmlinuz, not in /boot; the modules are in
# linux-modules-*, without modules.builtin and modules.order, which are in linux-base-VERSION.
# shellcheck source=findings/packages.sh
. "$(dirname "$0")/packages.sh"

version=7.3.4+deb13-amd64
suites trixie trixie-backports
old=$(own apt-cache pkgnames linux-image-6.12 | grep -E '^linux-image-6\.12\.[0-9]+\+deb13-amd64$' | sort -V | tail -n 1)
own apt-get download "$old" {linux-image,linux-binary,linux-modules,linux-base}-"$version"=7.3.4-1~bpo13+1

has() { # has PACKAGE PATTERN: a file of the package
    dpkg-deb --contents "$work/$1"_*.deb >"$work/contents"
    if grep -qE " \./$2\$" "$work/contents"; then echo yes; else echo no; fi
}
seen="6.12: kernel $(has "$old" 'boot/vmlinuz-[^/]*'), modules $(has "$old" '(usr/)?lib/modules/.*\.ko(\.[a-z]*)?')
image: kernel $(has "linux-image-$version" '.*vmlinuz[^/]*'), modules $(has "linux-image-$version" '.*\.ko(\.[a-z]*)?')
binary: in boot $(has "linux-binary-$version" 'boot/vmlinuz[^/]*'), beside the modules $(has "linux-binary-$version" 'usr/lib/modules/[^/]*/vmlinuz')
modules: modules $(has "linux-modules-$version" '.*\.ko(\.[a-z]*)?'), list of built-in ones $(has "linux-modules-$version" '.*/modules.builtin')
base: list of built-in ones $(has "linux-base-$version" '.*/modules.builtin')"
echo "$seen"
[ "$seen" = "6.12: kernel yes, modules yes
image: kernel no, modules no
binary: in boot no, beside the modules yes
modules: modules yes, list of built-in ones no
base: list of built-in ones yes" ] && echo "as found"
