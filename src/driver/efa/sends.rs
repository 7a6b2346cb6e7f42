//! The send queue of efa.
//!
//! The ring is write-combining memory of the device. This side never reads it, and writes it in whole slots, in their order; the
//! doorbell then announces the total number of requests. A request that is written part by part, or that belongs to a batch which can
//! be discarded, is first written to a copy of the ring, and copied to the device's ring when it is published. A batch that is refused
//! halfway can therefore be discarded, and one that is longer than the device accepts at once is announced in several steps. Requests
//! that are posted whatever follows them are written directly to the device's ring ([`straight::Straight`]).
//!
//! Source: `efa_post_send`, `efa_sq_initialize` and the functions of `efa_qp_fill_wr_pfns`, providers/efa/verbs.c, rdma-core 65.

mod at_once;
mod staged;
mod straight;

use std::borrow::Borrow;
use std::sync::Arc;

use uverbs_abi::efa::io::{
    RDMA_READ, RDMA_WRITE, SEND, TX_COMP_REQ, TX_DESC_INLINE_MAX_SIZE, TX_DESC_INLINE_MAX_SIZE_128,
    TX_DESC_NUM_BUFS, TX_DESC_NUM_RDMA_BUFS, TX_FIRST, TX_HAS_IMM, TX_LAST, TX_META_DESC, TX_PHASE,
};
use uverbs_abi::types::{SendFlags, qp_state};
use zerocopy::IntoBytes;

#[cfg(test)]
pub(super) use self::at_once::AtOnce;
pub(super) use self::at_once::Looking;
use self::staged::Staging;
use super::doorbell::Doorbell;
use super::qp::Queues;
#[cfg(feature = "raw")]
use super::request::set_hints;
use super::request::{
    BEHIND_REMOTE, DATA, Head, Said, To, UNIT, Unit, copy, copy_part, number, operation, piece, put_piece,
};
use super::track::{Kind, Lane, Numbers, Track};
use crate::driver::request::{Address, Data, FrameHead, InlineParts, Opcode, Refused, Remote, Sge, Terms};
use crate::driver::ring::units::Units;
#[cfg(feature = "raw")]
use crate::driver::seam::OwnRing;
use crate::driver::seam::{Lower, Published, SendRing, Short, Simple, SimpleData};
use crate::kernel::error::{Error, Result};

/// Bytes of a narrow slot, and of a wide one.
pub(super) const SLOT: usize = UNIT;
pub(super) const WIDE_SLOT: usize = 2 * UNIT;

/// The index for "no request".
const NOWHERE: usize = usize::MAX;

/// Flags that no request has.
const NONE: u32 = u32::MAX;

/// The phase bit in the first word of a request. It is set in every second round.
const ROUND: u32 = (TX_PHASE as u32) << 24;

/// The operations that requests may have.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Allowed {
    /// Reads and writes of remote memory.
    pub(super) reads: bool,
    pub(super) writes: bool,
    /// Maximum bytes of a read or write.
    pub(super) most_remote: u32,
    /// Whether writes may have inline data, in slots that have room for it.
    pub(super) inline_writes: bool,
}

impl Allowed {
    /// The most inline bytes of a request with this operation, in slots of this many units.
    #[inline(always)]
    fn most_inline(&self, units: u32, operation: u8) -> usize {
        match (units > 1, operation) {
            (true, SEND) => TX_DESC_INLINE_MAX_SIZE_128,
            (true, RDMA_WRITE) if self.inline_writes => TX_DESC_INLINE_MAX_SIZE_128,
            (false, SEND) => TX_DESC_INLINE_MAX_SIZE,
            // There is no room after the remote address, and a read has no inline data.
            _ => 0,
        }
    }

