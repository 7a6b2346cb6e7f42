//! Commands, with which the driver creates, changes and queries everything except packets.

mod capability;
mod counter;
mod fault;
mod flow;
mod function;
mod general;
mod memory;
mod object;
mod pacing;
mod port;
mod port_counter;
mod qp;
mod queue;
mod queue_counter;
mod ring;
mod table;
#[cfg(test)]
mod tests;
mod trace;
mod transport;
mod worker;

pub(crate) use self::capability::Capabilities;
#[cfg(test)]
pub(crate) use self::capability::LOG_RESERVED_QPNS;
pub(crate) use self::fault::{Fault, Faults};
pub(crate) use self::ring::{CommandRing, LOG_COMMANDS, LOG_STRIDE};
pub(crate) use self::table::{COMMANDS, Command};
pub(crate) use self::trace::Trace;
pub(crate) use self::worker::work;
use crate::bits::{Bits, BitsMut};
use crate::device::Device;
use crate::ifc::command::{alloc_pd_in, alloc_pd_out};
use crate::object::Kind;
use crate::umem;

/// Why a command was refused. The numbers are those of `MLX5_CMD_STAT_*` in the kernel's `include/linux/mlx5/device.h`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Status {
    BadOpcode = 0x02,
    BadParameter = 0x03,
    BadResource = 0x05,
    Limit = 0x08,
    BadResourceState = 0x09,
    BadIndex = 0x0a,
    BadQpState = 0x10,
    /// A queue contains more completions than its new size allows (`MLX5_CMD_STAT_BAD_SIZE_OUTS_CQES_ERR`).
    BadSize = 0x40,
    BadInputLength = 0x50,
    BadOutputLength = 0x51,
}

/// The function of a command: reads its input, and writes its output after the status.
pub(crate) type Run = fn(&mut Device, &[u8], &mut [u8]) -> Result<(), Status>;

/// Executes one command and writes its output, including the status.
pub(crate) fn execute(device: &mut Device, input: &[u8], output: &mut [u8]) {
    let opcode = input.num(alloc_pd_in::opcode) as u16;
    let (status, syndrome) = match device.faults.take(opcode) {
        Some(fault) => (fault.status, fault.syndrome),
        None => match run(device, opcode, input, output) {
            Ok(()) => (0, 0),
            // Our own number for each reason; the driver logs it.
            Err(status) => (status as u8, u32::from(opcode) << 16 | status as u32),
        },
    };
    if status != 0 {
        output.fill(0);
    }
    output.set(alloc_pd_out::status, status);
    output.set(alloc_pd_out::syndrome, syndrome);
    device.trace.record(input, output);
}

fn run(device: &mut Device, opcode: u16, input: &[u8], output: &mut [u8]) -> Result<(), Status> {
    let command = Command::find(opcode).ok_or(Status::BadOpcode)?;
    device.objects.act_for(input.num(alloc_pd_in::uid) as u16)?;
    let done = run_for_user(device, command, input, output);
    device.objects.act_for(0).and(done)
}

fn run_for_user(
    device: &mut Device,
    command: &Command,
    input: &[u8],
    output: &mut [u8],
) -> Result<(), Status> {
    // Memory that a program names by its number is replaced by its pages.
    let resolved = umem::resolved(device, command.opcode, input)?;
    let (input, uses) = match &resolved {
        Some((input, uses)) => (&input[..], uses.clone()),
        None => (input, Vec::new()),
    };
    if input.len() < command.input {
        return Err(Status::BadInputLength);
    }
    if output.len() < command.output {
        return Err(Status::BadOutputLength);
    }
    (command.run)(device, input, output)?;
    match Kind::created_by(command.opcode) {
        Some(kind) if !uses.is_empty() => device.objects.also(object::named(kind, output), uses),
        _ => Ok(()),
    }
}
