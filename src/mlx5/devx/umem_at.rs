//! Memory by its address, for bindings (feature `raw`).
//!
//! # Safety
//! A device may read and write registered memory at any time until it is deregistered. This layer does not keep the memory alive: a caller
//! that registers an address must meet the conditions of [`Umem::register_at`]. Nothing in this file accesses the memory.

#![allow(unsafe_code)]

use super::Umem;
use super::umem::{UmemRange, register};
use crate::device::context::Context;
use crate::kernel::error::Result;

impl Umem {
    /// Registers memory by its address.
    ///
    /// # Errors
    /// Those of [`Umem::register`]; EBADF for a number that is no open file.
    ///
    /// # Safety
    /// Until the memory is deregistered, the device may read and write it: it stays mapped, and nothing else is put there, and no reference
    /// says otherwise. Memory that is not there at all is refused by the kernel.
    pub unsafe fn register_at(context: &Context, range: UmemRange) -> Result<Self> {
        register(context, &range, None)
    }
}
