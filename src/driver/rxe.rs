//! The user half of rxe: completion, send and receive rings. The soft device has the same.
//!
//! Layouts: include/uapi/rdma/rdma_user_rxe.h; who writes what: rxe_queue.h, rxe_req.c, rxe_resp.c,
//! rxe_comp.c, Linux 6.1.

mod plans;

use std::mem::offset_of;
use std::sync::atomic::AtomicU32;
#[cfg(feature = "raw")]
use std::sync::atomic::Ordering;

use uverbs_abi::rxe::{AtomicWr, DmaInfo, RecvWqe, SendWqe, SendWr, Sge};
use uverbs_abi::write::Wc;
use zerocopy::{FromZeros, IntoBytes};

pub(super) use self::plans::map_receives;
pub(crate) use self::plans::{AhPlan, CqPlan, QpPlan, SrqPlan};
use super::queues::Data;
use super::ring::{Consumer, Geometry, Producer, Slot};
use crate::error::{Error, Result};
use crate::mapping::Mapping;

/// The shape of a ring that the kernel has just made.
fn geometry(op: &'static str, map: &Mapping) -> Result<Geometry> {
    Geometry::of(map).ok_or_else(|| Error::malformed(op, "a ring that does not fit its size"))
}

/// The ring of a completion queue.
#[derive(Debug)]
pub(crate) struct Completions(Consumer);

impl Completions {
    pub(crate) fn open(op: &'static str, map: Mapping) -> Result<Self> {
        let geometry = geometry(op, &map)?;
        if geometry.slot_size() < size_of::<Wc>() {
            return Err(Error::malformed(op, "slots too small for a completion"));
        }
        Ok(Self(Consumer::new(map, geometry)))
    }

    pub(crate) fn capacity(&self) -> u32 {
        self.0.geometry().capacity()
    }

    #[cfg(feature = "raw")]
    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.0.available() == 0
    }

    /// Fills `places` with completions, as many as there are and fit; gives their slots back at once, and says how
    /// many. Before the first one is taken, `may_take` is asked: if not, nothing is.
    #[inline]
    pub(crate) fn poll<T>(
        &mut self,
        places: &mut [T],
        may_take: impl Fn() -> bool,
        mut fill: impl FnMut(&mut T, &WcWords),
    ) -> usize {
        let available = self.0.available() as usize;
        if available == 0 || !may_take() {
            return 0;
        }
        let mut count = 0;
        for place in places.iter_mut().take(available) {
            // Always there: that a slot has room for a completion was checked when the ring was opened.
            let Some(words) = self.0.words() else { break };
            fill(place, words);
            self.0.advance();
            count += 1;
        }
        if count > 0 {
            self.0.release();
        }
        count
    }

    /// Takes out the completions of a queue pair.
    #[cfg(feature = "raw")]
    pub(crate) fn forget(&mut self, qp_num: u32) {
        self.0.retain(|words: &WcWords| words[QP_NUM].load(Ordering::Relaxed) != qp_num);
    }
}

/// Which word of a completion has the number of its queue pair.
#[cfg(feature = "raw")]
const QP_NUM: usize = std::mem::offset_of!(Wc, qp_num) / 4;

/// A [`Wc`] in a ring.
pub(crate) type WcWords = [AtomicU32; size_of::<Wc>() / 4];

/// Bytes of a request up to the end of what operations have for themselves, of which the longest is [`AtomicWr`]; and words
/// behind the request. Between them is room for the address of a datagram: it is named by its number instead, and then nobody looks
/// there (rxe_get_av, rxe_av.c, Linux 6.1).
const HEAD: usize = offset_of!(SendWr, wr) + size_of::<AtomicWr>();
const REST: usize = (size_of::<SendWqe>() - size_of::<SendWr>()) / 4;

/// The send ring of a queue pair.
#[derive(Debug)]
pub(crate) struct Sends {
    ring: Producer,
    sequence: u32,
}

impl Sends {
    pub(crate) fn open(op: &'static str, map: Mapping) -> Result<Self> {
        let geometry = geometry(op, &map)?;
        Ok(Self { ring: Producer::new(map, geometry), sequence: 0 })
    }

    #[inline]
    pub(crate) fn ring(&mut self) -> &mut Producer {
        &mut self.ring
    }

    /// Fills the next slot; false when the data does not fit into it.
    #[inline(always)]
    #[must_use]
    pub(crate) fn put<P>(&mut self, wr: &SendWr, iova: u64, data: Data<'_, P>) -> bool
    where
        P: Iterator<Item = Sge>,
    {
        let Some(slot) = self.ring.slot() else { return false };
        let dma = match data {
            Data::Pieces(pieces) => put_pieces(slot, size_of::<SendWqe>(), pieces),
            Data::Inline(bytes) => {
                slot.put_bytes(size_of::<SendWqe>() / 4, bytes).then(|| whole(bytes.len() as u32, 0))
            }
        };
        let (Some(dma), Some(head)) = (dma, wr.as_bytes().first_chunk::<HEAD>()) else { return false };
        let wqe = SendWqe { iova, ssn: self.sequence, dma, ..SendWqe::new_zeroed() };
        let words: [u32; size_of::<SendWqe>() / 4] = zerocopy::transmute!(wqe);
        let Some(rest) = words.last_chunk::<REST>() else { return false };
        if !slot.put_bytes(0, head) || !slot.put(size_of::<SendWr>() / 4, rest) {
            return false;
        }
        self.sequence = self.sequence.wrapping_add(1);
        self.ring.advance();
        true
    }
}

/// The receive ring of a queue pair.
#[derive(Debug)]
pub(crate) struct Receives(Producer);

impl Receives {
    pub(crate) fn open(op: &'static str, map: Mapping) -> Result<Self> {
        let geometry = geometry(op, &map)?;
        Ok(Self(Producer::new(map, geometry)))
    }

    #[inline]
    pub(crate) fn ring(&mut self) -> &mut Producer {
        &mut self.0
    }

    /// Fills the next slot; false when the pieces do not fit into it.
    #[inline(always)]
    #[must_use]
    pub(crate) fn put(&mut self, wr_id: u64, pieces: impl Iterator<Item = Sge>) -> bool {
        let Some(slot) = self.0.slot() else { return false };
        let Some(dma) = put_pieces(slot, size_of::<RecvWqe>(), pieces) else { return false };
        let wqe = RecvWqe { wr_id, dma, ..RecvWqe::new_zeroed() };
        let words: [u32; size_of::<RecvWqe>() / 4] = zerocopy::transmute!(wqe);
        if !slot.put(0, &words) {
            return false;
        }
        self.0.advance();
        true
    }
}

/// Writes pieces of memory behind a request and describes them; none when they do not fit into the slot, or their
/// lengths add up to 4 GiB or more.
#[inline(always)]
fn put_pieces(slot: Slot<'_>, offset: usize, pieces: impl Iterator<Item = Sge>) -> Option<DmaInfo> {
    let (mut length, mut count, mut at) = (0_u32, 0, offset / 4);
    for piece in pieces {
        length = length.checked_add(piece.length)?;
        count += 1;
        let words: [u32; size_of::<Sge>() / 4] = zerocopy::transmute!(piece);
        if !slot.put(at, &words) {
            return None;
        }
        at += words.len();
    }
    Some(whole(length, count))
}

/// All of a request's data, of which nothing is done yet.
#[inline]
fn whole(length: u32, num_sge: u32) -> DmaInfo {
    DmaInfo { length, resid: length, num_sge, ..DmaInfo::new_zeroed() }
}
