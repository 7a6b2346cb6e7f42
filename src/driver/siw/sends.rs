//! The send queue of siw.
//!
//! The first request of a batch is written into its slot all but for the word with its flags, which is stored when the batch is published;
//! the others have theirs at once. The kernel goes from slot to slot, also to flush those of a queue pair that fails, and comes to none of a
//! batch before the first has its flag (`sq_get_next`, siw.h, and `siw_sq_flush`, siw_qp.c, Linux 6.1). It goes from slot to slot by itself as long as
//! it finds one filled, and is told by a doorbell only when it has stopped: when the slot before the first new one is not the kernel's any
//! more, or was of the same batch.
//!
//! The kernel gives a slot back when it begins with the request there (`siw_activate_tx_from_sq`, siw_qp.c, Linux 6.1). So what a request
//! needs is held by twice as many places as there are slots: by the time one is used again, the kernel has begun with the request after it, and
//! is done with it. It may still wait for the answer of a read; the kernel looks at the region's key with each packet of that
//! (`siw_proc_rresp`, siw_qp_rx.c).
//!
//! Two requests the kernel refuses in a way that ends the queue: it leaves them where they are, and tells who rings, so that nothing behind
//! them is ever sent. They are inline data of anything but a send or a write, and a read with a fence; both are refused here before. A read
//! over a connection that was made without reads is refused so too; that one is taken back when the kernel has said so.

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
use crate::driver::queues::{Late, Lower, Published};
use crate::driver::request::{Address, Data, FrameHead, NoBytes, NoPieces, Opcode, Refused, Sge, Terms};
use crate::driver::ring::Slot;
use crate::driver::ring::flagged::{self, IS_SET};

/// Where behind the head the length of inline data stands, in the first piece, and its bytes, which are over the others.
const LENGTH: usize = offset_of!(siw::Sge, length);
const INLINE: usize = size_of::<siw::Sge>();

const _: () = assert!(size_of::<Sqe>() - size_of::<SendHead>() - INLINE == MAX_INLINE);

/// What requests can be marked with.
const KNOWN: SendFlags =
    SendFlags::SIGNALED.union(SendFlags::SOLICITED).union(SendFlags::FENCE).union(SendFlags::INLINE);

/// The send queue; see the module's page.
#[derive(Debug)]
pub(crate) struct Sends {
    slots: SendSlots,
    /// Requests that were filled, that the kernel was shown, and that it was shown before.
    head: u32,
    published: u32,
    before: u32,
    /// The word with the flags of the first that is not shown.
    word: u32,
    /// The queue pair is in the error state.
    is_over: bool,
}

impl Sends {
    pub(super) fn new(slots: SendSlots) -> Self {
        let (head, published, before, word) = (0, 0, 0, 0);
        Self { slots, head, published, before, word, is_over: false }
    }

    /// Number of places for what requests need.
    pub(crate) fn places(&self) -> usize {
        self.slots.count() as usize * 2
    }

    /// The place of the request that is filled next.
    #[inline(always)]
    pub(crate) fn next_slot(&self) -> u32 {
        self.head & (self.slots.mask() << 1 | 1)
    }

    /// Forgets what was filled since it was published last.
    #[inline(never)]
    pub(crate) fn rewind(&mut self) {
        while self.head != self.published {
            self.head = self.head.wrapping_sub(1);
            self.slots.store(self.head, 0);
        }
    }

