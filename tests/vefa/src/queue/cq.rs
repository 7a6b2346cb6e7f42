//! Completion queues: several rings of equal size, one after the other.

use vpci::{Fault, Memory};

use super::Operation;
use crate::bytes::{Bytes as _, BytesMut as _};
use crate::fabric::Gid;

/// Size in bytes of the larger of two sizes of entries; the smaller one has the first half.
const ENTRY: usize = 32;

/// A completion (`efa_io_tx_cdesc`, `efa_io_rx_cdesc_ex`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Completion {
    Send {
        /// The upper bits are used if queue pair and queue have ids of 64 bits.
        id: u64,
        status: u8,
        operation: Operation,
        qp: u16,
    },
    Receive {
        id: u16,
        status: u8,
        operation: Operation,
        qp: u16,
        length: u32,
        /// The number of the sender's address, if the domain has it, and the address itself.
        address: Option<u16>,
        source: Gid,
        source_qp: u16,
        immediate: Option<u32>,
        is_unsolicited: bool,
    },
}

/// The effect of a completion.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Posted {
    Silently,
    Event,
}

/// A completion queue.
#[derive(Debug)]
pub(crate) struct Cq {
    /// The event queue that gets an event for a completion when this is armed.
    pub(crate) eq: Option<u16>,
    base: u64,
    depth: u16,
    entry: usize,
    /// A completion contains the sender's address if the domain does not have it.
    has_source: bool,
    has_wide_ids: bool,
    /// Number of completions in each ring, modulo two rounds.
    produced: Vec<u32>,
    /// Number of all completions.
    total: u16,
    is_armed: bool,
    /// Number of events.
    events: u8,
}

impl Cq {
    /// The queue that CREATE_CQ describes; `None` if it is malformed.
    pub(crate) fn new(payload: &[u8], sub_cqs: u16) -> Option<Self> {
        let (caps, shape, depth) = (payload.u8(0), payload.u8(1), payload.u16(2));
        let entry = usize::from(shape & 0x1f) * 4;
        let has_source = shape & 1 << 5 != 0;
        let is_good = depth.is_power_of_two()
            && matches!(entry, 16 | ENTRY)
            && (!has_source || entry == ENTRY)
            // No known driver uses rings at virtual addresses.
            && caps & 1 << 6 == 0
            && sub_cqs > 0
            && payload.u16(20) == sub_cqs;
        is_good.then(|| Self {
            eq: (caps & 1 << 5 != 0).then(|| payload.u16(4)),
            base: payload.u64(8),
            depth,
            entry,
            has_source,
            has_wide_ids: shape & 1 << 6 != 0,
            produced: vec![0; sub_cqs.into()],
            total: 0,
            is_armed: false,
            events: 0,
        })
    }

    pub(crate) fn has_wide_ids(&self) -> bool {
        self.has_wide_ids
    }

    /// Writes a completion into one of the rings.
    pub(crate) fn post(
        &mut self,
        memory: &Memory,
        ring: u16,
        completion: Completion,
    ) -> Result<Posted, Fault> {
        let depth = u32::from(self.depth);
        let Some(produced) = self.produced.get_mut(usize::from(ring)) else { return Ok(Posted::Silently) };
        let (slot, lap) = (*produced % depth, *produced / depth);
        *produced = (*produced + 1) % (2 * depth);
        let mut entry = completion.bytes(self.has_source, self.has_wide_ids);
        entry[3] |= (lap + 1) as u8 & 1;
        let at = u64::from(u32::from(ring) * depth + slot) * self.entry as u64;
        memory.publish_word(self.base.wrapping_add(at), &entry[..self.entry], 0)?;
        self.total = self.total.wrapping_add(1);
        Ok(self.fire())
    }

    fn fire(&mut self) -> Posted {
        if !std::mem::take(&mut self.is_armed) {
            return Posted::Silently;
        }
        self.events = (self.events + 1) & 3;
        Posted::Event
    }

    /// The doorbell: the number of completions that were taken, the number of events, and whether the queue is armed. An event that was
    /// not taken yet replaces further ones.
    pub(crate) fn ring(&mut self, doorbell: u32) -> Posted {
        let (consumed, events, arms) = (doorbell as u16, (doorbell >> 29 & 3) as u8, doorbell >> 31 == 1);
        if !arms || self.eq.is_none() || events != self.events {
            return Posted::Silently;
        }
        self.is_armed = true;
        // Completions that have arrived since then make an event immediately.
        if self.total == consumed { Posted::Silently } else { self.fire() }
    }
}

impl Completion {
    fn bytes(self, has_source: bool, has_wide_ids: bool) -> [u8; ENTRY] {
        let mut entry = [0; ENTRY];
        match self {
            Self::Send { id, status, operation, qp } => {
                entry.put_u16(0, id as u16);
                entry.put(2, &[status, 1 << 1 | (operation as u8) << 4]);
                entry.put_u16(4, qp);
                if has_wide_ids {
                    entry.put(6, &id.to_le_bytes()[2..]);
                }
            }
            Self::Receive {
                id,
                status,
                operation,
                qp,
                length,
                address,
                source,
                source_qp,
                immediate,
                is_unsolicited,
            } => {
                let flags = 2 << 1
                    | u8::from(immediate.is_some()) << 3
                    | (operation as u8) << 4
                    | u8::from(is_unsolicited) << 7;
                entry.put_u16(0, id);
                entry.put(2, &[status, flags]);
                entry.put_u16(4, qp);
                entry.put_u16(6, length as u16);
                entry.put_u16(8, address.unwrap_or(u16::MAX));
                entry.put_u16(10, source_qp);
                entry.put_u32(12, immediate.unwrap_or(0));
                if operation == Operation::Write {
                    entry.put_u16(16, (length >> 16) as u16);
                } else if has_source && address.is_none() {
                    entry.put(16, &source.0);
                }
            }
        }
        entry
    }
}
