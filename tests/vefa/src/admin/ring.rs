//! The ring of commands and the ring of their completions.

use super::check::checksum;
use super::{Command, EMPTY, Status, name};
use crate::bytes::{Bytes as _, BytesMut as _};
use crate::device::{Api, Device};

const COMPLETION: u64 = 64;
/// The long entries of 0.3, which have their own checksum.
const LONG: usize = 128;
const SHORT: usize = 64;

/// The positions in both rings.
#[derive(Debug, Default)]
pub(crate) struct AdminQueue {
    consumed: u16,
    produced: u16,
}

impl AdminQueue {
    pub(crate) fn begin(&mut self) {
        *self = Self::default();
    }
}

/// The phase of an entry: 1 in the first round, and inverted in each further one.
fn phase(count: u16, depth: u16) -> u8 {
    (count / depth + 1) as u8 & 1
}

/// Parses an entry.
///
/// # Errors
/// [`Status::Malformed`] for an unexpected phase, or for a wrong checksum; the command number is returned in that case too.
fn parse(entry: &[u8], phase: u8) -> (Command, Result<(), Status>) {
    let is_long = entry.len() == LONG;
    let payload = entry.array(if is_long { 12 } else { 4 });
    let command = Command { id: entry.u16(0) & 0xfff, opcode: entry.u8(2), flags: entry.u8(3), payload };
    let sum = || {
        let mut entry = entry.to_vec();
        entry.put_u16(4, 0);
        checksum(&entry)
    };
    let is_good = entry.u8(3) & 1 == phase && (!is_long || sum() == entry.u16(4));
    (command, if is_good { Ok(()) } else { Err(Status::Malformed) })
}

impl Device {
    /// The driver has written commands up to a count.
    pub(crate) fn ring_admin(&mut self, count: u32) {
        let (caps, completions) = (self.registers.admin_caps, self.registers.completion_caps);
        let (depth, size) = (caps as u16, (caps >> 16) as usize);
        let waiting = (count as u16).wrapping_sub(self.admin.consumed);
        let sizes: &[usize] =
            if self.api >= (Api { major: 0, minor: 3 }) { &[SHORT, LONG] } else { &[SHORT] };
        if depth == 0
            || completions as u16 == 0
            || u64::from(completions >> 16 & 0xff) != COMPLETION
            || !sizes.contains(&size)
        {
            return self.complain(format!("admin queues of {caps:#x} and {completions:#x}"));
        }
        if waiting > depth {
            return self.complain(format!("{waiting} commands in an admin queue of {depth}"));
        }
        for _ in 0..waiting {
            self.carry_out_next(depth, size);
        }
    }

    fn carry_out_next(&mut self, depth: u16, size: usize) {
        let consumed = self.admin.consumed;
        self.admin.consumed = consumed.wrapping_add(1);
        let mut entry = vec![0; size];
        let at = self.registers.admin_base.wrapping_add(u64::from(consumed % depth) * size as u64);
        if let Err(fault) = self.memory.read(at, &mut entry) {
            return self.note_fault(Err(fault));
        }
        self.statistics.commands += 1;
        let (command, result) = parse(&entry, phase(consumed, depth));
        let (status, mut answer) = match self.faults.take(command.opcode) {
            Some(status) => (status, EMPTY),
            None => match result.and_then(|()| self.carry_out(&command)) {
                Ok(answer) => (0, answer),
                Err(status) => {
                    self.note_refusal(&command, status);
                    (status as u8, EMPTY)
                }
            },
        };
        answer.put_u16(0, command.id);
        answer.put_u8(2, status);
        self.trace.record(command, answer);
        self.complete_command(answer);
    }

    fn note_refusal(&mut self, command: &Command, status: Status) {
        if status == Status::Malformed {
            self.complain(format!("{} is malformed", name(command.opcode)));
        }
    }

    fn complete_command(&mut self, mut answer: [u8; COMPLETION as usize]) {
        let caps = self.registers.completion_caps;
        let (depth, produced) = (caps as u16, self.admin.produced);
        self.admin.produced = produced.wrapping_add(1);
        answer.put_u8(3, phase(produced, depth));
        if self.api >= (Api { major: 0, minor: 2 }) {
            let sum = checksum(&answer);
            answer.put_u16(4, sum);
        }
        let at = self.registers.completion_base.wrapping_add(u64::from(produced % depth) * COMPLETION);
        let result = self.memory.publish_word(at, &answer, 0);
        self.note_fault(result);
        if !self.registers.is_masked {
            self.interrupts.raise(caps >> 24);
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn entries_of_both_sizes_are_taken_apart(id in 0_u16..4096, opcode in any::<u8>(), payload in prop::array::uniform32(any::<u8>())) {
            for (size, at) in [(SHORT, 4), (LONG, 12)] {
                let mut entry = vec![0; size];
                entry.put_u16(0, id);
                entry.put_u8(2, opcode);
                entry.put_u8(3, 1);
                entry.put(at, &payload);
                let sum = checksum(&entry);
                if size == LONG {
                    entry.put_u16(4, sum);
                }
                let (command, result) = parse(&entry, 1);
                prop_assert_eq!((command.id, command.opcode, result), (id, opcode, Ok(())));
                prop_assert_eq!(&command.payload[..32], &payload[..]);
                prop_assert_eq!(parse(&entry, 0).1, Err(Status::Malformed));
                if size == LONG {
                    entry[60] ^= 1;
                    prop_assert_eq!(parse(&entry, 1).1, Err(Status::Malformed));
                }
            }
        }
    }
}
