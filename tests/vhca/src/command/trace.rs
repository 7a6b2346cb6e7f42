//! A record of commands: the number of each opcode, and the last commands in full.

use std::collections::{BTreeMap, VecDeque};
use std::fmt::{self, Display};

use super::Command;
use crate::bits::Bits;
use crate::ifc::command::{alloc_pd_in, alloc_pd_out};

/// Number of commands that are kept in full.
const KEPT: usize = 16_384;
/// Number of bytes of a command that are kept: enough for everything except page lists and large match values.
const BYTES: usize = 1024;

/// One command.
#[derive(Debug)]
pub(crate) struct Line {
    number: u64,
    opcode: u16,
    status: u8,
    input: Vec<u8>,
    input_len: usize,
    output: Vec<u8>,
    output_len: usize,
}

/// The record.
#[derive(Debug, Default)]
pub(crate) struct Trace {
    number: u64,
    counts: BTreeMap<u16, u64>,
    lines: VecDeque<Line>,
}

impl Trace {
    pub(super) fn record(&mut self, input: &[u8], output: &[u8]) {
        let opcode = input.num(alloc_pd_in::opcode) as u16;
        *self.counts.entry(opcode).or_default() += 1;
        if self.lines.len() == KEPT {
            self.lines.pop_front();
        }
        let start = |bytes: &[u8]| bytes[..bytes.len().min(BYTES)].to_vec();
        self.lines.push_back(Line {
            number: self.number,
            opcode,
            status: output.num(alloc_pd_out::status) as u8,
            input: start(input),
            input_len: input.len(),
            output: start(output),
            output_len: output.len(),
        });
        self.number += 1;
    }

    /// How many commands of each opcode there were since the last [`clear`](Self::clear).
    pub(crate) fn counts(&self) -> impl Iterator<Item = (u16, u64)> {
        self.counts.iter().map(|(opcode, count)| (*opcode, *count))
    }

    /// The last commands, oldest first.
    pub(crate) fn lines(&self) -> impl Iterator<Item = &Line> {
        self.lines.iter()
    }

    pub(crate) fn clear(&mut self) {
        *self = Self { number: self.number, ..Self::default() };
    }
}

impl Display for Line {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { number, opcode, status, .. } = self;
        write!(f, "{number} {opcode:03x} {} status={status:#x} ", Command::name(*opcode))?;
        write!(f, "in={}:", self.input_len)?;
        self.input.iter().try_for_each(|byte| write!(f, "{byte:02x}"))?;
        write!(f, " out={}:", self.output_len)?;
        self.output.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}
