//! The slots of siw's queues, in memory that the kernel also reads and writes.

use std::mem::offset_of;

use uverbs_abi::siw::{Cqe, Rqe, Sqe};

use crate::driver::ring::flagged::{FLAG, Flagged, IS_SET};

/// The beginning of a send and of a receive. The pieces of memory follow it.
pub(super) type SendHead = [u64; 3];
pub(super) type ReceiveHead = [u64; 2];

/// The sizes of the slots.
pub(super) const SEND: usize = size_of::<Sqe>();
pub(super) const RECEIVE: usize = size_of::<Rqe>();

pub(super) type SendSlots = Flagged<SendHead, SEND>;
pub(super) type ReceiveSlots = Flagged<ReceiveHead, RECEIVE>;
pub(super) type Entries = Flagged<Cqe, { size_of::<Cqe>() }>;

const _: () = {
    assert!(
        offset_of!(Sqe, sge) == size_of::<SendHead>() && offset_of!(Rqe, sge) == size_of::<ReceiveHead>()
    );
    assert!(
        offset_of!(Sqe, flags) == FLAG && offset_of!(Rqe, flags) == FLAG && offset_of!(Cqe, flags) == FLAG
    );
    assert!(offset_of!(Sqe, id) == 0 && offset_of!(Rqe, id) == 0);
};

/// Whether the kernel has none of these slots.
pub(super) fn are_free<W, const SIZE: usize>(slots: &Flagged<W, SIZE>) -> bool {
    (0..slots.count()).all(|number| slots.load(number) & IS_SET == 0)
}

/// Takes slots back from the kernel, beginning with that of the oldest request before `end`. Returns the numbers of their requests, and
/// what was in the words with their flags.
pub(super) fn take_back<const WORDS: usize, const SIZE: usize>(
    slots: &mut Flagged<[u64; WORDS], SIZE>,
    end: u32,
    mut each: impl FnMut(u64, u32),
) {
    for back in (1..=slots.count()).rev() {
        let number = end.wrapping_sub(back);
        if let Some(slot) = slots.reading().taken(number) {
            let (wr_id, word) = (slot.filled().field::<0, u64>(), slot.word());
            slot.give_back();
            each(wr_id, word);
        }
    }
}

/// The word with the flags, the number of pieces and the operation.
#[inline(always)]
pub(super) const fn mark(flags: u16, pieces: u8, opcode: u8) -> u32 {
    let [first, second] = flags.to_ne_bytes();
    u32::from_ne_bytes([first, second, pieces, opcode])
}
