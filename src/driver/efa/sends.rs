//! The send queue of efa.
//!
//! The ring is memory of the device, write-combining, that this side only writes: whole slots, in their order, and then the doorbell, with
//! the number of all requests so far. A request is written here into a copy of the ring; the device's gets it when the batch is
//! published. So a batch that is refused halfway is forgotten, and one that is longer than the device takes at once goes
//! in several pieces.
//!
//! Source: `efa_post_send`, `efa_sq_initialize` and the functions of `efa_qp_fill_wr_pfns`, providers/efa/verbs.c, rdma-core 65.

use std::borrow::Borrow;
use std::sync::Arc;

use uverbs_abi::efa::io::{
    LKEY, RDMA_READ, RDMA_WRITE, RemoteMemAddr, SEND, TX_COMP_REQ, TX_DESC_INLINE_MAX_SIZE,
    TX_DESC_INLINE_MAX_SIZE_128, TX_DESC_NUM_BUFS, TX_DESC_NUM_RDMA_BUFS, TX_FIRST, TX_HAS_IMM,
    TX_INLINE_MSG, TX_LAST, TX_META_DESC, TX_OP_TYPE, TX_PHASE, TxBufDesc, TxMetaDesc,
};
use uverbs_abi::types::{SendFlags, qp_state};
use zerocopy::{FromBytes, FromZeros, IntoBytes};

use super::doorbell::Doorbell;
use super::qp::Queues;
use super::track::{Kind, Numbers};
#[cfg(feature = "raw")]
use crate::driver::bound::OwnRing;
use crate::driver::queues::Lower;
use crate::driver::request::{Address, Data, Destination, FrameHead, Opcode, Refused, Remote, Sge, Terms};
use crate::kernel::error::{Error, Result};
use crate::kernel::mapping::Mapping;

/// Bytes of a slot, and of one that is wide.
pub(super) const SLOT: usize = 64;
pub(super) const WIDE_SLOT: usize = 128;

/// What a request begins with, and where the data of one that names remote memory is.
const HEAD: usize = size_of::<TxMetaDesc>();
const BEHIND_REMOTE: usize = HEAD + size_of::<RemoteMemAddr>();

/// What requests may be.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Allowed {
    /// Reads and writes of remote memory.
    pub(super) reads: bool,
    pub(super) writes: bool,
    /// Most bytes of those.
    pub(super) most_remote: u32,
    /// Writes of bytes that stand in the request, in slots that have room for them.
    pub(super) inline_writes: bool,
}

/// The ring, in the device's memory, and the doorbell.
#[derive(Debug)]
pub(super) struct Device {
    pub(super) memory: Mapping,
    /// Where the ring begins.
    pub(super) begin: usize,
    pub(super) doorbell: Doorbell,
}

/// The send queue; see the module's page.
#[derive(Debug)]
pub(crate) struct Sends {
    queues: Arc<Queues>,
    numbers: Numbers,
    /// None of a queue pair that sends nothing.
    device: Option<Device>,
    /// The copy of the ring.
    requests: Box<[u8]>,
    /// Bytes of a slot.
    slot: usize,
    /// Number of slots, a power of two, or zero.
    depth: u32,
    /// Most of them that are told at once.
    most_at_once: u32,
    /// Requests that were filled, and of which the device was told.
    head: u32,
    published: u32,
    allowed: Allowed,
    is_ready: bool,
}

impl Sends {
    /// With `depth` slots of so many bytes.
    pub(super) fn new(
        op: &'static str,
        queues: Arc<Queues>,
        device: Option<Device>,
        [depth, most_at_once]: [u32; 2],
        slot: usize,
        allowed: Allowed,
    ) -> Result<Self> {
        let bytes = depth as usize * slot;
        let mut requests = Error::room(op, bytes)?;
        requests.resize(bytes, 0);
        let numbers = Numbers::new(op, &queues.track().sends, queues.generation())?;
        Ok(Self {
            queues,
            numbers,
            device,
            requests: requests.into_boxed_slice(),
            slot,
            depth,
            most_at_once: most_at_once.max(1),
            head: 0,
            published: 0,
            allowed,
            is_ready: false,
        })
    }

    /// Number of places for requests.
    pub(crate) fn slots(&self) -> usize {
        self.depth as usize
    }

    /// The place that is filled next: by it is known what the request needs. It is its number, for requests complete in any order.
    pub(crate) fn next_slot(&self) -> u32 {
        self.numbers.next(&self.queues.track().sends).unwrap_or(0).into()
    }

    /// The places of the requests that were filled since the last were published, each behind the other.
    pub(crate) fn filled(&self) -> &[u16] {
        self.numbers.staged()
    }

