//! Requests that are written directly to the device's ring.

use super::*;
use crate::driver::request::Told;

/// A send queue whose requests are written to the device's ring as they are put, and cannot be discarded. If there are more of them
/// than the device takes at once, the doorbell is rung before [`Sends::publish`].
#[derive(Debug)]
pub(crate) struct Straight<'a>(&'a mut Sends);

impl Sends {
    /// Borrows the queue to post in this way. Returns `None` while requests wait in the copy of the ring.
    #[inline(always)]
    pub(crate) fn straight(&mut self) -> Option<Straight<'_>> {
        (self.head == self.written).then_some(Straight(self))
    }
}

impl Sends {
    /// Writes a whole request: to the copy of the ring, if it is `STAGED`, or to the device's.
    #[inline(always)]
    pub(super) fn put_whole<'b, const STAGED: bool, P, B>(
        &mut self,
        wr_id: u64,
        flags: SendFlags,
        opcode: &impl Terms,
        data: &Data<P, B>,
    ) -> Result<(), Refused>
    where
        P: ExactSizeIterator<Item: Borrow<Sge>> + Clone,
        B: InlineParts<'b>,
    {
        opcode.tell(Whole::<STAGED, _, _, _> { sends: self, wr_id, flags, terms: opcode, data })
    }

    /// Writes a request of this many bytes. `rest` returns the rest of its contents.
    // `rest` is called last: what is read before the number of the request is taken has to be kept in memory meanwhile.
    #[inline(always)]
    fn write<const STAGED: bool, S: FnOnce() -> Unit>(
        &mut self,
        wr_id: u64,
        what: Operation,
        bytes: u32,
        rest: impl FnOnce() -> (To, Said, [u64; 4], S),
    ) -> Result<(), Refused> {
        let round = self.round();
        // The device's ring masks the index itself.
        let at = if STAGED { self.at(self.head) } else { self.head.wrapping_mul(self.units) as usize };
        let Self { track, numbers, device: Some(device), requests, units, head, .. } = self else {
            return Err(Refused::Full);
        };
        let Some(number) = numbers.take(&track.sends, wr_id, what.kind(), bytes) else {
            return Err(Refused::Full);
        };
        let (to, said, first, second) = rest();
        let unit = what.head(number, round, to).unit(said, first);
        *head = head.wrapping_add(1);
        if STAGED {
            if let Some(place) = requests.get_mut(at) {
                *place = unit;
            }
            if *units > 1
                && let Some(place) = requests.get_mut(at + 1)
            {
                *place = second().map(u64::to_le);
            }
            // All its parts are written.
            self.last = NOWHERE;
            return Ok(());
        }
        let mut ring = device.ring.writing();
        ring.put(at, unit);
        if *units > 1 {
            ring.put(at + 1, second().map(u64::to_le));
        }
        self.written = self.head;
        if self.written == self.limit {
            self.tell();
        }
        Ok(())
    }

    /// The length that the completion of a request of this many bytes reports. The completion of a sent message reports none.
    #[inline(always)]
    fn told_bytes(&self, what: Operation, bytes: u32) -> Result<u32, Refused> {
        match what {
            Operation::Send(_) => Ok(0),
            _ if bytes > self.allowed.most_remote => Err(Refused::TooLarge),
            _ => Ok(bytes),
        }
    }
}

/// A whole request, without its opcode.
struct Whole<'a, const STAGED: bool, T, P, B> {
    sends: &'a mut Sends,
    wr_id: u64,
    flags: SendFlags,
    terms: &'a T,
    data: &'a Data<P, B>,
}

impl<'b, const STAGED: bool, T, P, B> Told for Whole<'_, STAGED, T, P, B>
where
    T: Terms,
    P: ExactSizeIterator<Item: Borrow<Sge>> + Clone,
    B: InlineParts<'b>,
{
    type Answer = Result<(), Refused>;

    #[inline(always)]
    fn told(self, opcode: &Opcode<'_>) -> Result<(), Refused> {
        let Self { sends, wr_id, flags, terms, data } = self;
        let (what, own) = sends.allowed.operation(opcode)?;
        if own.is_none() && terms.destination().is_none() {
            return Err(Refused::Lacks);
        }
        // Written out, and not by the function of `at_once.rs`: with it, a request with inline bytes takes 70 instructions more.
        let to = || own.or_else(|| To::of(terms)).unwrap_or_default();
        if !sends.takes(flags) {
            return Err(sends.refusal(flags));
        }
        let (operation, is_remote) = (what.number(), what.number() != SEND);
        if let Some(sge) = data.only_piece() {
            let bytes = sends.told_bytes(what, sge.length)?;
            return sends.write::<STAGED, _>(wr_id, what, bytes, || {
                let ([a, b], said) = (piece(&sge), Said::of_one(sge.length));
                (to(), said, [a, b, 0, 0], || [0; 8])
            });
        }
        let Words { first, second, said } = match data {
            Data::Pieces(pieces) => Words::of_pieces(pieces, most_pieces(operation))?,
            Data::Inline(parts) => Words::of_bytes(parts, sends.most_inline(operation), is_remote)?,
        };
        let bytes = sends.told_bytes(what, said.bytes)?;
        sends.write::<STAGED, _>(wr_id, what, bytes, || (to(), said, first, || second))
    }
}

/// The data of a request in the device's format. `first` is for a narrow slot, or the first unit of a wide one.
pub(super) struct Words {
    pub(super) first: [u64; 4],
    /// The second unit of a wide slot.
    pub(super) second: Unit,
    pub(super) said: Said,
}

impl Words {
    #[inline(always)]
    fn of_pieces<P>(pieces: &P, most: usize) -> Result<Self, Refused>
    where
        P: ExactSizeIterator<Item: Borrow<Sge>> + Clone,
    {
        let count = pieces.len();
        if count > most {
            return Err(Refused::TooLarge);
        }
        let mut pieces = pieces.clone();
        let mut next = || {
            let sge = pieces.next()?;
            Some((piece(sge.borrow()), u64::from(sge.borrow().length)))
        };
        let ([a, b], one) = next().unwrap_or_default();
        let ([c, d], other) = if count > 1 { next().unwrap_or_default() } else { Default::default() };
        let said = Said::of_pieces(count, one + other)?;
        Ok(Self { first: [a, b, c, d], second: [0; 8], said })
    }

    /// Inline bytes, which follow the head, or the remote memory if the request `is_remote`.
    #[inline(always)]
    pub(super) fn of_bytes<'b, B>(parts: &B, most: usize, is_remote: bool) -> Result<Self, Refused>
    where
        B: InlineParts<'b>,
    {
        // As many as a wide slot has after the head.
        let mut words = [0_u64; 12];
        let room = words.as_mut_bytes().get_mut(..most).unwrap_or_default();
        let said = Said::of_bytes(copy(parts.clone(), room)?);
        let [a, b, c, d, e, f, g, h, i, j, k, l] = words.map(u64::from_le);
        let second = if is_remote { [c, d, e, f, g, h, i, j, k, l] } else { [e, f, g, h, i, j, k, l, 0, 0] };
        let second = std::array::from_fn(|at| second[at]);
        Ok(Self { first: [a, b, c, d], second, said })
    }
}

impl Lower for Straight<'_> {
    const IS_IN_ORDER: bool = false;

    fn next_slot(&self) -> u32 {
        self.0.next_slot()
    }

    #[inline(always)]
    fn last_slot(&self) -> u32 {
        self.0.numbers.last()
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
        self.0.put_whole::<false, _, _>(wr_id, flags, opcode, data)
    }
}
