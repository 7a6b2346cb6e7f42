//! Receive queues, and pools of receive requests that several queues share.

use super::{CompletionEntry, Opcode, Segment, Syndrome, WorkRing, state};
use crate::bits::{Bits, BitsMut};
use crate::command::Status;
use crate::ifc::context::{rqc, wq};
use crate::mkey::{Access, Mkeys, Reach};
use vpci::{Fault, Memory};

/// Receive requests in a ring: those of one queue, or of a pool.
#[derive(Debug)]
pub(crate) struct ReceiveRing {
    pub(crate) work: WorkRing,
    consumer: u16,
    /// The index of the next request, in a linked ring.
    next: u16,
    /// If there are fewer requests, an event is made; zero for none.
    pub(crate) limit: u16,
    pub(crate) xrc: Option<Xrc>,
}

/// The additional fields of a shared queue of XRC.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Xrc {
    /// The domain: only its queue pairs can use the queue.
    pub(crate) domain: u32,
    /// The completion queue, and the number in completions.
    pub(crate) cqn: u32,
    pub(crate) user_index: u32,
}

impl ReceiveRing {
    pub(crate) fn new(work: WorkRing) -> Self {
        Self { work, consumer: 0, next: 0, limit: 0, xrc: None }
    }

    /// Returns to the beginning of the ring.
    pub(crate) fn reset(&mut self) {
        (self.consumer, self.next) = (0, 0);
    }

    /// Whether there are fewer requests than the limit. This is reported once.
    pub(crate) fn limit_is_reached(&mut self, memory: &Memory) -> bool {
        let left = memory
            .word(self.work.doorbell)
            .map_or(0, |producer| (producer as u16).wrapping_sub(self.consumer));
        let is_reached = left < self.limit;
        if is_reached {
            self.limit = 0;
        }
        is_reached
    }

    /// The next request: its counter, and the memory for the packet.
    ///
    /// # Errors
    /// If the ring or its doorbell is not in the guest's memory.
    pub(crate) fn take(&mut self, memory: &Memory) -> Result<Option<(u16, Vec<Segment>)>, Fault> {
        if memory.word(self.work.doorbell)? as u16 == self.consumer {
            return Ok(None);
        }
        let mut bytes = vec![0; self.work.stride()];
        let index = if self.work.is_linked { self.next } else { self.consumer };
        self.work.read(memory, index, &mut bytes)?;
        let segments = if self.work.is_linked {
            self.next = u16::from_be_bytes([bytes[2], bytes[3]]);
            Segment::list(&bytes[16..])
        } else {
            Segment::list(&bytes)
        };
        self.consumer = self.consumer.wrapping_add(1);
        Ok(Some((index, segments)))
    }
}

/// A packet for the host, and the fields of its completion.
#[derive(Clone, Debug)]
pub(crate) struct Receive<'a> {
    pub(crate) bytes: &'a [u8],
    pub(crate) tag: u32,
    pub(crate) hash: u32,
    /// Headers and checksums, as in bytes 28 and 29 of a completion.
    pub(crate) headers: [u8; 2],
    /// The sum over the IP packet, as in bytes 20 and 21.
    pub(crate) sum: [u8; 2],
}

/// A receive queue.
#[derive(Debug)]
pub(crate) struct Rq {
    pub(crate) context: Vec<u8>,
    pub(crate) cqn: u32,
    /// The pool from which it takes requests, if it has no ring of its own.
    pub(crate) pool: Option<u32>,
    pub(crate) ring: Option<ReceiveRing>,
}

impl Rq {
    /// The queue that CREATE_RQ describes.
    ///
    /// # Errors
    /// The errors of [`WorkRing::new`].
    pub(crate) fn new(context: &[u8]) -> Result<Self, Status> {
        let (ring, pool) = match context.num(rqc::mem_rq_type) {
            0 => (Some(ReceiveRing::new(WorkRing::new(context.rest(rqc::wq))?)), None),
            1 => (None, Some(context.num(rqc::rmpn))),
            _ => return Err(Status::BadParameter),
        };
        let mut context = context.to_vec();
        context.set(rqc::state, state::RESET);
        Ok(Self { cqn: context.num(rqc::cqn), context, pool, ring })
    }

