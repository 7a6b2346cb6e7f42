//! Fills the send queue of siw with requests that have no short path. The functions exist only once, for all kinds of requests.

use std::borrow::Borrow;

use uverbs_abi::types::SendFlags;

use super::sends::{Taken, Writing, put_data};
use crate::driver::request::{Address, Data, FrameHead, NoBytes, NoPieces, Opcode, Refused, Sge, Terms};
use crate::driver::seam::Lower;

/// A queue, borrowed to be filled in this way.
#[derive(Debug)]
pub(crate) struct Apart<'a>(pub(crate) Writing<'a>);

/// The data of a request, in any form.
type Any<'a, 'b> =
    Taken<'b, &'a mut dyn ExactSizeIterator<Item = Sge>, &'a mut dyn Iterator<Item = &'b [u8]>>;

/// Calls `then` with the data of a request, in one form for all kinds.
#[inline(always)]
fn with_any<'b, P, B, T>(data: &Data<P, B>, then: impl FnOnce(Any<'_, 'b>) -> T) -> T
where
    P: ExactSizeIterator<Item: Borrow<Sge>> + Clone,
    B: Iterator<Item = &'b [u8]> + Clone,
{
    let (mut pieces, mut parts);
    then(match Taken::of(data) {
        Taken::Pieces(list) => {
            pieces = list.map(|piece| *piece.borrow());
            Taken::Pieces(&mut pieces)
        }
        Taken::Inline(all, list) => {
            parts = list;
            Taken::Inline(all, &mut parts)
        }
    })
}

impl Apart<'_> {
    #[inline(never)]
    fn put_any(
        &mut self,
        wr_id: u64,
        flags: SendFlags,
        opcode: &Opcode<'_>,
        data: Any<'_, '_>,
    ) -> Result<(), Refused> {
        self.0.fill(wr_id, flags, opcode, |slot, opcode, flags| put_data(slot, opcode, flags, data))
    }

    #[inline(never)]
    fn set_any(&mut self, flags: SendFlags, data: Any<'_, '_>) -> Result<(), Refused> {
        self.0.fill_again(flags, |slot, opcode, flags| put_data(slot, opcode, flags, data))
    }
}

impl Lower for Apart<'_> {
    #[inline(always)]
    fn next_slot(&self) -> u32 {
        self.0.next_slot()
    }

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
        let opcode = opcode.opcode();
        with_any(data, |data| self.put_any(wr_id, flags, &opcode, data))
    }

    fn begin(&mut self, wr_id: u64, flags: SendFlags, opcode: &Opcode<'_>) -> Result<(), Refused> {
        self.put(wr_id, flags, opcode, None, &Data::<NoPieces, NoBytes>::Pieces(std::iter::empty()))
    }

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
        with_any(data, |data| self.set_any(flags, data))
    }

    fn set_address(&mut self, _: Address, _: u32, _: u32) -> Result<(), Refused> {
        Err(Refused::Lacks)
    }
}
