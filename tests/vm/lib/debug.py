"""Kernels that are built to notice mistakes: Debian's sources, configured by debug.config.

Each is called after the kernel whose source it has: `6.1-debug` is made from the `linux-source` of the suites of `6.1`.
"""

import fcntl
import hashlib
import os
import re
import shutil
import time
from pathlib import Path

SUFFIX = "-debug"
FRAGMENT = Path(__file__).resolve().parent / "debug.config"
PACKAGES = ["bc", "bison", "flex", "gcc", "kmod", "libc6-dev", "libelf-dev", "libssl-dev", "make", "xz-utils"]

# These kernels need more memory than others. Under emulation everything takes several times as long on them.
MEMORY = "1536M"
PATIENCE = 4
BOOT = [
    # This kernel mounts the host's files by itself and caches what it has read: a page that was read once is not requested again.
    "--append=rootflags=version=9p2000.L,trans=virtio,access=any,msize=524288,cache=loose",
    # While 7.x examines its processor it assumes smaller page tables than it has, and KASAN then reports every address as wild.
    "--append=no5lvl",
    # As for the virtual ConnectX: with this timer the boot sometimes hangs under emulation.
    "--append=hpet=disable",
]


def is_debug(name):
    return name.endswith(SUFFIX)


def origin(name):
    """The name of the kernel that Debian builds from the same source."""
    return name.removesuffix(SUFFIX)


def prepare(runner, name):
    """Build the newest kernel of that name, unless the cache has it."""
    home = runner.CACHE / "kernels" / name
    home.mkdir(parents=True, exist_ok=True)
    fragment = hashlib.sha256(FRAGMENT.read_bytes()).hexdigest()[:12]
    with runner.locked_cache():
        apt = runner.Apt(origin(name), runner.KERNELS[origin(name)])
        if cached := apt.update(home.glob(f"*_{fragment}")):
            return kernel(runner, name, cached)
        sources = apt.depends("linux-source")
    if len(sources) != 1:
        raise runner.Failed(f"linux-source of {runner.KERNELS[origin(name)]} names {sources or 'no source'}")
    package, version = sources[0]
    root = home / f"{package}_{version}_{fragment}"
    # Not the lock of the cache: a build takes longer than others should have to wait.
    with open(home / "lock", "w", encoding="utf-8") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not root.exists():
            runner.say(f"{name}: building {package} {version}, which takes a quarter of an hour and more")
            work = runner.CACHE / "build" / name
            shutil.rmtree(work, ignore_errors=True)
            work.mkdir(parents=True)
            unpack(runner, apt, package, version, work)
            build(runner, name, work / package, work / "build", root)
            shutil.rmtree(work)
    return kernel(runner, name, root)


def kernel(runner, name, root):
    made = runner.unpacked(name, root)
    return runner.Kernel(name, made.version, made.image, MEMORY, PATIENCE, BOOT)


def unpack(runner, apt, package, version, work):
    apt.get("download", f"{package}={version}", cwd=work)
    archive = next(work.glob(f"{package}_*.deb"))
    take = 'dpkg-deb --fsys-tarfile "$1" | tar -xO "./usr/src/$2.tar.xz" | tar -xJ -C "$3"'
    runner.run("sh", "-ec", take, "sh", archive, package, work)
    archive.unlink()


def build(runner, name, source, into, root):
    """Configure and build in a directory, and install below `root` what a boot needs."""
    begun = time.monotonic()
    make = ["nice", "-n10", "make", "-s", "-C", source, f"O={into}", f"-j{os.cpu_count()}"]
    into.mkdir(exist_ok=True)
    made = {"env": os.environ | {"KCONFIG_ALLCONFIG": str(FRAGMENT)}, "stderr": runner.subprocess.PIPE}
    runner.run(*make, "allnoconfig", **made)
    config = (into / ".config").read_text()
    compare(runner, name, config)
    runner.run(*make, "bzImage", "modules", **made)
    release = runner.run(*make, "kernelrelease", **made).strip()
    part = root.with_name(root.name + ".part")
    shutil.rmtree(part, ignore_errors=True)
    (part / "boot").mkdir(parents=True)
    runner.run(*make, f"INSTALL_MOD_PATH={part}", "modules_install", **made)
    for link in ["build", "source"]:
        (part / "lib/modules" / release / link).unlink(missing_ok=True)
    shutil.copy(into / "arch/x86/boot/bzImage", part / f"boot/vmlinuz-{release}")
    shutil.copy(into / "System.map", part / f"boot/System.map-{release}")
    (part / f"boot/config-{release}").write_text(config)
    part.rename(root)
    runner.say(f"{name}: built in {time.monotonic() - begun:.0f} s")


def compare(runner, name, config):
    """See what the configuration has of what the fragment asks for; the kernel drops silently what it does not know."""
    text, taken = FRAGMENT.read_text(), set(config.splitlines())
    refused = {line.split("=")[0] for line in re.findall(r"^CONFIG_\w+=.*$", text, re.MULTILINE) if line not in taken}
    absent = {word for line in re.findall(rf"^# absent in {re.escape(name)}: (.*)$", text, re.MULTILINE) for word in line.split()}
    if refused:
        runner.say(f"{name}: not taken of {FRAGMENT.name}: {' '.join(sorted(refused))}")
    if refused != absent:
        wrong = " ".join(sorted(refused ^ absent))
        raise runner.Failed(f"{name}: {wrong}: either not taken, or taken though {FRAGMENT.name} says it is absent")
