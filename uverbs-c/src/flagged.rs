//! The shortest paths for queues whose slots have a flag each. Contexts of devices with such queues use these functions. Each calls the
//! general function for what it does not handle itself.

use std::ffi::c_int;

use uverbs::Remote;
use uverbs::abi::types::{SendFlags, wr_opcode};
use uverbs::raw::{Batch, Data, FillSends, Lower, Opcode, Sge};

use crate::abi::SendWr;
use crate::answer::{Answer, Code, EINVAL};
use crate::boundary::Pointer;
use crate::post::{self, Sending, halves, plain, told, unseen};
use crate::qp::Qp;
use crate::request::Bytes;

type NoPieces = std::iter::Empty<Sge>;
type NoBytes = std::iter::Empty<&'static [u8]>;

/// The operation of a request; `None` if such a queue does not support it.
#[inline(always)]
fn operation(wr: &SendWr) -> Option<Opcode<'_>> {
    let remote = Remote { address: wr.wr[0], rkey: halves(wr.wr[1]).0 };
    Some(match wr.opcode {
        wr_opcode::SEND => Opcode::Send,
        wr_opcode::RDMA_WRITE => Opcode::Write(remote),
        wr_opcode::RDMA_READ => Opcode::Read(remote),
        wr_opcode::SEND_WITH_INV => Opcode::SendInvalidate(wr.imm_data),
        _ => return None,
    })
}

/// A list of sends, writes and reads of one piece each, in memory or inline.
struct Plain<'a>(&'a Qp, Pointer);

impl Plain<'_> {
    #[inline(always)]
    fn put<L: Lower>(qp: &Qp, batch: &mut Batch<'_, L>, wr: &SendWr, opcode: &Opcode<'_>) -> Answer {
        let piece = wr.sg_list.get::<Sge>().filter(|_| wr.num_sge == 1).ok_or(EINVAL)?;
        let flags = qp.flags(wr.send_flags);
        if !flags.contains(SendFlags::INLINE) {
            let data = Data::<_, NoBytes>::Pieces(std::slice::from_ref(piece).iter());
            return Ok(batch.put(wr.wr_id, flags, opcode, None, &data)?);
        }
        let bytes = Pointer::from_word(piece.addr).some_items(piece.length as usize).ok_or(EINVAL)?;
        let data = Data::<NoPieces, _>::Inline(std::iter::once(bytes));
        Ok(batch.put(wr.wr_id, flags, opcode, None, &data)?)
    }
}

impl FillSends for Plain<'_> {
    type Error = Code;

    #[inline(always)]
    fn fill<L: Lower>(self, batch: &mut Batch<'_, L>) -> Answer {
        let Self(qp, mut at) = self;
        while let Some(wr) = at.get::<SendWr>() {
            Self::put(qp, batch, wr, &operation(wr).ok_or(EINVAL)?)?;
            at = wr.next;
        }
        Ok(())
    }
}

/// More inline bytes than such a queue accepts.
const ROOM: usize = 256;

/// The bytes that the pieces describe, in one array.
#[inline(never)]
fn gather<'a>(pieces: &[Sge], room: &'a mut [u8]) -> Answer<&'a [u8]> {
    let mut len = 0;
    for part in Bytes::new(pieces)? {
        room.get_mut(len..).and_then(|rest| rest.get_mut(..part.len())).ok_or(EINVAL)?.copy_from_slice(part);
        len += part.len();
    }
    Ok(&room[..len])
}

/// A list of any requests: how far it is posted, and why it stopped.
struct Any<'a> {
    qp: &'a Qp,
    at: &'a mut Pointer,
    answer: &'a mut Answer,
}

impl FillSends for Any<'_> {
    type Error = Code;

    #[inline(always)]
    fn fill<L: Lower>(self, batch: &mut Batch<'_, L>) -> Answer {
        let put = |batch: &mut Batch<'_, L>, wr: &SendWr| {
            let pieces = post::pieces(wr.sg_list, wr.num_sge, batch.max_pieces())?;
            let (opcode, flags) = (operation(wr).ok_or(EINVAL)?, self.qp.flags(wr.send_flags));
            let mut room = [0; ROOM];
            let data = if flags.contains(SendFlags::INLINE) {
                Data::Inline(std::iter::once(gather(pieces, &mut room)?))
            } else {
                Data::Pieces(pieces.iter())
            };
            Ok(batch.put(wr.wr_id, flags, &opcode, None, &data)?)
        };
        while let Some(wr) = self.at.get::<SendWr>() {
            *self.answer = put(batch, wr);
            if self.answer.is_err() {
                break;
            }
            *self.at = wr.next;
        }
        // The requests that were put before are posted.
        Ok(())
    }
}

pub(crate) extern "C" fn post_send(qp: &Qp, list: Pointer, bad: Option<&mut Pointer>) -> c_int {
    let posted = qp.sends.try_with(|sending: &mut Sending| {
        let queue = sending.queue.get_mut().ok()?;
        let posted = queue.post_flagged(Plain(qp, list))?;
        Some(posted.map_err(|why| unseen(queue, why)))
    });
    match posted {
        Some(posted) => plain(told(posted, list, bad)),
        None => post_send_at_length(qp, list, bad),
    }
}

#[cold]
#[inline(never)]
fn post_send_at_length(qp: &Qp, list: Pointer, bad: Option<&mut Pointer>) -> c_int {
    let (mut at, mut answer) = (list, Ok(()));
    let posted = qp.sends.try_with(|sending: &mut Sending| {
        let queue = sending.queue.get_mut().ok()?;
        let posted = queue.post_flagged_at_length(Any { qp, at: &mut at, answer: &mut answer })?;
        Some(posted.map_err(|why| unseen(queue, why)))
    });
    match posted {
        Some(Ok(())) => plain(told(answer, at, bad)),
        // The device has seen none of the requests.
        Some(unseen) => plain(told(unseen, list, bad)),
        // Nothing can be posted: this is a child of `fork`.
        None => post::post_send(qp, list, bad),
    }
}
