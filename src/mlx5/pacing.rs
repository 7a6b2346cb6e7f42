//! Sending rates: entries of the device's rate table, for send queues that commands create.

use uverbs_abi::mlx5::ids::pp;
use zerocopy::IntoBytes;

use crate::device::context::Context;
use crate::device::object::{Kind, Object};
use crate::kernel::command::Command;
use crate::kernel::error::{Error, ErrorKind, Result};

const OBJECT: Kind = Kind::OfDriver("pacing.destroy", pp::OBJECT, pp::method::DESTROY);

/// Bit of the flags: the entry has one owner (`MLX5_IB_UAPI_PP_ALLOC_FLAGS_DEDICATED_INDEX`).
const DEDICATED: u32 = 1 << 0;

/// How fast a send queue sends.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Pace {
    /// 1000 bits per second.
    pub rate: u32,
    /// The most bytes that are sent at once; zero for the device's default.
    pub burst: u32,
    /// The usual size of a packet in bytes; zero if it is not known.
    pub packet: u16,
}

impl Pace {
    /// The beginning of `set_pp_rate_limit_context` (mlx5_ifc.h, Linux 6.1).
    fn to_bytes(self) -> [u8; 12] {
        let (rate, burst, packet) = (self.rate, self.burst, u32::from(self.packet));
        let mut bytes = [0; 12];
        for (place, word) in bytes.chunks_exact_mut(4).zip([rate, burst, packet]) {
            place.copy_from_slice(&word.to_be_bytes());
        }
        bytes
    }
}

/// An entry of the device's rate table. Commands that create or change send queues contain its index
/// (`packet_pacing_rate_limit_index`).
#[derive(Debug)]
#[doc(alias = "mlx5dv_pp")]
pub struct PacingEntry {
    object: Object,
    index: u16,
}

impl PacingEntry {
    /// Allocates an entry. Equal rates share one, also those of other programs, unless `is_own`.
    ///
    /// # Errors
    /// As [`PacingEntry::with_context`].
    ///
    /// # Kernel
    /// `MLX5_IB_METHOD_PP_OBJ_ALLOC` (qos.c, Linux 6.1).
    #[doc(alias = "mlx5dv_pp_alloc")]
    pub fn alloc(context: &Context, pace: Pace, is_own: bool) -> Result<Self> {
        Self::with_context(context, &pace.to_bytes(), is_own)
    }

    /// Allocates an entry that is described as the device describes it: up to 48 bytes of `set_pp_rate_limit_context`, the rate first.
    ///
    /// # Errors
    /// [`InvalidInput`](ErrorKind::InvalidInput) for a rate of zero or one that the device does not have, for no bytes or more than 48,
    /// and on a context without DEVX; [`Unsupported`](ErrorKind::Unsupported) for a device that paces nothing, and one of another driver;
    /// [`Exhausted`](ErrorKind::Exhausted) if the table is full.
    ///
    /// # Kernel
    /// `MLX5_IB_METHOD_PP_OBJ_ALLOC` (qos.c, and mlx5_rl_add_rate_raw, rl.c, Linux 6.1).
    pub fn with_context(context: &Context, described: &[u8], is_own: bool) -> Result<Self> {
        use pp::alloc::{CTX, FLAGS, HANDLE, INDEX};
        let mut index = 0_u16;
        let mut command = Command::new("pacing.alloc", pp::OBJECT, pp::method::ALLOC);
        command
            .new_handle(HANDLE)
            .input(CTX, described)
            .flags(FLAGS, if is_own { DEDICATED } else { 0 })
            .output(INDEX, index.as_mut_bytes());
        context.invoke(&mut command).map_err(|error| {
            let hint = match context.has_devx() {
                true => "the device has no such rate, or no description of this length",
                false => "the context was not opened with OpenOptions::devx(true)",
            };
            error.hinted_if(ErrorKind::InvalidInput, hint)
        })?;
        let handle = command.new_handle_of(HANDLE)?;
        Ok(Self { object: Object::new(context, OBJECT, handle), index })
    }

    /// Its index in the table, for commands. Never zero, which stands for no limit.
    pub fn index(&self) -> u16 {
        self.index
    }

    /// Frees the entry and reports any error.
    ///
    /// # Errors
    /// Those of the kernel.
    ///
    /// # Kernel
    /// `MLX5_IB_METHOD_PP_OBJ_DESTROY` (qos.c, Linux 6.1).
    #[doc(alias = "mlx5dv_pp_free")]
    pub fn destroy(mut self) -> Result<(), (Self, Error)> {
        self.object.release().map_err(|error| (self, error))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pace_is_written_as_the_device_reads_it() {
        let pace = Pace { rate: 0x0102_0304, burst: 0x0506_0708, packet: 0x090a };
        assert_eq!(pace.to_bytes(), [1, 2, 3, 4, 5, 6, 7, 8, 0, 0, 9, 10]);
    }
}