    /// Whether all that was posted has completed.
    pub(crate) fn is_idle(&self) -> bool {
        self.numbers.is_idle(&self.queues.track().sends)
    }

    /// Where the request with this counter is in the copy.
    fn place(&mut self, counter: u32) -> Option<&mut [u8]> {
        place(&mut self.requests, counter, self.depth, self.slot)
    }

    /// The request that was filled last, if the device was not told of it.
    fn last(&mut self) -> Option<&mut [u8]> {
        if self.head == self.published { None } else { self.place(self.head.wrapping_sub(1)) }
    }

    /// Forgets what was filled since the device was told last.
    pub(crate) fn rewind(&mut self) {
        self.head = self.published;
        self.numbers.rewind(&self.queues.track().sends);
    }

    /// Tells the device of every request filled so far.
    pub(crate) fn publish(&mut self) {
        let Some(device) = &self.device else { return };
        while self.published != self.head {
            let first = self.published & (self.depth - 1);
            // As far as the ring's end.
            let count = self.head.wrapping_sub(self.published).min(self.most_at_once).min(self.depth - first);
            let (at, bytes) = (first as usize * self.slot, count as usize * self.slot);
            // The ring was seen to be inside when it was mapped.
            let is_written = self
                .requests
                .get(at..at + bytes)
                .is_some_and(|requests| device.memory.write(device.begin + at, requests));
            self.published = self.published.wrapping_add(count);
            if is_written {
                device.doorbell.ring(self.published & 0xffff);
            }
        }
        self.numbers.publish();
    }

    /// The queue pair has come to a state.
    pub(crate) fn enter(&mut self, state: u8) {
        if state == qp_state::RESET {
            (self.head, self.published) = (0, 0);
            let track = self.queues.track();
            self.numbers.reset(&track.sends, track.next_generation());
        }
        // `efa_post_send_validate`.
        self.is_ready = matches!(state, qp_state::RTS | qp_state::SQD);
    }

    /// Writes all of a request but its data.
    fn start(
        &mut self,
        wr_id: u64,
        flags: SendFlags,
        operation: Operation,
        to: Destination,
    ) -> Result<(), Refused> {
        if !self.is_ready {
            return Err(Refused::NotReady);
        }
        // All requests complete.
        if !flags.contains(SendFlags::SIGNALED) {
            return Err(Refused::Unsignaled);
        }
        if !flags.difference(SendFlags::SIGNALED | SendFlags::INLINE).is_empty() {
            return Err(Refused::Lacks);
        }
        let Self { queues, numbers, requests, depth, slot: bytes, .. } = self;
        let lane = &queues.track().sends;
        let (head, round) = (self.head, self.head.checked_div(*depth).unwrap_or(0));
        let Some(index) = numbers.next(lane) else { return Err(Refused::Full) };
        let Some(slot) = place(requests, head, *depth, *bytes) else { return Err(Refused::Full) };
        slot.fill(0);
        let (kind, immediate) = (operation.kind(), operation.immediate());
        let meta = TxMetaDesc {
            ctrl1: TX_META_DESC | operation.number() | if immediate.is_some() { TX_HAS_IMM } else { 0 },
            ctrl2: TX_FIRST | TX_LAST | TX_COMP_REQ | (round as u8 & TX_PHASE),
            immediate_data: u32::from_be(immediate.unwrap_or(0)).into(),
            ..TxMetaDesc::new_zeroed()
        };
        put(slot, 0, &meta);
        if let Some(Remote { address, rkey }) = operation.remote() {
            let [buf_addr_lo, buf_addr_hi] = halves(address);
            let remote = RemoteMemAddr { length: 0.into(), rkey: rkey.into(), buf_addr_lo, buf_addr_hi };
            put(slot, HEAD, &remote);
        }
        set_destination(slot, to);
        let Some(number) = numbers.take(lane, index, wr_id, kind, 0) else { return Err(Refused::Full) };
        put(slot, 0, &number.to_le());
        self.head = head.wrapping_add(1);
        Ok(())
    }

