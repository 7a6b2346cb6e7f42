//! Completion queues.

use crate::bytes::{Bytes as _, BytesMut as _};
use crate::command::Refusal;
use crate::device::Device;
use crate::memory::{Pages, Ring, SLOT};

// The doorbell: bits of `ERDMA_CQDB_*`.
pub(crate) const ARM: u64 = 1 << 31;
const SOLICITED: u64 = 1 << 30;
const POSITION: u32 = 0xff_ffff;

/// The queue of a completion.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Queue {
    Send = 0,
    Receive = 1,
    Command = 2,
}

/// A completion, without the bit of its round.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Entry {
    pub(crate) opcode: u8,
    pub(crate) queue: Queue,
    pub(crate) syndrome: u8,
    /// The number of the slot.
    pub(crate) slot: u32,
    /// The words after it.
    pub(crate) words: [u32; 4],
    /// Announced also to those who wait for solicited messages.
    pub(crate) is_solicited: bool,
    /// The last word: the sender of a datagram.
    pub(crate) info: u32,
}

impl Entry {
    pub(crate) fn to_bytes(self, owner: bool) -> [u8; SLOT as usize] {
        let mut bytes = [0; SLOT as usize];
        let head = u32::from(owner) << 31
            | u32::from(self.opcode) << 16
            | (self.queue as u32) << 8
            | u32::from(self.syndrome);
        bytes.put(0, &head.to_be_bytes());
        bytes.put(4, &self.slot.to_be_bytes());
        for (at, word) in (8..).step_by(4).zip(self.words) {
            bytes.put(at, &word.to_be_bytes());
        }
        bytes.put(28, &self.info.to_be_bytes());
        bytes
    }
}

/// What the program waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Waits {
    No,
    ForAny,
    ForSolicited,
}

/// A completion queue.
#[derive(Debug)]
pub(crate) struct Cq {
    ring: Ring,
    eq: u8,
    produced: u32,
    waits: Waits,
    /// The number after the last solicited completion.
    solicited: u32,
    /// The page of doorbells of its process, if it has one.
    pub(crate) page: Option<u16>,
    pub(crate) users: u32,
    events: u32,
}

impl Cq {
    fn new(command: &[u8], device: &Device) -> Result<Self, Refusal> {
        let (cfg0, cfg1) = (command.u32(8), command.u32(20));
        let address = u64::from(command.u32(12)) | u64::from(command.u32(16)) << 32;
        let (log, shift) = (cfg0 >> 24, (cfg0 >> 20 & 0xf) as u8 + 12);
        let list = match cfg1 >> 15 & 1 {
            0 => vec![address],
            _ => Pages::table(&device.memory, address, (cfg1 >> 16).into()).ok_or(Refusal::Invalid)?,
        };
        let ring = Ring::new(Pages::new(shift, command.u32(32).into(), list), log).ok_or(Refusal::Invalid)?;
        let eq = cfg1 & 0x3ff;
        let page = (cfg1 >> 11 & 1 == 1).then_some(command.u32(36) as u16);
        let known = u8::try_from(eq).ok().filter(|eq| device.eqs.contains_key(eq) && *eq > 0);
        Ok(Self {
            ring,
            eq: known.ok_or(Refusal::Unknown)?,
            produced: 0,
            waits: Waits::No,
            solicited: 0,
            page,
            users: 0,
            events: 0,
        })
    }

    fn position(number: u32) -> u32 {
        number & POSITION
    }
}

impl Device {
    pub(crate) fn create_cq(&mut self, command: &[u8]) -> Result<(), Refusal> {
        let number = command.u32(8) & 0xf_ffff;
        let cq = Cq::new(command, self)?;
        if cq.page.is_some_and(|page| !self.pages.contains_key(&page)) {
            return Err(Refusal::Unknown);
        }
        if self.cqs.contains_key(&number) {
            return Err(Refusal::InUse);
        }
        self.cqs.insert(number, cq);
        Ok(())
    }

    pub(crate) fn destroy_cq(&mut self, command: &[u8]) -> Result<(), Refusal> {
        let number = command.u32(8);
        match self.cqs.get(&number) {
            None => Err(Refusal::Unknown),
            Some(cq) if cq.users > 0 => Err(Refusal::InUse),
            Some(_) => {
                self.cqs.remove(&number);
                Ok(())
            }
        }
    }

    /// Writes a completion, and announces it if the program waits for it.
    pub(crate) fn complete(&mut self, number: u32, entry: Entry) {
        let Some(cq) = self.cqs.get_mut(&number) else { return };
        let bytes = entry.to_bytes(cq.ring.owner(cq.produced));
        let written = cq.ring.publish(&self.memory, cq.produced, &bytes);
        cq.produced = cq.produced.wrapping_add(1);
        // A failure is always announced.
        let is_solicited = entry.is_solicited || entry.syndrome != 0;
        if is_solicited {
            cq.solicited = cq.produced;
        }
        let wanted = match cq.waits {
            Waits::No => false,
            Waits::ForAny => true,
            Waits::ForSolicited => is_solicited,
        };
        if wanted {
            self.announce(number);
        }
        if let Err(fault) = written {
            self.complain(fault.to_string());
        }
    }

    fn announce(&mut self, number: u32) {
        let Some(cq) = self.cqs.get_mut(&number) else { return };
        (cq.waits, cq.events) = (Waits::No, cq.events.wrapping_add(1));
        let eq = cq.eq;
        self.event(eq, [number, 0, 0]);
    }

    /// The doorbell of a completion queue asks for an event, from the program's position on.
    pub(crate) fn ring_cq(&mut self, doorbell: u64, page: Option<u16>) {
        let number = (doorbell >> 32) as u32 & 0xff_ffff;
        let Some(cq) = self.cqs.get_mut(&number).filter(|cq| cq.page == page) else {
            return self.complain(format!("a doorbell for completion queue {number}, which is not there"));
        };
        if doorbell & ARM == 0 {
            return self.complain(format!("a doorbell of completion queue {number} that asks for nothing"));
        }
        let seen = doorbell as u32 & POSITION;
        // How much was seen may not be more than there is.
        if Cq::position(cq.produced.wrapping_sub(seen)) > cq.ring.depth() {
            return self.complain(format!("completion queue {number} has not {seen} entries"));
        }
        let only_solicited = doorbell & SOLICITED != 0;
        cq.waits = if only_solicited { Waits::ForSolicited } else { Waits::ForAny };
        let last = if only_solicited { cq.solicited } else { cq.produced };
        let unseen = Cq::position(last.wrapping_sub(seen));
        if (1..=cq.ring.depth()).contains(&unseen) {
            self.announce(number);
        }
    }
}
