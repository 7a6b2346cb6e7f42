//! Requests that are written into the device's ring as they come.

use super::*;
use crate::driver::request::Told;

/// A send queue whose requests go to the device's ring as they are put: no request that was put is taken back. The device may be told of
/// them before [`Sends::publish`], as of more than it takes at once.
#[derive(Debug)]
pub(crate) struct Straight<'a>(&'a mut Sends);

impl Sends {
    /// This way; none where requests wait that are in the copy, and for a queue pair that does not send.
    #[inline(always)]
    pub(crate) fn straight(&mut self) -> Option<Straight<'_>> {
        (self.flags != NONE && self.head == self.written).then_some(Straight(self))
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
        B: Iterator<Item = &'b [u8]> + Clone,
    {
        let to = opcode.destination().map(|to| To::new(&to.ah, to.qp_num, to.qkey));
        opcode.tell(Whole::<STAGED, _, _> { sends: self, wr_id, flags, to, data })
    }

    /// Writes one whose data is as [`Words`] have it.
    #[inline(always)]
    fn write<const STAGED: bool>(
        &mut self,
        wr_id: u64,
        what: Operation,
        to: To,
        said: Said,
        first: [u64; 4],
        second: impl FnOnce() -> Unit,
    ) -> Result<(), Refused> {
        if what.number() != SEND && said.bytes > self.allowed.most_remote {
            return Err(Refused::TooLarge);
        }
        // Of a message nobody asks.
        let bytes = if what.number() == SEND { 0 } else { said.bytes };
        let round = self.round();
        // The device's ring goes round by itself.
        let at = if STAGED { self.at(self.head) } else { self.head.wrapping_mul(self.units) as usize };
        let Self { track, numbers, device: Some(device), requests, units, head, .. } = self else {
            return Err(Refused::Full);
        };
        let Some(number) = numbers.take(&track.sends, wr_id, what.kind(), bytes) else {
            return Err(Refused::Full);
        };
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
            // It has all its parts.
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
}

/// A whole request, but for what it does.
struct Whole<'a, const STAGED: bool, P, B> {
    sends: &'a mut Sends,
    wr_id: u64,
    flags: SendFlags,
    to: Option<To>,
    data: &'a Data<P, B>,
}

impl<'b, const STAGED: bool, P, B> Told for Whole<'_, STAGED, P, B>
where
    P: ExactSizeIterator<Item: Borrow<Sge>> + Clone,
    B: Iterator<Item = &'b [u8]> + Clone,
{
    type Answer = Result<(), Refused>;

    #[inline(always)]
    fn told(self, opcode: &Opcode<'_>) -> Result<(), Refused> {
        let Self { sends, wr_id, flags, to, data } = self;
        let (what, own) = sends.operation(opcode)?;
        let to = own.or(to).ok_or(Refused::Lacks)?;
        if !sends.takes(flags) {
            return Err(sends.refusal(flags));
        }
        let (operation, is_remote) = (what.number(), what.number() != SEND);
        if let Some(sge) = data.only_piece() {
            let ([a, b], said) = (piece(&sge), Said::of_one(sge.length));
            return sends.write::<STAGED>(wr_id, what, to, said, [a, b, 0, 0], || [0; 8]);
        }
        let Words { first, second, said } = match data {
            Data::Pieces(pieces) => Words::of_pieces(pieces, most_pieces(operation))?,
            Data::Inline(parts) => Words::of_bytes(parts, sends.most_inline(operation), is_remote)?,
        };
        sends.write::<STAGED>(wr_id, what, to, said, first, || second)
    }
}

/// Data as the words of a request have it, the first of them as one of a narrow slot.
struct Words {
    first: [u64; 4],
    /// What stands in the second unit of a wide slot.
    second: Unit,
    said: Said,
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

    /// Of bytes that stand behind remote memory, or not.
    #[inline(always)]
    fn of_bytes<'b, B>(parts: &B, most: usize, is_remote: bool) -> Result<Self, Refused>
    where
        B: Iterator<Item = &'b [u8]> + Clone,
    {
        // As many as a wide slot has behind the head.
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
        B: Iterator<Item = &'b [u8]> + Clone,
    {
        self.0.put_whole::<false, _, _>(wr_id, flags, opcode, data)
    }

    fn begin(&mut self, _: u64, _: SendFlags, _: &Opcode<'_>) -> Result<(), Refused> {
        Err(Refused::Lacks)
    }

    fn set_data<'b, P, B>(
        &mut self,
        _: SendFlags,
        _: Option<FrameHead>,
        _: &Data<P, B>,
    ) -> Result<(), Refused>
    where
        P: ExactSizeIterator<Item: Borrow<Sge>> + Clone,
        B: Iterator<Item = &'b [u8]> + Clone,
    {
        Err(Refused::NotBegun)
    }

    fn set_address(&mut self, _: Address, _: u32, _: u32) -> Result<(), Refused> {
        Err(Refused::NotBegun)
    }
}
