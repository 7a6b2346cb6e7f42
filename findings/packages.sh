# shellcheck shell=bash
# For findings about packages: apt with sources and state of its own, in a folder that is deleted afterwards. The machine's is not touched.
#
#   . "$(dirname "$0")/packages.sh"
#   suites SUITE...
#   own apt-get download PACKAGE=VERSION    # in $work
set -euo pipefail

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# Where this machine has Debian's packages from.
debian() {
    # shellcheck disable=SC2016  # apt's
    apt-get indextargets --format '$(REPO_URI)' 'Created-By: Packages' | grep '/debian/*$' | sort -u | head -n 1
}

suites() {
    local suite
    mkdir -p "$work"/{lists/partial,cache/archives/partial}
    # sid's Release file may be older than it says that it may be.
    for suite; do
        printf 'deb [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg check-valid-until=no] %s %s main\n' "$(debian)" "$suite"
    done >"$work/sources.list"
    own apt-get update
}

own() { # own apt-get|apt-cache ARGUMENT...
    local program=$1
    shift
    (cd "$work" && "$program" -qq -o "Dir::Etc::SourceList=$work/sources.list" -o Dir::Etc::SourceParts=/dev/null -o "Dir::State::Lists=$work/lists" \
        -o "Dir::Cache=$work/cache" -o APT::Sandbox::User=root -o Acquire::Languages=none "$@")
}
