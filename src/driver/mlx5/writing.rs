//! A send ring, borrowed to be written.

use std::borrow::Borrow;

use uverbs_abi::types::SendFlags;

use super::Form;
use super::sends::Sends;
use crate::driver::request::{ADDRESSED, Address, Data, FrameHead, InlineParts, Opcode, Refused, Sge, Terms};
use crate::driver::seam::{Lower, SendRing};

/// The pieces by value.
#[inline(always)]
fn by_value<P, B>(data: &Data<P, B>) -> Data<impl ExactSizeIterator<Item = Sge> + Clone, B>
where
    P: ExactSizeIterator<Item: Borrow<Sge>> + Clone,
    B: Clone,
{
    match data {
        Data::Pieces(pieces) => Data::Pieces(pieces.clone().map(|piece| *piece.borrow())),
        Data::Inline(bytes) => Data::Inline(bytes.clone()),
    }
}

/// A send ring, borrowed to be written. Unless it `LOOKS` at the device's position, only places that are known to be free count as free.
#[derive(Debug)]
pub(crate) struct Writing<'a, const LOOKS: bool, const KIND: u8>(pub(super) &'a mut Sends);

impl<const LOOKS: bool, const KIND: u8> Writing<'_, LOOKS, KIND> {
    /// The flags of a request. Frames do not wait for earlier requests.
    #[inline]
    fn flags(&self, flags: SendFlags) -> SendFlags {
        if KIND == ADDRESSED && self.0.has_frames::<KIND>() { flags - SendFlags::FENCE } else { flags }
    }
}

impl<const LOOKS: bool, const KIND: u8> Lower for Writing<'_, LOOKS, KIND> {
    fn next_slot(&self) -> u32 {
        self.0.next_slot()
    }

    #[inline(always)]
    fn put<'b, P, B>(
        &mut self,
        wr_id: u64,
        flags: SendFlags,
        opcode: &impl Terms,
        head: Option<FrameHead>,
        data: &Data<P, B>,
    ) -> Result<(), Refused>
    where
        P: ExactSizeIterator<Item: Borrow<Sge>> + Clone,
        B: InlineParts<'b>,
    {
        if LOOKS && !self.0.is_ready {
            return Err(Refused::NotReady);
        }
        if let Some(to) = opcode.datagram() {
            if KIND != ADDRESSED || self.0.form != Form::Datagrams {
                return Err(Refused::Lacks);
            }
            return self.0.put_datagram::<LOOKS, _, _>(wr_id, flags, &to, &by_value(data));
        }
        let head = head.as_ref().filter(|_| self.0.wants_head);
        let flags = self.flags(flags);
        self.0.put_as::<LOOKS, KIND, _, _>(wr_id, flags, opcode, head, &by_value(data))
    }

    #[inline(always)]
    fn begin(&mut self, wr_id: u64, flags: SendFlags, opcode: &Opcode<'_>) -> Result<(), Refused> {
        let flags = self.flags(flags);
        if self.0.is_ready { self.0.begin::<KIND>(wr_id, flags, opcode) } else { Err(Refused::NotReady) }
    }

    #[inline(always)]
    fn set_data<'b, P, B>(
        &mut self,
        _: SendFlags,
        head: Option<FrameHead>,
        data: &Data<P, B>,
    ) -> Result<(), Refused>
    where
        P: ExactSizeIterator<Item: Borrow<Sge>> + Clone,
        B: InlineParts<'b>,
    {
        // The pieces show whether the bytes are in the request.
        self.0.set_data::<KIND, _, _>(head.as_ref(), &by_value(data))
    }

    #[inline(always)]
    fn set_address(&mut self, ah: Address, qp_num: u32, qkey: u32) -> Result<(), Refused> {
        if self.0.form != Form::Datagrams {
            return Err(Refused::Lacks);
        }
        self.0.begun.ok_or(Refused::NotBegun)?;
        self.0.put_address(self.0.begun_at, &ah, qp_num, qkey);
        Ok(())
    }

    #[inline(always)]
    fn set_srq(&mut self, srq: u32) -> Result<(), Refused> {
        if self.0.form != Form::Extended {
            return Err(Refused::Lacks);
        }
        self.0.begun.ok_or(Refused::NotBegun)?;
        self.0.put_srq(self.0.begun_at, srq);
        Ok(())
    }
}