    /// The device's operation for an opcode, if the device has it, and the destination, if the opcode contains one.
    #[inline(always)]
    fn operation(&self, opcode: &Opcode<'_>) -> Result<(Operation, Option<To>), Refused> {
        let Self { reads, writes, .. } = *self;
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

/// The ring, in the device's memory, and the doorbell.
#[derive(Debug)]
pub(super) struct Device {
    /// In units of 64 bytes, each of which is written whole.
    pub(super) ring: Units,
    /// Byte of the mapping at which the ring begins.
    pub(super) begin: usize,
    pub(super) doorbell: Doorbell,
}

/// The send queue; see the module's page.
#[derive(Debug)]
pub(crate) struct Sends {
    /// The one in `_queues`.
    track: Arc<Track>,
    _queues: Arc<Queues>,
    numbers: Numbers,
    /// `None` for a queue pair without sends.
    device: Option<Device>,
    /// The copy of the ring.
    requests: Box<[Unit]>,
    /// Units of a slot: one, or two for a wide slot.
    units: u32,
    /// Number of slots, a power of two, or zero; and the factor by which bit `depth` of a request's counter (`counter & depth`) is
    /// multiplied for the phase bit in its first word.
    depth: u32,
    round: u32,
    /// Maximum number of requests that one doorbell announces.
    most_at_once: u32,
    /// Number of requests that were filled, that are in the device's ring, and that the doorbell has announced.
    head: u32,
    written: u32,
    published: u32,
    /// The doorbell is rung at the latest when `written` is this.
    limit: u32,
    /// Position in the copy of the last request, if that was begun part by part and is not in the device's ring; otherwise [`NOWHERE`].
    last: usize,
    /// Whether that request is a message, which names no remote memory.
    is_message: bool,
    /// Maximum inline bytes of a message.
    most_inline: usize,
    allowed: Allowed,
    /// The flags that each request must have, apart from the one for inline data; [`NONE`] in a state in which nothing is sent.
    flags: u32,
}

impl Sends {
    /// With `depth` slots of `slot` bytes.
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
        let track = queues.shared_track().clone();
        let numbers = Numbers::new(op, &track.sends, queues.generation())?;
        let most_at_once = most_at_once.max(1);
        Ok(Self {
            track,
            _queues: queues,
            numbers,
            device,
            requests: requests.into_boxed_slice(),
            units,
            depth,
            round: ROUND.checked_div(depth).unwrap_or(0),
            most_at_once,
            head: 0,
            written: 0,
            published: 0,
            limit: most_at_once,
            last: NOWHERE,
            is_message: false,
            most_inline: allowed.most_inline(units, SEND),
            allowed,
            flags: NONE,
        })
    }

    /// The place of a request that was filled since the last publication; `number` counts from the first of them.
    pub(super) fn filled(&self, number: u32) -> Option<u32> {
        let is_there = number < self.head.wrapping_sub(self.written);
        is_there.then(|| self.index_of(self.written.wrapping_add(number)).into())
    }

    /// The index of the request with this counter, which must be in the copy.
    fn index_of(&self, counter: u32) -> u16 {
        self.requests.get(self.at(counter)).map_or(0, |slot| self.track.sends.index_of(number(slot)))
    }

    /// The last request, if it was begun part by part and is only in the copy.
    #[inline(always)]
    fn last(&mut self) -> Option<&mut Unit> {
        self.requests.get_mut(self.last)
    }

    /// The index of the request's first unit, for the request with this counter.
    #[inline(always)]
    fn at(&self, counter: u32) -> usize {
        ((counter & self.depth.wrapping_sub(1)) * self.units) as usize
    }

    /// The value of [`ROUND`] in the first word of the next request.
    #[inline(always)]
    fn round(&self) -> u32 {
        (self.head & self.depth) * self.round
    }

    /// Copies to the device's ring the only request that is not there.
    // There is room: when there was none left, the doorbell was rung immediately.
    #[inline(always)]
    fn copy_one(&mut self) {
        let Self { device: Some(device), requests, units, last, .. } = self else { return };
        let (at, mut ring) = (*last, device.ring.writing());
        let Some(unit) = requests.get(at) else { return self.copy() };
        ring.put(at, *unit);
        if *units > 1
            && let Some(unit) = requests.get(at + 1)
        {
            ring.put(at + 1, *unit);
        }
        (self.written, self.last) = (self.head, NOWHERE);
    }

    /// Copies to the device's ring all requests that are not there.
    // There is only one copy of this function, for all callers.
    #[inline(never)]
    fn copy(&mut self) {
        while self.written != self.head {
            let left = self.left();
            let Some(device) = &mut self.device else { break };
            let first = self.written & (self.depth - 1);
            let at = (first * self.units) as usize;
            // Up to the end of the ring.
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
        self.last = NOWHERE;
    }

    /// Number of requests that can still be written to the device's ring before the doorbell must be rung.
    #[inline(always)]
    fn left(&self) -> u32 {
        self.limit.wrapping_sub(self.written)
    }

    /// Announces the requests in the device's ring.
    #[inline(always)]
    fn tell(&mut self) {
        if self.published != self.written {
            self.published = self.written;
            self.limit = self.published.wrapping_add(self.most_at_once);
            if let Some(device) = &self.device {
                device.doorbell.ring(self.published & 0xffff);
            }
        }
    }

    /// Whether a request with these flags can be posted now.
    #[inline(always)]
    fn takes(&self, flags: SendFlags) -> bool {
        flags.difference(SendFlags::INLINE).bits() == self.flags
    }

    #[cold]
    fn refusal(&self, flags: SendFlags) -> Refused {
        if self.flags == NONE {
            Refused::NotReady
        } else if flags.contains(SendFlags::SIGNALED) {
            Refused::Lacks
        } else {
            Refused::Unsignaled
        }
    }

    #[inline(always)]
    fn lane(&self) -> &Lane {
        &self.track.sends
    }

    /// Maximum inline bytes of a request with this operation.
    #[inline(always)]
    fn most_inline(&self, operation: u8) -> usize {
        self.allowed.most_inline(self.units, operation)
    }
}

impl SendRing for Sends {
    const COMPLETES_IN_ORDER: bool = false;
    const SHORT: Short = Short::Everything;
    const HAS_LISTS: bool = true;

    fn slots(&self) -> usize {
        self.depth as usize
    }

    /// The request's index, because requests complete in any order.
    fn next_slot(&self) -> u32 {
        self.numbers.next(&self.track.sends).unwrap_or(0).into()
    }

    #[inline(always)]
    fn one<const LOOKS: bool, const KIND: u8>(&mut self) -> impl Lower {
        Staging::<LOOKS>(self)
    }

    /// Requests are written to the device's ring as they are put, and cannot be discarded.
    #[inline(always)]
    fn short<const KIND: u8>(&mut self, _room: usize) -> Option<impl Lower> {
        self.straight()
    }

    #[inline(always)]
    fn post_list<'r, Q, O: Terms + 'r>(
        &mut self,
        inline: u32,
        requests: &'r [Q],
        read: impl Fn(&'r Q) -> Option<Simple<'r, O>>,
        mut hold: impl FnMut(u32, &'r Q),
    ) -> usize {
        let look = |looking: Looking| {
            requests.iter().all(|request| {
                read(request).is_some_and(|Simple { flags, operation, data, .. }| match data {
                    SimpleData::Piece(piece) => looking.takes_piece(flags, operation, piece),
                    SimpleData::Bytes(bytes) => looking.takes_bytes(flags, operation, bytes),
                })
            })
        };
        self.post_at_once(requests.len(), inline, look, |batch, range| {
            requests[range].iter().all(|request| {
                let is_put = read(request).is_some_and(|Simple { wr_id, operation, data, .. }| match data {
                    SimpleData::Piece(piece) => batch.put_piece(wr_id, operation, piece),
                    SimpleData::Bytes(bytes) => batch.put_bytes(wr_id, operation, bytes),
                });
                if is_put {
                    hold(batch.last_slot(), request);
                }
                is_put
            })
        })
    }

    #[inline(always)]
    fn publish(&mut self) -> Published {
        match self.head.wrapping_sub(self.written) {
            0 => {}
            1 => self.copy_one(),
            _ => self.copy(),
        }
        self.tell();
        Published::Told
    }

    /// None waits in the copy of the ring.
    #[inline(always)]
    fn publish_short(&mut self) -> Published {
        self.tell();
        Published::Told
    }

    /// Requests that are in the device's ring remain, and are announced with the next one.
    fn rewind(&mut self) {
        while self.head != self.written {
            self.head = self.head.wrapping_sub(1);
            let index = self.index_of(self.head);
            self.numbers.give_back(&self.track.sends, index);
        }
        self.last = NOWHERE;
    }

    fn is_idle(&self) -> Option<bool> {
        Some(self.numbers.is_idle(&self.track.sends))
    }

    fn enter(&mut self, state: u8) {
        if state == qp_state::RESET {
            (self.head, self.written, self.published) = (0, 0, 0);
            (self.limit, self.last) = (self.most_at_once, NOWHERE);
            let track = &self.track;
            self.numbers.reset(&track.sends, track.next_generation());
        }
        // `efa_post_send_validate`.
        let is_ready = matches!(state, qp_state::RTS | qp_state::SQD);
        // Every request has a completion.
        self.flags = if is_ready { SendFlags::SIGNALED.bits() } else { NONE };
    }

    /// The hints say what the device should optimize for.
    #[cfg(feature = "raw")]
    fn set_hints(&mut self, hints: u8) -> Result<(), Refused> {
        let Some(slot) = self.last() else { return Err(Refused::NotBegun) };
        set_hints(slot, hints);
        Ok(())
    }

    #[cfg(feature = "raw")]
    fn hand_over(&mut self) -> Option<OwnRing> {
        let Some(device) = &self.device else { return Some(OwnRing::default()) };
        Some(OwnRing {
            address: device.ring.map().address() + device.begin as u64,
            entry_size: self.units * UNIT as u32,
            entries: self.depth,
            doorbell: device.doorbell.address(),
            most_at_once: self.most_at_once,
            ..OwnRing::default()
        })
    }
}

/// The operation of a request. Immediate data is in network byte order.
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

    /// The head of a request with this operation. `round` is its phase bit.
    #[inline(always)]
    fn head(self, number: u16, round: u32, to: To) -> Head {
        let (remote, immediate) = match self {
            Self::Send(immediate) => (None, immediate),
            Self::Read(remote) => (Some(remote), None),
            Self::Write(remote, immediate) => (Some(remote), immediate),
        };
        Head {
            number,
            control: u32::from(
                TX_META_DESC | self.number() | if immediate.is_some() { TX_HAS_IMM } else { 0 },
            ) << 16
                | u32::from(TX_FIRST | TX_LAST | TX_COMP_REQ) << 24
                | round,
            immediate: immediate.map_or(0, u32::from_be),
            to,
            remote,
        }
    }
}

/// Maximum number of pieces of a request with this operation.
#[inline(always)]
fn most_pieces(operation: u8) -> usize {
    if operation == SEND { TX_DESC_NUM_BUFS } else { TX_DESC_NUM_RDMA_BUFS }
}
