//! Pieces of memory that a request names, and copying between two lists of them.
//!
//! A request is read once, checked, and looked up before anything is copied: a request accesses all of its memory or none of it. Large
//! messages are copied through a small buffer.

use uverbs_abi::rxe::{DmaInfo, RecvWqe, SendWqe, Sge};
use uverbs_abi::types::{AccessFlags, SendFlags, wc_status};
use zerocopy::{FromZeros, IntoBytes};

use super::context::MAX_MESSAGE;
use super::memory::Memory;
use super::queue_pairs::Qp;
use super::ring::Consumer;
use super::state::State;

/// Maximum number of bytes that are copied at a time.
const CHUNK: usize = 64 << 10;

/// Bytes at one place.
#[derive(Debug)]
pub(super) enum Place<'a> {
    Region {
        memory: &'a Memory,
        offset: usize,
        len: usize,
    },
    /// Bytes that are not the user's memory, and can only be read.
    Bytes(&'a [u8]),
}

impl Place<'_> {
    fn len(&self) -> usize {
        match self {
            Self::Region { len, .. } => *len,
            Self::Bytes(bytes) => bytes.len(),
        }
    }

    #[must_use]
    fn read(&self, at: usize, to: &mut [u8]) -> bool {
        match self {
            Self::Region { memory, offset, .. } => memory.read(offset.saturating_add(at), to),
            Self::Bytes(bytes) => {
                let found = at.checked_add(to.len()).and_then(|end| bytes.get(at..end));
                found.map(|bytes| to.copy_from_slice(bytes)).is_some()
            }
        }
    }

    #[must_use]
    fn write(&self, at: usize, from: &[u8]) -> bool {
        match self {
            Self::Region { memory, offset, .. } => memory.write(offset.saturating_add(at), from),
            Self::Bytes(_) => false,
        }
    }
}

/// A list that needs no heap memory for one element: most requests have one piece.
#[derive(Debug)]
pub(super) enum Few<T> {
    None,
    One(T),
    Many(Vec<T>),
}

impl<T> Few<T> {
    fn push(&mut self, element: T) {
        *self = match std::mem::replace(self, Self::None) {
            Self::None => Self::One(element),
            Self::One(first) => Self::Many(vec![first, element]),
            Self::Many(mut all) => {
                all.push(element);
                Self::Many(all)
            }
        };
    }
}

impl<T> std::ops::Deref for Few<T> {
    type Target = [T];

    fn deref(&self) -> &[T] {
        match self {
            Self::None => &[],
            Self::One(one) => std::slice::from_ref(one),
            Self::Many(all) => all,
        }
    }
}

/// Copies all bytes of one list to the start of the other. False if they do not fit.
#[must_use]
pub(super) fn copy(from: &[Place<'_>], to: &[Place<'_>]) -> bool {
    let most = from.iter().map(Place::len).max().unwrap_or(0);
    let mut buffer = vec![0; most.min(CHUNK)];
    let mut targets = to.iter();
    let (mut target, mut filled) = (targets.next(), 0);
    for source in from {
        let mut done = 0;
        while done < source.len() {
            let Some(place) = target else { return false };
            let len = (source.len() - done).min(place.len() - filled).min(buffer.len());
            if len == 0 {
                (target, filled) = (targets.next(), 0);
                continue;
            }
            let Some(chunk) = buffer.get_mut(..len) else { return false };
            if !source.read(done, chunk) || !place.write(filled, chunk) {
                return false;
            }
            done += len;
            filled += len;
        }
    }
    true
}

