#!/usr/bin/env python3
"""Virtual hardware of the lanes of tests/vm/run: the kernel's own drivers on devices that are programs.

The devices are tests/vhca, a ConnectX, tests/vefa, an EFA, tests/verdma, an eRDMA, and tests/vmana, a MANA, which QEMU reaches over vfio-user: that needs QEMU 10.1 or later, which bookworm and trixie do
not have. It is unpacked into the cache, not installed, and started by its own loader with its own libraries.

`prepare_qemu` returns the QEMU; `Devices` are those of one boot.
"""

import contextlib
import shutil
import subprocess
import tempfile
import time
from pathlib import Path

# The programs, which are also the keys of heads.
KINDS = ["vhca", "vefa", "verdma", "vmana"]
# The guest's ends of the devices' control lines.
CONTROLS = {f"{name}_CONTROL{suffix}": tty for name in ["MLX5", "EFA", "ERDMA", "MANA"] for suffix, tty in [("", "/dev/ttyS1"), ("_2", "/dev/ttyS2")]}
# The machine, and its serial ports after the first. The high-precision timer is off: with it one boot in some tens hangs early under
# emulation.
X86 = (",hpet=off", "isa-serial")

# Where QEMU is new enough, and the packages that are needed.
QEMU_SUITES = ["trixie", "trixie-backports"]
QEMU_PACKAGE = "qemu-system-x86"

# The wrapper by which virtme-ng starts QEMU.
WRAPPER = """#!/bin/sh
# QEMU of another suite, started by its own loader with its own libraries and firmware.
root={root}
lib=$root/usr/lib/x86_64-linux-gnu
export QEMU_MODULE_DIR=$lib/qemu
exec "$lib/ld-linux-x86-64.so.2" --library-path "$lib" "$root/usr/bin/{program}" \\
    -L "$root/usr/share/qemu" -L "$root/usr/share/seabios" -L "$root/usr/lib/ipxe/qemu" "$@"
"""


def prepare_qemu(runner, package=QEMU_PACKAGE, program="qemu-system-x86_64", name="qemu"):
    """Download and unpack QEMU, unless the cache has it, and return the wrapper that starts it."""
    home = runner.CACHE / name
    home.mkdir(parents=True, exist_ok=True)
    apt = runner.Apt(name, QEMU_SUITES)
    # Without a list of installed packages apt names everything that QEMU needs, down to the C library.
    (apt.home / "status").touch()
    apt.options.append(f"-oDir::State::Status={apt.home / 'status'}")
    wanted = ["--no-install-recommends", "install", package]
    try:
        apt.get("update")
        lines = apt.get("--print-uris", "-y", *wanted).splitlines()
        archives = [line.split()[1] for line in lines if line.startswith("'")]
        version = next(archive for archive in archives if archive.startswith(f"{package}_"))
    except runner.Failed as error:
        cached = sorted(home.glob("*/qemu"), key=lambda path: path.stat().st_mtime)
        if not cached:
            raise
        runner.say(f"{error}\nthe mirror does not answer: taking {cached[-1].parent.name} from the cache")
        return cached[-1]
    # In a library path a colon would end the directory.
    root = home / version.removesuffix(".deb").replace("%3a", "-")
    if not root.exists():
        runner.say(f"downloading {root.name} with {len(archives) - 1} packages it needs")
        part = root.with_name(root.name + ".part")
        shutil.rmtree(part, ignore_errors=True)
        part.mkdir()
        apt.get("-y", "--download-only", *wanted)
        for archive in archives:
            runner.run("dpkg", "-x", apt.home / "cache/archives" / archive, part)
        apt.get("clean")
        (part / "qemu").write_text(WRAPPER.format(root=root, program=program))
        (part / "qemu").chmod(0o755)
        part.rename(root)
    return root / "qemu"


class Devices:
    """The virtual cards of one boot and their sockets, one for each program with its arguments."""

    def __init__(self, out, cards, nics=(), home=None):
        # A socket's path may have at most 107 bytes, wherever the logs are. The cards name their own wire sockets relative to this
        # directory. A wire to another guest ends there too; then the directory is that guest's.
        self.owns_home = home is None
        self.home = home or Path(tempfile.mkdtemp(prefix="vhca-"))
        self.sockets, self.processes = [], []
        # Each the ends of its wire, if it has one, and options.
        self.nics = [[[self.home / end for end in word.split(",")] if "=" not in word else word for word in line.split()] for line in nics]
        try:
            for number, (binary, *arguments) in enumerate(cards):
                self.start(binary, out, f"-{number + 1}" if number else "", arguments)
        except BaseException:
            self.stop()
            raise

    def start(self, binary, out, suffix, arguments):
        # In another guest's directory there are already sockets with the usual names.
        prefix = "" if self.owns_home else "peer-"
        socket, control = (self.home / f"{prefix}{name}{suffix}" for name in ["device", "control"])
        log = out / f"{Path(binary).name}{suffix}.log"
        with open(log, "wb") as file:
            process = subprocess.Popen(
                [binary, "--socket", socket, "--control", control, "--trace", out / f"commands{suffix}", *arguments],
                cwd=self.home, stdin=subprocess.DEVNULL, stdout=file, stderr=file,
            )
        self.processes.append(process)
        self.sockets.append((socket, control, Path(binary).name))
        deadline = time.monotonic() + 10
        while not (socket.exists() and control.exists()):
            if process.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError(f"{binary} did not start: {log.read_text()}")
            time.sleep(0.05)

    def qemu_options(self, memory, kind=X86):
        """The devices, memory that they can reach, and their control lines as the guest's serial ports from the second on.

        virtme-ng splits the text at spaces and passes it through a shell.
        """
        machine, serial = kind
        options = [
            "-nodefaults",
            f"-object memory-backend-memfd,id=mem,size={memory},share=on -machine memory-backend=mem{machine}",
        ]
        for number, (socket, control, program) in enumerate(self.sockets):
            # The efa driver waits for at most 50 ms until a register that it has asked for is there. So the guest stands still meanwhile.
            waits = ',"x-no-posted-writes":true' if program == "vefa" else ""
            device = f'{{"driver":"vfio-user-pci","socket":{{"type":"unix","path":"{socket}"}}{waits}}}'.replace('"', '\\"')
            options += [
                f"-device {device}",
                f"-chardev socket,id=control{number},path={control} -device {serial},chardev=control{number}",
            ]
        for number, nic in enumerate(self.nics):
            # Without a wire nobody is at the other end.
            own, peer = next((word for word in nic if isinstance(word, list)), [self.home / f"nic{number}", self.home / "nobody"])
            more = "".join(f",{word}" for word in nic if isinstance(word, str))
            options += [
                f"-netdev dgram,id=wire{number},local.type=unix,local.path={own},remote.type=unix,remote.path={peer}",
                f"-device virtio-net-pci,netdev=wire{number},romfile={more}",
            ]
        return " ".join(options)

    def stop(self):
        # The programs end with the machine; or at once if there never was a machine.
        for process in self.processes:
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(2)
            if process.poll() is None:
                process.kill()
                process.wait()
        if self.owns_home:
            shutil.rmtree(self.home, ignore_errors=True)