    /// The queue while it is filled.
    #[inline(always)]
    pub(crate) fn writing(&mut self) -> Writing<'_> {
        let (next, first, mask) = (self.head, self.published, self.slots.mask());
        let end = if self.is_over { next } else { first.wrapping_add(mask).wrapping_add(1) };
        let Self { slots, head, word, is_over, .. } = self;
        let (slots, is_over) = (slots.writing(), *is_over);
        Writing { slots, is_over, next, first, end, places: mask << 1 | 1, head, word }
    }

    /// Shows the kernel every request filled so far, and says whether it must be told.
    #[inline(always)]
    pub(crate) fn publish(&mut self) -> Published {
        let (first, head) = (self.published, self.head);
        if first == head {
            return Published::Nothing;
        }
        self.slots.store(first, self.word);
        (self.before, self.published) = (first, head);
        // The kernel gives the slot before back, and then looks at the first new one: so of the two stores, one is seen by the other
        // side's load.
        fence(Ordering::SeqCst);
        let is_all = head.wrapping_sub(first) > self.slots.mask();
        let is_awake = !is_all && self.slots.load(first.wrapping_sub(1)) & IS_SET != 0;
        if is_awake { Published::Told } else { Published::Shown }
    }

    /// Takes back what was published last: the kernel was told, and has refused to look at it.
    pub(crate) fn retract(&mut self) {
        while self.published != self.before {
            self.published = self.published.wrapping_sub(1);
            self.slots.store(self.published, 0);
        }
        self.head = self.published;
    }

    /// The queue pair has come to a state. From its error state there is no way, and the kernel does not look at what comes later, nor
    /// says so (`siw_qp_modify`, siw_qp.c, and `siw_post_send`, siw_verbs.c).
    pub(crate) fn enter(&mut self, state: u8) {
        self.is_over |= state == qp_state::ERR;
    }

    /// Whether the kernel has nothing that was posted.
    pub(crate) fn is_idle(&self) -> bool {
        are_free(&self.slots)
    }

    /// Takes out what the kernel does not look at any more: it has flushed what was there when the queue pair came to its error state.
    pub(crate) fn take_late(&mut self, mut each: impl FnMut(Late)) {
        self.rewind();
        take_back(&mut self.slots, self.published, |wr_id, word| {
            let opcode = opcode_of(word.to_ne_bytes()[3]).unwrap_or_default();
            each(Late { wr_id, opcode });
        });
    }
}

/// What the driver has of an operation: its number, and the remote memory or key.
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

/// The flags of a request that is the kernel's, without that of inline data.
#[inline(always)]
fn flags_of(flags: SendFlags, opcode: u8) -> Result<u16, Refused> {
    // All three are the kernel's bits in other places.
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

/// Writes what a request begins with, but for the word with its flags.
#[inline(always)]
fn put_head(slot: &mut Slot<'_, SendHead>, wr_id: u64, rkey: u32, address: u64) {
    slot.put::<{ offset_of!(Sqe, id) }, _>(wr_id);
    slot.put::<{ offset_of!(Sqe, rkey) }, _>(rkey);
    slot.put::<{ offset_of!(Sqe, raddr) }, _>(address);
}

/// Writes pieces of memory behind what a request begins with, and says how many they are; none if there are more than `most`.
#[inline(always)]
pub(super) fn put_pieces<W, P>(slot: &mut Slot<'_, W>, mut pieces: P, most: usize) -> Option<u8>
where
    P: ExactSizeIterator<Item: Borrow<Sge>>,
{
    // Most often there is one.
    if pieces.len() != 1 {
        return put_others(slot.lend(), pieces, most);
    }
    slot.put_item(0, pieces.next()?.borrow()).then_some(1)
}

#[cold]
#[inline(never)]
fn put_others<W>(
    mut slot: Slot<'_, W>,
    pieces: impl ExactSizeIterator<Item: Borrow<Sge>>,
    most: usize,
) -> Option<u8> {
    let count = pieces.len();
    if count > most {
        return None;
    }
    // Of a read of nothing the kernel looks at the first one in any case.
    if !slot.put_item(0, &Sge::default()) {
        return None;
    }
    for (index, piece) in pieces.enumerate() {
        if !slot.put_item(index, piece.borrow()) {
            return None;
        }
    }
    Some(count as u8)
}

/// The data of a request, taken out of its place.
pub(super) enum Taken<'b, P, B> {
    Pieces(P),
    /// All of it if it stands in one place, and each part.
    Inline(Option<&'b [u8]>, B),
}

impl<'b, P, B> Taken<'b, P, B>
where
    P: ExactSizeIterator<Item: Borrow<Sge>> + Clone,
    B: Iterator<Item = &'b [u8]> + Clone,
{
    #[inline(always)]
    pub(super) fn of(data: &Data<P, B>) -> Self {
        match data {
            Data::Pieces(pieces) => Self::Pieces(pieces.clone()),
            Data::Inline(bytes) => Self::Inline(data.only_bytes(), bytes.clone()),
        }
    }
}

/// Writes the data of a request, and gives the word with its flags.
#[inline(always)]
pub(super) fn put_data<'b, P, B>(
    slot: &mut Slot<'_, SendHead>,
    opcode: u8,
    flags: u16,
    data: Taken<'b, P, B>,
) -> Result<u32, Refused>
where
    P: ExactSizeIterator<Item: Borrow<Sge>>,
    B: Iterator<Item = &'b [u8]>,
{
    match data {
        Taken::Pieces(pieces) => {
            // A read has one place for its answer, which the kernel takes from the slot in any case.
            let most = if opcode == OP_READ { 1 } else { MAX_SGE };
            let count = put_pieces(slot, pieces, most).ok_or(Refused::TooLarge)?;
            Ok(mark(flags, count, opcode))
        }
        Taken::Inline(all, mut parts) => {
            if !matches!(opcode, OP_SEND | OP_WRITE) {
                return Err(Refused::Lacks);
            }
            let put = match all {
                Some(bytes) => slot.put_bytes(INLINE, bytes).then_some(bytes.len()),
                None => put_parts(slot.lend(), &mut parts),
            };
            let len = put.ok_or(Refused::TooLarge)? as u32;
            if !slot.put_bytes(LENGTH, &len.to_ne_bytes()) {
                return Err(Refused::TooLarge);
            }
            // Of no bytes there is no piece.
            Ok(if len == 0 { mark(flags, 0, opcode) } else { mark(flags | WQE_INLINE, 1, opcode) })
        }
    }
}

/// Copies bytes that stand in several places into a slot, and says how many they are; none if there is no room.
#[cold]
#[inline(never)]
fn put_parts(mut slot: Slot<'_, SendHead>, parts: &mut dyn Iterator<Item = &[u8]>) -> Option<usize> {
    let mut len = 0;
    for part in parts {
        if !slot.put_bytes(INLINE + len, part) {
            return None;
        }
        len += part.len();
    }
    Some(len)
}

/// A queue while it is filled, with what there is to know of it at hand.
#[derive(Debug)]
pub(crate) struct Writing<'a> {
    slots: flagged::Writing<'a, SendHead, SEND>,
    is_over: bool,
    /// The request that is filled next, the first that is not shown, and the first for which there is no slot.
    next: u32,
    first: u32,
    end: u32,
    /// Number of places, less one.
    places: u32,
    head: &'a mut u32,
    word: &'a mut u32,
}