    /// Gives the last request its data.
    fn set(&mut self, data: &Gathered) -> Result<(), Refused> {
        let (allowed, is_wide, len) = (self.allowed, self.slot == WIDE_SLOT, data.len);
        let Some(slot) = self.last() else { return Err(Refused::NotBegun) };
        let Ok((mut meta, _)) = TxMetaDesc::read_from_prefix(slot) else { return Err(Refused::NotBegun) };
        let operation = meta.ctrl1 & TX_OP_TYPE;
        let is_remote = operation != SEND;
        if is_remote && len > allowed.most_remote {
            return Err(Refused::TooLarge);
        }
        let at = if is_remote { BEHIND_REMOTE } else { HEAD };
        meta.ctrl1 &= !TX_INLINE_MSG;
        match &data.what {
            What::Pieces(pieces, count) => {
                let pieces = pieces.get(..*count).unwrap_or_default();
                let most = if is_remote { TX_DESC_NUM_RDMA_BUFS } else { TX_DESC_NUM_BUFS };
                if pieces.len() > most {
                    return Err(Refused::TooLarge);
                }
                for (index, Sge { addr, length, lkey }) in pieces.iter().copied().enumerate() {
                    let [buf_addr_lo, buf_addr_hi] = halves(addr);
                    let lkey = (lkey & LKEY).into();
                    let piece = TxBufDesc { length: length.into(), lkey, buf_addr_lo, buf_addr_hi };
                    put(slot, at + index * size_of::<TxBufDesc>(), &piece);
                }
                meta.length = (pieces.len() as u16).into();
            }
            What::Inline(bytes) => {
                let most = match (is_wide, operation) {
                    (true, SEND) => TX_DESC_INLINE_MAX_SIZE_128,
                    (true, RDMA_WRITE) if allowed.inline_writes => TX_DESC_INLINE_MAX_SIZE_128,
                    (false, SEND) => TX_DESC_INLINE_MAX_SIZE,
                    // There is no room behind the remote memory; and what is read has no place there.
                    _ => 0,
                };
                if len as usize > most {
                    return Err(Refused::TooLarge);
                }
                let bytes = bytes.get(..len as usize).unwrap_or_default();
                let Some(place) = slot.get_mut(at..at + bytes.len()) else {
                    return Err(Refused::TooLarge);
                };
                place.copy_from_slice(bytes);
                meta.ctrl1 |= TX_INLINE_MSG;
                meta.length = (len as u16).into();
            }
        }
        put(slot, 0, &meta);
        if is_remote {
            put(slot, HEAD, &len.to_le());
        }
        self.numbers.set_bytes(&self.queues.track().sends, len);
        Ok(())
    }

    /// Says of the last request how the device shall go about it.
    #[cfg(feature = "raw")]
    pub(crate) fn set_hints(&mut self, hints: u8) -> Result<(), Refused> {
        let Some(slot) = self.last() else { return Err(Refused::NotBegun) };
        put(slot, std::mem::offset_of!(TxMetaDesc, ctrl3), &hints);
        Ok(())
    }

    /// Where the ring lies, for whoever writes to it in place of this queue.
    #[cfg(feature = "raw")]
    pub(crate) fn ring(&self) -> OwnRing {
        let Some(device) = &self.device else { return OwnRing::default() };
        OwnRing {
            address: device.memory.address() + device.begin as u64,
            entry_size: self.slot as u32,
            entries: self.depth,
            doorbell: device.doorbell.address(),
            most_at_once: self.most_at_once,
        }
    }

    /// The last request is none: its slot and its number are the next one's.
    #[cold]
    fn take_back(&mut self) {
        self.head = self.head.wrapping_sub(1);
        self.numbers.take_back(&self.queues.track().sends);
    }

    /// What an operation is to the device, if it has it.
    fn operation(&self, opcode: &Opcode<'_>) -> Result<(Operation, Option<Destination>), Refused> {
        let Allowed { reads, writes, .. } = self.allowed;
        Ok(match *opcode {
            Opcode::Datagram { ah, qp_num, qkey, immediate } => {
                (Operation::Send(immediate), Some(Destination { ah, qp_num, qkey }))
            }
            Opcode::Send => (Operation::Send(None), None),
            Opcode::SendImmediate(immediate) => (Operation::Send(Some(immediate)), None),
            Opcode::Read(remote) if reads => (Operation::Read(remote), None),
            Opcode::Write(remote) if writes => (Operation::Write(remote, None), None),
            Opcode::WriteImmediate(remote, immediate) if writes => {
                (Operation::Write(remote, Some(immediate)), None)
            }
            _ => return Err(Refused::Lacks),
        })
    }
}

/// What a request does, as the device has it. Immediate data stands as it goes over the wire.
#[derive(Clone, Copy, Debug)]
enum Operation {
    Send(Option<u32>),
    Read(Remote),
    Write(Remote, Option<u32>),
}

impl Operation {
    fn number(self) -> u8 {
        match self {
            Self::Send(_) => SEND,
            Self::Read(_) => RDMA_READ,
            Self::Write(..) => RDMA_WRITE,
        }
    }

    fn kind(self) -> Kind {
        match self {
            Self::Send(_) => Kind::Send,
            Self::Read(_) => Kind::Read,
            Self::Write(..) => Kind::Write,
        }
    }

    fn immediate(self) -> Option<u32> {
        match self {
            Self::Send(immediate) | Self::Write(_, immediate) => immediate,
            Self::Read(_) => None,
        }
    }

