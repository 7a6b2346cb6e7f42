//! The send queue of siw.
//!
//! The first request of a batch is written into its slot without the word with its flags, which is stored when the batch is published;
//! the others get theirs immediately. The kernel goes from slot to slot, also to flush the requests of a queue pair that fails, and
//! reaches none of a batch before the first has its flag (`sq_get_next`, siw.h, and `siw_sq_flush`, siw_qp.c, Linux 6.1). It continues by
//! itself as long as it finds a filled slot. A doorbell is needed only when it has stopped: when the slot before the first new one does
//! not belong to the kernel any more, or was of the same batch.
//!
//! The kernel gives a slot back when it begins with the request (`siw_activate_tx_from_sq`, siw_qp.c, Linux 6.1). What a request needs is
//! therefore held by twice as many places as there are slots: when a place is used again, the kernel has begun with the request after it,
//! so it has finished with this one. It may still wait for the response to a read; for that, it checks the region's key with each packet
//! (`siw_proc_rresp`, siw_qp_rx.c).
//!
//! The kernel refuses two kinds of requests in a way that blocks the queue: it leaves them in their slots and returns the error to the
//! doorbell, so nothing after them is ever sent. They are inline data of anything but a send or a write, and a read with a fence. Both
//! are refused here before they are posted. A read over a connection that was made without reads is refused in the same way; it is taken
//! back when the kernel has returned the error.

use std::borrow::Borrow;
use std::mem::offset_of;
use std::sync::atomic::{Ordering, fence};

use uverbs_abi::siw::{
    self, MAX_INLINE, MAX_SGE, OP_READ, OP_SEND, OP_SEND_REMOTE_INV, OP_WRITE, Sqe, WQE_INLINE,
    WQE_READ_FENCE, WQE_SIGNALLED, WQE_SOLICITED, WQE_VALID,
};
use uverbs_abi::types::{SendFlags, qp_state};

use super::completions::opcode_of;
use super::slots::{SEND, SendHead, SendSlots, are_free, mark, take_back};
use crate::driver::request::{
    Address, Data, FrameHead, InlineParts, NoBytes, NoPieces, Opcode, Refused, Sge, Terms,
};
use crate::driver::ring::Slot;
use crate::driver::ring::flagged::{self, IS_SET};
use crate::driver::seam::{Late, Lower, Published, SendRing, Short};

/// Offset after the head of the length of inline data, in the first piece, and of the bytes, which overlay the other pieces.
const LENGTH: usize = offset_of!(siw::Sge, length);
const INLINE: usize = size_of::<siw::Sge>();

const _: () = assert!(size_of::<Sqe>() - size_of::<SendHead>() - INLINE == MAX_INLINE);

/// The supported flags of requests.
const KNOWN: SendFlags =
    SendFlags::SIGNALED.union(SendFlags::SOLICITED).union(SendFlags::FENCE).union(SendFlags::INLINE);

/// The send queue; see the module's page.
#[derive(Debug)]
pub(crate) struct Sends {
    slots: SendSlots,
    /// Number of requests that were filled, that the kernel was shown, and that it was shown before that.
    head: u32,
    published: u32,
    before: u32,
    /// The word with the flags of the first request that is not shown.
    word: u32,
    /// The queue pair is in the error state.
    is_over: bool,
}

impl Sends {
    pub(super) fn new(slots: SendSlots) -> Self {
        let (head, published, before, word) = (0, 0, 0, 0);
        Self { slots, head, published, before, word, is_over: false }
    }

    /// Borrows the queue to fill it.
    #[inline(always)]
    pub(crate) fn writing(&mut self) -> Writing<'_> {
        let (next, first, mask) = (self.head, self.published, self.slots.mask());
        let end = if self.is_over { next } else { first.wrapping_add(mask).wrapping_add(1) };
        let Self { slots, head, word, is_over, .. } = self;
        let (slots, is_over) = (slots.writing(), *is_over);
        Writing { slots, is_over, next, first, end, places: mask << 1 | 1, head, word }
    }
}

impl SendRing for Sends {
    /// They do, except that others overtake reads.
    const COMPLETES_IN_ORDER: bool = false;
    const SHORT: Short = Short::Simple;

    fn slots(&self) -> usize {
        self.slots.count() as usize * 2
    }

    #[inline]
    fn next_slot(&self) -> u32 {
        self.head & (self.slots.mask() << 1 | 1)
    }

    #[inline]
    fn one<const LOOKS: bool, const KIND: u8>(&mut self) -> impl Lower {
        self.writing()
    }

