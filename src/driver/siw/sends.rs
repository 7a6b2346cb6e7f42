//! The send queue of siw.
//!
//! A request is written into its slot all but for the word with its flags, which is stored when the batch is published; before that the
//! slot says nothing, and a queue pair that fails meanwhile flushes nothing there. The kernel goes from slot to slot by itself as long as
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
use std::sync::atomic::{AtomicU32, Ordering, fence};

use uverbs_abi::siw::{
    MAX_INLINE, MAX_SGE, OP_READ, OP_SEND, OP_SEND_REMOTE_INV, OP_WRITE, WQE_INLINE, WQE_READ_FENCE,
    WQE_SIGNALLED, WQE_SOLICITED, WQE_VALID,
};
use uverbs_abi::types::{SendFlags, qp_state};

use super::completions::opcode_of;
use super::slots::{FLAGS, SEND, Slots, halves, is_taken, mark};
use crate::driver::queues::{Late, Lower, Published};
use crate::driver::request::{Address, Data, FrameHead, Opcode, Refused, Sge, Terms};
use crate::kernel::error::{Error, Result};

/// The words at which the remote key, pieces and inline data begin.
const REMOTE: usize = 3;
const PIECES: usize = 6;
const LENGTH: usize = 8;
const INLINE: usize = 10;

const _: () = assert!((SEND - INLINE) * 4 == MAX_INLINE && (SEND - PIECES) == MAX_SGE * 4);

/// What requests can be marked with.
const KNOWN: SendFlags =
    SendFlags::SIGNALED.union(SendFlags::SOLICITED).union(SendFlags::FENCE).union(SendFlags::INLINE);

/// The send queue; see the module's page.
#[derive(Debug)]
pub(crate) struct Sends {
    slots: Slots<SEND>,
    /// The word with the flags of each request that was filled.
    marks: Box<[u32]>,
    /// Requests that were filled, that the kernel was shown, and that it was shown before.
    head: u32,
    published: u32,
    before: u32,
    /// The queue pair is in the error state.
    is_over: bool,
}

