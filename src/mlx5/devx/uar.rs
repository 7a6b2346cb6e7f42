//! Pages of doorbells.

use nix::errno::Errno;
use uverbs_abi::mlx5::ids::{uar, uar_alloc_type};

use crate::device::context::Context;
use crate::device::object::{Kind, Object};
use crate::driver::mlx5::UarPage;
use crate::kernel::error::{Error, Result};
use crate::kernel::mapping::{Mapping, Register};

const OBJECT: Kind = Kind::OfDriver("uar.destroy", uar::OBJECT, uar::method::DESTROY);

/// How the processor writes to a page of doorbells.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UarKind {
    /// Not cached: each store arrives by itself.
    NotCached,
    /// Write-combining, for requests that are written with their doorbell. Not where the processor does not combine.
    WriteCombining,
}

/// A page of doorbells of 4 KiB, whose number is contained in commands that create queues.
#[derive(Debug)]
#[doc(alias = "mlx5dv_devx_uar")]
pub struct Uar {
    /// Before the object, which the kernel keeps until the page is unmapped.
    page: Mapping,
    object: Object,
    number: u32,
    #[cfg(feature = "raw")]
    offset: u64,
}

impl Uar {
    /// Allocates and maps a page.
    ///
    /// # Errors
    /// [`Unsupported`](crate::ErrorKind::Unsupported) for devices of other drivers, and for write-combining where the kernel has found
    /// that the processor does not combine; [`Exhausted`](crate::ErrorKind::Exhausted) if the device has no further page.
    ///
    /// # Kernel
    /// `MLX5_IB_METHOD_UAR_OBJ_ALLOC` (main.c, Linux 6.1).
    #[doc(alias = "mlx5dv_devx_alloc_uar")]
    pub fn alloc(context: &Context, kind: UarKind) -> Result<Self> {
        let op = "uar.alloc";
        let kind = match kind {
            UarKind::NotCached => uar_alloc_type::NC,
            UarKind::WriteCombining => uar_alloc_type::BF,
        };
        let made = UarPage::alloc(context, kind)?;
        let object = Object::new(context, OBJECT, made.handle);
        let page = made.map(op, context)?;
        Ok(Self {
            page,
            object,
            number: made.number,
            #[cfg(feature = "raw")]
            offset: made.offset,
        })
    }

    /// Its number, for commands.
    pub fn number(&self) -> u32 {
        self.number
    }

    /// Rings a doorbell: stores eight bytes at once, at an offset that is a multiple of eight. The device first sees everything that was
    /// written to memory before.
    ///
    /// # Errors
    /// [`InvalidInput`](crate::ErrorKind::InvalidInput) for an offset outside the page or between two registers;
    /// [`Disassociated`](crate::ErrorKind::Disassociated) in a child of `fork`.
    pub fn ring(&self, offset: usize, value: [u8; 8]) -> Result<()> {
        let op = "uar.ring";
        self.object.context().check_origin(op)?;
        let register = Register::new(&self.page, offset).ok_or_else(|| {
            Error::refused(op, Errno::EINVAL, format!("there is no register of eight bytes at {offset:#x}"))
        })?;
        register.ring(value);
        Ok(())
    }

    /// Where the page is in the process.
    #[cfg(feature = "raw")]
    pub fn address(&self) -> u64 {
        self.page.address()
    }

    /// The offset for `mmap` by which another process can map the page.
    #[cfg(feature = "raw")]
    pub fn mmap_offset(&self) -> u64 {
        self.offset
    }

    /// Unmaps and frees the page and reports any error.
    ///
    /// # Errors
    /// Those of the kernel; the page is unmapped nevertheless.
    ///
    /// # Kernel
    /// `MLX5_IB_METHOD_UAR_OBJ_DESTROY` (main.c, Linux 6.1).
    #[doc(alias = "mlx5dv_devx_free_uar")]
    pub fn destroy(self) -> Result<()> {
        let Self { page, mut object, .. } = self;
        drop(page);
        object.release()
    }
}
