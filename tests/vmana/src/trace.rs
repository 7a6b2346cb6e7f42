//! A record of commands: the number of each code, and the last commands.

use std::collections::{BTreeMap, VecDeque};

use vpci::bytes::Bytes as _;

use crate::command::{Command, name};

/// Number of commands that are kept.
const KEPT: usize = 16_384;

/// The record.
#[derive(Debug, Default)]
pub(crate) struct Trace {
    number: u64,
    counts: BTreeMap<u32, u64>,
    lines: VecDeque<(u64, Command, Vec<u8>)>,
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

impl Trace {
    pub(crate) fn record(&mut self, command: Command, answer: Vec<u8>) {
        *self.counts.entry(command.code).or_default() += 1;
        if self.lines.len() == KEPT {
            self.lines.pop_front();
        }
        self.lines.push_back((self.number, command, answer));
        self.number += 1;
    }

    /// How many commands of each code there were since the last [`clear`](Self::clear).
    pub(crate) fn counts(&self) -> impl Iterator<Item = (u32, u64)> {
        self.counts.iter().map(|(code, count)| (*code, *count))
    }

    /// The last commands, oldest first: number, code, name, status, the request after its header, and the answer after its header.
    pub(crate) fn lines(&self) -> impl Iterator<Item = String> {
        self.lines.iter().map(|(number, command, answer)| {
            let (input, output) = (command.bytes.get(40..), answer.get(32..));
            format!(
                "{number} {:x} {} status={:#x} in={} out={}",
                command.code,
                name(command.code),
                answer.u32(24),
                hex(input.unwrap_or_default()),
                hex(output.unwrap_or_default())
            )
        })
    }

    pub(crate) fn clear(&mut self) {
        *self = Self { number: self.number, ..Self::default() };
    }
}
