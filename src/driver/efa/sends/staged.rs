//! Requests that are in the copy of the ring until they are published. They are written whole, or part by part.

use super::*;

impl Sends {
    /// Writes a request without its data.
    #[inline(always)]
    fn start<const LOOKS: bool>(
        &mut self,
        wr_id: u64,
        flags: SendFlags,
        what: Operation,
        to: To,
    ) -> Result<(), Refused> {
        if !self.takes(flags) {
            return Err(self.refusal(flags));
        }
        // The number is taken first, so that no part of the slot has to be kept meanwhile. There is a slot for each number.
        let Self { track, numbers, .. } = self;
        let (lane, kind) = (&track.sends, what.kind());
        let number =
            if LOOKS { numbers.take(lane, wr_id, kind, 0) } else { numbers.take_quick(lane, wr_id, kind, 0) };
        let Some(number) = number else { return Err(Refused::Full) };
        let (at, round) = (self.at(self.head), self.round());
        let Self { requests, units, .. } = self;
        let Some(slot) = requests.get_mut(at) else { return Err(Refused::Full) };
        *slot = what.head(number, round, to).unit(Said::default(), [0; 4]);
        // The second unit is for inline data, which a read cannot have.
        if *units > 1
            && !matches!(what, Operation::Read(_))
            && let Some(second) = requests.get_mut(at + 1)
        {
            *second = [0; 8];
        }
        (self.last, self.is_message) = (at, what.number() == SEND);
        self.head = self.head.wrapping_add(1);
        Ok(())
    }

    /// Sets the data of the last request, if it is one piece, or two pieces or inline bytes of a message. Returns false, with nothing done, if it is
    /// neither, or if the request cannot have it.
    #[inline(always)]
    fn set_quick<'b, P, B>(&mut self, data: &Data<P, B>) -> bool
    where
        P: ExactSizeIterator<Item: Borrow<Sge>> + Clone,
        B: InlineParts<'b>,
    {
        let at = self.last;
        let Self { requests, is_message, allowed, most_inline, .. } = &mut *self;
        if let Some(sge) = data.only_piece() {
            let Some(slot) = requests.get_mut(at) else { return false };
            let said = Said::of_one(sge.length);
            if *is_message {
                put_piece::<DATA>(slot, &sge);
                said.write::<false>(slot);
                return true;
            }
            if sge.length > allowed.most_remote {
                return false;
            }
            put_piece::<BEHIND_REMOTE>(slot, &sge);
            said.write::<true>(slot);
            self.numbers.set_bytes(self.lane(), said.bytes);
            return true;
        }
        if let Data::Pieces(pieces) = data
            && pieces.len() == TX_DESC_NUM_BUFS
        {
            let mut pieces = pieces.clone();
            let both = (pieces.next(), pieces.next());
            let (Some(first), Some(second), Some(slot), true) =
                (both.0, both.1, requests.get_mut(at), *is_message)
            else {
                return false;
            };
            let (first, second) = (first.borrow(), second.borrow());
            let bytes = u64::from(first.length) + u64::from(second.length);
            let Ok(said) = Said::of_pieces(TX_DESC_NUM_BUFS, bytes) else { return false };
            put_piece::<DATA>(slot, first);
            put_piece::<{ DATA + size_of::<Sge>() }>(slot, second);
            said.write::<false>(slot);
            return true;
        }
        let Data::Inline(parts) = data else { return false };
        if !*is_message {
            return false;
        }
        let Some(bytes) = data.only_bytes() else {
            // Too many bytes are copied in part, but the request does not have them.
            let room = requests.as_mut_bytes().get_mut(at * UNIT + DATA..);
            let Some(room) = room.and_then(|room| room.get_mut(..*most_inline)) else { return false };
            let (Ok(count), Some(slot)) = (copy(parts.clone(), room), requests.get_mut(at)) else {
                return false;
            };
            Said::of_bytes(count).write::<false>(slot);
            return true;
        };
        let Some(slot) = requests.get_mut(at) else { return false };
        if bytes.len() > *most_inline {
            return false;
        }
        Said::of_bytes(bytes.len()).write::<false>(slot);
        if let Some(room) = slot.as_mut_bytes().get_mut(DATA..DATA + bytes.len()) {
            copy_part(bytes, room);
            return true;
        }
        let room = requests.as_mut_bytes().get_mut(at * UNIT + DATA..).unwrap_or_default();
        room.get_mut(..bytes.len()).is_some_and(|room| {
            room.copy_from_slice(bytes);
            true
        })
    }

