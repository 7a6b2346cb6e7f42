"""Modules of RDMA drivers that Debian does not build, made from the sources of its kernels.

Each is compiled in a root of the release whose compiler made the kernel, by chroot: so it does not matter which release this machine has.
"""

import re
import shutil
from dataclasses import dataclass

import debug
import roots


@dataclass
class Module:
    """Where in the kernel's sources a module is, and the setting that has it built."""

    directory: str
    config: str


MODULES = {
    # The software iWARP device.
    "siw": Module("drivers/infiniband/sw/siw", "RDMA_SIW"),
    # The driver of Amazon's Elastic Fabric Adapter.
    "efa": Module("drivers/infiniband/hw/efa", "INFINIBAND_EFA"),
    # The driver of Alibaba's elastic RDMA.
    "erdma": Module("drivers/infiniband/hw/erdma", "INFINIBAND_ERDMA"),
}
# The directory in a root that has what a build needs.
WORK = "build"
# How a command runs in a root. /proc is mounted because from 7.3 on objtool asks it for the limit of its stack.
INSIDE = ["unshare", "--mount", "sh", "-ec", 'mount --bind /proc "$0/proc"; exec nice -n10 chroot "$0" "$@"']


def prepare(runner, kernel, name):
    """Return the path of `NAME.ko` for a kernel, from the cache if it is there."""
    # Kernels that are built here may already have the module.
    for module in kernel.image.parent.parent.glob(f"lib/modules/*/kernel/{MODULES[name].directory}/{name}.ko"):
        return module
    if debug.is_debug(kernel.name):
        raise runner.Failed(f"{kernel.name} is built without {name}.ko")
    home = runner.CACHE / "modules" / kernel.version
    if not (home / f"{name}.ko").exists():
        build(runner, kernel, [other for other in MODULES if not (home / f"{other}.ko").exists()], home)
    return home / f"{name}.ko"


def build(runner, kernel, names, home):
    """Build modules for a kernel: all that the cache lacks, since what takes long is to fetch the sources."""
    runner.say(f"{kernel.name}: building {', '.join(names)} for {kernel.version}")
    # The cache keeps a kernel under the name and version of its package.
    version = next(path.name for path in kernel.image.parents if path.name.startswith("linux-image-")).split("_")[1]
    suites = runner.KERNELS[kernel.name]
    # For kernels that come from several releases: a backport's version says which release it was made for.
    release = suites[-1] if "backports" in suites[0] and "~bpo" not in version else suites[0].removesuffix("-backports")
    apt = runner.Apt(kernel.name, suites)
    headers = f"linux-headers-{kernel.version}"
    needs = depends(runner, apt, headers)
    common = next(package for package in needs if package.endswith("-common"))
    kbuild = next(package for package in needs if package.startswith("linux-kbuild-"))
    compiler = next(found[0] for package in needs if (found := re.search(r"gcc-\d+", package)))
    libraries = [package for package in depends(runner, apt, kbuild) if not package.startswith("linux-")]
    root = roots.compiler(runner, release, [compiler, "make", *libraries])

    work = root / WORK
    shutil.rmtree(work, ignore_errors=True)
    work.mkdir()
    source = "linux-source-" + re.match(r"\d+\.\d+", kernel.version)[0]
    exact = [f"{package}={version}" for package in [headers, common, source]]
    apt.get("download", *exact, build_tools(runner, apt, kbuild, version), cwd=work)
    for package in [headers, common, kbuild]:
        runner.run("dpkg", "-x", *work.glob(f"{package}_*.deb"), work)
    unpack = 'dpkg-deb --fsys-tarfile "$1" | tar -xO "./usr/src/$2.tar.xz" | tar -xJ -C "$3" --strip-components=1 --wildcards "$2/drivers/infiniband/*/*"'
    runner.run("sh", "-ec", unpack, "sh", *work.glob(f"{source}_*.deb"), source, work)
    # The absolute paths in this file.
    makefile = work / "usr/src" / headers / "Makefile"
    makefile.write_text(makefile.read_text().replace("/usr/src/", f"/{WORK}/usr/src/"))
    home.mkdir(parents=True, exist_ok=True)
    for name in names:
        module = MODULES[name]
        make = ["make", "-C", f"/{WORK}/usr/src/{headers}", f"M=/{WORK}/{module.directory}", f"CONFIG_{module.config}=m"]
        runner.run(*INSIDE, root, *make, "modules", stderr=runner.subprocess.PIPE)
        made = work / module.directory / f"{name}.ko"
        runner.run("strip", "--strip-debug", made)
        made.rename(home / f"{name}.ko")
    shutil.rmtree(work)


def build_tools(runner, apt, package, version):
    """The package of programs that a build runs. While the mirror replaces a kernel, it may have only that of the next revision, which
    builds modules for this one too.
    """
    exact = f"{package}={version}"
    # It prints nothing for a version that is not there, and succeeds.
    return exact if runner.run("apt-cache", *apt.options, "show", exact) else package


def depends(runner, apt, package):
    """The names of the packages that a package needs."""
    shown = runner.run("apt-cache", *apt.options, "show", "--no-all-versions", package)
    line = re.search(r"^Depends: (.*)$", shown, re.MULTILINE)
    if not line:
        raise runner.Failed(f"apt does not know what {package} needs")
    return [each.split()[0] for each in line[1].split(",")]
