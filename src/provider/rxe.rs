//! The user half of rxe: completion, send and receive rings. The soft device has the same.
//!
//! Layouts: include/uapi/rdma/rdma_user_rxe.h; who writes what: rxe_queue.h, rxe_req.c, rxe_resp.c,
//! rxe_comp.c, Linux 6.1.

use uverbs_abi::rxe::{DmaInfo, RecvWqe, SendWqe, SendWr, Sge};
use uverbs_abi::write::Wc;
use zerocopy::{FromZeros, IntoBytes};

use super::ring::{Consumer, Geometry, Producer};
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

    /// Hands up to `limit` completions to `take`, gives their slots back at once, and says how many.
    #[inline]
    pub(crate) fn poll(&mut self, limit: usize, mut take: impl FnMut(&Wc)) -> usize {
        let count = limit.min(self.0.available() as usize);
        let mut wc = Wc::new_zeroed();
        for _ in 0..count {
            // A slot is large enough for a completion: checked when the ring was opened.
            let _ = self.0.read(0, wc.as_mut_bytes());
            take(&wc);
            self.0.advance();
        }
        if count > 0 {
            self.0.release();
        }
        count
    }
}

/// One piece of memory of a request, as the ring holds it.
pub(crate) type Piece = Sge;

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
    #[inline]
    #[must_use]
    pub(crate) fn put<P>(&mut self, wr: SendWr, iova: u64, data: Data<'_, P>) -> bool
    where
        P: ExactSizeIterator<Item = Piece> + Clone,
    {
        let Some(dma) = data.dma() else { return false };
        let wqe = SendWqe { wr, iova, ssn: self.sequence, dma, ..SendWqe::new_zeroed() };
        let end = size_of::<SendWqe>();
        let written = match data {
            Data::Pieces(pieces) => put_pieces(&self.ring, end, pieces),
            Data::Inline(bytes) => self.ring.write(end, bytes),
        };
        if !written || !self.ring.write(0, wqe.as_bytes()) {
            return false;
        }
        self.sequence = self.sequence.wrapping_add(1);
        self.ring.advance();
        true
    }
}

/// What a send request carries: pieces of memory, or the bytes themselves.
pub(crate) enum Data<'a, P> {
    Pieces(P),
    Inline(&'a [u8]),
}

impl<P: ExactSizeIterator<Item = Piece> + Clone> Data<'_, P> {
    #[inline]
    fn dma(&self) -> Option<DmaInfo> {
        match self {
            Self::Pieces(pieces) => dma(pieces.clone()),
            Self::Inline(bytes) => {
                let length = u32::try_from(bytes.len()).ok()?;
                Some(DmaInfo { length, resid: length, ..DmaInfo::new_zeroed() })
            }
        }
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
    #[must_use]
    pub(crate) fn put(&mut self, wr_id: u64, pieces: impl ExactSizeIterator<Item = Piece> + Clone) -> bool {
        let Some(dma) = dma(pieces.clone()) else { return false };
        let wqe = RecvWqe { wr_id, dma, ..RecvWqe::new_zeroed() };
        if !self.0.write(0, wqe.as_bytes()) || !put_pieces(&self.0, size_of::<RecvWqe>(), pieces) {
            return false;
        }
        self.0.advance();
        true
    }
}

/// Describes pieces whose lengths add up to less than 4 GiB.
fn dma(pieces: impl ExactSizeIterator<Item = Piece>) -> Option<DmaInfo> {
    let num_sge = u32::try_from(pieces.len()).ok()?;
    let length = pieces.map(|piece| piece.length).try_fold(0_u32, u32::checked_add)?;
    Some(DmaInfo { length, resid: length, num_sge, ..DmaInfo::new_zeroed() })
}

#[inline]
fn put_pieces(ring: &Producer, offset: usize, pieces: impl Iterator<Item = Piece>) -> bool {
    pieces.enumerate().all(|(i, piece)| ring.write(offset + i * size_of::<Sge>(), piece.as_bytes()))
}
