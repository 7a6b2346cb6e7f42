//! The user half of rxe: completion, send and receive rings. The soft device has the same. How slots are taken from a ring, and given
//! back, is in `driver/ring/`.
//!
//! Layouts: include/uapi/rdma/rdma_user_rxe.h; who writes what: rxe_queue.h, rxe_req.c, rxe_resp.c,
//! rxe_comp.c, Linux 6.1.

#[cfg(feature = "raw")]
pub(crate) mod binding;
mod completions;
mod control;
mod plans;

use std::borrow::Borrow;
use std::mem::offset_of;

use uverbs_abi::rxe::{AtomicWr, DmaInfo, FlushWr, MwWr, RdmaWr, RecvWqe, SendWqe, SendWr};
use uverbs_abi::types::{SendFlags, wr_opcode};
use zerocopy::FromZeros;

pub(crate) use self::completions::Completions;
pub(super) use self::control::State;
pub(super) use self::plans::{Receiving, map_receives};
use super::request::{Address, Data, FrameHead, InlineParts, Opcode, Refused, Remote, Sge, Terms, Told};
use super::ring::{Producer, RingDevice, Slot, Slots};
use super::seam::{FillReceives, Lower, LowerReceive, Published, ReceiveBatch, ReceiveRing, SendRing};
use crate::kernel::error::{Error, Result};
use crate::kernel::mapping::Mapping;

/// The error for a malformed ring that the kernel has just created.
#[cold]
fn nonsense(op: &'static str) -> Error {
    Error::malformed(op, "a ring that does not fit its size, or has slots too small for what they hold")
}

/// The send ring of a queue pair.
#[derive(Debug)]
pub(crate) struct Sends(Producer<SendWqe>);

impl Sends {
    pub(crate) fn open(op: &'static str, map: Mapping) -> Result<Self> {
        Producer::open(map).map(Self).ok_or_else(|| nonsense(op))
    }
}

impl SendRing for Sends {
    fn slots(&self) -> usize {
        self.0.geometry().slots()
    }

    fn next_slot(&self) -> u32 {
        self.0.next_slot()
    }

    #[inline(always)]
    fn one<const LOOKS: bool, const KIND: u8>(&mut self) -> impl Lower {
        Writing(self.0.one::<LOOKS>())
    }

    #[inline(always)]
    fn batch<const KIND: u8>(&mut self) -> impl Lower {
        Writing(self.0.batch())
    }

    #[inline(always)]
    fn publish(&mut self) -> Published {
        if !self.0.has_more() {
            return Published::Nothing;
        }
        self.0.publish();
        Published::Shown
    }

    fn rewind(&mut self) {
        self.0.rewind();
    }

    fn retract(&mut self) {
        self.0.retract();
    }
}

/// A ring, borrowed to be written.
#[derive(Debug)]
pub(crate) struct Writing<S>(pub(crate) S);

impl<S: Slots<SendWqe>> Lower for Writing<S> {
    #[inline(always)]
    fn next_slot(&self) -> u32 {
        self.0.next_slot()
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
        let Some(mut slot) = self.0.next() else { return Err(Refused::Full) };
        put_head(&mut slot, wr_id, flags.bits(), opcode)?;
        if let Some(bytes) = data.only_bytes() {
            slot.put::<DMA, _>(whole(bytes.len() as u32, 0));
            return if self.0.filled_with(bytes) { Ok(()) } else { Err(Refused::TooLarge) };
        }
        put_data(&mut slot, data)?;
        self.0.filled();
        Ok(())
    }

    #[inline(always)]
    fn begin(&mut self, wr_id: u64, flags: SendFlags, opcode: &Opcode<'_>) -> Result<(), Refused> {
        let Some(mut slot) = self.0.next() else { return Err(Refused::Full) };
        slot.put::<DMA, _>(whole(0, 0));
        put_head(&mut slot, wr_id, flags.bits(), opcode)?;
        self.0.filled();
        Ok(())
    }