    /// Sets the data of the last request, of any kind: such as no piece, several pieces, and inline bytes in parts.
    #[inline(never)]
    fn set_other<'b, P, B>(&mut self, data: &Data<P, B>) -> Result<(), Refused>
    where
        P: ExactSizeIterator<Item: Borrow<Sge>> + Clone,
        B: InlineParts<'b>,
    {
        let at = self.last;
        let Some(slot) = self.last() else { return Err(Refused::NotBegun) };
        let operation = operation(slot);
        let behind = if operation == SEND { DATA } else { BEHIND_REMOTE };
        let said = match data {
            Data::Pieces(pieces) => {
                if pieces.len() > most_pieces(operation) {
                    return Err(Refused::TooLarge);
                }
                let mut bytes = 0;
                let places = slot.get_mut(behind / 8..).unwrap_or_default().as_chunks_mut().0;
                for (place, piece_of) in places.iter_mut().zip(pieces.clone()) {
                    *place = piece(piece_of.borrow()).map(u64::to_le);
                    bytes += u64::from(piece_of.borrow().length);
                }
                Said::of_pieces(pieces.len(), bytes)?
            }
            Data::Inline(parts) => {
                let most = self.most_inline(operation);
                let units = self.requests.get_mut(at..at + self.units as usize).unwrap_or_default();
                let room = units.as_mut_bytes().get_mut(behind..).unwrap_or_default();
                let room = room.get_mut(..most).unwrap_or_default();
                Said::of_bytes(copy(parts.clone(), room)?)
            }
        };
        if operation != SEND && said.bytes > self.allowed.most_remote {
            return Err(Refused::TooLarge);
        }
        if let Some(slot) = self.requests.get_mut(at) {
            if operation == SEND {
                said.write::<false>(slot);
                return Ok(());
            }
            said.write::<true>(slot);
        }
        self.numbers.set_bytes(self.lane(), said.bytes);
        Ok(())
    }
}

/// The copy of the ring, borrowed to be filled. Unless it `LOOKS`, there is only the shortest path for requests in parts: all else is
/// refused with nothing done, and the caller then takes the other path.
#[derive(Debug)]
pub(super) struct Staging<'a, const LOOKS: bool>(pub(super) &'a mut Sends);

impl<const LOOKS: bool> Lower for Staging<'_, LOOKS> {
    const IS_IN_ORDER: bool = false;

    fn next_slot(&self) -> u32 {
        self.0.next_slot()
    }

    #[inline(always)]
    fn last_slot(&self) -> u32 {
        self.0.numbers.last()
    }

    fn filled(&self, number: u32) -> Option<u32> {
        self.0.filled(number)
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
        self.0.put_whole::<true, _, _>(wr_id, flags, opcode, data)
    }

    #[inline(always)]
    fn begin(&mut self, wr_id: u64, flags: SendFlags, opcode: &Opcode<'_>) -> Result<(), Refused> {
        let (operation, to) = self.0.allowed.operation(opcode)?;
        self.0.start::<LOOKS>(wr_id, flags, operation, to.unwrap_or_default())
    }

    #[inline(always)]
    fn set_data<'b, P, B>(
        &mut self,
        _: SendFlags,
        _: Option<FrameHead>,
        data: &Data<P, B>,
    ) -> Result<(), Refused>
    where
        P: ExactSizeIterator<Item: Borrow<Sge>> + Clone,
        B: InlineParts<'b>,
    {
        if self.0.set_quick(data) {
            Ok(())
        } else if !LOOKS {
            Err(Refused::TooLarge)
        } else {
            self.0.set_other(data)
        }
    }

    #[inline(always)]
    fn set_address(&mut self, ah: Address, qp_num: u32, qkey: u32) -> Result<(), Refused> {
        let Some(slot) = self.0.last() else { return Err(Refused::NotBegun) };
        To::new(&ah, qp_num, qkey).write(slot);
        Ok(())
    }
}