    pub(crate) fn state(&self) -> u32 {
        self.context.num(rqc::state)
    }

    /// The set of counters in which it counts; 0 for none.
    pub(crate) fn counter_set(&self) -> u32 {
        self.context.num(rqc::counter_set_id)
    }

    /// Whether a VLAN tag stays in the packet.
    fn keeps_vlan(&self) -> bool {
        self.context.is(rqc::vsd)
    }

    fn entry(&self, opcode: Opcode, counter: u16) -> CompletionEntry {
        CompletionEntry::new(opcode, self.context.num(rqc::user_index), counter)
    }

    /// Writes a packet to a request's memory, and returns its completion.
    pub(crate) fn fill(
        &self,
        memory: &Memory,
        mkeys: &Mkeys,
        pd: u32,
        (counter, segments): (u16, Vec<Segment>),
        packet: &Receive<'_>,
    ) -> CompletionEntry {
        let vlan = (!self.keeps_vlan()).then(|| stripped(packet.bytes)).flatten();
        let mut bytes = vlan.as_ref().map_or_else(|| packet.bytes.to_vec(), |(_, bytes)| bytes.clone());
        if self.context.is(rqc::scatter_fcs) {
            bytes.extend(crate::packet::fcs(packet.bytes));
        }
        let reach = Reach::raw(pd, self.context.is(rqc::rlky));
        if let Err(syndrome) = scatter(memory, mkeys, reach, &segments, &bytes) {
            return self.entry(Opcode::ResponderError, counter).error(syndrome);
        }
        let mut entry = self.entry(Opcode::Responder, counter);
        entry.word(12, packet.hash);
        entry.bytes[20..22].copy_from_slice(&packet.sum);
        entry.bytes[28..30].copy_from_slice(&packet.headers);
        if let Some((tag, _)) = vlan {
            entry.bytes[29] |= 1;
            entry.bytes[30..32].copy_from_slice(&tag);
        }
        entry.word(44, bytes.len() as u32);
        entry.word(56, packet.tag & 0xff_ffff);
        entry
    }

    /// A request that is flushed because the queue is.
    pub(crate) fn flushed(&self, counter: u16) -> CompletionEntry {
        self.entry(Opcode::ResponderError, counter).error(Syndrome::Flushed)
    }

    /// Changes the state. A queue that is reset returns to the beginning of its ring.
    pub(crate) fn set_state(&mut self, state: u32) {
        self.context.set(rqc::state, state);
        if let Some(ring) = self.ring.as_mut().filter(|_| state == state::RESET) {
            ring.reset();
        }
    }

    /// The context as a query shows it.
    pub(crate) fn shown(&self) -> Vec<u8> {
        let mut context = self.context.clone();
        if let Some(ring) = &self.ring {
            context.part_mut(rqc::wq).set(wq::hw_counter, ring.consumer);
        }
        context
    }
}

/// The tag of a packet's first VLAN, and the packet without it.
fn stripped(bytes: &[u8]) -> Option<([u8; 2], Vec<u8>)> {
    let (addresses, rest) = bytes.split_at_checked(12)?;
    let ([0x81, 0x00, a, b], rest) = rest.split_first_chunk()? else { return None };
    Some(([*a, *b], [addresses, rest].concat()))
}

/// Writes bytes to the memory of a request.
fn scatter(
    memory: &Memory,
    mkeys: &Mkeys,
    reach: Reach,
    segments: &[Segment],
    bytes: &[u8],
) -> Result<(), Syndrome> {
    let mut left = bytes;
    for segment in segments {
        let (part, rest) = left.split_at(left.len().min(segment.len as usize));
        mkeys.write(memory, reach, *segment, part, Access::LocalWrite).map_err(|_| Syndrome::Protection)?;
        left = rest;
    }
    if left.is_empty() { Ok(()) } else { Err(Syndrome::Length) }
}
