"""Roots of releases of Debian: their programs run in the guest, by chroot, on the guest's kernel.

Some are packages unpacked beside each other; others are installed systems, in which dpkg and apt know what is there.
"""

import hashlib
import re
import shutil
import subprocess

# The packages of each root, the same for all lanes.
PACKAGES = ["ibverbs-utils", "ibverbs-providers", "rdmacm-utils", "perftest", "libfabric-bin", "ucx-utils", "libibverbs-dev"]
PACKAGES += ["python3-pyverbs", "iproute2", "coreutils"]
# The packages of an installed system, beside apt.
INSTALLED = ["ibverbs-utils", "ibverbs-providers"]
# The packages of a system in which services run that read counters.
MONITORS = ["prometheus", "systemd", "systemd-sysv"]
# DPDK, and the libraries that it loads for mlx5.
DATAPATH, DRIVERS = ["dpdk-dev", "ibverbs-providers", "coreutils"], re.compile(r"librte-(net-mlx5|mempool-ring)-?[0-9.]+(t64)?")
# Directories that are links to those below usr.
MERGED = ["bin", "lib", "lib64", "sbin"]
# Where the guest mounts its own file systems.
MOUNTS = ["dev", "proc", "sys", "tmp"]


# How apt installs packages.
INSTALL = ["install", "--yes", "--no-install-recommends"]


def prepare(runner, suite):
    """Return a directory with the packages of a suite and all that they depend on, from the cache if it is there."""
    return cached(runner, suite, suite, lambda apt: [PACKAGES], download)


def system(runner, suite):
    """Return a directory with a small installed system of a suite, from the cache if it is there."""
    return cached(runner, suite, f"system-{suite}", lambda apt: [INSTALLED], install)


def monitors(runner, suite):
    """Return a directory with an installed system of a suite that has systemd and Prometheus, from the cache if it is there."""
    return cached(runner, suite, f"monitors-{suite}", lambda apt: [MONITORS], install)


def datapath(runner, suite):
    """Return a directory with DPDK of a suite, and its drivers for mlx5, from the cache if it is there."""

    def packages(apt):
        known = runner.run("apt-cache", *apt.options, "pkgnames").split()
        # Their names contain the version.
        return [[*DATAPATH, *sorted(name for name in known if DRIVERS.fullmatch(name))]]

    return cached(runner, suite, f"datapath-{suite}", packages, download)


def compiler(runner, suite, packages):
    """Return a directory with an installed system of a suite in which modules of kernels are built, from the cache if it is there."""
    return cached(runner, suite, f"build-{suite}", lambda apt: [packages], install)


def cached(runner, suite, name, groups, make, arch="amd64"):
    """Return the root of this name, made anew if one of its packages has another version than it had, and then in the place of the old one.

    `groups` gives lists of packages, of which each can be installed by itself, if not beside the others."""
    home = runner.CACHE / "roots"
    home.mkdir(parents=True, exist_ok=True)
    apt = runner.Apt(f"root-{suite}" + ("" if arch == "amd64" else f"-{arch}"), [suite], arch)
    if found := apt.update(home.glob(f"{name}-*[0-9a-f]")):
        return found
    groups, names = groups(apt), set()
    # Asking apt for each group takes a minute where there are many, so the answer is cached.
    lists = b"".join(path.read_bytes() for path in sorted(apt.home.glob("lists/*InRelease")))
    state, known = hashlib.sha256(lists + repr(groups).encode()).hexdigest(), home / f"{name}.state"
    if known.exists() and (said := known.read_text().split())[0] == state and (home / said[1]).exists():
        return home / said[1]
    for packages in groups:
        names |= {*re.findall(r"^'[^']*' (\S+)", apt.get(*INSTALL, "--print-uris", *packages), re.MULTILINE)}
    root = home / f"{name}-{hashlib.sha256(' '.join(sorted(names)).encode()).hexdigest()[:16]}"
    if not root.exists():
        old = [*home.glob(f"{name}-*")]
        runner.say(f"{name}: making a root of {len(names)} packages")
        make(runner, apt, suite, groups, sorted(names), root)
        for other in old:
            shutil.rmtree(other)
    known.write_text(f"{state} {root.name}\n")
    return root


def download(runner, apt, _suite, groups, names, root):
    """Download packages and unpack them."""
    for packages in groups:
        apt.get(*INSTALL, "--download-only", *packages)
    archives = apt.home / "cache/archives"
    unpack(runner, [archives / name for name in names], root)
    shutil.rmtree(archives)
    (archives / "partial").mkdir(parents=True)


def install(runner, apt, suite, groups, _names, root):
    """Install a system with apt and these packages."""
    part = root.with_name(root.name + ".part")
    shutil.rmtree(part, ignore_errors=True)
    # apt's settings on this machine for getting packages, such as a proxy.
    shown = runner.run("apt-config", "dump", "Acquire").splitlines()
    options = [f"--aptopt={line}" for line in shown if "::" in line.split(" ")[0]]
    packages = f"--include={','.join(name for packages in groups for name in packages)}"
    command = ["mmdebstrap", "--quiet", "--mode=root", "--variant=apt", packages, *options]
    runner.run(*command, suite, part, apt.home / "sources.list", stderr=subprocess.PIPE)
    part.rename(root)


def unpack(runner, archives, root):
    """Unpack packages into a new directory, without running anything of theirs."""
    part = root.with_name(root.name + ".part")
    shutil.rmtree(part, ignore_errors=True)
    for name in [*(f"usr/{link}" for link in MERGED), *MOUNTS]:
        (part / name).mkdir(parents=True)
    for link in MERGED:
        (part / link).symlink_to(f"usr/{link}")
    for archive in archives:
        runner.run("sh", "-c", 'dpkg-deb --fsys-tarfile "$0" | tar -x --keep-directory-symlink -C "$1"', archive, part)
    # Programs look up the name of their own host.
    (part / "etc/hosts").write_text("127.0.0.1 localhost\n")
    part.rename(root)
