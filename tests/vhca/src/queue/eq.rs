//! Event queues.

use super::Pages;
use crate::bits::{Bits, BitsMut};
use crate::command::Status;
use crate::ifc::command::create_eq_in;
use crate::ifc::context::eqc;
use vpci::{Fault, Memory};

/// Bytes of an entry.
const ENTRY: usize = 64;

/// Kinds of events, by the numbers of `MLX5_EVENT_TYPE_*` in the kernel's `include/linux/mlx5/device.h`.
pub(crate) mod event {
    pub(crate) const COMPLETION: u8 = 0x00;
    pub(crate) const CQ_ERROR: u8 = 0x04;
    /// The peer has requested an operation that is not allowed or is malformed.
    pub(crate) const QP_REQUEST_ERROR: u8 = 0x10;
    pub(crate) const QP_ACCESS_ERROR: u8 = 0x11;
    /// A queue pair in the error state takes no more requests from its shared queue.
    pub(crate) const LAST_REQUEST: u8 = 0x13;
    pub(crate) const SHARED_LIMIT: u8 = 0x14;
    pub(crate) const PORT_CHANGE: u8 = 0x09;
    pub(crate) const COMMAND: u8 = 0x0a;
}

/// An event queue.
#[derive(Debug)]
pub(crate) struct Eq {
    pub(crate) context: Vec<u8>,
    pages: Pages,
    log_size: u32,
    pub(crate) vector: u32,
    /// One bit for each kind of event that it gets.
    events: Vec<u8>,
    producer: u32,
}

impl Eq {
    /// The queue that CREATE_EQ describes.
    ///
    /// # Errors
    /// `BadParameter` for a queue that is too large, and the errors of [`Pages::new`].
    pub(crate) fn new(input: &[u8]) -> Result<Self, Status> {
        let context = input.part(create_eq_in::eq_context_entry);
        let log_size = context.num(eqc::log_eq_size);
        if log_size > 22 {
            return Err(Status::BadParameter);
        }
        let pages = Pages::new(
            input.part(create_eq_in::pas),
            context.num(eqc::log_page_size),
            context.num(eqc::page_offset),
            (ENTRY as u64) << log_size,
        )?;
        let events = input.part(create_eq_in::event_bitmask).to_vec();
        let vector = context.num(eqc::intr);
        Ok(Self { context: context.to_vec(), pages, log_size, vector, events, producer: 0 })
    }

    /// Whether events of a kind go to this queue. The mask is four 64-bit numbers, the lowest kinds in the first.
    pub(crate) fn gets(&self, kind: u8) -> bool {
        let (words, _) = self.events.as_chunks::<8>();
        let word = words.get(usize::from(kind / 64)).copied().unwrap_or_default();
        u64::from_be_bytes(word) >> (kind % 64) & 1 == 1
    }

    /// Writes an event with 28 bytes of data. Its last bit changes with each round through the queue.
    ///
    /// # Errors
    /// If the queue is not in the guest's memory.
    pub(crate) fn post(&mut self, memory: &Memory, kind: u8, subkind: u8, data: &[u8]) -> Result<(), Fault> {
        let mut entry = [0; ENTRY];
        entry[1] = kind;
        entry[3] = subkind;
        let len = data.len().min(28);
        entry[32..32 + len].copy_from_slice(&data[..len]);
        let index = self.producer & ((1 << self.log_size) - 1);
        entry[63] = (self.producer >> self.log_size) as u8 & 1;
        self.pages.publish(memory, u64::from(index) * ENTRY as u64, &entry)?;
        self.producer = self.producer.wrapping_add(1);
        self.context.set(eqc::producer_counter, self.producer & 0xff_ffff);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use vpci::Memory;

    #[test]
    fn the_owner_bit_turns_with_each_round() {
        let memory = Memory::zeroed(&[(0x1000, 4096)]);
        let mut input = vec![0; 272 + 8];
        input.part_mut(create_eq_in::eq_context_entry).set(eqc::log_eq_size, 1_u32);
        input
            .part_mut(create_eq_in::event_bitmask)
            .set(crate::bits::Field::new(0, 64), 1_u64 << event::COMMAND);
        input.part_mut(create_eq_in::pas).copy_from_slice(&0x1000_u64.to_be_bytes());
        let mut eq = Eq::new(&input).unwrap();
        assert!(eq.gets(event::COMMAND) && !eq.gets(event::PORT_CHANGE) && !eq.gets(0x80));
        let mut owners = Vec::new();
        for i in 0..4_u32 {
            eq.post(&memory, event::COMMAND, 0, &i.to_be_bytes()).unwrap();
            let mut entry = [0; 64];
            memory.read(0x1000 + u64::from(i % 2) * 64, &mut entry).unwrap();
            assert_eq!((entry[1], entry[35]), (event::COMMAND, i as u8));
            owners.push(entry[63]);
        }
        assert_eq!(owners, [0, 0, 1, 1]);
    }
}
