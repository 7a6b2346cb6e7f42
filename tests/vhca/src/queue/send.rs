//! Send queues.

use super::{CompletionEntry, Opcode, Segment, Syndrome, WorkRing, state};
use crate::bits::{Bits, BitsMut};
use crate::command::Status;
use crate::ifc::context::{sqc, wq};
use crate::mkey::{Access, Mkeys, Reach};
use crate::packet::Large;
use vpci::{Fault, Memory};

const OPCODE_NOP: u8 = 0x00;
const OPCODE_SEND: u8 = 0x0a;
const OPCODE_LARGE_SEND: u8 = 0x0e;

/// The longest packet that the device sends.
const LONGEST: usize = 9978 + 22;

/// A send queue.
#[derive(Debug)]
pub(crate) struct Sq {
    pub(crate) context: Vec<u8>,
    pub(crate) cqn: u32,
    ring: WorkRing,
    consumer: u16,
}

/// A packet to send, and the offloads for it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Send {
    pub(crate) bytes: Vec<u8>,
    /// How it is segmented, if it becomes several frames.
    pub(crate) large: Option<Large>,
    pub(crate) l3_checksum: bool,
    pub(crate) l4_checksum: bool,
}

/// A work request that was taken from the queue.
#[derive(Debug)]
pub(crate) struct Work {
    pub(crate) result: Result<Option<Send>, Syndrome>,
    counter: u16,
    opcode: u8,
    wants_completion: bool,
}

impl Sq {
    /// The queue that CREATE_SQ describes.
    ///
    /// # Errors
    /// The errors of [`WorkRing::new`].
    pub(crate) fn new(context: &[u8]) -> Result<Self, Status> {
        let ring = WorkRing::new(context.rest(sqc::wq))?;
        if ring.stride() != 64 {
            return Err(Status::BadParameter);
        }
        let mut context = context.to_vec();
        context.set(sqc::state, state::RESET);
        Ok(Self { cqn: context.num(sqc::cqn), context, ring, consumer: 0 })
    }

    pub(crate) fn state(&self) -> u32 {
        self.context.num(sqc::state)
    }

    pub(crate) fn set_state(&mut self, state: u32) {
        self.context.set(sqc::state, state);
        if state == state::RESET {
            self.consumer = 0;
        }
    }

    /// Takes the next work request, if the doorbell announces one. A large send has at most `most_large` bytes of payload.
    ///
    /// # Errors
    /// If the ring or its doorbell is not in the guest's memory.
    pub(crate) fn take(
        &mut self,
        memory: &Memory,
        mkeys: &Mkeys,
        most_large: usize,
    ) -> Result<Option<Work>, Fault> {
        // The second word of the doorbell record belongs to the sender.
        let producer = memory.word(self.ring.doorbell.wrapping_add(4))? as u16;
        let counter = self.consumer;
        let left = producer.wrapping_sub(counter);
        if left == 0 {
            return Ok(None);
        }
        let mut control = [0; 16];
        self.ring.read(memory, counter, &mut control)?;
        let sixteenths = usize::from(control[7] & 0x3f);
        let mut bytes = vec![0; sixteenths * 16];
        self.ring.read(memory, counter, &mut bytes)?;
        let blocks = sixteenths.div_ceil(4).max(1) as u16;
        // If a request extends beyond what the doorbell announced, the queue stops there.
        self.consumer = counter.wrapping_add(blocks.min(left));
        let opcode = control[3];
        let result = match opcode {
            _ if self.state() == state::ERROR => Err(Syndrome::Flushed),
            _ if blocks > left => Err(Syndrome::Operation),
            OPCODE_NOP => Ok(None),
            OPCODE_SEND | OPCODE_LARGE_SEND => {
                let most_large = (opcode == OPCODE_LARGE_SEND).then_some(most_large);
                let request = bytes.get(16..).unwrap_or_default();
                let reach = Reach::raw(self.ring.pd, self.context.is(sqc::rlky));
                gather(memory, mkeys, reach, request, most_large).map(Some)
            }
            _ => Err(Syndrome::Operation),
        };
        // Two bits: with 2 and 3 there is always a completion, with 0 and 1 only after an error.
        let wants_completion = control[11] & 0x08 != 0 || result.is_err();
        Ok(Some(Work { result, counter, opcode, wants_completion }))
    }