    #[inline(always)]
    fn set_data<'b, P, B>(
        &mut self,
        flags: SendFlags,
        _: Option<FrameHead>,
        data: &Data<P, B>,
    ) -> Result<(), Refused>
    where
        P: ExactSizeIterator<Item: Borrow<Sge>> + Clone,
        B: InlineParts<'b>,
    {
        let Some(mut slot) = self.0.last() else { return Err(Refused::NotBegun) };
        slot.put::<FLAGS, _>(flags.bits());
        put_data(&mut slot, data)
    }

    #[inline(always)]
    fn set_address(&mut self, ah: Address, qp_num: u32, qkey: u32) -> Result<(), Refused> {
        let Some(mut slot) = self.0.last() else { return Err(Refused::NotBegun) };
        slot.put::<PART, _>([qp_num, qkey, 0, ah.number]);
        Ok(())
    }

    #[inline(always)]
    fn set_srq(&mut self, srq: u32) -> Result<(), Refused> {
        let Some(mut slot) = self.0.last() else { return Err(Refused::NotBegun) };
        slot.put::<SRQ, _>(srq);
        Ok(())
    }
}

impl<S: Slots<RecvWqe>> LowerReceive for Writing<S> {
    #[inline(always)]
    fn next_slot(&self) -> u32 {
        self.0.next_slot()
    }

    #[inline(always)]
    fn put<P>(&mut self, wr_id: u64, pieces: P) -> Result<(), Refused>
    where
        P: ExactSizeIterator<Item: Borrow<Sge>>,
    {
        let Some(mut slot) = self.0.next() else { return Err(Refused::Full) };
        // Usually there is one piece.
        let put = if pieces.len() == 1 {
            put_pieces(&mut slot, pieces.take(1))
        } else {
            put_others(slot.lend(), pieces)
        };
        let Some((length, count)) = put else { return Err(Refused::TooLarge) };
        slot.put::<{ offset_of!(RecvWqe, wr_id) }, _>(wr_id);
        slot.put::<{ offset_of!(RecvWqe, dma) }, _>(whole(length, count));
        self.0.filled();
        Ok(())
    }
}

const SRQ: usize = offset_of!(SendWqe, wr) + offset_of!(SendWr, reserved);
const FLAGS: usize = offset_of!(SendWqe, wr) + offset_of!(SendWr, send_flags);
const DMA: usize = offset_of!(SendWqe, dma);
const PART: usize = offset_of!(SendWqe, wr) + offset_of!(SendWr, wr);
const IOVA: usize = offset_of!(SendWqe, iova);

/// Writes a request without its data. Fields of other operations keep their old values, because rxe does not read them. A datagram names
/// its address handle by number, so that the address itself is not needed (rxe_get_av, rxe_av.c, Linux 6.1).
#[inline(always)]
fn put_head(
    slot: &mut Slot<'_, SendWqe>,
    wr_id: u64,
    flags: u32,
    opcode: &impl Terms,
) -> Result<(), Refused> {
    let (number, ex, iova) = opcode.tell(Part(slot))?;
    slot.put::<{ offset_of!(SendWr, wr_id) }, _>(wr_id);
    // rxe has no extended connections. The soft device has the number of the peer's queue in this field.
    slot.put::<SRQ, _>([opcode.srq(), number]);
    slot.put::<FLAGS, _>([flags, ex]);
    // Status and state, and after the address the fields that the kernel counts: `ssn` is unused, `has_rd_atomic` is zero.
    slot.put::<{ offset_of!(SendWqe, status) }, _>(0_u64);
    slot.put::<IOVA, _>(iova);
    slot.put::<{ offset_of!(SendWqe, ssn) }, _>(0_u64);
    Ok(())
}

/// Writes the fields of one operation only. Returns its number, the value in the field for immediate data, and the remote address.
struct Part<'a, 'b>(&'a mut Slot<'b, SendWqe>);

