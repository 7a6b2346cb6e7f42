#!/usr/bin/env python3
"""Lane mlx5 of tests/vm/run: the kernel's mlx5 drivers on a virtual ConnectX.

The device is tests/vhca, which QEMU reaches over vfio-user: that needs QEMU 10.1 or later, which bookworm and trixie do
not have. It is unpacked into the cache, not installed, and started by its own loader with its own libraries.

`prepare` returns what a guest needs; `Device` is the device of one boot. Until the runner has the lane, this file runs
it by itself:

    tests/vm/mlx5.py [-c COMMAND] [--vhca ARGUMENT ...] [KERNEL ...]
"""

import argparse
import contextlib
import fcntl
import importlib.machinery
import importlib.util
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
REPO = HERE.parent.parent

# Where QEMU is new enough, and what of it is wanted.
QEMU_SUITES = ["debian trixie", "debian trixie-backports"]
QEMU_TARGET = "trixie-backports"
QEMU_PACKAGE = "qemu-system-x86"

MEMORY = "1G"

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
    runner.KERNELS.setdefault("qemu", QEMU_SUITES)  # where `Apt` looks for the suites of a name
    apt = runner.Apt("qemu")
    del runner.KERNELS["qemu"]
    # Without a list of installed packages everything it needs is named, down to the C library.
    (runner.CACHE / "apt/qemu/status").touch()
    apt.options.append(f"-oDir::State::Status={runner.CACHE / 'apt/qemu/status'}")
    wanted = ["--no-install-recommends", "-t", QEMU_TARGET, "install", QEMU_PACKAGE]
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


def build_peer(runner):
    """Compile the program that uses the stock libraries."""
    runner.LOGS.mkdir(parents=True, exist_ok=True)
    peer = runner.LOGS / "mlx5-peer"
    source = HERE / "mlx5-peer.c"
    warnings = ["-Wall", "-Wextra", "-Wno-missing-field-initializers", "-Wno-address-of-packed-member"]
    runner.run("cc", "-O1", "-g", *warnings, "-o", peer, source, "-libverbs", stderr=subprocess.PIPE)
    return peer


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

    def qemu_options(self):
        """The device, memory that it can reach, and its control line as the guest's second serial port.

        virtme-ng splits the text at spaces and passes it through a shell. Without the high-precision timer: with it a
        boot in some tens hangs early under emulation.
        """
        device = f'{{"driver":"vfio-user-pci","socket":{{"type":"unix","path":"{self.socket}"}}}}'.replace('"', '\\"')
        return " ".join([
            "-nodefaults",
            f"-object memory-backend-memfd,id=mem,size={MEMORY},share=on -machine memory-backend=mem,hpet=off",
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


# The lane by itself.


def load_runner():
    loader = importlib.machinery.SourceFileLoader("uverbs_vm_run", str(HERE / "run"))
    module = importlib.util.module_from_spec(importlib.util.spec_from_loader(loader.name, loader))
    sys.modules[loader.name] = module
    loader.exec_module(module)
    return module


def guest_class(runner, qemu, binary, arguments):
    class Guest(runner.Guest):
        """As the runner's, with a device of its own and another QEMU."""

        def __init__(self, kernel, lane, env, path):
            self.out = runner.LOGS / f"{kernel.name}-{lane}"
            shutil.rmtree(self.out, ignore_errors=True)
            self.out.mkdir(parents=True)
            self.device = Device(binary, self.out, arguments)
            words = [f"{key}={value}" for key, value in env.items()]
            command = runner.shlex.join(["env", *words, "sh", str(HERE / "mlx5.sh"), str(self.out)])
            with open(self.out / "console.log", "wb") as console:
                self.process = subprocess.Popen(
                    ["vng", "--verbose", "--disable-kvm", "--disable-microvm", "--force-9p", "--qemu", str(qemu)]
                    + ["--run", str(kernel.image), "--cpus", "1", "--memory", MEMORY, f"--rwdir={self.out}"]
                    + [f"--qemu-opts={self.device.qemu_options()}", "--", command],
                    cwd=REPO, env=os.environ | {"PATH": path},
                    stdin=subprocess.DEVNULL, stdout=console, stderr=console, start_new_session=True,
                )

        def stop(self):
            super().stop()
            self.device.stop()

    return Guest


def main():
    runner = load_runner()
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("kernels", nargs="*", metavar="kernel", help=f"of {', '.join(runner.KERNELS)}")
    parser.add_argument("-c", "--command", help="run this shell command beside the device instead of the steps")
    parser.add_argument("--vhca", action="append", default=[], metavar="ARGUMENT", help="for the device, as --vhca=--cap=...")
    parser.add_argument("--boot-limit", type=float, default=180)
    parser.add_argument("--limit", type=float, default=600)
    options = parser.parse_args()
    for name in options.kernels:
        if name not in runner.KERNELS:
            parser.error(f"no such kernel: {name}")
    rows = []
    try:
        uverbs = os.environ.get("UVERBS_BIN") or runner.build(
            "bin", ["uverbs"], "cargo", "build", "--release", "--features", "cli", "--bin", "uverbs")[0]
        vhca = os.environ.get("VHCA_BIN") or runner.build("bin", ["vhca"], "cargo", "build", "--release", "-p", "vhca")[0]
        runner.CACHE.mkdir(parents=True, exist_ok=True)
        with open(runner.CACHE / "lock", "w", encoding="utf-8") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            runner.install_packages()
            path = runner.install_virtme_ng()
            qemu = prepare_qemu(runner)
        env = {"UVERBS_BIN": uverbs, "PYTHON": sys.executable, "MLX5_PEER": build_peer(runner), "MLX5_CONTROL": "/dev/ttyS1"}
        if tests := os.environ.get("UVERBS_TEST_BINS"):
            env["UVERBS_TEST_BINS"] = tests
        if options.command:
            env["UVERBS_VM_COMMAND"] = options.command
    except runner.Failed as error:
        sys.exit(f"tests/vm/mlx5.py: {error}")
    runner.Guest = guest_class(runner, qemu, vhca, options.vhca)
    for name in options.kernels or runner.DEFAULT_KERNELS:
        try:
            with open(runner.CACHE / "lock", "w", encoding="utf-8") as lock:
                fcntl.flock(lock, fcntl.LOCK_EX)
                kernel = runner.prepare_kernel(name)
            rows += [[name, "mlx5", *row] for row in runner.run_lane(kernel, "mlx5", env, path, options)]
        except (runner.Failed, RuntimeError) as error:
            rows.append([name, "mlx5", "prepare", "fail", str(error).splitlines()[0]])
    sys.exit(0 if runner.summarize(rows) else 1)


if __name__ == "__main__":
    main()
