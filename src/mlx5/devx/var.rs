//! Doorbell pages of emulated devices.

use uverbs_abi::mlx5::ids::var;
use zerocopy::IntoBytes;

use crate::device::context::Context;
use crate::device::object::{Kind, Object};
use crate::kernel::command::Command;
use crate::kernel::error::{Error, Result};

const OBJECT: Kind = Kind::OfDriver("var.destroy", var::OBJECT, var::method::DESTROY);

/// A page of doorbells of an emulated virtio device, which its driver in a virtual machine maps.
#[derive(Debug)]
#[doc(alias = "mlx5dv_var")]
pub struct Var {
    object: Object,
    number: u32,
    offset: u64,
    length: u32,
}

impl Var {
    /// Allocates a page; with `has_packets` one for packets of the transaction layer (TLP).
    ///
    /// # Errors
    /// [`Unsupported`](crate::ErrorKind::Unsupported) for devices that cannot emulate others, and for `has_packets` before the kernel that
    /// has it; [`Exhausted`](crate::ErrorKind::Exhausted) if there is no further page.
    ///
    /// # Kernel
    /// `MLX5_IB_METHOD_VAR_OBJ_ALLOC` (main.c, Linux 6.1).
    #[doc(alias = "mlx5dv_alloc_var")]
    pub fn alloc(context: &Context, has_packets: bool) -> Result<Self> {
        use var::alloc::{FLAGS, HANDLE, MMAP_LENGTH, MMAP_OFFSET, PAGE_ID};
        let (mut offset, mut length, mut number) = (0_u64, 0_u32, 0_u32);
        let mut command = Command::new("var.alloc", var::OBJECT, var::method::ALLOC);
        command
            .new_handle(HANDLE)
            .output(MMAP_OFFSET, offset.as_mut_bytes())
            .output(MMAP_LENGTH, length.as_mut_bytes())
            .output(PAGE_ID, number.as_mut_bytes());
        if has_packets {
            command.flags(FLAGS, 1);
        }
        context.invoke(&mut command)?;
        let handle = command.new_handle_of(HANDLE)?;
        Ok(Self { object: Object::new(context, OBJECT, handle), number, offset, length })
    }

    /// Its number, for commands.
    pub fn number(&self) -> u32 {
        self.number
    }

    /// The offset for `mmap` of the device's file, and the length in bytes.
    pub fn mmap_range(&self) -> (u64, u32) {
        (self.offset, self.length)
    }

    /// Frees the page and reports any error.
    ///
    /// # Errors
    /// Those of the kernel.
    ///
    /// # Kernel
    /// `MLX5_IB_METHOD_VAR_OBJ_DESTROY` (main.c, Linux 6.1).
    #[doc(alias = "mlx5dv_free_var")]
    pub fn destroy(mut self) -> Result<(), (Self, Error)> {
        self.object.release().map_err(|error| (self, error))
    }
}
