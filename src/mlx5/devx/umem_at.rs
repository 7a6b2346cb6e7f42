//! Memory by its address, for bindings (feature `raw`).
//!
//! # Safety
//! A device may read and write registered memory at any time until it is deregistered. This layer does not keep the memory alive: a caller
//! that registers an address must meet the conditions of [`Umem::register_at`]. Nothing in this file accesses the memory.

#![allow(unsafe_code)]

use super::Umem;
use super::umem::{Place, register};
use crate::device::context::Context;
use crate::kernel::error::Result;

/// Memory of the process, or of a dma-buf.
#[derive(Clone, Copy, Debug)]
pub struct UmemRange {
    /// The first address in the process, or the offset in the dma-buf.
    pub start: u64,
    /// Bytes.
    pub length: u64,
    /// Bits of [`AccessFlags`](uverbs_abi::types::AccessFlags), which are not checked here.
    pub access: u32,
    /// A bit for each page size in bytes that will do.
    pub page_sizes: u64,
    /// The number of the dma-buf's file.
    pub dmabuf: Option<u32>,
}

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
        let UmemRange { start, length, access, page_sizes, dmabuf } = range;
        register(context, Place { start, length, access, page_sizes, dmabuf }, None)
    }
}
