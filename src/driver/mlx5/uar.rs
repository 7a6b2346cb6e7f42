//! Pages of registers (UAR), to which doorbells are written.

use uverbs_abi::mlx5::UAR_SIZE;
use uverbs_abi::mlx5::ids::uar;
use zerocopy::IntoBytes;

use crate::driver::seam::Kernel;
use crate::kernel::command::Command;
use crate::kernel::error::{Error, Result};
use crate::kernel::mapping::Mapping;

/// A page that the kernel has allocated, and that is not mapped yet.
#[derive(Debug)]
pub(crate) struct UarPage {
    /// The kernel's handle.
    pub(crate) handle: u32,
    /// The device's number of the page.
    pub(crate) number: u32,
    /// The offset for `mmap`.
    pub(crate) offset: u64,
    length: u32,
}

impl UarPage {
    /// Allocates a page, of one of [`uverbs_abi::mlx5::ids::uar_alloc_type`] (`UVERBS_HANDLER(MLX5_IB_METHOD_UAR_OBJ_ALLOC)`, main.c,
    /// Linux 6.1).
    pub(crate) fn alloc(kernel: &dyn Kernel, kind: u64) -> Result<Self> {
        let (mut offset, mut length, mut number) = (0_u64, 0_u32, 0_u32);
        let mut command = Command::new("uar.alloc", uar::OBJECT, uar::method::ALLOC);
        command
            .new_handle(uar::alloc::HANDLE)
            .value(uar::alloc::TYPE, kind)
            .output(uar::alloc::MMAP_OFFSET, offset.as_mut_bytes())
            .output(uar::alloc::MMAP_LENGTH, length.as_mut_bytes())
            .output(uar::alloc::PAGE_ID, number.as_mut_bytes());
        kernel.invoke(&mut command)?;
        let handle = command.new_handle_of(uar::alloc::HANDLE)?;
        Ok(Self { handle, number, offset, length })
    }

    /// Maps the page.
    pub(crate) fn map(&self, op: &'static str, kernel: &dyn Kernel) -> Result<Mapping> {
        let page = kernel.map(op, self.offset, self.length as usize)?;
        if page.len() < UAR_SIZE {
            return Err(Error::malformed(op, "a page of registers that is none"));
        }
        Ok(page)
    }
}
