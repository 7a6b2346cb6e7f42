//! Memory that commands name by a number.

use uverbs_abi::mlx5::ids::devx_umem;
use uverbs_abi::types::AccessFlags;
use zerocopy::IntoBytes;

use super::explained;
use crate::device::context::Context;
use crate::device::object::{Kind, Object};
use crate::kernel::command::Command;
use crate::kernel::error::{Error, Result};
use crate::kernel::mapping::Mapping;

const OBJECT: Kind = Kind::OfDriver("umem.destroy", devx_umem::OBJECT, devx_umem::method::DEREG);

/// Memory for objects of the firmware, such as the ring of a queue or a doorbell record.
///
/// It keeps the memory alive. If it cannot be deregistered because an object still uses it, the memory is leaked on purpose.
#[derive(Debug)]
#[doc(alias = "mlx5dv_devx_umem")]
pub struct Umem {
    object: Object,
    number: u32,
}

/// All page sizes from 4 KiB on.
const ALL_SIZES: u64 = !0xfff;

/// Memory of the process, or of a dma-buf, as the kernel gets it.
#[cfg_attr(not(feature = "raw"), expect(unreachable_pub))]
#[derive(Clone, Copy, Debug)]
pub struct UmemRange {
    /// The first address in the process, or the offset in the dma-buf.
    pub start: u64,
    /// Bytes.
    pub length: u64,
    /// Bits of [`AccessFlags`], which are not checked here.
    pub access: u32,
    /// A bit for each page size in bytes that will do; none for every size from 4 KiB on.
    pub page_sizes: Option<u64>,
    /// The number of the dma-buf's file.
    pub dmabuf: Option<u32>,
}

impl Umem {
    /// Registers memory, all of it. `page_sizes` has a bit for each page size in bytes that will do; none if commands name only its
    /// beginning. Then every size from 4 KiB on will do, and the kernel chooses.
    ///
    /// # Errors
    /// [`InvalidInput`](crate::ErrorKind::InvalidInput) for other flags than local write, remote read and remote write, remote write
    /// without local write, page sizes of which none fits, and on a context without DEVX;
    /// [`Unsupported`](crate::ErrorKind::Unsupported) for a device without DEVX; [`Exhausted`](crate::ErrorKind::Exhausted) for more
    /// memory than the process may pin.
    ///
    /// # Kernel
    /// `MLX5_IB_METHOD_DEVX_UMEM_REG` (devx.c, Linux 6.1).
    #[doc(alias = "mlx5dv_devx_umem_reg")]
    #[doc(alias = "mlx5dv_devx_umem_reg_ex")]
    pub fn register(
        context: &Context,
        memory: &Mapping,
        access: AccessFlags,
        page_sizes: Option<u64>,
    ) -> Result<Self> {
        let range = UmemRange {
            start: memory.address(),
            length: memory.len() as u64,
            access: access.bits(),
            page_sizes,
            dmabuf: None,
        };
        register(context, &range, Some(memory))
    }

    /// Its number, for commands.
    pub fn number(&self) -> u32 {
        self.number
    }

    /// The open device to which it belongs.
    pub fn context(&self) -> &Context {
        self.object.context()
    }

    /// Deregisters the memory and reports any error.
    ///
    /// # Errors
    /// Those of the firmware, such as while an object uses it.
    ///
    /// # Kernel
    /// `MLX5_IB_METHOD_DEVX_UMEM_DEREG` (devx.c, Linux 6.1).
    #[doc(alias = "mlx5dv_devx_umem_dereg")]
    pub fn destroy(mut self) -> Result<(), (Self, Error)> {
        self.object.release_for_sure().map_err(|error| (self, error))
    }
}

pub(super) fn register(context: &Context, range: &UmemRange, memory: Option<&Mapping>) -> Result<Umem> {
    use devx_umem::reg::{ACCESS, ADDR, DMABUF_FD, HANDLE, LEN, OUT_ID, PGSZ_BITMAP};
    let mut number = 0_u32;
    let mut command = Command::new("umem.register", devx_umem::OBJECT, devx_umem::method::REG);
    command
        .new_handle(HANDLE)
        .input(ADDR, &range.start)
        .input(LEN, &range.length)
        .flags(ACCESS, range.access)
        .value(PGSZ_BITMAP, range.page_sizes.unwrap_or(ALL_SIZES))
        .output(OUT_ID, number.as_mut_bytes());
    if let Some(file) = range.dmabuf {
        // A file is announced like a handle: no length, and the number as the value.
        command.handle(DMABUF_FD, file);
    }
    context.invoke(&mut command).map_err(|error| explained(context, error))?;
    let handle = command.new_handle_of(HANDLE)?;
    Ok(Umem { object: Object::new(context, OBJECT, handle).holding(memory), number })
}
