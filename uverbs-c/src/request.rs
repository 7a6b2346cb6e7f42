//! Requests without a short path: any operation, with any data.

use uverbs::abi::types::SendFlags;
use uverbs::raw::{Batch, Data, FillSends, FrameHead, InlineParts, Lower, Refused, SendQueue, Sge, ToSrq};

use crate::abi::DataBuf;
use crate::answer::{Answer, EINVAL};
use crate::boundary::Pointer;

/// The bytes of a request that is sent inline.
#[derive(Clone)]
pub(crate) enum Bytes<'a> {
    /// Bytes described by pieces.
    Pieces(std::slice::Iter<'a, Sge>),
    Buffers(Buffers),
}

/// A list of `struct ibv_data_buf`.
#[derive(Clone)]
pub(crate) struct Buffers {
    list: Pointer,
    next: usize,
    count: usize,
}

impl Buffers {
    /// The items to which this points.
    pub(crate) fn new(list: Pointer, count: usize) -> Self {
        Self { list, next: 0, count }
    }
}

impl<'a> Bytes<'a> {
    /// From pieces.
    pub(crate) fn new(pieces: &'a [Sge]) -> Answer<Self> {
        let is_nowhere = |piece: &Sge| piece.addr == 0 && piece.length > 0;
        if pieces.iter().any(is_nowhere) { Err(EINVAL) } else { Ok(Self::Pieces(pieces.iter())) }
    }
}

impl<'a> Iterator for Bytes<'a> {
    type Item = &'a [u8];

    fn next(&mut self) -> Option<&'a [u8]> {
        match self {
            Self::Pieces(pieces) => {
                let piece = pieces.next()?;
                Pointer::from_word(piece.addr).array(piece.length)
            }
            Self::Buffers(buffers) => {
                let Buffers { list, next, count } = buffers;
                let DataBuf { addr, length } = *list.item(*next).filter(|_| *next < *count)?;
                *next += 1;
                addr.items(length)
            }
        }
    }
}

/// A description of bytes in memory.
pub(crate) trait Part {
    /// Where they are, and how many.
    fn place(&self) -> (Pointer, usize);
}

impl Part for Sge {
    fn place(&self) -> (Pointer, usize) {
        (Pointer::from_word(self.addr), self.length as usize)
    }
}

impl Part for DataBuf {
    fn place(&self) -> (Pointer, usize) {
        (self.addr, self.length)
    }
}

/// The bytes of a list, none of which are at a null pointer.
#[derive(Clone)]
pub(crate) struct Parts<'a, T> {
    list: std::slice::Iter<'a, T>,
    total: u64,
}

impl<'a, T: Part> Parts<'a, T> {
    /// `None` if there is a null pointer, also one without bytes, and for a part that is larger than any request.
    #[inline(always)]
    pub(crate) fn of(list: &'a [T]) -> Option<Self> {
        let mut total = 0;
        // A loop becomes a part of the caller; a method of iterators is often a call.
        for part in list {
            let (place, len) = part.place();
            if place.is_null() || len > u32::MAX as usize {
                return None;
            }
            total += len as u64;
        }
        Some(Self { list: list.iter(), total })
    }
}

impl<'a, T: Part> Iterator for Parts<'a, T> {
    type Item = &'a [u8];

    #[inline(always)]
    fn next(&mut self) -> Option<&'a [u8]> {
        let (place, len) = self.list.next()?.place();
        place.some_items(len)
    }
}

impl<'a, T: Part + Clone> InlineParts<'a> for Parts<'a, T> {
    fn total(&self) -> u64 {
        self.total
    }
}

impl<'a> InlineParts<'a> for Bytes<'a> {}

/// The first bytes of a frame, from its pieces.
#[cold]
#[inline(never)]
pub(crate) fn head(pieces: &[Sge]) -> Answer<FrameHead> {
    head_of(Bytes::new(pieces)?.flatten())
}

/// The first bytes of a frame.
pub(crate) fn head_of<'a>(mut frame: impl Iterator<Item = &'a u8>) -> Answer<FrameHead> {
    let mut head = FrameHead::default();
    head.iter_mut().try_for_each(|place| frame.next().map(|byte| *place = *byte)).ok_or(EINVAL)?;
    Ok(head)
}

/// One request.
pub(crate) struct Request<'a> {
    pub(crate) wr_id: u64,
    pub(crate) flags: SendFlags,
    /// The operation; `None` if it is already written and gets its data now.
    pub(crate) operation: Option<ToSrq<'a>>,
    /// The first bytes of a frame, if the queue needs them.
    pub(crate) head: Option<FrameHead>,
    pub(crate) data: Data<std::slice::Iter<'a, Sge>, Bytes<'a>>,
}

impl Request<'_> {
    /// Writes it into a queue of any kind.
    // A single function for all callers, because it is large.
    #[inline(never)]
    pub(crate) fn put(self, queue: &mut SendQueue) -> Result<(), Refused> {
        queue.step(self)
    }
}

impl FillSends for Request<'_> {
    type Error = Refused;

    #[inline(always)]
    fn fill<L: Lower>(self, batch: &mut Batch<'_, L>) -> Result<(), Refused> {
        match &self.operation {
            Some(operation) => batch.put(self.wr_id, self.flags, operation, self.head, &self.data),
            None => batch.set_data(self.flags, self.head, &self.data),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_of_pieces_come_in_their_order_and_none_from_a_null_pointer() {
        let (first, second) = ([1_u8, 2, 3], [4_u8, 5]);
        let piece = |part: &[u8]| Sge {
            addr: part.as_ptr().expose_provenance() as u64,
            length: part.len() as u32,
            lkey: 0,
        };
        let nowhere = |length| Sge { addr: 0, length, lkey: 0 };
        let all = |pieces: &[Sge]| Bytes::new(pieces).ok().map(|parts| parts.flatten().copied().collect());
        let (one, two) = (piece(&first), piece(&second));
        assert_eq!(all(&[one, two]), Some(vec![1, 2, 3, 4, 5]));
        assert_eq!(all(&[two, nowhere(0), one]), Some(vec![4, 5, 1, 2, 3]));
        assert_eq!(all(&[]), Some(vec![]));
        assert_eq!(all(&[one, nowhere(1)]), None);
        assert!(Parts::of(&[one, two]).is_some_and(|parts| parts.flatten().eq(&[1, 2, 3, 4, 5])));
        assert!(Parts::of(&[one, nowhere(0)]).is_none());
    }

    #[test]
    fn parts_are_those_of_a_list_without_null_pointers() {
        let (first, second) = ([1_u8, 2, 3], [4_u8, 5]);
        let buffer = |part: &[u8]| DataBuf { addr: Pointer::to_first(part), length: part.len() };
        let (one, two) = (buffer(&first), buffer(&second));
        let of = |list: &[DataBuf]| {
            Parts::of(list).map(|parts| (parts.total(), parts.flatten().copied().collect::<Vec<_>>()))
        };
        assert_eq!(of(&[one, two]), Some((5, vec![1, 2, 3, 4, 5])));
        assert_eq!(of(&[two, buffer(&[]), one]), Some((5, vec![4, 5, 1, 2, 3])));
        assert_eq!(of(&[]), Some((0, vec![])));
        for length in [0, 1] {
            assert_eq!(of(&[one, DataBuf { addr: Pointer::NULL, length }]), None);
        }
        for length in [u32::MAX as usize + 1, usize::MAX] {
            assert_eq!(of(&[DataBuf { length, ..one }, two]), None, "no request has so many");
        }
    }
}
