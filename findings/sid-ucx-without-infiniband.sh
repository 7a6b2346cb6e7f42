#!/usr/bin/env bash
# Debian sid's UCX has no InfiniBand: programs over it use TCP on machines with an RDMA card, and nothing says so.
#
# Versions: libucx0 1.18.1+ds-2+b1 (trixie), 1.23.0~rc1-1 (sid).
# Expected: the newer package has what the older has, and libuct_ib besides.
# Seen: the package of trixie has libuct_ib, libuct_ib_mlx5 and libuct_rdmacm and depends on libibverbs1. That of sid has none of them.
set -euo pipefail
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

debian=$(apt-get indextargets --format '$(REPO_URI)' 'Created-By: Packages' | grep '/debian/*$' | head -n 1)
mkdir -p "$work"/{lists/partial,cache/archives/partial}
# sid's Release file may be older than it says that it may be.
printf 'deb [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg check-valid-until=no] %s %s main\n' "$debian" trixie "$debian" sid >"$work/sources.list"
own=(-qq -o "Dir::Etc::SourceList=$work/sources.list" -o Dir::Etc::SourceParts=/dev/null -o "Dir::State::Lists=$work/lists" -o "Dir::Cache=$work/cache"
    -o APT::Sandbox::User=root -o Acquire::Languages=none)
apt-get "${own[@]}" update
cd "$work"
has() { # has VERSION: what of InfiniBand it has
    apt-get "${own[@]}" download "libucx0=$1"
    mv libucx0_*.deb package.deb
    transports=$(dpkg-deb --contents package.deb | grep -oE 'libuct_(ib|ib_mlx5|rdmacm)\.so' | sort -u | xargs)
    depends=$(dpkg-deb --field package.deb Depends | grep -c libibverbs1 || true)
    echo "${transports:-none}, depends on libibverbs: $depends"
}
seen="trixie: $(has 1.18.1+ds-2+b1)
sid: $(has 1.23.0~rc1-1)"
echo "$seen"
[ "$seen" = "trixie: libuct_ib.so libuct_ib_mlx5.so libuct_rdmacm.so, depends on libibverbs: 1
sid: none, depends on libibverbs: 0" ] && echo "as found"
