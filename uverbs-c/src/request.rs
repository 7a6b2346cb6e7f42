//! Requests without a short path: any operation, with any data.

use uverbs::abi::types::SendFlags;
use uverbs::raw::{Batch, Data, FillSends, FrameHead, Lower, Refused, SendQueue, Sge, ToSrq};

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

/// The bytes that pieces describe, none of which is at a null pointer.
#[derive(Clone)]
pub(crate) struct Parts<'a>(std::slice::Iter<'a, Sge>);

impl<'a> Parts<'a> {
    /// `None` if there is a null pointer, also one without bytes.
    #[inline(always)]
    pub(crate) fn of(pieces: &'a [Sge]) -> Option<Self> {
        // A loop becomes a part of the caller; a method of iterators is often a call.
        for piece in pieces {
            if piece.addr == 0 {
                return None;
            }
        }
        Some(Self(pieces.iter()))
    }
}

impl<'a> Iterator for Parts<'a> {
    type Item = &'a [u8];

    #[inline(always)]
    fn next(&mut self) -> Option<&'a [u8]> {
        let piece = self.0.next()?;
        Pointer::from_word(piece.addr).some_items(piece.length as usize)
    }
}

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

/// Memory of a queue pair in which inline data of several parts becomes one slice, so that it takes the path of a request with one part.
#[derive(Default)]
pub(crate) struct Gathered {
    /// Allocated when it is used for the first time.
    bytes: Vec<u8>,
    most: usize,
}

impl Gathered {
    /// For a queue with this maximum of inline data.
    pub(crate) fn new(most: u32) -> Self {
        Self { bytes: Vec::new(), most: most as usize }
    }

    /// The bytes of a list of `struct ibv_data_buf`, one after another. `None` if there are none, if they do not fit into a request, and for
    /// a null pointer.
    // A separate function, so that its callers need not save registers for it.
    #[inline(never)]
    pub(crate) fn of_buffers(&mut self, list: Pointer, count: usize) -> Option<&[u8]> {
        if self.bytes.is_empty() && !self.allocate() {
            return None;
        }
        let mut rest = &mut self.bytes[..];
        let parts = (0..count).map(|number| {
            let DataBuf { addr, length } = *list.item(number)?;
            addr.items(length)
        });
        for part in parts {
            let part = part?;
            let (place, behind) = rest.split_at_mut_checked(part.len())?;
            place.copy_from_slice(part);
            rest = behind;
        }
        let left = rest.len();
        let len = self.most - left;
        self.bytes.get(..len).filter(|bytes| !bytes.is_empty())
    }

    #[cold]
    #[inline(never)]
    fn allocate(&mut self) -> bool {
        let is_there = self.bytes.try_reserve_exact(self.most).is_ok();
        if is_there {
            self.bytes.resize(self.most, 0);
        }
        is_there
    }
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
    fn bytes_of_several_buffers_become_one_slice_if_they_fit() {
        let (first, second) = ([1_u8, 2, 3], [4_u8, 5]);
        let buffer = |part: &[u8]| DataBuf { addr: Pointer::to_first(part), length: part.len() };
        let (one, two) = (buffer(&first), buffer(&second));
        let mut gathered = Gathered::new(5);
        let mut of =
            |list: &[DataBuf]| gathered.of_buffers(Pointer::to_first(list), list.len()).map(<[u8]>::to_vec);
        assert_eq!(of(&[one, two]), Some(vec![1, 2, 3, 4, 5]));
        assert_eq!(of(&[two, buffer(&[]), one]), Some(vec![4, 5, 1, 2, 3]));
        assert_eq!(of(&[two]), Some(vec![4, 5]), "nothing is left of the longer one");
        let nowhere = DataBuf { addr: Pointer::NULL, length: 1 };
        for refused in [&[one, one][..], &[one, two, buffer(&[6])], &[one, nowhere], &[buffer(&[])], &[]] {
            assert_eq!(of(refused), None);
        }
        assert_eq!(gathered.of_buffers(Pointer::NULL, 1), None);
        assert_eq!(
            Gathered::new(0).of_buffers(Pointer::to_first(&[one]), 1),
            None,
            "a queue without inline data"
        );
    }
}
