//! Batches that are posted completely or not at all, directly to the device's ring: each request is checked before the first one is
//! written.

use super::straight::Words;
use super::*;
use crate::driver::efa::track::Run;
use crate::driver::request::Told;
use crate::driver::ring::units;

/// What is needed to check a request.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Looking {
    allowed: Allowed,
    flags: u32,
    /// Units of a slot, and the most inline bytes of a request.
    units: u32,
    inline: u32,
}

/// A send queue while such a batch is written. Its values are copied here, so that the compiler keeps them in registers.
#[derive(Debug)]
pub(crate) struct AtOnce<'a> {
    run: Run<'a>,
    ring: units::Writing<'a>,
    looking: Looking,
    depth: u32,
    round: u32,
    next: u32,
}

impl Sends {
    /// Posts `count` requests with at most `inline` inline bytes each. `look` checks all of them, and `put` writes those of a range.
    /// Returns how many are posted: all of them; or none, if `look` returns false, if there is no room for all, if requests wait in the
    /// copy of the ring, or if the queue pair is in a state in which it does not send. If `put` returns false although `look` has not, only
    /// the ranges before that one are posted.
    #[inline(always)]
    pub(crate) fn post_at_once(
        &mut self,
        count: usize,
        inline: u32,
        look: impl FnOnce(Looking) -> bool,
        mut put: impl FnMut(&mut AtOnce<'_>, std::ops::Range<usize>) -> bool,
    ) -> usize {
        let looking = Looking { allowed: self.allowed, flags: self.flags, units: self.units, inline };
        let is_usual = self.flags != NONE && self.head == self.written;
        if !is_usual || !self.numbers.have(&self.track.sends, count) || !look(looking) {
            return 0;
        }
        let mut posted = 0;
        while posted < count {
            // The device takes no more than this with one doorbell.
            let more = (count - posted).min(self.left() as usize);
            let Self { track, numbers, device: Some(device), depth, round, head, written, .. } = self else {
                break;
            };
            let Some(run) = numbers.run(&track.sends, more) else { break };
            let (depth, round, ring) = (*depth, *round, device.ring.writing());
            let mut batch = AtOnce { run, ring, looking, depth, round, next: *head };
            if more == 0 || !put(&mut batch, posted..posted + more) {
                break;
            }
            let next = batch.end();
            (*head, *written) = (next, next);
            self.tell();
            posted += more;
        }
        posted
    }
}

impl Looking {
    /// Whether a request with these flags, this opcode and this one piece can be put.
    #[inline(always)]
    pub(crate) fn takes_piece(&self, flags: SendFlags, opcode: &impl Terms, piece: &Sge) -> bool {
        let has_destination = opcode.destination().is_some();
        self.takes(flags) && opcode.tell(Look { of: self, has_destination, data: piece })
    }

    /// Whether a request with these flags, this opcode and these inline bytes can be put.
    #[inline(always)]
    pub(crate) fn takes_bytes(&self, flags: SendFlags, opcode: &impl Terms, bytes: &[u8]) -> bool {
        let has_destination = opcode.destination().is_some();
        self.takes(flags) && opcode.tell(Look { of: self, has_destination, data: bytes })
    }

    #[inline(always)]
    fn takes(&self, flags: SendFlags) -> bool {
        flags.difference(SendFlags::INLINE).bits() == self.flags
    }

    #[inline(always)]
    fn most_inline(&self, operation: u8) -> usize {
        self.allowed.most_inline(self.units, operation).min(self.inline as usize)
    }
}

impl AtOnce<'_> {
    /// Writes a request of one piece that can be put. Returns false, with nothing written, if it cannot be put.
    #[inline(always)]
    pub(crate) fn put_piece(&mut self, wr_id: u64, opcode: &impl Terms, piece: &Sge) -> bool {
        opcode.tell(Write { of: self, wr_id, terms: opcode, data: piece })
    }

    /// Writes a request with these inline bytes that can be put. Returns false, with nothing written, if it cannot be put.
    #[inline(always)]
    pub(crate) fn put_bytes(&mut self, wr_id: u64, opcode: &impl Terms, bytes: &[u8]) -> bool {
        opcode.tell(Write { of: self, wr_id, terms: opcode, data: bytes })
    }

