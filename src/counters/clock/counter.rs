//! The counter of a CPU: the time stamp counter of x86-64, the virtual count of the generic timer of aarch64.
//!
//! # Safety
//! Both processors have an instruction for it, which reads and writes no memory. A process that has forbidden its own use of it
//! (`PR_SET_TSC`, prctl(2); on aarch64 since Linux 6.12) gets a signal, as it does from `clock_gettime`. If an erratum makes reads of
//! aarch64's counter unreliable, they trap, and Linux returns the right count (`cntvct_read_handler`, arch/arm64/kernel/traps.c, 6.1):
//! this is slow, but correct.

#![allow(unsafe_code)]

/// The kernel's name of the clock source that uses the counter.
pub(super) const SOURCE: Option<&str> = if cfg!(miri) {
    None
} else if cfg!(target_arch = "x86_64") {
    Some("tsc")
} else if cfg!(target_arch = "aarch64") {
    Some("arch_sys_counter")
} else {
    None
};

/// Binary places of the length of a tick. With 64 the counter has to be faster than 1 GHz, as that of x86-64 is; aarch64's may have 4
/// MHz, and usually has 25 MHz to 1 GHz.
pub(super) const PLACES: u32 = if cfg!(target_arch = "aarch64") { 56 } else { 64 };

/// Ticks by which a moment may be later than the counter shows: on x86-64 a tick takes less than an instruction, so this is zero.
pub(super) const STEP: u64 = if cfg!(target_arch = "aarch64") { 1 } else { 0 };

#[cfg(all(target_arch = "x86_64", not(miri)))]
#[inline]
pub(super) fn ticks() -> u64 {
    // SAFETY: every x86-64 CPU has the instruction.
    unsafe { core::arch::x86_64::_rdtsc() }
}

/// After a barrier, because otherwise the CPU would read the register long before the preceding instructions have ended (Arm ARM, DDI
/// 0487, D12.1.2; the kernel's `__arch_get_hw_counter`, 6.1, has it too).
#[cfg(all(target_arch = "aarch64", not(miri)))]
#[inline]
pub(super) fn ticks() -> u64 {
    let ticks: u64;
    // SAFETY: every aarch64 CPU has the register, and Linux lets programs read it (the page above).
    unsafe {
        std::arch::asm!("isb", "mrs {}, cntvct_el0", out(reg) ticks, options(nostack, preserves_flags));
    }
    ticks
}

#[cfg(not(all(any(target_arch = "x86_64", target_arch = "aarch64"), not(miri))))]
#[inline]
pub(super) fn ticks() -> u64 {
    0
}