    #[inline(always)]
    fn publish(&mut self) -> Published {
        let (first, head) = (self.published, self.head);
        if first == head {
            return Published::Nothing;
        }
        self.slots.store(first, self.word);
        (self.before, self.published) = (first, head);
        // The kernel gives the slot before it back, and then reads the first new one. With this fence, at least one of the two stores is
        // seen by the other side's load.
        fence(Ordering::SeqCst);
        let is_all = head.wrapping_sub(first) > self.slots.mask();
        let is_awake = !is_all && self.slots.load(first.wrapping_sub(1)) & IS_SET != 0;
        if is_awake { Published::Told } else { Published::Shown }
    }

    #[inline(never)]
    fn rewind(&mut self) {
        while self.head != self.published {
            self.head = self.head.wrapping_sub(1);
            self.slots.store(self.head, 0);
        }
    }

    fn retract(&mut self) {
        while self.published != self.before {
            self.published = self.published.wrapping_sub(1);
            self.slots.store(self.published, 0);
        }
        self.head = self.published;
    }

    /// The queue pair cannot leave its error state, in which the kernel neither reads what is posted later nor reports an error
    /// (`siw_qp_modify`, siw_qp.c, and `siw_post_send`, siw_verbs.c).
    fn enter(&mut self, state: u8) {
        self.is_over |= state == qp_state::ERR;
    }

    /// Whether the kernel has no posted request.
    fn is_idle(&self) -> Option<bool> {
        Some(are_free(&self.slots))
    }

    /// The kernel has flushed what was there when the queue pair entered its error state.
    fn take_late(&mut self, mut each: impl FnMut(Late)) {
        self.rewind();
        take_back(&mut self.slots, self.published, |wr_id, word| {
            let opcode = opcode_of(word.to_ne_bytes()[3]).unwrap_or_default();
            each(Late { wr_id, opcode });
        });
    }
}

/// The driver's form of an operation: its number, and the remote memory or key.
#[inline(always)]
fn operation(opcode: &Opcode<'_>) -> Result<(u8, u32, u64), Refused> {
    Ok(match *opcode {
        Opcode::Send => (OP_SEND, 0, 0),
        Opcode::SendInvalidate(key) => (OP_SEND_REMOTE_INV, key, 0),
        Opcode::Write(remote) => (OP_WRITE, remote.rkey, remote.address),
        Opcode::Read(remote) => (OP_READ, remote.rkey, remote.address),
        _ => return Err(Refused::Lacks),
    })
}

/// The flags of a request that belongs to the kernel, without the one for inline data.
#[inline(always)]
fn flags_of(flags: SendFlags, opcode: u8) -> Result<u16, Refused> {
    // The kernel has the same three bits at other positions.
    const UP_BY_ONE: u32 = SendFlags::SIGNALED.bits() | SendFlags::SOLICITED.bits();
    const _: () = assert!(
        SendFlags::SIGNALED.bits() << 1 == WQE_SIGNALLED as u32
            && SendFlags::SOLICITED.bits() << 1 == WQE_SOLICITED as u32
            && SendFlags::FENCE.bits() << 4 == WQE_READ_FENCE as u32
    );
    let bits = flags.bits();
    let refused = if opcode == OP_READ { !KNOWN.bits() | SendFlags::FENCE.bits() } else { !KNOWN.bits() };
    if bits & refused != 0 {
        return Err(Refused::Lacks);
    }
    Ok(WQE_VALID | ((bits & UP_BY_ONE) << 1 | (bits & SendFlags::FENCE.bits()) << 4) as u16)
}

/// Writes the head of a request without the word with its flags.
#[inline(always)]
fn put_head(slot: &mut Slot<'_, SendHead>, wr_id: u64, rkey: u32, address: u64) {
    slot.put::<{ offset_of!(Sqe, id) }, _>(wr_id);
    slot.put::<{ offset_of!(Sqe, rkey) }, _>(rkey);
    slot.put::<{ offset_of!(Sqe, raddr) }, _>(address);
}