    /// The slot of the request that was put last.
    #[inline(always)]
    pub(crate) fn last_slot(&self) -> u32 {
        self.run.last()
    }

    /// Everything that was put is posted. Returns the counter after the last request.
    #[inline(always)]
    fn end(self) -> u32 {
        self.run.keep();
        self.next
    }

    /// Writes a request. `rest` returns the rest of its contents, and is called after the number of the request was taken.
    #[inline(always)]
    fn write<S: FnOnce() -> Unit>(
        &mut self,
        wr_id: u64,
        what: Operation,
        bytes: u32,
        rest: impl FnOnce() -> (To, Said, [u64; 4], S),
    ) -> bool {
        // The completion of a sent message reports no length.
        let bytes = if what.number() == SEND { 0 } else { bytes };
        let Some(number) = self.run.take(wr_id, what.kind(), bytes) else { return false };
        let (to, said, first, second) = rest();
        let (units, round) = (self.looking.units, (self.next & self.depth) * self.round);
        let at = self.next.wrapping_mul(units) as usize;
        self.ring.put(at, what.head(number, round, to).unit(said, first));
        if units > 1 {
            self.ring.put(at + 1, second().map(u64::to_le));
        }
        self.next = self.next.wrapping_add(1);
        true
    }
}

/// The check of a request, which gets the opcode through [`Told`].
struct Look<'a, D> {
    of: &'a Looking,
    has_destination: bool,
    data: D,
}

impl<D> Look<'_, D> {
    /// The operation, if the device has it and the destination is known.
    #[inline(always)]
    fn operation(&self, opcode: &Opcode<'_>) -> Option<Operation> {
        let (what, own) = self.of.allowed.operation(opcode).ok()?;
        (self.has_destination || own.is_some()).then_some(what)
    }

    /// Whether a request with this operation may have this many bytes.
    #[inline(always)]
    fn may_have(&self, what: Operation, bytes: usize) -> bool {
        what.number() == SEND || bytes <= self.of.allowed.most_remote as usize
    }
}

impl Told for Look<'_, &Sge> {
    type Answer = bool;

    #[inline(always)]
    fn told(self, opcode: &Opcode<'_>) -> bool {
        self.operation(opcode).is_some_and(|what| self.may_have(what, self.data.length as usize))
    }
}

impl Told for Look<'_, &[u8]> {
    type Answer = bool;

    #[inline(always)]
    fn told(self, opcode: &Opcode<'_>) -> bool {
        let bytes = self.data.len();
        self.operation(opcode).is_some_and(|what| {
            let is_read = matches!(what, Operation::Read(_));
            !is_read && bytes <= self.of.most_inline(what.number()) && self.may_have(what, bytes)
        })
    }
}

/// The writing of a request, which gets the opcode through [`Told`].
struct Write<'a, 'b, T, D> {
    of: &'a mut AtOnce<'b>,
    wr_id: u64,
    terms: &'a T,
    data: D,
}

/// The destination of a request that was checked.
#[inline(always)]
fn destination(own: Option<To>, terms: &impl Terms) -> To {
    own.or_else(|| To::of(terms)).unwrap_or_default()
}

impl<T: Terms> Told for Write<'_, '_, T, &Sge> {
    type Answer = bool;

    #[inline(always)]
    fn told(self, opcode: &Opcode<'_>) -> bool {
        let Self { of, wr_id, terms, data } = self;
        let Ok((what, own)) = of.looking.allowed.operation(opcode) else { return false };
        of.write(wr_id, what, data.length, || {
            let ([a, b], said) = (piece(data), Said::of_one(data.length));
            (destination(own, terms), said, [a, b, 0, 0], || [0; 8])
        })
    }
}

impl<T: Terms> Told for Write<'_, '_, T, &[u8]> {
    type Answer = bool;

    #[inline(always)]
    fn told(self, opcode: &Opcode<'_>) -> bool {
        let Self { of, wr_id, terms, data } = self;
        let Ok((what, own)) = of.looking.allowed.operation(opcode) else { return false };
        let (most, is_remote) = (of.looking.most_inline(what.number()), what.number() != SEND);
        let words = Words::of_bytes(&std::iter::once(data), most, is_remote);
        let Ok(Words { first, second, said }) = words else { return false };
        of.write(wr_id, what, said.bytes, || (destination(own, terms), said, first, || second))
    }
}
