#!/usr/bin/env bash
# Debian sid's UCX has no InfiniBand: programs over it use TCP on machines with an RDMA card, and nothing says so.
#
# Versions: libucx0 1.18.1+ds-2+b1 (trixie), 1.23.0~rc1-1 (sid).
# Expected: the newer package has what the older has, and libuct_ib besides.
# Seen: the package of trixie has libuct_ib, libuct_ib_mlx5 and libuct_rdmacm and depends on libibverbs1. That of sid has none of them.
# shellcheck source=findings/packages.sh
. "$(dirname "$0")/packages.sh"

suites trixie sid
has() { # has VERSION: what of InfiniBand it has
    own apt-get download "libucx0=$1"
    mv "$work"/libucx0_*.deb "$work/package.deb"
    transports=$(dpkg-deb --contents "$work/package.deb" | grep -oE 'libuct_(ib|ib_mlx5|rdmacm)\.so' | sort -u | xargs)
    depends=$(dpkg-deb --field "$work/package.deb" Depends | grep -c libibverbs1 || true)
    echo "${transports:-none}, depends on libibverbs: $depends"
}
seen="trixie: $(has 1.18.1+ds-2+b1)
sid: $(has 1.23.0~rc1-1)"
echo "$seen"
[ "$seen" = "trixie: libuct_ib.so libuct_ib_mlx5.so libuct_rdmacm.so, depends on libibverbs: 1
sid: none, depends on libibverbs: 0" ] && echo "as found"