impl Told for Part<'_, '_> {
    type Answer = Result<(u32, u32, u64), Refused>;

    #[inline(always)]
    fn told(self, opcode: &Opcode<'_>) -> Self::Answer {
        put_part(self.0, opcode)
    }
}

#[inline(always)]
fn put_part(slot: &mut Slot<'_, SendWqe>, opcode: &Opcode<'_>) -> Result<(u32, u32, u64), Refused> {
    use wr_opcode::*;
    let rdma = |remote: Remote| RdmaWr { remote_addr: remote.address, rkey: remote.rkey, reserved: 0 };
    Ok(match *opcode {
        Opcode::Send => (SEND, 0, 0),
        Opcode::SendImmediate(number) => (SEND_WITH_IMM, number, 0),
        Opcode::SendInvalidate(key) => (SEND_WITH_INV, key, 0),
        Opcode::Datagram { ah, qp_num, qkey, immediate } => {
            slot.put::<PART, _>([qp_num, qkey, 0, ah.number]);
            immediate.map_or((SEND, 0, 0), |number| (SEND_WITH_IMM, number, 0))
        }
        Opcode::Write(remote) => {
            slot.put::<PART, _>(rdma(remote));
            (RDMA_WRITE, 0, remote.address)
        }
        Opcode::WriteImmediate(remote, number) => {
            slot.put::<PART, _>(rdma(remote));
            (RDMA_WRITE_WITH_IMM, number, remote.address)
        }
        Opcode::Read(remote) => {
            slot.put::<PART, _>(rdma(remote));
            (RDMA_READ, 0, remote.address)
        }
        Opcode::AtomicWrite(remote) => {
            slot.put::<PART, _>(rdma(remote));
            (ATOMIC_WRITE, 0, remote.address)
        }
        Opcode::CompareSwap { remote, compare, swap } => {
            put_atomic(slot, remote, compare, swap);
            (ATOMIC_CMP_AND_SWP, 0, remote.address)
        }
        Opcode::FetchAdd { remote, add } => {
            put_atomic(slot, remote, add, 0);
            (ATOMIC_FETCH_AND_ADD, 0, remote.address)
        }
        Opcode::Flush { remote, length, type_, level } => {
            let Remote { address: remote_addr, rkey } = remote;
            let part = FlushWr { remote_addr, length, rkey, type_, level, ..FlushWr::new_zeroed() };
            slot.put::<PART, _>(part);
            (FLUSH, 0, remote.address)
        }
        Opcode::Bind(bind) => {
            let part = MwWr {
                addr: bind.addr,
                length: bind.length,
                mr_lkey: bind.lkey,
                mw_rkey: bind.rkey,
                rkey: bind.new_rkey,
                access: bind.access,
            };
            slot.put::<PART, _>(part);
            (BIND_MW, 0, 0)
        }
        Opcode::LocalInvalidate(key) => (LOCAL_INV, key, 0),
        Opcode::Large { .. } => return Err(Refused::Lacks),
    })
}

#[inline(always)]
fn put_atomic(slot: &mut Slot<'_, SendWqe>, remote: Remote, compare_add: u64, swap: u64) {
    let (remote_addr, rkey) = (remote.address, remote.rkey);
    slot.put::<PART, _>(AtomicWr { remote_addr, compare_add, swap, rkey, reserved: 0 });
}

/// Writes the data of a request.
#[inline(always)]
fn put_data<'b, P, B>(slot: &mut Slot<'_, SendWqe>, data: &Data<P, B>) -> Result<(), Refused>
where
    P: ExactSizeIterator<Item: Borrow<Sge>> + Clone,
    B: InlineParts<'b>,
{
    let put = match data {
        Data::Pieces(pieces) if pieces.len() == 1 => put_pieces(slot, pieces.clone().take(1)),
        Data::Pieces(pieces) => put_pieces(slot, pieces.clone()),
        Data::Inline(parts) => {
            let mut len = 0;
            for part in parts.clone() {
                if !slot.put_bytes(len, part) {
                    return Err(Refused::TooLarge);
                }
                len += part.len();
            }
            Some((len as u32, 0))
        }
    };
    let Some((length, count)) = put else { return Err(Refused::TooLarge) };
    slot.put::<DMA, _>(whole(length, count));
    Ok(())
}

