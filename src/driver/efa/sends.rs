//! The send queue of efa.
//!
//! The ring is memory of the device, write-combining, that this side only writes: whole slots, in their order, and then the doorbell, with
//! the number of all requests so far. A request that is written part for part, or is one of a batch that may be forgotten, stands in a copy of
//! the ring; the device's gets it when the batch is published. So a batch that is refused halfway is forgotten, and one that is longer than
//! the device takes at once goes in several pieces. What is posted whatever comes behind it goes straight to the device's ring ([`Straight`]).
//!
//! Source: `efa_post_send`, `efa_sq_initialize` and the functions of `efa_qp_fill_wr_pfns`, providers/efa/verbs.c, rdma-core 65.

mod straight;

use std::borrow::Borrow;
use std::sync::Arc;

use uverbs_abi::efa::io::{
    RDMA_READ, RDMA_WRITE, SEND, TX_COMP_REQ, TX_DESC_INLINE_MAX_SIZE, TX_DESC_INLINE_MAX_SIZE_128,
    TX_DESC_NUM_BUFS, TX_DESC_NUM_RDMA_BUFS, TX_FIRST, TX_HAS_IMM, TX_LAST, TX_META_DESC, TX_PHASE,
};
use uverbs_abi::types::{SendFlags, qp_state};
use zerocopy::IntoBytes;

use super::doorbell::Doorbell;
use super::qp::Queues;
#[cfg(feature = "raw")]
use super::request::set_hints;
use super::request::{BEHIND_REMOTE, DATA, Head, Said, To, UNIT, Unit, copy, operation, piece};
use super::track::{Kind, Lane, Numbers};
#[cfg(feature = "raw")]
use crate::driver::bound::OwnRing;
use crate::driver::queues::Lower;
use crate::driver::request::{Address, Data, FrameHead, Opcode, Refused, Remote, Sge, Terms};
use crate::driver::ring::units::Units;
use crate::kernel::error::{Error, Result};

