//! Slots in memory that the kernel reads and writes too.
//!
//! A slot belongs to the kernel while a bit of its flags is set. Who fills it stores that bit last (release), and the other side looks at it
//! first (acquire). The memory is only ever accessed by atomic words here, as [`Mapping`] has it, so a kernel that broke the rule would
//! be a race of values.

use std::sync::atomic::{AtomicU32, Ordering};

use uverbs_abi::siw::{Cqe, Rqe, Sqe, WQE_VALID};

use crate::kernel::error::{Error, Result};
use crate::kernel::mapping::Mapping;

/// The word of any slot that has its flags.
pub(super) const FLAGS: usize = 2;

/// Words of a slot.
pub(super) const SEND: usize = size_of::<Sqe>() / 4;
pub(super) const RECEIVE: usize = size_of::<Rqe>() / 4;
pub(super) const COMPLETION: usize = size_of::<Cqe>() / 4;

/// More slots than this no queue has: a power of two beyond what any kernel makes.
const MOST: u32 = 1 << 24;

/// An array of slots of so many words each, as many as a power of two.
#[derive(Debug)]
pub(super) struct Slots<const WORDS: usize> {
    memory: Mapping,
    mask: u32,
}

/// Bytes of so many slots of so many words; none if there can be no such queue.
pub(super) fn bytes<const WORDS: usize>(slots: u32) -> Option<usize> {
    let is_possible = slots.is_power_of_two() && slots <= MOST;
    is_possible.then(|| slots as usize * WORDS * 4)
}

/// The error of a queue of no possible size.
#[cold]
pub(super) fn nonsense(op: &'static str) -> Error {
    Error::malformed(op, "a queue that does not fit its size")
}

impl<const WORDS: usize> Slots<WORDS> {
    /// At the begin of this memory.
    ///
    /// # Errors
    /// [`Malformed`](crate::ErrorKind::Malformed) when they are not inside.
    pub(super) fn new(op: &'static str, memory: Mapping, slots: u32) -> Result<Self> {
        match bytes::<WORDS>(slots) {
            Some(bytes) if bytes <= memory.len() => Ok(Self { memory, mask: slots - 1 }),
            _ => Err(nonsense(op)),
        }
    }

    /// Their number.
    #[inline(always)]
    pub(super) fn count(&self) -> u32 {
        self.mask + 1
    }

    /// The number of a slot by that of a request, less one: both are powers of two.
    #[inline(always)]
    pub(super) fn mask(&self) -> u32 {
        self.mask
    }

    /// The slot of the request with this number.
    #[inline(always)]
    pub(super) fn get(&self, number: u32) -> Option<&[AtomicU32; WORDS]> {
        self.memory.words((number & self.mask) as usize * (WORDS * 4))
    }

    /// The memory that they are in.
    pub(super) fn memory(&self) -> &Mapping {
        &self.memory
    }

    /// Whether the kernel has none of them.
    pub(super) fn are_free(&self) -> bool {
        let is_free = |slot: &[AtomicU32; WORDS]| !is_taken(slot[FLAGS].load(Ordering::Acquire));
        (0..self.count()).all(|number| self.get(number).is_none_or(is_free))
    }

    /// Takes the slots from the kernel that it has, from that of the request before `end` that is the oldest on: their numbers, and what
    /// stood in the words with their flags.
    pub(super) fn take_back(&self, end: u32, mut each: impl FnMut(u64, u32)) {
        for back in (1..=self.count()).rev() {
            let Some(slot) = self.get(end.wrapping_sub(back)) else { continue };
            let word = slot[FLAGS].load(Ordering::Acquire);
            if is_taken(word) {
                slot[FLAGS].store(0, Ordering::Release);
                each(whole([slot[0].load(Ordering::Relaxed), slot[1].load(Ordering::Relaxed)]), word);
            }
        }
    }
}

/// Whether the word with the flags of a send or a receive says that the slot is the kernel's.
#[inline(always)]
pub(super) fn is_taken(word: u32) -> bool {
    word & mark(WQE_VALID, 0, 0) != 0
}

/// The word with flags, number of pieces and operation.
#[inline(always)]
pub(super) fn mark(flags: u16, pieces: u8, opcode: u8) -> u32 {
    let [first, second] = flags.to_ne_bytes();
    u32::from_ne_bytes([first, second, pieces, opcode])
}

/// The halves of a word of eight bytes, as they lie one behind the other.
#[inline(always)]
pub(super) fn halves(word: u64) -> [u32; 2] {
    let (low, high) = (word as u32, (word >> 32) as u32);
    if cfg!(target_endian = "little") { [low, high] } else { [high, low] }
}

/// The same the other way round.
#[inline(always)]
pub(super) fn whole([first, second]: [u32; 2]) -> u64 {
    let (low, high) = if cfg!(target_endian = "little") { (first, second) } else { (second, first) };
    u64::from(low) | u64::from(high) << 32
}

const _: () = {
    assert!(
        size_of::<Sqe>() == SEND * 4 && size_of::<Rqe>() == RECEIVE * 4 && size_of::<Cqe>() == COMPLETION * 4
    );
};
