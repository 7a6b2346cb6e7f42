//! Compressed completions: of several that differ in a few fields only, the first stands for all, and small ones of eight bytes follow it.
//!
//! Source: `mlx5_cqe_compression` and `mlx5e_decompress_cqes_cont` of the kernel, drivers/net/ethernet/mellanox/mlx5/core/en_rx.c, Linux 6.12.

use super::{CompletionEntry, Opcode};

/// The most completions that one stands for.
pub(crate) const MOST: u32 = 64;

/// The format of a compressed completion, in bits 2 and 3 of its last byte.
const COMPRESSED: u8 = 3 << 2;

/// What the small completions contain beside the number of bytes, by the numbers of `MLX5_CQE_FORMAT_*`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Small {
    Hash = 0,
    Checksum = 1,
}

impl Small {
    pub(crate) fn from_number(number: u32) -> Option<Self> {
        [Self::Hash, Self::Checksum].into_iter().find(|small| *small as u32 == number)
    }

    fn of(self, entry: &CompletionEntry) -> [u8; 8] {
        let mut small = [0; 8];
        match self {
            Self::Hash => small[..4].copy_from_slice(&entry.bytes[12..16]),
            Self::Checksum => small[..2].copy_from_slice(&entry.bytes[20..22]),
        }
        small[4..].copy_from_slice(&entry.bytes[44..48]);
        small
    }

    /// What all completions for which one stands have in common.
    fn common(self, entry: &CompletionEntry) -> [u8; 64] {
        let mut bytes = entry.bytes;
        bytes[20..22].fill(0);
        bytes[44..56].fill(0);
        bytes[60..62].fill(0);
        if self == Self::Hash {
            bytes[12..16].fill(0);
        }
        bytes
    }
}

/// Completions that have not been written yet, because another one may come that is like them.
#[derive(Debug)]
pub(crate) struct Session {
    small: Small,
    held: Vec<CompletionEntry>,
}

impl Session {
    pub(crate) fn new(small: Small) -> Self {
        Self { small, held: Vec::new() }
    }

    pub(crate) fn len(&self) -> u32 {
        self.held.len() as u32
    }

    /// Whether a completion can be written together with those that are held.
    pub(crate) fn takes(&self, entry: &CompletionEntry) -> bool {
        let counter = |entry: &CompletionEntry| u16::from_be_bytes([entry.bytes[60], entry.bytes[61]]);
        entry.opcode() == Opcode::Responder
            && self.held.last().is_none_or(|last| {
                self.small.common(last) == self.small.common(entry)
                    && counter(last).wrapping_add(1) == counter(entry)
            })
    }

    pub(crate) fn hold(&mut self, entry: CompletionEntry) {
        self.held.push(entry);
    }

    /// What is written for the held completions, whose first has the position 0: each entry with its position, the first one last.
    pub(crate) fn entries(&mut self) -> Vec<(u32, [u8; 64])> {
        let held = std::mem::take(&mut self.held);
        let Some(first) = held.first() else { return Vec::new() };
        let mut title = first.bytes;
        let mut entries = Vec::new();
        if held.len() > 1 {
            for (at, part) in (0..).step_by(8).zip(held.chunks(8)) {
                let mut entry = [0; 64];
                let places = entry.as_chunks_mut::<8>().0;
                places.iter_mut().zip(part).for_each(|(place, held)| *place = self.small.of(held));
                entries.push((at.max(1), entry));
            }
            title[44..48].copy_from_slice(&(held.len() as u32).to_be_bytes());
            title[63] |= COMPRESSED;
        }
        entries.push((0, title));
        entries
    }
}
