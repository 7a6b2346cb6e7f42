#!/usr/bin/env python3
"""Lane mlx5 of tests/vm/run: the kernel's mlx5 drivers on a virtual ConnectX.

The device is tests/vhca, which QEMU reaches over vfio-user: that needs QEMU 10.1 or later, which bookworm and trixie do
not have. It is unpacked into the cache, not installed, and started by its own loader with its own libraries.

`prepare_qemu` returns the QEMU; `Device` is the device of one boot.
"""

import contextlib
import shutil
import subprocess
import tempfile
import time
from pathlib import Path

# The guest's end of the device's control line.
CONTROL = "/dev/ttyS1"

# Where QEMU is new enough, and what of it is wanted.
QEMU_SUITES = ["trixie", "trixie-backports"]
QEMU_PACKAGE = "qemu-system-x86"

# The wrapper by which virtme-ng starts QEMU.
WRAPPER = """#!/bin/sh
# QEMU of another suite, by its own loader and with its own libraries and firmware.
root={root}
lib=$root/usr/lib/x86_64-linux-gnu
export QEMU_MODULE_DIR=$lib/qemu
exec "$lib/ld-linux-x86-64.so.2" --library-path "$lib" "$root/usr/bin/qemu-system-x86_64" \\
    -L "$root/usr/share/qemu" -L "$root/usr/share/seabios" -L "$root/usr/lib/ipxe/qemu" "$@"
"""


def prepare_qemu(runner):
    """Download and unpack QEMU, unless the cache has it, and return the wrapper that starts it."""
    home = runner.CACHE / "qemu"
    home.mkdir(parents=True, exist_ok=True)
    apt = runner.Apt("qemu", QEMU_SUITES)
    # Without a list of installed packages everything it needs is named, down to the C library.
    (runner.CACHE / "apt/qemu/status").touch()
    apt.options.append(f"-oDir::State::Status={runner.CACHE / 'apt/qemu/status'}")
    wanted = ["--no-install-recommends", "install", QEMU_PACKAGE]
    try:
        apt.get("update")
        lines = apt.get("--print-uris", "-y", *wanted).splitlines()
        archives = [line.split()[1] for line in lines if line.startswith("'")]
        version = next(name for name in archives if name.startswith(f"{QEMU_PACKAGE}_"))
    except runner.Failed as error:
        cached = sorted(home.glob("*/qemu"), key=lambda path: path.stat().st_mtime)
        if not cached:
            raise
        runner.say(f"{error}\nthe mirror does not answer: taking {cached[-1].parent.name} from the cache")
        return cached[-1]
    # A colon would end the directory in a library path.
    root = home / version.removesuffix(".deb").replace("%3a", "-")
    if not root.exists():
        runner.say(f"downloading {root.name} with {len(archives) - 1} packages it needs")
        part = root.with_name(root.name + ".part")
        shutil.rmtree(part, ignore_errors=True)
        part.mkdir()
        apt.get("-y", "--download-only", *wanted)
        for name in archives:
            runner.run("dpkg", "-x", runner.CACHE / "apt/qemu/cache/archives" / name, part)
        apt.get("clean")
        (part / "qemu").write_text(WRAPPER.format(root=root))
        (part / "qemu").chmod(0o755)
        part.rename(root)
    return root / "qemu"


class Device:
    """One virtual ConnectX and its sockets, for the time of one boot."""

    def __init__(self, binary, out, arguments=()):
        # A socket's path may have no more than 107 bytes, wherever the logs are.
        self.home = Path(tempfile.mkdtemp(prefix="vhca-"))
        self.socket, self.control = self.home / "device", self.home / "control"
        with open(out / "vhca.log", "wb") as log:
            self.process = subprocess.Popen(
                [binary, "--socket", self.socket, "--control", self.control, "--trace", out / "commands", *arguments],
                stdin=subprocess.DEVNULL, stdout=log, stderr=log,
            )
        deadline = time.monotonic() + 10
        while not (self.socket.exists() and self.control.exists()):
            if self.process.poll() is not None or time.monotonic() > deadline:
                self.stop()
                raise RuntimeError(f"vhca did not start: {(out / 'vhca.log').read_text()}")
            time.sleep(0.05)

    def qemu_options(self, memory):
        """The device, memory that it can reach, and its control line as the guest's second serial port.

        virtme-ng splits the text at spaces and passes it through a shell. Without the high-precision timer: with it a
        boot in some tens hangs early under emulation.
        """
        device = f'{{"driver":"vfio-user-pci","socket":{{"type":"unix","path":"{self.socket}"}}}}'.replace('"', '\\"')
        return " ".join([
            "-nodefaults",
            f"-object memory-backend-memfd,id=mem,size={memory},share=on -machine memory-backend=mem,hpet=off",
            f"-device {device}",
            f"-chardev socket,id=control,path={self.control} -device isa-serial,chardev=control",
        ])

    def stop(self):
        # It ends with the machine; and at once if there never was one.
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.process.wait(2)
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        shutil.rmtree(self.home, ignore_errors=True)
