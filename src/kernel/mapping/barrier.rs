//! Barriers that keep accesses to memory in the order in which a device must see them.
//!
//! The language's orderings are for other threads. On x86 they are sufficient for a device too, which sees stores as another processor
//! does, including those to write-combining memory before a locked instruction or a fence. Other processors distinguish the two: `dmb
//! ish` on Arm orders nothing outside the inner domain, and `fence rw, rw` on RISC-V orders only memory. At each place where a device
//! takes over, there is therefore one of these barriers, in addition to the ordering of the atomic, which is sufficient for threads and
//! for Miri.
//!
//! The instructions are those of rdma-core's util/udma_barrier.h (65.0) and of the kernel's `dma_wmb`, `dma_rmb` (6.12,
//! arch/*/include/asm/barrier.h). `.ci/targets` compares the instructions of each target with tests/golden/barriers.txt, because no
//! emulator shows a missing one.
//!
//! # Safety
//! The instructions access no register and no memory; they only order other accesses. None is marked as not reading memory, so the
//! compiler does not move accesses across them either.

#![allow(unsafe_code)]

use std::sync::atomic::{Ordering, fence};

/// The barrier of each target: the instruction, or the language's strongest fence.
macro_rules! order {
    ($arm:literal, $riscv:literal, $otherwise:expr) => {{
        #[cfg(all(target_arch = "aarch64", not(miri)))]
        // SAFETY: a barrier (the page above).
        unsafe {
            std::arch::asm!($arm, options(nostack, preserves_flags));
        }
        #[cfg(all(any(target_arch = "riscv32", target_arch = "riscv64"), not(miri)))]
        // SAFETY: a barrier (the page above).
        unsafe {
            std::arch::asm!($riscv, options(nostack, preserves_flags));
        }
        #[cfg(any(
            miri,
            not(any(target_arch = "aarch64", target_arch = "riscv32", target_arch = "riscv64"))
        ))]
        $otherwise
    }};
}

/// Nothing on x86, which has no weaker order for stores or loads of memory; otherwise the strongest fence.
#[inline(always)]
#[cfg_attr(any(target_arch = "aarch64", target_arch = "riscv32", target_arch = "riscv64"), allow(dead_code))]
fn strong_unless_x86() {
    if !cfg!(any(target_arch = "x86", target_arch = "x86_64")) {
        fence(Ordering::SeqCst);
    }
}

/// On x86 the fence of stores, as in rdma-core: it waits for stores only, and those to write-combining memory too. The strongest fence, a
/// locked instruction, also holds up everything that follows it, and a request has two of them. Otherwise the strongest fence.
#[inline(always)]
#[cfg_attr(any(target_arch = "aarch64", target_arch = "riscv32", target_arch = "riscv64"), allow(dead_code))]
fn stores() {
    #[cfg(all(any(target_arch = "x86", target_arch = "x86_64"), target_feature = "sse", not(miri)))]
    // SAFETY: a barrier (the page above).
    unsafe {
        std::arch::asm!("sfence", options(nostack, preserves_flags));
    }
    #[cfg(not(all(any(target_arch = "x86", target_arch = "x86_64"), target_feature = "sse", not(miri))))]
    fence(Ordering::SeqCst);
}

/// Before storing a word in memory that announces others to the device, such as a doorbell record: the device sees the others first. The
/// word is stored with release.
#[inline(always)]
pub(crate) fn before_record() {
    order!("dmb oshst", "fence ow, ow", strong_unless_x86());
}

/// After loading a word in memory with which the device announces others, such as one with an owner bit: the others are read after it.
/// The word is loaded with acquire.
#[inline(always)]
pub(crate) fn after_owner() {
    order!("dmb oshld", "fence ir, ir", strong_unless_x86());
}

/// Before writing a register: the device sees everything that was written to memory, and what was written to write-combining memory has
/// left the processor.
#[inline(always)]
pub(crate) fn before_doorbell() {
    order!("dsb st", "fence ow, ow", stores());
}

/// Before writing a register that gives room back to the device: the contents were read by then.
#[inline(always)]
pub(crate) fn before_return() {
    order!("dmb oshld", "fence ir, ow", strong_unless_x86());
}

/// After writing a register whose page may be write-combining: the value leaves the processor now, and before the next one.
#[inline(always)]
pub(crate) fn after_doorbell() {
    order!("dsb st", "fence ow, ow", stores());
}