/// The receive ring of a queue pair.
#[derive(Debug)]
pub(crate) struct Receives(Producer<RecvWqe>);

impl Receives {
    pub(crate) fn open(op: &'static str, map: Mapping) -> Result<Self> {
        Producer::open(map).map(Self).ok_or_else(|| nonsense(op))
    }

    /// Shows the device what was filled, or discards it.
    #[inline(always)]
    fn end(&mut self, is_kept: bool) {
        if is_kept { self.0.publish() } else { self.0.rewind() }
    }
}

impl ReceiveRing for Receives {
    fn slots(&self) -> usize {
        self.0.geometry().slots()
    }

    fn capacity(&self) -> u32 {
        self.0.geometry().capacity()
    }

    fn next_slot(&self) -> u32 {
        self.0.next_slot()
    }

    #[inline(always)]
    fn post<F: FillReceives>(&mut self, pieces: u32, how: F) -> F::Answer {
        let answer = how.fill(&mut ReceiveBatch::new(Writing(self.0.batch()), pieces));
        self.end(F::is_kept(&answer));
        answer
    }

    #[inline(always)]
    fn post_one<F: FillReceives>(&mut self, pieces: u32, how: F) -> F::Answer {
        let answer = how.fill(&mut ReceiveBatch::new(Writing(self.0.one::<true>()), pieces));
        self.end(F::is_kept(&answer));
        answer
    }

    fn rewind(&mut self) {
        self.0.rewind();
    }
}

/// A ring of the soft device, which is notified of posted requests and has taken them when the call returns.
#[derive(Debug)]
pub(crate) struct Watched {
    ring: Receives,
    device: Box<dyn RingDevice>,
}

impl Watched {
    pub(super) fn new(ring: Receives, device: Box<dyn RingDevice>) -> Self {
        Self { ring, device }
    }
}

impl ReceiveRing for Watched {
    fn slots(&self) -> usize {
        self.ring.slots()
    }

    fn capacity(&self) -> u32 {
        self.ring.capacity()
    }

    fn next_slot(&self) -> u32 {
        self.ring.next_slot()
    }

    fn post<F: FillReceives>(&mut self, pieces: u32, how: F) -> F::Answer {
        let answer = self.ring.post_one(pieces, how);
        self.device.look();
        answer
    }

    fn rewind(&mut self) {
        self.ring.rewind();
    }
}

/// Writes pieces of memory behind a request, and returns the number of bytes and of pieces. `None` if they do not fit into the slot, or
/// if their lengths add up to 4 GiB or more.
#[inline(always)]
fn put_pieces<W, P>(slot: &mut Slot<'_, W>, pieces: P) -> Option<(u32, u32)>
where
    P: ExactSizeIterator<Item: Borrow<Sge>>,
{
    let mut length = 0_u64;
    let count = slot.put_items(pieces, |piece: &Sge| length += u64::from(piece.length))?;
    Some((u32::try_from(length).ok()?, count as u32))
}

/// Writes another number of pieces of memory than one behind a request, without making the code around it longer.
#[cold]
#[inline(never)]
fn put_others<W>(
    mut slot: Slot<'_, W>,
    pieces: impl ExactSizeIterator<Item: Borrow<Sge>>,
) -> Option<(u32, u32)> {
    put_pieces(&mut slot, pieces)
}

/// The state of a request's data before any of it is transferred.
#[inline(always)]
fn whole(length: u32, num_sge: u32) -> DmaInfo {
    DmaInfo { length, resid: length, num_sge, ..DmaInfo::new_zeroed() }
}