    /// The completion of a work request, if it has one.
    pub(crate) fn completion(&self, number: u32, work: &Work) -> Option<CompletionEntry> {
        let user_index = self.context.num(sqc::user_index);
        let mut entry = match work.result {
            Ok(_) => CompletionEntry::new(Opcode::Requester, user_index, work.counter),
            Err(syndrome) => {
                CompletionEntry::new(Opcode::RequesterError, user_index, work.counter).error(syndrome)
            }
        };
        entry.word(56, u32::from(work.opcode) << 24 | number);
        work.wants_completion.then_some(entry)
    }

    /// The context as a query shows it.
    pub(crate) fn shown(&self) -> Vec<u8> {
        let mut context = self.context.clone();
        context.part_mut(sqc::wq).set(wq::hw_counter, self.consumer);
        context
    }
}

/// The packet of a work request, after its control segment: an Ethernet segment, with the first headers or a VLAN tag in it, and memory.
/// `most_large` is given for a large send.
fn gather(
    memory: &Memory,
    mkeys: &Mkeys,
    reach: Reach,
    request: &[u8],
    most_large: Option<usize>,
) -> Result<Send, Syndrome> {
    let (ethernet, mut rest) = request.split_at_checked(16).ok_or(Syndrome::Operation)?;
    let word = u16::from_be_bytes([ethernet[12], ethernet[13]]);
    let mut bytes = Vec::new();
    let mut vlan = None;
    if word & 0x8000 != 0 {
        vlan = Some([ethernet[14], ethernet[15]]);
    } else if word > 0 {
        // Two of the bytes are in the segment, the others in as many further units as they need.
        let len = usize::from(word);
        let behind = len.saturating_sub(2);
        let header = rest.get(..behind).ok_or(Syndrome::Operation)?;
        bytes.extend(&ethernet[14..14 + len.min(2)]);
        bytes.extend(header);
        rest = rest.get(behind.next_multiple_of(16)..).unwrap_or_default();
    }
    let header = bytes.len();
    let mss = usize::from(u16::from_be_bytes([ethernet[6], ethernet[7]]));
    let large = most_large.map(|_| Large { header, mss });
    if large.is_some_and(|large| large.header < 14 || large.mss == 0 || header + mss > LONGEST) {
        return Err(Syndrome::Operation);
    }
    let longest = most_large.map_or(LONGEST, |most| header + most);
    while let Some((segment, behind)) = rest.split_first_chunk() {
        let segment = Segment::parse(segment);
        if segment.len & 0x8000_0000 != 0 {
            let len = (segment.len & 0x3ff) as usize;
            bytes.extend(rest.get(4..4 + len).ok_or(Syndrome::Operation)?);
            rest = rest.get((4 + len).next_multiple_of(16)..).unwrap_or_default();
            continue;
        }
        if bytes.len() + segment.len as usize > longest {
            return Err(Syndrome::Length);
        }
        let from = bytes.len();
        bytes.resize(from + segment.len as usize, 0);
        mkeys
            .read(memory, reach, segment, &mut bytes[from..], Access::LocalRead)
            .map_err(|_| Syndrome::Protection)?;
        rest = behind;
    }
    if bytes.len() < 14 {
        return Err(Syndrome::Operation);
    }
    if let Some([a, b]) = vlan {
        bytes.splice(12..12, [0x81, 0x00, a, b]);
    }
    let [l3_checksum, l4_checksum] = [0x40, 0x80].map(|bit| ethernet[4] & bit != 0);
    Ok(Send { bytes, large, l3_checksum, l4_checksum })
}