/// Copies bytes that are not the user's memory to the start of a list. False if they do not fit.
#[must_use]
pub(super) fn put(mut bytes: &[u8], to: &[Place<'_>]) -> bool {
    for place in to {
        let (now, rest) = bytes.split_at(place.len().min(bytes.len()));
        if !place.write(0, now) {
            return false;
        }
        bytes = rest;
    }
    bytes.is_empty()
}

/// Copies bytes that are not the user's memory to a list, from the offset `at` on. False if they do not fit.
#[must_use]
pub(super) fn put_part(to: &[Place<'_>], mut at: usize, mut bytes: &[u8]) -> bool {
    for place in to {
        if at >= place.len() {
            at -= place.len();
            continue;
        }
        let (now, rest) = bytes.split_at((place.len() - at).min(bytes.len()));
        if !place.write(at, now) {
            return false;
        }
        (bytes, at) = (rest, 0);
        if bytes.is_empty() {
            return true;
        }
    }
    bytes.is_empty()
}

/// Appends `len` bytes of a list, from the offset `at` on. False if they cannot be read.
#[must_use]
pub(super) fn append_part(from: &[Place<'_>], mut at: usize, len: usize, to: &mut Vec<u8>) -> bool {
    let end = to.len() + len;
    for place in from {
        if at >= place.len() {
            at -= place.len();
            continue;
        }
        let start = to.len();
        to.resize(start + (place.len() - at).min(end - start), 0);
        if !place.read(at, to.get_mut(start..).unwrap_or_default()) {
            return false;
        }
        at = 0;
        if to.len() == end {
            return true;
        }
    }
    to.len() == end
}

/// Appends all bytes of a list. False if they cannot be read.
#[must_use]
pub(super) fn append(from: &[Place<'_>], to: &mut Vec<u8>) -> bool {
    from.iter().all(|place| {
        let start = to.len();
        to.resize(start + place.len(), 0);
        place.read(0, to.get_mut(start..).unwrap_or_default())
    })
}

/// The pieces of the request that is `slots` after the oldest of a ring, after its head of `head` bytes: as many as the request says, but
/// not more than the ring was created for.
fn list(ring: &Consumer, slots: u32, head: usize, count: u32, most: u32) -> Option<Few<Sge>> {
    match count {
        _ if count > most => None,
        0 => Some(Few::None),
        1 => {
            let mut piece = Sge::new_zeroed();
            ring.read_behind(slots, head, piece.as_mut_bytes()).then_some(Few::One(piece))
        }
        _ => {
            let mut pieces = vec![Sge::new_zeroed(); count as usize];
            ring.read_behind(slots, head, pieces.as_mut_bytes()).then_some(Few::Many(pieces))
        }
    }
}

/// The oldest receive of a ring, read once.
#[derive(Debug)]
pub(super) struct Receive {
    pub(super) wr_id: u64,
    /// The number of bytes for which it says it has room.
    pub(super) room: u32,
    /// `None` if they are malformed.
    pieces: Option<Few<Sge>>,
}

impl Receive {
    /// The number of bytes for which its pieces have room.
    pub(super) fn len(&self) -> usize {
        self.pieces.iter().flat_map(|pieces| pieces.iter()).map(|piece| piece.length as usize).sum()
    }
}

/// Reads the oldest receive, if there is one.
pub(super) fn oldest_receive(ring: &Consumer, max_sge: u32) -> Option<Receive> {
    if ring.available() == 0 {
        return None;
    }
    let mut wqe = RecvWqe::new_zeroed();
    // A slot is never smaller than this.
    let read = ring.read(0, wqe.as_mut_bytes());
    let pieces = list(ring, 0, size_of::<RecvWqe>(), wqe.dma.num_sge, max_sge).filter(|_| read);
    Some(Receive { wr_id: wqe.wr_id, room: wqe.dma.resid, pieces })
}

/// Reads the oldest send. The ring must have one.
pub(super) fn oldest_send(ring: &Consumer) -> SendWqe {
    send_behind(ring, 0)
}

/// Reads the send that is `slots` after the oldest. The ring must have it.
pub(super) fn send_behind(ring: &Consumer, slots: u32) -> SendWqe {
    let mut wqe = SendWqe::new_zeroed();
    // A slot is never smaller than this. An empty request cannot be executed.
    if !ring.read_behind(slots, 0, wqe.as_mut_bytes()) {
        wqe.wr.opcode = u32::MAX;
    }
    wqe
}

/// Whether the producer has described the data as rxe requires: none of it is transferred yet.
fn is_fresh(dma: &DmaInfo) -> bool {
    dma.length == dma.resid && dma.cur_sge == 0 && dma.sge_offset == 0
}

/// Inline data of the oldest send; empty if it has none.
pub(super) fn inline(qp: &Qp, wqe: &SendWqe) -> Result<Vec<u8>, u32> {
    inline_behind(qp, 0, wqe)
}

/// Inline data of the send that is `slots` after the oldest; empty if it has none.
pub(super) fn inline_behind(qp: &Qp, slots: u32, wqe: &SendWqe) -> Result<Vec<u8>, u32> {
    if !SendFlags::from_bits_retain(wqe.wr.send_flags).contains(SendFlags::INLINE) {
        return Ok(Vec::new());
    }
    if wqe.dma.length > qp.cap.max_inline_data {
        return Err(wc_status::LOC_LEN_ERR);
    }
    let mut bytes = vec![0; wqe.dma.length as usize];
    let read = qp.sends.read_behind(slots, size_of::<SendWqe>(), &mut bytes);
    if read { Ok(bytes) } else { Err(wc_status::LOC_QP_OP_ERR) }
}

/// The pieces of the send that is `slots` after the oldest.
pub(super) fn sent_pieces(qp: &Qp, slots: u32, wqe: &SendWqe) -> Result<Few<Sge>, u32> {
    let pieces = list(&qp.sends, slots, size_of::<SendWqe>(), wqe.dma.num_sge, qp.cap.max_send_sge);
    let pieces = pieces.filter(|_| is_fresh(&wqe.dma)).ok_or(wc_status::LOC_QP_OP_ERR)?;
    if wqe.dma.length > MAX_MESSAGE { Err(wc_status::LOC_LEN_ERR) } else { Ok(pieces) }
}

impl State {
    /// The first `len` bytes of these pieces, which must all be in regions that allow this access.
    pub(super) fn places(
        &self,
        pd: u32,
        pieces: &[Sge],
        len: usize,
        needed: AccessFlags,
        too_short: u32,
    ) -> Result<Few<Place<'_>>, u32> {
        let mut places = Few::None;
        let mut rest = len;
        for piece in pieces {
            let now = rest.min(piece.length as usize);
            if now == 0 {
                continue;
            }
            // Not more than the length of the piece.
            let used = Sge { length: now as u32, ..*piece };
            let (memory, offset) = self.reach(pd, &used, needed).ok_or_else(|| self.unreached(pd, &used))?;
            places.push(Place::Region { memory, offset, len: now });
            rest -= now;
        }
        if rest == 0 { Ok(places) } else { Err(too_short) }
    }

    /// The destination of `len` received bytes.
    pub(super) fn landing(&self, pd: u32, receive: &Receive, len: usize) -> Result<Few<Place<'_>>, u32> {
        let pieces = receive.pieces.as_ref().ok_or(wc_status::LOC_QP_OP_ERR)?;
        self.places(pd, pieces, len, AccessFlags::LOCAL_WRITE, wc_status::LOC_LEN_ERR)
    }

    /// The local data of the oldest send: `len` bytes of it, or as many as it says it has.
    pub(super) fn local<'a>(
        &'a self,
        qp: &Qp,
        wqe: &SendWqe,
        inline: &'a [u8],
        needed: AccessFlags,
    ) -> Result<Few<Place<'a>>, u32> {
        if !inline.is_empty() {
            return Ok(Few::One(Place::Bytes(inline)));
        }
        let pieces = sent_pieces(qp, 0, wqe)?;
        self.places(qp.pd, &pieces, wqe.dma.length as usize, needed, wc_status::LOC_QP_OP_ERR)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernel::mapping::Mapping;

    #[test]
    fn bytes_go_from_pieces_to_pieces() {
        let map = Mapping::block(3 * CHUNK).unwrap();
        let memory = Memory::register(std::slice::from_ref(&map), map.address(), 3 * CHUNK as u64).unwrap();
        let place = |offset, len| Place::Region { memory: &memory, offset, len };
        let bytes: Vec<u8> = (0..CHUNK + 77).map(|i| (i * 7) as u8).collect();
        let (first, second) = bytes.split_at(5);
        let from = [Place::Bytes(first), Place::Bytes(&[]), Place::Bytes(second)];
        assert!(copy(&from, &[place(3, 2), place(9, 0), place(100, CHUNK + 200)]));
        let mut back = vec![0; bytes.len()];
        assert!(map.read(3, &mut back[..2]) && map.read(100, &mut back[2..]));
        assert_eq!(back, bytes);
        assert!(copy(&[], &[]));
        assert!(!copy(&from, &[place(0, CHUNK + 76)]));
        assert!(!copy(&from, &[Place::Bytes(&bytes)]));
    }
}
