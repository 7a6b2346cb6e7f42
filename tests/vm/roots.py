"""Roots of releases of Debian: their programs run in the guest, by chroot, on the guest's kernel.

Some are packages unpacked beside each other; others are installed systems, in which dpkg and apt know what is there.
"""

import hashlib
import re
import shutil
import subprocess

# What each has, the same for all lanes.
PACKAGES = ["ibverbs-utils", "ibverbs-providers", "rdmacm-utils", "perftest", "libfabric-bin", "libibverbs-dev"]
PACKAGES += ["python3-pyverbs", "iproute2", "coreutils"]
# What an installed system has beside apt.
INSTALLED = ["ibverbs-utils", "ibverbs-providers"]
# Directories that are links to those below usr.
MERGED = ["bin", "lib", "lib64", "sbin"]
# Where the guest mounts its own.
MOUNTS = ["dev", "proc", "sys", "tmp"]


# How apt installs them.
INSTALL = ["install", "--yes", "--no-install-recommends"]


def prepare(runner, suite):
    """Return a directory with the packages of a suite and all that they depend on, from the cache if it is there."""
    return cached(runner, suite, PACKAGES, suite, download)


def system(runner, suite):
    """Return a directory with a small installed system of a suite, from the cache if it is there."""
    return cached(runner, suite, INSTALLED, f"system-{suite}", install)


def cached(runner, suite, packages, name, make):
    """Return the root of this name, made anew if one of the packages, or of what they depend on, has another version than it had."""
    home = runner.CACHE / "roots"
    home.mkdir(parents=True, exist_ok=True)
    apt = runner.Apt(f"root-{suite}", [suite])
    if found := apt.update(home.glob(f"{name}-*[0-9a-f]")):
        return found
    names = sorted(re.findall(r"^'[^']*' (\S+)", apt.get(*INSTALL, "--print-uris", *packages), re.MULTILINE))
    root = home / named(name, names)
    if not root.exists():
        make(runner, apt, packages, names, root)
    return root


def named(name, archives):
    """The name of a root that has these."""
    return f"{name}-{hashlib.sha256(' '.join(sorted(archives)).encode()).hexdigest()[:16]}"


def download(runner, apt, packages, names, root):
    """Download packages and unpack them."""
    runner.say(f"{root.name}: downloading {len(names)} packages for {' '.join(packages)}")
    apt.get(*INSTALL, "--download-only", *packages)
    unpack_cached(runner, apt, names, root)


def unpack_cached(runner, apt, names, root):
    """Unpack what apt has downloaded, and keep that no longer."""
    archives = apt.home / "cache/archives"
    unpack(runner, [archives / name for name in names], root)
    shutil.rmtree(archives)
    (archives / "partial").mkdir(parents=True)


def install(runner, apt, packages, _names, root):
    """Install a system with apt and these packages."""
    runner.say(f"{root.name}: installing apt and {' '.join(packages)}")
    part = root.with_name(root.name + ".part")
    shutil.rmtree(part, ignore_errors=True)
    suite = root.name.split("-")[1]
    options = [f"--aptopt={line}" for line in runner.run("apt-config", "dump", "Acquire").splitlines() if "::" in line.split(" ")[0]]
    packages = f"--include={','.join(packages)}"
    runner.run(
        "mmdebstrap", "--quiet", "--mode=root", "--variant=apt", packages, *options, suite, part, apt.home / "sources.list", stderr=subprocess.PIPE
    )
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
    # Programs look up their own host.
    (part / "etc/hosts").write_text("127.0.0.1 localhost\n")
    part.rename(root)
