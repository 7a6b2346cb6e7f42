//! A record of commands: the number of each opcode, and the last commands.

use std::collections::{BTreeMap, VecDeque};

use super::{Answer, Command, name};

/// Number of commands that are kept.
const KEPT: usize = 16_384;

/// The record.
#[derive(Debug, Default)]
pub(crate) struct Trace {
    number: u64,
    counts: BTreeMap<u8, u64>,
    lines: VecDeque<(u64, Command, Answer)>,
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

impl Trace {
    pub(super) fn record(&mut self, command: Command, answer: Answer) {
        *self.counts.entry(command.opcode).or_default() += 1;
        if self.lines.len() == KEPT {
            self.lines.pop_front();
        }
        self.lines.push_back((self.number, command, answer));
        self.number += 1;
    }

    /// How many commands of each opcode there were since the last [`clear`](Self::clear).
    pub(crate) fn counts(&self) -> impl Iterator<Item = (u8, u64)> {
        self.counts.iter().map(|(opcode, count)| (*opcode, *count))
    }

    /// The last commands, oldest first: number, opcode, name, status, flags, payload, and the answer after its first 8 bytes.
    pub(crate) fn lines(&self) -> impl Iterator<Item = String> {
        self.lines.iter().map(|(number, command, answer)| {
            let Command { opcode, flags, payload, .. } = command;
            let (flags, status) = (flags & !1, answer[2]);
            format!(
                "{number} {opcode} {} status={status} flags={flags} in={} out={}",
                name(*opcode),
                hex(payload),
                hex(&answer[8..])
            )
        })
    }

    pub(crate) fn clear(&mut self) {
        *self = Self { number: self.number, ..Self::default() };
    }
}
