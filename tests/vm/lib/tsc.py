"""How fast the time stamp counter of this machine goes, which is that of its emulated guests."""

import ctypes
import functools
import mmap
import platform
import time

# rdtsc; shl rdx, 32; or rax, rdx; ret
READ = bytes.fromhex("0f3148c1e2204809d0c3")
SECONDS = 0.1
TRIES = 5


@functools.cache
def khz():
    """Its kHz; none where there is no such counter.

    A guest measures it against timers that QEMU emulates. On a busy machine it takes a tenth of the right number now and then
    (`native_calibrate_cpu`, arch/x86/kernel/tsc.c, Linux 6.1: "PIT calibration deviates from PMTIMER"), and its clock goes ten times as fast: then
    whatever has a time limit fails.
    """
    if platform.machine() != "x86_64":
        return None
    code = mmap.mmap(-1, mmap.PAGESIZE, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC)
    code.write(READ)
    counter = ctypes.CFUNCTYPE(ctypes.c_uint64)(ctypes.addressof(ctypes.c_char.from_buffer(code)))

    def both():
        # Uses the closest pair of readings: a reading that was interrupted in the middle is not trusted.
        looks = []
        for _ in range(20):
            before = time.clock_gettime_ns(time.CLOCK_MONOTONIC_RAW)
            ticks = counter()
            after = time.clock_gettime_ns(time.CLOCK_MONOTONIC_RAW)
            looks.append((after - before, ticks, (before + after) / 2))
        return min(looks)[1:]

    def measure():
        ticks, since = both()
        time.sleep(SECONDS)
        more, until = both()
        return (more - ticks) * 1e6 / (until - since)

    return round(sorted(measure() for _ in range(TRIES))[TRIES // 2])