impl Sends {
    pub(super) fn new(op: &'static str, slots: Slots<SEND>) -> Result<Self> {
        let mut marks = Error::room(op, slots.count() as usize)?;
        marks.resize(slots.count() as usize, 0);
        let (head, published, before) = (0, 0, 0);
        Ok(Self { slots, marks: marks.into_boxed_slice(), head, published, before, is_over: false })
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
    pub(crate) fn rewind(&mut self) {
        self.head = self.published;
    }

    /// Shows the kernel every request filled so far, and says whether it must be told.
    #[inline(always)]
    pub(crate) fn publish(&mut self) -> Published {
        let (first, count) = (self.published, self.head.wrapping_sub(self.published));
        if count == 0 {
            return Published::Nothing;
        }
        let mut number = first;
        while number != self.head {
            let place = self.marks.get((number & self.slots.mask()) as usize);
            if let (Some(slot), Some(word)) = (self.slots.get(number), place) {
                slot[FLAGS].store(*word, Ordering::Release);
            }
            number = number.wrapping_add(1);
        }
        (self.before, self.published) = (first, self.head);
        // The kernel gives the slot before back, and then looks at the first new one: so of the two stores, one is seen by the other
        // side's load.
        fence(Ordering::SeqCst);
        let is_taken = |slot: &[AtomicU32; SEND]| is_taken(slot[FLAGS].load(Ordering::Relaxed));
        let is_awake =
            count <= self.slots.mask() && self.slots.get(first.wrapping_sub(1)).is_some_and(is_taken);
        if is_awake { Published::Told } else { Published::Shown }
    }

    /// Takes back what was published last: the kernel was told, and has refused to look at it.
    pub(crate) fn retract(&mut self) {
        while self.published != self.before {
            self.published = self.published.wrapping_sub(1);
            if let Some(slot) = self.slots.get(self.published) {
                slot[FLAGS].store(0, Ordering::Release);
            }
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
        self.slots.are_free()
    }

    /// Takes out what the kernel does not look at any more: it has flushed what was there when the queue pair came to its error state.
    pub(crate) fn take_late(&mut self, mut each: impl FnMut(Late)) {
        self.slots.take_back(self.published, |wr_id, word| {
            let opcode = opcode_of(word.to_ne_bytes()[3]).unwrap_or_default();
            each(Late { wr_id, opcode });
        });
    }

    /// The slot of the next request, if it is free.
    #[inline(always)]
    fn next(&self) -> Result<&[AtomicU32; SEND], Refused> {
        if self.is_over {
            return Err(Refused::NotReady);
        }
        if self.head.wrapping_sub(self.published) > self.slots.mask() {
            return Err(Refused::Full);
        }
        match self.slots.get(self.head) {
            Some(slot) if !is_taken(slot[FLAGS].load(Ordering::Acquire)) => Ok(slot),
            _ => Err(Refused::Full),
        }
    }

    /// Notes the word with the flags of the request with this number.
    #[inline(always)]
    fn set_mark(&mut self, number: u32, word: u32) {
        if let Some(place) = self.marks.get_mut((number & self.slots.mask()) as usize) {
            *place = word;
        }
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
    let is_stuck = opcode == OP_READ && flags.contains(SendFlags::FENCE);
    if is_stuck || !KNOWN.contains(flags) {
        return Err(Refused::Lacks);
    }
    let bit = |flag, bit| if flags.contains(flag) { bit } else { 0 };
    Ok(WQE_VALID
        | bit(SendFlags::SIGNALED, WQE_SIGNALLED)
        | bit(SendFlags::SOLICITED, WQE_SOLICITED)
        | bit(SendFlags::FENCE, WQE_READ_FENCE))
}

/// Writes what a request begins with.
#[inline(always)]
fn put_head(slot: &[AtomicU32; SEND], wr_id: u64, rkey: u32, address: u64) {
    let ([first, second], [low, high]) = (halves(wr_id), halves(address));
    slot[0].store(first, Ordering::Relaxed);
    slot[1].store(second, Ordering::Relaxed);
    slot[REMOTE].store(rkey, Ordering::Relaxed);
    slot[REMOTE + 1].store(low, Ordering::Relaxed);
    slot[REMOTE + 2].store(high, Ordering::Relaxed);
}

/// Writes a piece of memory into its four words.
#[inline(always)]
pub(super) fn put_piece(place: &[AtomicU32], piece: &Sge) {
    if let [first, second, length, key] = place {
        let [low, high] = halves(piece.addr);
        first.store(low, Ordering::Relaxed);
        second.store(high, Ordering::Relaxed);
        length.store(piece.length, Ordering::Relaxed);
        key.store(piece.lkey, Ordering::Relaxed);
    }
}

/// Writes the data of a request, and gives the word with its flags.
#[inline(always)]
fn put_data<'b, P, B>(
    slot: &[AtomicU32; SEND],
    opcode: u8,
    flags: u16,
    data: &Data<P, B>,
) -> Result<u32, Refused>
where
    P: ExactSizeIterator<Item: Borrow<Sge>> + Clone,
    B: Iterator<Item = &'b [u8]> + Clone,
{
    match data {
        Data::Pieces(pieces) => {
            let count = pieces.len();
            // A read has one place for its answer, which the kernel takes from the slot in any case.
            let most = if opcode == OP_READ { 1 } else { MAX_SGE };
            if count > most {
                return Err(Refused::TooLarge);
            }
            if count == 0 {
                put_piece(&slot[PIECES..PIECES + 4], &Sge::default());
            }
            for (place, piece) in slot[PIECES..].chunks_exact(4).zip(pieces.clone()) {
                put_piece(place, piece.borrow());
            }
            Ok(mark(flags, count as u8, opcode))
        }
        Data::Inline(bytes) => {
            if !matches!(opcode, OP_SEND | OP_WRITE) {
                return Err(Refused::Lacks);
            }
            let len = match data.only_bytes() {
                Some(bytes) => put_bytes(slot, bytes)?,
                None => put_parts(slot, bytes.clone())?,
            };
            slot[LENGTH].store(len as u32, Ordering::Relaxed);
            // Of no bytes there is no piece.
            let (inline, count) = if len == 0 { (0, 0) } else { (WQE_INLINE, 1) };
            Ok(mark(flags | inline, count, opcode))
        }
    }
}

/// Copies bytes into a slot.
#[inline(always)]
fn put_bytes(slot: &[AtomicU32; SEND], bytes: &[u8]) -> Result<usize, Refused> {
    let (words, rest) = bytes.as_chunks::<4>();
    if bytes.len() > MAX_INLINE {
        return Err(Refused::TooLarge);
    }
    for (place, word) in slot[INLINE..].iter().zip(words) {
        place.store(u32::from_ne_bytes(*word), Ordering::Relaxed);
    }
    if let (false, Some(place)) = (rest.is_empty(), slot.get(INLINE + words.len())) {
        let mut last = [0; 4];
        last.iter_mut().zip(rest).for_each(|(to, from)| *to = *from);
        place.store(u32::from_ne_bytes(last), Ordering::Relaxed);
    }
    Ok(bytes.len())
}

/// The same of bytes in several places.
#[cold]
#[inline(never)]
fn put_parts<'b>(slot: &[AtomicU32; SEND], parts: impl Iterator<Item = &'b [u8]>) -> Result<usize, Refused> {
    let (mut all, mut len) = ([0; MAX_INLINE], 0_usize);
    for part in parts {
        let Some(place) = all.get_mut(len..).and_then(|rest| rest.get_mut(..part.len())) else {
            return Err(Refused::TooLarge);
        };
        place.copy_from_slice(part);
        len += part.len();
    }
    put_bytes(slot, all.get(..len).unwrap_or_default())
}

impl Lower for &mut Sends {
    #[inline(always)]
    fn next_slot(&self) -> u32 {
        Sends::next_slot(self)
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
        let (opcode, rkey, address) = operation(&opcode.opcode())?;
        let flags = flags_of(flags, opcode)?;
        let slot = self.next()?;
        put_head(slot, wr_id, rkey, address);
        let word = put_data(slot, opcode, flags, data)?;
        self.set_mark(self.head, word);
        self.head = self.head.wrapping_add(1);
        Ok(())
    }

    #[inline(always)]
    fn begin(&mut self, wr_id: u64, flags: SendFlags, opcode: &Opcode<'_>) -> Result<(), Refused> {
        let nothing = Data::<std::iter::Empty<Sge>, std::iter::Empty<&[u8]>>::Pieces(std::iter::empty());
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
        if self.head == self.published {
            return Err(Refused::NotBegun);
        }
        let last = self.head.wrapping_sub(1);
        let begun = self.marks.get((last & self.slots.mask()) as usize);
        let (Some(word), Some(slot)) = (begun, self.slots.get(last)) else { return Err(Refused::NotBegun) };
        let opcode = word.to_ne_bytes()[3];
        let word = put_data(slot, opcode, flags_of(flags, opcode)?, data)?;
        self.set_mark(last, word);
        Ok(())
    }

    fn set_address(&mut self, _: Address, _: u32, _: u32) -> Result<(), Refused> {
        Err(Refused::Lacks)
    }
}