/// Bytes of a slot, and of one that is wide.
pub(super) const SLOT: usize = UNIT;
pub(super) const WIDE_SLOT: usize = 2 * UNIT;

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
    /// In units of 64 bytes, of which each is written whole.
    pub(super) ring: Units,
    /// Where in the mapping the ring begins.
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
    requests: Box<[Unit]>,
    /// Units of a slot: one, or two of one that is wide.
    units: u32,
    /// Number of slots, a power of two, or zero.
    depth: u32,
    /// Most of them that are told at once.
    most_at_once: u32,
    /// Requests that were filled, that are in the device's ring, and of which the device was told.
    head: u32,
    written: u32,
    published: u32,
    /// Where in the copy the last request is.
    last: usize,
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
        let units = (slot / UNIT) as u32;
        let all = depth as usize * units as usize;
        let mut requests = Error::room(op, all)?;
        requests.resize(all, [0; 8]);
        let numbers = Numbers::new(op, &queues.track().sends, queues.generation())?;
        Ok(Self {
            queues,
            numbers,
            device,
            requests: requests.into_boxed_slice(),
            units,
            depth,
            most_at_once: most_at_once.max(1),
            head: 0,
            written: 0,
            published: 0,
            last: 0,
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

    /// The request that was filled last, and is in the copy alone.
    #[inline(always)]
    fn last(&mut self) -> Option<&mut Unit> {
        if self.head == self.written { None } else { self.requests.get_mut(self.last) }
    }

    /// The index of the unit with which the request with this counter begins.
    #[inline(always)]
    fn at(&self, counter: u32) -> usize {
        ((counter & self.depth.wrapping_sub(1)) * self.units) as usize
    }

    /// Forgets what was filled since, but for what is in the device's ring: that is told with the next.
    pub(crate) fn rewind(&mut self) {
        self.head = self.written;
        self.numbers.rewind(&self.queues.track().sends);
    }

    /// Tells the device of every request filled so far.
    // Apart, so that the ways of other drivers are no longer for it.
    #[inline(never)]
    pub(crate) fn publish(&mut self) {
        self.publish_here();
    }

    /// The same without a call of a function.
    #[inline(always)]
    pub(crate) fn publish_here(&mut self) {
        if self.written != self.head {
            self.copy();
        }
        self.tell();
    }

    /// Copies to the device's ring what is not there.
    // Once for all who do.
    #[inline(never)]
    fn copy(&mut self) {
        while self.written != self.head {
            let left = self.left();
            let Some(device) = &mut self.device else { break };
            let first = self.written & (self.depth - 1);
            let at = (first * self.units) as usize;
            // As far as the ring's end.
            let count = self.head.wrapping_sub(self.written).min(left).min(self.depth - first);
            let units = (count * self.units) as usize;
            let mut ring = device.ring.writing();
            for (unit, index) in self.requests.get(at..at + units).unwrap_or_default().iter().zip(at..) {
                ring.put(index, *unit);
            }
            self.written = self.written.wrapping_add(count);
            if self.left() == 0 {
                self.tell();
            }
        }
        self.numbers.publish();
    }

    /// How many more may be in the device's ring before it is told.
    #[inline(always)]
    fn left(&self) -> u32 {
        self.most_at_once.wrapping_sub(self.written.wrapping_sub(self.published))
    }

    /// Tells the device of what is in its ring.
    #[inline(always)]
    pub(crate) fn tell(&mut self) {
        if self.published != self.written {
            self.published = self.written;
            if let Some(device) = &self.device {
                device.doorbell.ring(self.published & 0xffff);
            }
        }
    }

    /// The queue pair has come to a state.
    pub(crate) fn enter(&mut self, state: u8) {
        if state == qp_state::RESET {
            (self.head, self.written, self.published) = (0, 0, 0);
            let track = self.queues.track();
            self.numbers.reset(&track.sends, track.next_generation());
        }
        // `efa_post_send_validate`.
        self.is_ready = matches!(state, qp_state::RTS | qp_state::SQD);
    }

    /// Writes all of a request but its data.
    #[inline(always)]
    fn start(&mut self, wr_id: u64, flags: SendFlags, what: Operation, to: To) -> Result<(), Refused> {
        // All requests complete.
        if !self.is_ready || flags.difference(SendFlags::INLINE) != SendFlags::SIGNALED {
            return Err(self.refusal(flags));
        }
        let at = self.at(self.head);
        let Self { queues, numbers, requests, head, depth, units, .. } = self;
        let Some(slot) = requests.get_mut(at) else { return Err(Refused::Full) };
        let Some(number) = numbers.stage(&queues.track().sends, wr_id, what.kind(), 0) else {
            return Err(Refused::Full);
        };
        *slot = what.head(number, *head & *depth != 0, to).unit(Said::default(), [0; 4]);
        if *units > 1
            && let Some(second) = requests.get_mut(at + 1)
        {
            *second = [0; 8];
        }
        self.last = at;
        self.head = self.head.wrapping_add(1);
        Ok(())
    }

    #[cold]
    fn refusal(&self, flags: SendFlags) -> Refused {
        if !self.is_ready {
            Refused::NotReady
        } else if flags.contains(SendFlags::SIGNALED) {
            Refused::Lacks
        } else {
            Refused::Unsignaled
        }
    }

    /// Gives the last request its data.
    #[inline(always)]
    fn set<'b, P, B>(&mut self, data: &Data<P, B>) -> Result<(), Refused>
    where
        P: ExactSizeIterator<Item: Borrow<Sge>> + Clone,
        B: Iterator<Item = &'b [u8]> + Clone,
    {
        let operation = match self.last() {
            Some(slot) => operation(slot),
            None => return Err(Refused::NotBegun),
        };
        let at = self.last;
        let behind = if operation == SEND { DATA } else { BEHIND_REMOTE };
        let said = match data {
            Data::Pieces(pieces) => {
                if pieces.len() > most_pieces(operation) {
                    return Err(Refused::TooLarge);
                }
                let Some(slot) = self.requests.get_mut(at) else { return Err(Refused::NotBegun) };
                let mut bytes = 0;
                let places = slot.get_mut(behind / 8..).unwrap_or_default().as_chunks_mut().0;
                for (place, piece_of) in places.iter_mut().zip(pieces.clone()) {
                    *place = piece(piece_of.borrow()).map(u64::to_le);
                    bytes += u64::from(piece_of.borrow().length);
                }
                Said::of_pieces(pieces.len(), bytes)?
            }
            Data::Inline(parts) => {
                let most = self.most_inline(operation);
                let units = self.requests.get_mut(at..at + self.units as usize).unwrap_or_default();
                let room = units.as_mut_bytes().get_mut(behind..).unwrap_or_default();
                let room = room.get_mut(..most).unwrap_or_default();
                Said::of_bytes(copy(parts.clone(), room)?)
            }
        };
        if operation != SEND && said.bytes > self.allowed.most_remote {
            return Err(Refused::TooLarge);
        }
        if let Some(slot) = self.requests.get_mut(at) {
            said.write(slot);
        }
        self.numbers.set_bytes(self.lane(), said.bytes);
        Ok(())
    }

    #[inline(always)]
    fn lane(&self) -> &Lane {
        &self.queues.track().sends
    }

    /// Most bytes of such a request that stand in it.
    #[inline(always)]
    fn most_inline(&self, operation: u8) -> usize {
        match (self.units > 1, operation) {
            (true, SEND) => TX_DESC_INLINE_MAX_SIZE_128,
            (true, RDMA_WRITE) if self.allowed.inline_writes => TX_DESC_INLINE_MAX_SIZE_128,
            (false, SEND) => TX_DESC_INLINE_MAX_SIZE,
            // There is no room behind the remote memory; and what is read has no place there.
            _ => 0,
        }
    }

    /// Says of the last request how the device shall go about it.
    #[cfg(feature = "raw")]
    pub(crate) fn set_hints(&mut self, hints: u8) -> Result<(), Refused> {
        let Some(slot) = self.last() else { return Err(Refused::NotBegun) };
        set_hints(slot, hints);
        Ok(())
    }

    /// Where the ring lies, for whoever writes to it in place of this queue.
    #[cfg(feature = "raw")]
    pub(crate) fn ring(&self) -> OwnRing {
        let Some(device) = &self.device else { return OwnRing::default() };
        OwnRing {
            address: device.ring.map().address() + device.begin as u64,
            entry_size: self.units * UNIT as u32,
            entries: self.depth,
            doorbell: device.doorbell.address(),
            most_at_once: self.most_at_once,
        }
    }

    /// The last request is none: its slot and its number are the next one's.
    #[cold]
    fn take_back(&mut self) {
        self.head = self.head.wrapping_sub(1);
        self.last = self.at(self.head.wrapping_sub(1));
        self.numbers.take_back(&self.queues.track().sends);
    }

    /// What a whole request is, and where it goes.
    #[inline(always)]
    fn whole(&self, opcode: &impl Terms) -> Result<(Operation, To), Refused> {
        let (operation, to) = self.operation(&opcode.opcode())?;
        let elsewhere = || opcode.destination().map(|to| To::new(&to.ah, to.qp_num, to.qkey));
        Ok((operation, to.or_else(elsewhere).ok_or(Refused::Lacks)?))
    }

    /// What an operation is to the device, if it has it, and where it goes, if it says so.
    #[inline(always)]
    fn operation(&self, opcode: &Opcode<'_>) -> Result<(Operation, Option<To>), Refused> {
        let Allowed { reads, writes, .. } = self.allowed;
        Ok(match *opcode {
            Opcode::Datagram { ref ah, qp_num, qkey, immediate } => {
                (Operation::Send(immediate), Some(To::new(ah, qp_num, qkey)))
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

    /// What a request of it begins with; in every second round of the ring its phase is odd.
    #[inline(always)]
    fn head(self, number: u16, is_odd: bool, to: To) -> Head {
        let (remote, immediate) = match self {
            Self::Send(immediate) => (None, immediate),
            Self::Read(remote) => (Some(remote), None),
            Self::Write(remote, immediate) => (Some(remote), immediate),
        };
        Head {
            number,
            control: [
                TX_META_DESC | self.number() | if immediate.is_some() { TX_HAS_IMM } else { 0 },
                TX_FIRST | TX_LAST | TX_COMP_REQ | if is_odd { TX_PHASE } else { 0 },
            ],
            immediate: immediate.map_or(0, u32::from_be),
            to,
            remote,
        }
    }
}

/// Most pieces of such a request.
#[inline(always)]
fn most_pieces(operation: u8) -> usize {
    if operation == SEND { TX_DESC_NUM_BUFS } else { TX_DESC_NUM_RDMA_BUFS }
}

impl Lower for &mut Sends {
    const IS_IN_ORDER: bool = false;

    fn next_slot(&self) -> u32 {
        Sends::next_slot(self)
    }

    #[inline(always)]
    fn last_slot(&self) -> u32 {
        self.numbers.last()
    }

    fn filled(&self) -> &[u16] {
        Sends::filled(self)
    }

    #[inline]
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
        let (operation, to) = self.whole(opcode)?;
        self.start(wr_id, flags, operation, to)?;
        self.set(data).inspect_err(|_| self.take_back())
    }

    #[inline(always)]
    fn begin(&mut self, wr_id: u64, flags: SendFlags, opcode: &Opcode<'_>) -> Result<(), Refused> {
        let (operation, to) = self.operation(opcode)?;
        self.start(wr_id, flags, operation, to.unwrap_or_default())
    }

    #[inline]
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
        self.set(data)
    }

    #[inline(always)]
    fn set_address(&mut self, ah: Address, qp_num: u32, qkey: u32) -> Result<(), Refused> {
        let Some(slot) = self.last() else { return Err(Refused::NotBegun) };
        To::new(&ah, qp_num, qkey).write(slot);
        Ok(())
    }
}
