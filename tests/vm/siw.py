"""The kernel's software iWARP device, which Debian does not build: its module, made from the kernel's own sources."""

import shutil

DIRECTORY = "drivers/infiniband/sw/siw"


def prepare(runner, kernel):
    """Return the path of `siw.ko` for a kernel, from the cache if it is there."""
    # Those that are built here have it.
    for module in kernel.image.parent.parent.glob("lib/modules/*/kernel/drivers/infiniband/sw/siw/siw.ko"):
        return module
    home = runner.CACHE / "siw"
    module = home / kernel.version / "siw.ko"
    if module.exists():
        return module
    runner.say(f"{kernel.name}: building siw.ko for {kernel.version}")
    home.mkdir(parents=True, exist_ok=True)
    part = home / f"{kernel.version}.part"
    shutil.rmtree(part, ignore_errors=True)
    part.mkdir()
    # The cache has the kernel by name and version of its package.
    version = next(path.name for path in kernel.image.parents if path.name.startswith("linux-image-")).split("_")[1]
    common = f"linux-headers-{kernel.version.removesuffix('-amd64')}-common"
    source = f"linux-source-{kernel.name}"
    packages = [f"linux-headers-{kernel.version}", common, f"linux-kbuild-{kernel.name}", source]
    apt = runner.Apt(kernel.name, runner.KERNELS[kernel.name])
    apt.get("download", *(f"{package}={version}" for package in packages), cwd=part)
    for package in packages[:-1]:
        runner.run("dpkg", "-x", *part.glob(f"{package}_*.deb"), part)
    unpack = 'dpkg-deb --fsys-tarfile "$1" | tar -xO "./usr/src/$2.tar.xz" | tar -xJ -C "$3" --strip-components=1 "$2/$4"'
    runner.run("sh", "-ec", unpack, "sh", *part.glob(f"{source}_*.deb"), source, part, DIRECTORY)
    # The one absolute path in there.
    headers = part / "usr/src" / packages[0]
    makefile = headers / "Makefile"
    makefile.write_text(makefile.read_text().replace("include /usr/src/", f"include {part}/usr/src/"))
    runner.run(
        "make", "-C", headers, f"M={part / DIRECTORY}", "CONFIG_RDMA_SIW=m", "modules", stderr=runner.subprocess.PIPE
    )
    runner.run("strip", "--strip-debug", part / DIRECTORY / "siw.ko")
    module.parent.mkdir(exist_ok=True)
    (part / DIRECTORY / "siw.ko").rename(module)
    shutil.rmtree(part)
    return module