/// Writes pieces of memory after the head of a request, and returns their number. `None` if there are more than `most`.
#[inline(always)]
pub(super) fn put_pieces<W, P>(slot: &mut Slot<'_, W>, pieces: P, most: usize) -> Option<u8>
where
    P: ExactSizeIterator<Item: Borrow<Sge>>,
{
    let count = pieces.len();
    // For a read of zero bytes the kernel reads the first piece in any case.
    if count > most || count == 0 && !slot.put_item(0, &Sge::default()) {
        return None;
    }
    let mut written = 0;
    slot.put_items(pieces, |_: &Sge| written += 1)?;
    // Others than those that were counted would be read from what was in the slot before.
    (written == count).then_some(count as u8)
}

/// Writes the data of a request, and returns the word with its flags.
#[inline(always)]
fn put_data<'b, P, B>(
    slot: &mut Slot<'_, SendHead>,
    opcode: u8,
    flags: u16,
    data: &Data<P, B>,
) -> Result<u32, Refused>
where
    P: ExactSizeIterator<Item: Borrow<Sge>> + Clone,
    B: InlineParts<'b>,
{
    match data {
        Data::Pieces(pieces) => {
            // A read has one destination, which the kernel always takes from the slot.
            let most = if opcode == OP_READ { 1 } else { MAX_SGE };
            // Usually there is one piece.
            let count = if pieces.len() == 1 {
                put_pieces(slot, pieces.clone().take(1), most)
            } else {
                put_pieces(slot, pieces.clone(), most)
            };
            let count = count.ok_or(Refused::TooLarge)?;
            Ok(mark(flags, count, opcode))
        }
        Data::Inline(parts) => {
            if !matches!(opcode, OP_SEND | OP_WRITE) {
                return Err(Refused::Lacks);
            }
            let mut len = 0;
            for part in parts.clone() {
                if !slot.put_bytes(INLINE + len, part) {
                    return Err(Refused::TooLarge);
                }
                len += part.len();
            }
            if !slot.put_bytes(LENGTH, &(len as u32).to_ne_bytes()) {
                return Err(Refused::TooLarge);
            }
            // Zero bytes need no piece.
            Ok(if len == 0 { mark(flags, 0, opcode) } else { mark(flags | WQE_INLINE, 1, opcode) })
        }
    }
}

/// A queue, borrowed to be filled, with copies of the fields that each request needs.
#[derive(Debug)]
pub(crate) struct Writing<'a> {
    slots: flagged::Writing<'a, SendHead, SEND>,
    is_over: bool,
    /// The request that is filled next, the first one that is not shown, and the first one for which there is no slot.
    next: u32,
    first: u32,
    end: u32,
    /// Number of places, minus one.
    places: u32,
    head: &'a mut u32,
    word: &'a mut u32,
}

impl Drop for Writing<'_> {
    #[inline]
    fn drop(&mut self) {
        *self.head = self.next;
    }
}

impl Writing<'_> {
    /// The error when nothing can be filled.
    #[cold]
    #[inline(never)]
    fn at_end(is_over: bool) -> Refused {
        if is_over { Refused::NotReady } else { Refused::Full }
    }
}

impl Lower for Writing<'_> {
    #[inline]
    fn next_slot(&self) -> u32 {
        self.next & self.places
    }

    #[inline(always)]
    fn put<'b, P, B>(
        &mut self,
        wr_id: u64,
        flags: SendFlags,
        opcode: &impl Terms,
        _: Option<FrameHead>,
        data: &Data<P, B>,
    ) -> Result<(), Refused>
    where
        P: ExactSizeIterator<Item: Borrow<Sge>> + Clone,
        B: InlineParts<'b>,
    {
        let (opcode, rkey, address) = operation(&opcode.opcode())?;
        let flags = flags_of(flags, opcode)?;
        if self.next == self.end {
            return Err(Self::at_end(self.is_over));
        }
        let Some(mut free) = self.slots.free(self.next) else { return Err(Refused::Full) };
        let mut slot = free.slot();
        put_head(&mut slot, wr_id, rkey, address);
        let word = put_data(&mut slot, opcode, flags, data)?;
        if self.next == self.first {
            *self.word = word;
        } else {
            free.end(word);
        }
        self.next = self.next.wrapping_add(1);
        Ok(())
    }

    #[inline(always)]
    fn begin(&mut self, wr_id: u64, flags: SendFlags, opcode: &Opcode<'_>) -> Result<(), Refused> {
        let nothing = Data::<NoPieces, NoBytes>::Pieces(std::iter::empty());
        self.put(wr_id, flags, opcode, None, &nothing)
    }

    #[inline(always)]
    fn set_data<'b, P, B>(
        &mut self,
        flags: SendFlags,
        _: Option<FrameHead>,
        data: &Data<P, B>,
    ) -> Result<(), Refused>
    where
        P: ExactSizeIterator<Item: Borrow<Sge>> + Clone,
        B: InlineParts<'b>,
    {
        if self.next == self.first {
            return Err(Refused::NotBegun);
        }
        let last = self.next.wrapping_sub(1);
        // The kernel does not reach this slot before the first one has its flag.
        let word = if last == self.first { *self.word } else { self.slots.take_back(last) };
        let Some(mut free) = self.slots.free(last) else { return Err(Refused::NotBegun) };
        let opcode = word.to_ne_bytes()[3];
        let word = put_data(&mut free.slot(), opcode, flags_of(flags, opcode)?, data)?;
        if last == self.first {
            *self.word = word;
        } else {
            free.end(word);
        }
        Ok(())
    }

    fn set_address(&mut self, _: Address, _: u32, _: u32) -> Result<(), Refused> {
        Err(Refused::Lacks)
    }
}