impl Drop for Writing<'_> {
    #[inline(always)]
    fn drop(&mut self) {
        *self.head = self.next;
    }
}

impl Writing<'_> {
    /// Fills the next slot; its data is put by a function that gives the word with its flags.
    #[inline(always)]
    pub(super) fn fill(
        &mut self,
        wr_id: u64,
        flags: SendFlags,
        opcode: &Opcode<'_>,
        put_data: impl FnOnce(&mut Slot<'_, SendHead>, u8, u16) -> Result<u32, Refused>,
    ) -> Result<(), Refused> {
        let (opcode, rkey, address) = operation(opcode)?;
        let flags = flags_of(flags, opcode)?;
        if self.next == self.end {
            return Err(Self::at_end(self.is_over));
        }
        let Some(mut free) = self.slots.free(self.next) else { return Err(Refused::Full) };
        let mut slot = free.slot();
        put_head(&mut slot, wr_id, rkey, address);
        let word = put_data(&mut slot, opcode, flags)?;
        if self.next == self.first {
            *self.word = word;
        } else {
            free.end(word);
        }
        self.next = self.next.wrapping_add(1);
        Ok(())
    }

    /// The same of the data of the request that was filled last.
    #[inline(always)]
    pub(super) fn fill_again(
        &mut self,
        flags: SendFlags,
        put_data: impl FnOnce(&mut Slot<'_, SendHead>, u8, u16) -> Result<u32, Refused>,
    ) -> Result<(), Refused> {
        if self.next == self.first {
            return Err(Refused::NotBegun);
        }
        let last = self.next.wrapping_sub(1);
        // The kernel does not come there before the first has its flag.
        let word = if last == self.first { *self.word } else { self.slots.take_back(last) };
        let Some(mut free) = self.slots.free(last) else { return Err(Refused::NotBegun) };
        let opcode = word.to_ne_bytes()[3];
        let word = put_data(&mut free.slot(), opcode, flags_of(flags, opcode)?)?;
        if last == self.first {
            *self.word = word;
        } else {
            free.end(word);
        }
        Ok(())
    }

    /// Nothing can be filled.
    #[cold]
    #[inline(never)]
    fn at_end(is_over: bool) -> Refused {
        if is_over { Refused::NotReady } else { Refused::Full }
    }
}

impl Lower for Writing<'_> {
    #[inline(always)]
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
        B: Iterator<Item = &'b [u8]> + Clone,
    {
        self.fill(wr_id, flags, &opcode.opcode(), |slot, opcode, flags| {
            put_data(slot, opcode, flags, Taken::of(data))
        })
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
        B: Iterator<Item = &'b [u8]> + Clone,
    {
        self.fill_again(flags, |slot, opcode, flags| put_data(slot, opcode, flags, Taken::of(data)))
    }

    fn set_address(&mut self, _: Address, _: u32, _: u32) -> Result<(), Refused> {
        Err(Refused::Lacks)
    }
}
