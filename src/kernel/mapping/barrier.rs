//! What keeps accesses to memory in the order in which a device is to see them.
//!
//! The orderings of the language are for other threads. On x86 they are enough for a device too, which sees stores, also those to write-combining
//! memory before a locked instruction or a fence, as another processor does. Other processors tell the two apart: `dmb ish` on Arm
//! orders nothing for what is outside of the inner domain, `fence rw, rw` on RISC-V nothing that is not memory. So each place where a device takes over has
//! one of these besides the ordering of its atomic, with which threads and Miri are content.
//!
//! The instructions are those of rdma-core's util/udma_barrier.h (65.0) and of the kernel's `dma_wmb`, `dma_rmb` (6.12, arch/*/include/asm/barrier.h).
//! `.ci/targets` compares what each target gets with tests/golden/barriers.txt, since no emulator shows where one is missing.
//!
//! # Safety
//! The instructions touch no register and no memory; they keep others in order. None is marked as one that reads no memory, so the compiler keeps
//! accesses on their side of it, too.

#![allow(unsafe_code)]

use std::sync::atomic::{Ordering, fence};

/// What a target has for a device: the instruction, or the language's strongest fence.
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

/// Nothing on x86, which has no weaker order of stores, or of loads, to memory; else the strongest fence.
#[inline(always)]
#[cfg_attr(any(target_arch = "aarch64", target_arch = "riscv32", target_arch = "riscv64"), allow(dead_code))]
fn strong_unless_x86() {
    if !cfg!(any(target_arch = "x86", target_arch = "x86_64")) {
        fence(Ordering::SeqCst);
    }
}

/// Before a word in memory by which the device learns of others, such as a doorbell record: those are seen first. The word is stored with release.
#[inline(always)]
pub(crate) fn before_record() {
    order!("dmb oshst", "fence ow, ow", strong_unless_x86());
}

/// After a word in memory by which the device says that others are written, such as one with an owner bit: those are read after it. The word is loaded
/// with acquire.
#[inline(always)]
pub(crate) fn after_owner() {
    order!("dmb oshld", "fence ir, ir", strong_unless_x86());
}

/// Before a register: what was written to memory is seen by the device first, and what was written to write-combining memory has left the processor.
#[inline(always)]
pub(crate) fn before_doorbell() {
    order!("dsb st", "fence ow, ow", fence(Ordering::SeqCst));
}

/// Before a register by which the device gets room back: what stood there is read by then.
#[inline(always)]
pub(crate) fn before_return() {
    order!("dmb oshld", "fence ir, ow", strong_unless_x86());
}

/// After a register, whose page may be write-combining: it leaves the processor now, and before the next one.
#[inline(always)]
pub(crate) fn after_doorbell() {
    order!("dsb st", "fence ow, ow", fence(Ordering::SeqCst));
}
