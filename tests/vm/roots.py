"""Roots of other releases of Debian: their programs run in the guest, by chroot, on the guest's kernel."""

import hashlib
import re
import shutil

# What each has, the same for all lanes.
PACKAGES = ["ibverbs-utils", "ibverbs-providers", "rdmacm-utils", "perftest", "libfabric-bin", "libibverbs-dev"]
PACKAGES += ["python3-pyverbs", "iproute2", "coreutils"]
# Directories that are links to those below usr.
MERGED = ["bin", "lib", "lib64", "sbin"]
# Where the guest mounts its own.
MOUNTS = ["dev", "proc", "sys", "tmp"]


def prepare(runner, suite):
    """Return a directory with the packages of a suite and all that they depend on, from the cache if it is there."""
    home = runner.CACHE / "roots"
    home.mkdir(parents=True, exist_ok=True)
    apt = runner.Apt(f"root-{suite}", [suite])
    if cached := apt.update(home.glob(f"{suite}-*[0-9a-f]")):
        return cached
    install = ["install", "--yes", "--no-install-recommends"]
    names = sorted(re.findall(r"^'[^']*' (\S+)", apt.get(*install, "--print-uris", *PACKAGES), re.MULTILINE))
    root = home / f"{suite}-{hashlib.sha256(' '.join(names).encode()).hexdigest()[:16]}"
    if not root.exists():
        runner.say(f"{suite}: downloading {len(names)} packages for {' '.join(PACKAGES)}")
        apt.get(*install, "--download-only", *PACKAGES)
        archives = runner.CACHE / "apt" / f"root-{suite}" / "cache/archives"
        unpack(runner, [archives / name for name in names], root)
        shutil.rmtree(archives)
        (archives / "partial").mkdir(parents=True)
    return root


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
