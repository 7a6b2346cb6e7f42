//! The ring of commands in the guest's memory, and the mailboxes of those that are longer than 16 bytes.

use crate::device::Device;
use vpci::{Fault, Memory};

/// Commands that may be under way at a time, as a power of two.
pub(crate) const LOG_COMMANDS: u32 = 5;
/// Bytes of a ring entry, as a power of two.
pub(crate) const LOG_STRIDE: u32 = 6;

const ENTRY: usize = 1 << LOG_STRIDE;
/// Bytes of a command and of its answer that are in the entry itself.
const INLINE: usize = 16;
/// A command has its opcode and an answer its status, whatever else.
const SHORTEST: usize = 8;
const BLOCK: usize = 576;
const DATA: usize = 512;
/// Longest command or answer that is believed: that of a memory region of some gigabytes.
const LONGEST: usize = 32 << 20;

/// What is wrong with an entry, by the numbers of `MLX5_CMD_DELIVERY_STAT_*` in the kernel's
/// `drivers/net/ethernet/mellanox/mlx5/core/cmd.c`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Delivery {
    Signature = 0x1,
    Token = 0x2,
    BlockNumber = 0x3,
    OutputPointer = 0x4,
    InputPointer = 0x5,
    InputLength = 0x7,
    OutputLength = 0x8,
    Descriptor = 0x10,
}

/// Where the ring is.
#[derive(Debug, Default)]
pub(crate) struct CommandRing {
    pub(crate) address: u64,
}

/// An entry of the ring: where input and output are.
struct Entry {
    bytes: [u8; ENTRY],
}

impl Entry {
    fn word(&self, at: usize) -> u32 {
        u32::from_be_bytes([self.bytes[at], self.bytes[at + 1], self.bytes[at + 2], self.bytes[at + 3]])
    }

    fn pointer(&self, at: usize) -> u64 {
        u64::from(self.word(at)) << 32 | u64::from(self.word(at + 4))
    }

    fn token(&self) -> u8 {
        self.bytes[60]
    }

    fn check(&self) -> Result<(), Delivery> {
        if self.bytes[0] != 7 {
            return Err(Delivery::Descriptor);
        }
        if xor(&self.bytes) != 0xff {
            return Err(Delivery::Signature);
        }
        let (input, output) = (self.word(4) as usize, self.word(56) as usize);
        if !(SHORTEST..=LONGEST).contains(&input) {
            return Err(Delivery::InputLength);
        }
        if !(SHORTEST..=LONGEST).contains(&output) {
            return Err(Delivery::OutputLength);
        }
        Ok(())
    }
}

pub(super) fn xor(bytes: &[u8]) -> u8 {
    bytes.iter().fold(0, |sum, byte| sum ^ byte)
}

/// Carries out the command in a slot of the ring, and answers.
///
/// # Errors
/// When the ring is not in the guest's memory: there is nobody to tell but the log.
pub(crate) fn carry_out(device: &mut Device, slot: u32) -> Result<(), Fault> {
    let address = device.commands.address + (u64::from(slot) << LOG_STRIDE);
    let mut entry = Entry { bytes: [0; ENTRY] };
    device.memory.read(address, &mut entry.bytes)?;
    if entry.bytes[63] & 1 == 0 {
        return Ok(()); // not the device's
    }
    // Whoever makes the queue of events polls for the answers until it is made.
    let tell = device.command_events();
    let delivery = match deliver(device, &mut entry) {
        Ok(()) => 0,
        Err(delivery) => delivery as u8,
    };
    entry.bytes[61] = 0;
    entry.bytes[63] = delivery << 1;
    entry.bytes[61] = !xor(&entry.bytes);
    device.memory.publish(address, &entry.bytes)?;
    if tell {
        device.command_done(slot);
    }
    Ok(())
}

fn deliver(device: &mut Device, entry: &mut Entry) -> Result<(), Delivery> {
    entry.check()?;
    let len = entry.word(4) as usize;
    let mut input = entry.bytes[16..16 + len.min(INLINE)].to_vec();
    let left = len.saturating_sub(INLINE);
    let read = Chain { memory: &device.memory, token: entry.token(), bad: Delivery::InputPointer };
    read.each(entry.pointer(8), left, |_, block, len| input.extend_from_slice(&block[..len]))?;

    let mut output = vec![0; entry.word(56) as usize];
    super::execute(device, &input, &mut output);

    let (inline, rest) = output.split_at(output.len().min(INLINE));
    entry.bytes[32..32 + inline.len()].copy_from_slice(inline);
    let write = Chain { memory: &device.memory, token: entry.token(), bad: Delivery::OutputPointer };
    let mut parts = rest.chunks(DATA);
    let mut written = Ok(());
    write.each(entry.pointer(48), rest.len(), |address, block, len| {
        block[..len].copy_from_slice(parts.next().unwrap_or_default());
        sign(block);
        written = written.and(device.memory.write(address, block));
    })?;
    written.map_err(|_| Delivery::OutputPointer)
}

/// A chain of mailboxes.
struct Chain<'a> {
    memory: &'a Memory,
    token: u8,
    /// What an address that is none is called.
    bad: Delivery,
}

impl Chain<'_> {
    /// Visits the blocks of `left` bytes with their address and the number of bytes in each.
    fn each(
        &self,
        mut address: u64,
        mut left: usize,
        mut visit: impl FnMut(u64, &mut [u8; BLOCK], usize),
    ) -> Result<(), Delivery> {
        let mut number = 0_u32;
        while left > 0 {
            let mut block = [0; BLOCK];
            if !address.is_multiple_of(512) {
                return Err(self.bad);
            }
            self.memory.read(address, &mut block).map_err(|_| self.bad)?;
            if block[573] != self.token {
                return Err(Delivery::Token);
            }
            if block[568..572] != number.to_be_bytes() {
                return Err(Delivery::BlockNumber);
            }
            let next = block[560..568].iter().fold(0, |next, byte| next << 8 | u64::from(*byte));
            let len = left.min(DATA);
            visit(address, &mut block, len);
            left -= len;
            number += 1;
            address = next;
        }
        Ok(())
    }
}

/// Signs a block: one sum over what follows the data, one over everything.
fn sign(block: &mut [u8; BLOCK]) {
    block[574] = 0;
    block[575] = 0;
    block[574] = !xor(&block[DATA..575]);
    block[575] = !xor(&block[..575]);
}

/// The opcode of the command in a slot.
///
/// # Errors
/// As [`carry_out`].
pub(super) fn opcode_of(device: &Device, slot: u32) -> Result<u16, Fault> {
    let address = device.commands.address + (u64::from(slot) << LOG_STRIDE);
    let mut opcode = [0; 2];
    device.memory.read(address + 16, &mut opcode)?;
    Ok(u16::from_be_bytes(opcode))
}
