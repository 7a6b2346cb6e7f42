//! DEVX: commands to the firmware of a ConnectX, and the objects that they create.
//!
//! The kernel passes such commands on: it reads the opcode and the object, fills in the user context, and copies the rest
//! (`drivers/infiniband/hw/mlx5/devx.c`). The layouts of commands are those of NVIDIA's *Programmer's Reference Manual*, big-endian; the
//! crate does not interpret them. Open the context with [`OpenOptions::devx`](crate::OpenOptions::devx).
//!
//! | call | commands |
//! | --- | --- |
//! | [`command()`] | that concern no object: capabilities, ports, counters of the port |
//! | [`FirmwareObject::create`] | that create an object, which [`query`](FirmwareObject::query) and [`modify`](FirmwareObject::modify) name |
//! | [`query`], [`modify`] | about a queue of this crate |
//! | [`Answers`] | queries that are answered later |
//! | [`EventChannel`] | events of objects and of the device |
//! | [`Umem`], [`Uar`], [`Var`], [`event_queue`] | none: memory, pages of doorbells and an event queue, whose numbers commands contain |
//!
//! No command can harm the process: a device writes only to memory that is registered, which is never lent as a slice, and the firmware
//! separates the objects of a context from those of others. The crate refuses a command or an answer that is too short for its fields.
//!
//! ```no_run
//! use uverbs::OpenOptions;
//! use uverbs::mlx5::devx::{self, FirmwareObject};
//!
//! # fn main() -> uverbs::Result<()> {
//! let context = OpenOptions::new().devx(true).open(uverbs::devices()?.named("mlx5_0")?)?;
//! // QUERY_HCA_CAP, general capabilities as they are set.
//! let (mut request, mut answer) = ([0; 16], vec![0; 16 + 4096]);
//! request[..2].copy_from_slice(&0x100_u16.to_be_bytes());
//! request[7] = 1;
//! devx::command(&context, &request, &mut answer)?;
//!
//! // ALLOC_PD
//! let (mut request, mut answer) = ([0; 16], [0; 16]);
//! request[..2].copy_from_slice(&0x800_u16.to_be_bytes());
//! let pd = FirmwareObject::create(&context, &request, &mut answer)?;
//! println!("protection domain {}", u32::from_be_bytes([0, answer[9], answer[10], answer[11]]));
//! pd.destroy().map_err(|(_, error)| error)?;
//! # Ok(())
//! # }
//! ```

mod answers;
pub(super) mod command;
mod events;
mod lengths;
mod object;
mod target;
mod uar;
mod umem;
#[cfg(feature = "raw")]
mod umem_at;
mod var;

use uverbs_abi::mlx5::ids::devx;
use zerocopy::IntoBytes;

pub use self::answers::Answers;
pub use self::events::{EventChannel, FirmwareEvent};
pub use self::object::FirmwareObject;
pub use self::target::{Target, modify, query};
#[cfg(feature = "raw")]
pub use self::target::{modify_handle, query_handle};
pub use self::uar::{Uar, UarKind};
pub use self::umem::Umem;
#[cfg(feature = "raw")]
pub use self::umem::UmemRange;
pub use self::var::Var;
use crate::device::context::Context;
use crate::kernel::command::Command;
use crate::kernel::error::{Error, ErrorKind, Result};

/// Runs a command that concerns no object. `answer` begins with status and syndrome, and has as many bytes as the answer is to have.
///
/// After an error its first eight bytes are those of the firmware, or zero if the command did not get there.
///
/// # Errors
/// [`InvalidInput`](ErrorKind::InvalidInput) for a command or an answer that is too short (16 bytes at least), for a command that the
/// kernel does not pass on this way, and on a context without DEVX for any command but those that read capabilities;
/// [`Unsupported`](ErrorKind::Unsupported) for a device without DEVX; if the firmware refuses, the hint contains its status and syndrome.
///
/// # Kernel
/// `MLX5_IB_METHOD_DEVX_OTHER` (devx_is_general_cmd, devx.c, Linux 6.1).
#[doc(alias = "mlx5dv_devx_general_cmd")]
pub fn command(context: &Context, request: &[u8], answer: &mut [u8]) -> Result<()> {
    let op = "devx.command";
    lengths::check(op, request, answer.len())?;
    clear(answer);
    let mut command = Command::new(op, devx::OBJECT, devx::method::OTHER);
    command.input(devx::other::CMD_IN, request).output(devx::other::CMD_OUT, answer);
    let sent = context.invoke(&mut command);
    command::judge(op, sent, answer).map_err(|error| explained(context, error))
}

/// The number of the event queue that a completion vector uses, for commands that create completion queues.
///
/// # Errors
/// [`InvalidInput`](ErrorKind::InvalidInput) for a vector that the device does not have;
/// [`Unsupported`](ErrorKind::Unsupported) for a device without DEVX.
///
/// # Kernel
/// `MLX5_IB_METHOD_DEVX_QUERY_EQN` (devx.c, Linux 6.1).
#[doc(alias = "mlx5dv_devx_query_eqn")]
pub fn event_queue(context: &Context, vector: u32) -> Result<u32> {
    let op = "devx.event_queue";
    let mut number = 0_u32;
    let mut command = Command::new(op, devx::OBJECT, devx::method::QUERY_EQN);
    command.input(devx::query_eqn::USER_VEC, &vector).output(devx::query_eqn::DEV_EQN, number.as_mut_bytes());
    context.invoke(&mut command)?;
    Ok(number)
}

/// The head of an answer, in which the firmware's status is read also after an error.
fn clear(answer: &mut [u8]) {
    answer.iter_mut().take(8).for_each(|byte| *byte = 0);
}

/// The kernel reports only EINVAL on a context without DEVX.
fn explained(context: &Context, error: Error) -> Error {
    if context.has_devx() {
        return error;
    }
    error.hinted_if(ErrorKind::InvalidInput, "the context was not opened with OpenOptions::devx(true)")
}