    fn remote(self) -> Option<Remote> {
        match self {
            Self::Send(_) => None,
            Self::Read(remote) | Self::Write(remote, _) => Some(remote),
        }
    }
}

/// Data in a form that does not depend on where it comes from: a request has little of it.
struct Gathered {
    what: What,
    /// Bytes, of the pieces or here.
    len: u32,
}

enum What {
    Pieces([Sge; TX_DESC_NUM_BUFS], usize),
    Inline([u8; TX_DESC_INLINE_MAX_SIZE_128]),
}

impl Gathered {
    fn new<'b, P, B>(data: &Data<P, B>) -> Result<Self, Refused>
    where
        P: ExactSizeIterator<Item: Borrow<Sge>> + Clone,
        B: Iterator<Item = &'b [u8]> + Clone,
    {
        let len = u32::try_from(data.len()).map_err(|_| Refused::TooLarge)?;
        let what = match data {
            Data::Pieces(pieces) => {
                let mut all = [Sge::default(); TX_DESC_NUM_BUFS];
                let places = all.get_mut(..pieces.len()).ok_or(Refused::TooLarge)?;
                places.iter_mut().zip(pieces.clone()).for_each(|(place, piece)| *place = *piece.borrow());
                What::Pieces(all, pieces.len())
            }
            Data::Inline(parts) => {
                let (mut all, mut at) = ([0; TX_DESC_INLINE_MAX_SIZE_128], 0);
                for part in parts.clone() {
                    let place = all.get_mut(at..at + part.len()).ok_or(Refused::TooLarge)?;
                    place.copy_from_slice(part);
                    at += part.len();
                }
                What::Inline(all)
            }
        };
        Ok(Self { what, len })
    }
}

/// Where the request with this counter is in a copy of the ring.
fn place(requests: &mut [u8], counter: u32, depth: u32, slot: usize) -> Option<&mut [u8]> {
    let at = (counter & depth.wrapping_sub(1)) as usize * slot;
    requests.get_mut(at..at + slot)
}

/// An address in its two halves.
fn halves(address: u64) -> [zerocopy::little_endian::U32; 2] {
    [(address as u32).into(), ((address >> 32) as u32).into()]
}

/// Writes a part of a request, which is shorter than a slot.
fn put(slot: &mut [u8], at: usize, part: &(impl IntoBytes + zerocopy::Immutable)) {
    let bytes = part.as_bytes();
    if let Some(place) = slot.get_mut(at..at + bytes.len()) {
        place.copy_from_slice(bytes);
    }
}

/// Writes where a request goes. The number of a queue pair has 16 bits on the wire.
fn set_destination(slot: &mut [u8], to: Destination) {
    use std::mem::offset_of;
    put(slot, offset_of!(TxMetaDesc, dest_qp_num), &(to.qp_num as u16).to_le());
    put(slot, offset_of!(TxMetaDesc, ah), &(to.ah.number as u16).to_le());
    put(slot, offset_of!(TxMetaDesc, qkey), &to.qkey.to_le());
}

impl Lower for &mut Sends {
    const IS_IN_ORDER: bool = false;

    fn next_slot(&self) -> u32 {
        Sends::next_slot(self)
    }

    fn filled(&self) -> &[u16] {
        Sends::filled(self)
    }

    // Out of line, so that the ways to other queues are not longer for it.
    #[inline(never)]
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
        let (operation, to) = self.operation(&opcode.opcode())?;
        let Some(to) = to.or_else(|| opcode.destination()) else { return Err(Refused::Lacks) };
        self.start(wr_id, flags, operation, to)?;
        let set = Gathered::new(data).and_then(|data| self.set(&data));
        set.inspect_err(|_| self.take_back())
    }

    #[inline(never)]
    fn begin(&mut self, wr_id: u64, flags: SendFlags, opcode: &Opcode<'_>) -> Result<(), Refused> {
        let (operation, to) = self.operation(opcode)?;
        self.start(wr_id, flags, operation, to.unwrap_or_default())
    }

    #[inline(never)]
    fn set_data<'b, P, B>(
        &mut self,
        _: SendFlags,
        _: Option<FrameHead>,
        data: &Data<P, B>,
    ) -> Result<(), Refused>
    where
        P: ExactSizeIterator<Item: Borrow<Sge>> + Clone,
        B: Iterator<Item = &'b [u8]> + Clone,
    {
        self.set(&Gathered::new(data)?)
    }

    fn set_address(&mut self, ah: Address, qp_num: u32, qkey: u32) -> Result<(), Refused> {
        let Some(slot) = self.last() else { return Err(Refused::NotBegun) };
        set_destination(slot, Destination { ah, qp_num, qkey });
        Ok(())
    }
}
