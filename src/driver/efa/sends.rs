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
use std::sync::atomic::Ordering;

use uverbs_abi::efa::io::{
    RDMA_READ, RDMA_WRITE, SEND, TX_COMP_REQ, TX_DESC_INLINE_MAX_SIZE, TX_DESC_INLINE_MAX_SIZE_128,
    TX_DESC_NUM_BUFS, TX_DESC_NUM_RDMA_BUFS, TX_FIRST, TX_HAS_IMM, TX_LAST, TX_META_DESC, TX_PHASE,
};
use uverbs_abi::types::{SendFlags, qp_state};

use super::doorbell::Doorbell;
use super::qp::Queues;
use super::request::{BEHIND_REMOTE, Body, HEAD, Head, To, UNIT, Unit};
use super::track::{Kind, Numbers};
#[cfg(feature = "raw")]
use crate::driver::bound::OwnRing;
use crate::driver::queues::Lower;
use crate::driver::request::{Address, Data, FrameHead, Opcode, Refused, Remote, Sge, Terms};
use crate::kernel::error::{Error, Result};
use crate::kernel::mapping::Mapping;

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
    pub(super) memory: Mapping,
    /// Where the ring begins.
    pub(super) begin: usize,
    pub(super) doorbell: Doorbell,
}

impl Device {
    /// Writes units to the ring, from the one with this index on; false if they are not inside.
    #[inline]
    fn write(&self, first: usize, units: &[Unit]) -> bool {
        units.iter().zip(first..).all(|(unit, index)| {
            let Some(places) = self.memory.values::<8>(self.begin + index * UNIT) else { return false };
            places.iter().zip(unit).for_each(|(place, word)| place.store(*word, Ordering::Relaxed));
            true
        })
    }
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

    /// The request that was filled last, if the device was not told of it.
    #[inline]
    fn last(&mut self) -> Option<&mut [u64]> {
        if self.head == self.published {
            return None;
        }
        place(&mut self.requests, self.head.wrapping_sub(1), self.depth, self.units)
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
            let (at, units) = ((first * self.units) as usize, (count * self.units) as usize);
            // The ring was seen to be inside when it was mapped.
            let is_written = self.requests.get(at..at + units).is_some_and(|units| device.write(at, units));
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
    #[inline(always)]
    fn start(&mut self, wr_id: u64, flags: SendFlags, operation: Operation, to: To) -> Result<(), Refused> {
        // All requests complete.
        if !self.is_ready || flags.difference(SendFlags::INLINE) != SendFlags::SIGNALED {
            return Err(self.refusal(flags));
        }
        let Self { queues, numbers, requests, depth, units, .. } = self;
        let (lane, head) = (&queues.track().sends, self.head);
        let Some(slot) = place(requests, head, *depth, *units) else { return Err(Refused::Full) };
        let Some(slot) = slot.first_chunk_mut() else { return Err(Refused::Full) };
        let Some(number) = numbers.take(lane, wr_id, operation.kind()) else { return Err(Refused::Full) };
        let (immediate, has_immediate) = operation.immediate();
        // The phase turns with every round of the ring.
        let is_odd = head & *depth != 0;
        Head {
            number,
            control: [
                TX_META_DESC | operation.number() | if has_immediate { TX_HAS_IMM } else { 0 },
                TX_FIRST | TX_LAST | TX_COMP_REQ | if is_odd { TX_PHASE } else { 0 },
            ],
            immediate: u32::from_be(immediate),
            to,
            remote: operation.remote(),
        }
        .write(slot);
        self.head = head.wrapping_add(1);
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
    fn set(&mut self, body: &Body) -> Result<(), Refused> {
        let (allowed, is_wide) = (self.allowed, self.units > 1);
        let Some(slot) = self.last() else { return Err(Refused::NotBegun) };
        let Some(first) = slot.first_mut() else { return Err(Refused::NotBegun) };
        let operation = Head::operation(*first);
        let is_remote = operation != SEND;
        let most = match (body.is_inline, is_wide, operation) {
            (false, _, SEND) => TX_DESC_NUM_BUFS,
            (false, ..) => TX_DESC_NUM_RDMA_BUFS,
            (true, true, SEND) => TX_DESC_INLINE_MAX_SIZE_128,
            (true, true, RDMA_WRITE) if allowed.inline_writes => TX_DESC_INLINE_MAX_SIZE_128,
            (true, false, SEND) => TX_DESC_INLINE_MAX_SIZE,
            // There is no room behind the remote memory; and what is read has no place there.
            (true, ..) => 0,
        };
        if usize::from(body.length) > most || is_remote && body.len > allowed.most_remote {
            return Err(Refused::TooLarge);
        }
        *first = Head::with_data(*first, body);
        if is_remote && let Some(remote) = slot.get_mut(HEAD) {
            *remote = Head::with_remote_len(*remote, body.len);
        }
        body.write(slot, if is_remote { BEHIND_REMOTE } else { HEAD });
        self.numbers.set_bytes(&self.queues.track().sends, body.len);
        Ok(())
    }

    /// Says of the last request how the device shall go about it.
    #[cfg(feature = "raw")]
    pub(crate) fn set_hints(&mut self, hints: u8) -> Result<(), Refused> {
        let Some(slot) = self.last() else { return Err(Refused::NotBegun) };
        slot.get_mut(1).into_iter().for_each(|word| *word = Head::with_hints(*word, hints));
        Ok(())
    }

    /// Where the ring lies, for whoever writes to it in place of this queue.
    #[cfg(feature = "raw")]
    pub(crate) fn ring(&self) -> OwnRing {
        let Some(device) = &self.device else { return OwnRing::default() };
        OwnRing {
            address: device.memory.address() + device.begin as u64,
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
        self.numbers.take_back(&self.queues.track().sends);
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

    /// Immediate data, and whether there is some.
    fn immediate(self) -> (u32, bool) {
        match self {
            Self::Send(immediate) | Self::Write(_, immediate) => {
                (immediate.unwrap_or(0), immediate.is_some())
            }
            Self::Read(_) => (0, false),
        }
    }

    fn remote(self) -> Option<Remote> {
        match self {
            Self::Send(_) => None,
            Self::Read(remote) | Self::Write(remote, _) => Some(remote),
        }
    }
}

/// Where the request with this counter is in a copy of the ring.
#[inline]
fn place(requests: &mut [Unit], counter: u32, depth: u32, units: u32) -> Option<&mut [u64]> {
    let at = ((counter & depth.wrapping_sub(1)) * units) as usize;
    requests.get_mut(at..at + units as usize).map(<[Unit]>::as_flattened_mut)
}

impl Lower for &mut Sends {
    const IS_IN_ORDER: bool = false;

    fn next_slot(&self) -> u32 {
        Sends::next_slot(self)
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
        let (operation, to) = self.operation(&opcode.opcode())?;
        let elsewhere = || opcode.destination().map(|to| To::new(&to.ah, to.qp_num, to.qkey));
        let Some(to) = to.or_else(elsewhere) else { return Err(Refused::Lacks) };
        self.start(wr_id, flags, operation, to)?;
        let set = Body::new(data).and_then(|data| self.set(&data));
        set.inspect_err(|_| self.take_back())
    }

    #[inline]
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
        self.set(&Body::new(data)?)
    }

    fn set_address(&mut self, ah: Address, qp_num: u32, qkey: u32) -> Result<(), Refused> {
        let Some(slot) = self.last() else { return Err(Refused::NotBegun) };
        if let Some(head) = slot.first_chunk_mut() {
            Head::set_destination(head, To::new(&ah, qp_num, qkey));
        }
        Ok(())
    }
}
